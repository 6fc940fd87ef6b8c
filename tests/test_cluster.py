"""A real cluster on this machine: the rows are those of one machine, and still are when a worker is killed in the middle."""

import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from polars.testing import assert_frame_equal
from py4j.protocol import Py4JError
from pyspark import SparkContext

from pipeline import artefacts, formats
from pipeline.artefacts import COUNTS, REJECTS
from pipeline.engines import polars
from pipeline.filter import Filter
from pipeline.stages.count import count_here
from tests.conftest import Pbm, kdd, spark_here

pytestmark = pytest.mark.long

KDD = formats.load("kdd2012")
SECONDS = 120  # until a cluster of three processes must have answered


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def eventually(what: str, condition: Callable[[], Any]) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, f"waited {SECONDS} s for {what}"
        time.sleep(0.1)


class Standalone:
    """A master and its workers, processes of pyspark's own package on loopback."""

    def __init__(self, folder: Path) -> None:
        import pyspark

        self.home, self.folder = Path(pyspark.__file__).parent, folder
        self.port, self.page = free_port(), free_port()
        self.url = f"spark://127.0.0.1:{self.port}"
        self.workers: list[subprocess.Popen[bytes]] = []
        self.master = self.started("master.Master", "--port", self.port, "--webui-port", self.page)

    def started(self, name: str, *arguments: object) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [self.home / "bin" / "spark-class", f"org.apache.spark.deploy.{name}", "--host", "127.0.0.1", *map(str, arguments)],
            env={**os.environ, "SPARK_HOME": str(self.home), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_NO_DAEMONIZE": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # so that it can be killed with the executors that it starts
        )

    def state(self) -> dict[str, Any]:
        try:
            with urlopen(f"http://127.0.0.1:{self.page}/json/", timeout=5) as answer:
                return dict(json.load(answer))
        except OSError:
            return {}

    def add_workers(self, n: int) -> None:
        arguments = ("--cores", 1, "--memory", "1g", "--work-dir", self.folder, "--webui-port", 0, self.url)
        eventually("the master", self.state)
        self.workers += [self.started("worker.Worker", *arguments) for _ in range(n)]
        eventually("the workers", lambda: self.state().get("aliveworkers") == len(self.workers))

    def kill_a_worker(self) -> None:
        kill(self.workers.pop())

    def stop(self) -> None:
        for process in (*self.workers, self.master):
            kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    """With everything that it has started."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """A master and two workers of one core each."""
    spark_here("local")  # or skipped
    started = Standalone(tmp_path_factory.mktemp("cluster"))
    try:
        started.add_workers(2)
        yield started
    finally:
        started.stop()


SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.ui.enabled": "false",
    "spark.sql.files.maxPartitionBytes": "1m",  # some 25 tasks in each pass
}


ON_LOOPBACK = [option for key, value in SETTINGS.items() for option in ("--spark-conf", f"{key}={value}")]


@contextmanager
def killing(standalone: Standalone, after: int) -> Iterator[None]:
    """Kill a worker when so many tasks of a stage are done and both workers have an executor; afterwards a new one comes."""
    over = threading.Event()
    killed: list[bool] = []

    def ready() -> bool:
        context: Any = SparkContext._active_spark_context
        tracker = context.statusTracker()
        executors = len(context._jsc.sc().statusTracker().getExecutorInfos()) - 1  # the driver is none
        done = [stage.numCompletedTasks for stage in map(tracker.getStageInfo, tracker.getActiveStageIds()) if stage]
        return executors == 2 and max(done, default=0) >= after

    def watch() -> None:
        while not over.wait(0.05):
            with suppress(AttributeError, Py4JError):  # no context yet, or one that starts or ends just now
                if ready():
                    killed.append(True)
                    standalone.kill_a_worker()
                    return

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
    assert killed, "the work was done before a worker could be killed"
    eventually("the loss to be noticed", lambda: standalone.state().get("aliveworkers") == 1)
    standalone.add_workers(1)


WANTED = Filter(min_displays=60, min_ads=4)  # so that a part of the log leaves something


@pytest.fixture(scope="module")
def counted_here(default_workspace: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A tenth of the default log with some bad lines, and the workspace in which this machine has counted it."""
    folder = tmp_path_factory.mktemp("counted")
    with (default_workspace / "raw" / "training.txt").open("rb") as file:
        lines = file.readlines(27_000_000)
    lines[200_000:200_000] = [b"rubbish\n", b"\n"]
    (folder / "log.txt").write_bytes(b"".join(lines) + kdd(1, 1, 3, depth=2))
    assert count_here(folder / "log.txt", folder, KDD, polars.count, WANTED, 10).kept > 100_000
    return folder / "log.txt", folder


def test_a_count_outlives_a_killed_worker(
    standalone: Standalone, counted_here: tuple[Path, Path], tmp_path: Path, pbm: Pbm
) -> None:
    log, here = counted_here
    wanted = ("--min-displays", WANTED.min_displays, "--min-ads", WANTED.min_ads)
    with killing(standalone, after=3):
        there = ("--engine", "spark", "--spark-master", standalone.url, *ON_LOOPBACK)
        outcome = pbm("count", log, "-w", tmp_path, *wanted, *there, "--json")
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out)["queries"] == artefacts.read(COUNTS, here)["query_id"].n_unique()
    assert outcome.err == (
        f"pbm: note: {log} does not end with a newline; if its last line was cut inside its last field, no check can tell\n"
        f"pbm: note: bad lines are set aside in {tmp_path}/rejects.parquet; up to 1,000 are tolerated (--max-bad-lines)\n"
    )
    for artefact in (COUNTS, REJECTS):
        assert_frame_equal(artefacts.read(artefact, tmp_path), artefacts.read(artefact, here))


def test_simulated_runs_outlive_a_killed_worker(standalone: Standalone, tmp_path: Path, pbm: Pbm) -> None:
    command = ("simulate", "--experiment", "synthetic", "--policies", "pbm-ts", "--runs", 4000, "--horizon", 3000)
    with killing(standalone, after=2):
        there = ("--engine", "spark", "--spark-master", standalone.url, *ON_LOOPBACK)
        outcome = pbm(*command, "-w", tmp_path / "there", *there)
    assert outcome.code == 0, outcome.err
    assert pbm(*command, "-w", tmp_path / "here").code == 0
    for folder in ("simulations", "regret", "displays", "bounds"):
        name = f"{folder}/synthetic.parquet"
        assert (tmp_path / "there" / name).read_bytes() == (tmp_path / "here" / name).read_bytes(), name
