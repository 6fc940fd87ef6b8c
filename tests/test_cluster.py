"""A real cluster on this machine: the rows are those of one machine, and still are when a worker is killed in the middle."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from bandits.simulate import Played
from pipeline import artefacts, formats, published
from pipeline.artefacts import COUNTS, REJECTS
from pipeline.cluster import session
from pipeline.engines import polars
from pipeline.experiments import EXPERIMENTS
from pipeline.filter import Filter
from pipeline.stages import simulate as stage
from pipeline.stages.count import count_here, count_on_spark
from pipeline.stages.parts import Game
from tests.conftest import Pbm, kdd, spark_here

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


@contextmanager
def on(standalone: Standalone, **settings: str) -> Iterator[Any]:
    wanted = {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m", "spark.ui.enabled": "false", **settings}
    with session(spark_here(standalone.url, **wanted)) as spark:
        yield spark


@contextmanager
def killing(standalone: Standalone, spark: Any, after: int) -> Iterator[None]:
    """Kill a worker when so many tasks are done, while the block still works; both workers are there, and busy."""
    context, over = spark.sparkContext, threading.Event()
    killed: list[int] = []

    def watch() -> None:
        tracker = context.statusTracker()
        while not over.wait(0.02):
            done = [tracker.getStageInfo(number).numCompletedTasks for number in tracker.getActiveStageIds()]
            executors = context._jsc.sc().statusTracker().getExecutorInfos()
            if done and max(done) >= after and len(executors) == 3:  # with the driver
                killed.append(max(done))
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
    assert standalone.state()["aliveworkers"] == 1
    standalone.add_workers(1)


@pytest.fixture(scope="module")
def counted_here(default_workspace: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The default log with some bad lines, and the workspace in which this machine has counted it."""
    folder = tmp_path_factory.mktemp("counted")
    content = (default_workspace / "raw" / "training.txt").read_bytes()
    half = content.index(b"\n", len(content) // 2) + 1
    (folder / "log.txt").write_bytes(content[:half] + b"rubbish\n\n" + content[half:] + kdd(1, 1, 3, depth=2))
    count_here(folder / "log.txt", folder, KDD, polars.count, Filter(), 10)
    return folder / "log.txt", folder


def assert_same_rows(one: Path, other: Path) -> None:
    for artefact in (COUNTS, REJECTS):
        assert_frame_equal(artefacts.read(artefact, one), artefacts.read(artefact, other))


def test_the_command_counts_on_a_cluster(standalone: Standalone, counted_here: tuple[Path, Path], tmp_path: Path) -> None:
    log, here = counted_here
    options = ["--engine", "spark", "--spark-master", standalone.url, "--spark-conf", "spark.executor.memory=512m"]
    command: list[str | Path] = [Path(sys.executable).parent / "pbm", "count", log, "-w", tmp_path, "--json", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"})
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["queries"] == 8
    assert done.stderr == (
        f"pbm: note: {log} does not end with a newline; if its last line was cut inside its last field, no check can tell\n"
        f"pbm: note: bad lines are set aside in {tmp_path}/rejects.parquet; up to 1,000 are tolerated (--max-bad-lines)\n"
    )
    assert_same_rows(tmp_path, here)


@pytest.mark.parametrize("after", [3, 60])  # of 70 tasks in each pass
def test_a_count_outlives_a_killed_worker(
    standalone: Standalone, counted_here: tuple[Path, Path], after: int, tmp_path: Path
) -> None:
    log, here = counted_here
    with on(standalone, **{"spark.sql.files.maxPartitionBytes": "4m"}) as spark, killing(standalone, spark, after):
        count_on_spark(str(log), tmp_path, KDD, spark, Filter(), 10)
    assert_same_rows(tmp_path, here)


def game(runs: int, tmp_path: Path) -> Game:
    return stage.game_of(EXPERIMENTS["synthetic"], tmp_path, runs, 3000, 5, None)


def assert_same_runs(one: Played, other: Played) -> None:
    assert one.regret.tobytes() == other.regret.tobytes()
    assert [shown.tobytes() for shown in one.displays] == [shown.tobytes() for shown in other.displays]


def test_simulated_runs_outlive_a_killed_worker(standalone: Standalone, tmp_path: Path) -> None:
    played, (player,) = game(4000, tmp_path), stage.players("pbm-ts")
    with on(standalone) as spark, killing(standalone, spark, 2):
        found, _ = stage.play_on_spark(spark, played, player)
    assert_same_runs(found, stage.play_here(2, played, player)[0])


def test_rows_do_not_depend_on_where_or_in_how_many_shards_runs_are_played(
    tmp_path: Path, pbm: Pbm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All policies on the published models, by the command; then one with fewer and more shards than runs."""
    from pipeline import shards

    spark_here("local")
    models = [{"query_id": model.query_id, "theta": model.theta, "kappa": model.kappa} for model in published.MODELS]
    pl.DataFrame(models, strict=False).write_parquet(tmp_path / "models.parquet")
    options = ("simulate", "--models", tmp_path / "models.parquet", "--runs", 7, "--horizon", 200)
    policies = ("--policies", "pbm-ucb,pbm-pie(epsilon=0.1),pbm-ts,bc-mp-ts,rba-kl-ucb,pbm-kl-ucb,oracle,uniform")
    assert pbm(*options, *policies, "-w", tmp_path / "here").code == 0
    outcome = pbm(*options, *policies, "-w", tmp_path / "there", "--engine", "spark", "--spark-master", "local[2]")
    assert outcome.code == 0, outcome.err
    for folder in ("simulations", "regret", "displays", "bounds"):
        name = f"{folder}/kdd.parquet"
        assert (tmp_path / "there" / name).read_bytes() == (tmp_path / "here" / name).read_bytes(), name
    played, (player,) = game(5, tmp_path), stage.players("pbm-ts")
    expected = stage.play_here(1, played, player)[0]
    with session(spark_here("local[2]")) as spark:
        for each in (1, 2, 100):
            monkeypatch.setattr(shards, "SHARDS_PER_CORE", each)
            assert_same_runs(stage.play_on_spark(spark, played, player)[0], expected)
