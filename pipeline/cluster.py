"""A Spark session: where it runs, what goes wrong with it in a user's words, and how far its jobs are."""

import logging
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pipeline import __version__
from pipeline.errors import ClusterError, DataError
from pipeline.progress import progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA = 17  # what Spark 4 needs
PATIENCE = 3.0  # seconds until a master that does not answer is said to be unreachable; Spark itself tries for a minute
QUIET = 30.0  # seconds without an executor until that is said
POLL = 0.25  # seconds between two looks at how far a job is
INSTALL = "pip install 'pbm-bandits[spark]', or make install EXTRAS=spark"
LOCAL = "local[*]"  # all cores of this machine
MASTERS = "local[N], spark://HOST:PORT, yarn or k8s://https://HOST:PORT"
# In the order of what is meant to win: these, what is right for one machine, what the user says.
SETTINGS = {
    "spark.app.name": "pbm",
    "spark.log.level": "OFF",  # what matters is raised, and said in one line; --spark-conf spark.log.level=WARN says more
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(1 << 15),  # the lines that the parser takes at a time
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",  # a worker that crashes says where
}
ON_ONE_MACHINE = {
    "spark.driver.host": "127.0.0.1",  # nobody else needs to find it, and a machine's own name need not resolve
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
}


class Cluster(NamedTuple):
    """Which Spark, and how configured."""

    master: str
    settings: Mapping[str, str]


def settings_of(pairs: list[str]) -> dict[str, str]:
    """What --spark-conf says."""
    for pair in pairs:
        if not re.match(r"spark\.[^=\s]+=", pair):
            raise DataError(f"--spark-conf is {pair!r}, expected spark.KEY=VALUE")
    return {key: value for key, _, value in (pair.partition("=") for pair in pairs)}


@contextmanager
def session(cluster: Cluster) -> "Iterator[SparkSession]":
    """A session on that cluster, stopped when the block ends."""
    check_java()
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError:
        raise ClusterError(f"the engine spark needs the package pyspark, which is not installed: {INSTALL}") from None
    check_master(cluster.master)
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas")  # which we do not use
    here = ON_ONE_MACHINE if cluster.master.startswith("local") else {}
    settings = {**SETTINGS, **here, **cluster.settings}
    # Workers run this Python unless told otherwise; pyspark would take whatever `python3` is there.
    python = settings.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON") or sys.executable
    with _environment(PYSPARK_PYTHON=python, PYSPARK_DRIVER_PYTHON=sys.executable):
        builder = SparkSession.builder.master(cluster.master)
        for key, value in settings.items():
            builder = builder.config(key, value)
        quiet = "spark.log.level" not in cluster.settings
        with told(), _own_stderr(quiet=quiet):
            spark = builder.getOrCreate()
        if quiet:
            logging.disable(logging.ERROR)  # py4j logs a traceback where Ctrl-C meets it
        try:
            yield spark
        finally:
            spark.stop()
            logging.disable(logging.NOTSET)


@contextmanager
def _own_stderr(*, quiet: bool) -> Iterator[None]:
    """What is started here gets a stderr of its own: Java's warnings and Spark's greetings are not ours to print.

    If the start fails, the reason is in there.
    """
    if not quiet:
        yield
        return
    with tempfile.TemporaryFile() as log:
        before = os.dup(2)
        os.dup2(log.fileno(), 2)
        try:
            yield
        except Exception as error:
            log.seek(0)
            raise explained(log.read().decode(errors="replace") + f"\n{error}") from None
        finally:
            os.dup2(before, 2)
            os.close(before)


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    """Variables that Spark reads when it starts and when a function is sent to its workers."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def check_java() -> None:
    """Refuse to start without a Java that Spark runs on."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(str(Path(home) / "bin" / "java")) if home else shutil.which("java")
    way_out = f"install Java {JAVA} or newer (a headless one will do) and have `java` on the path, or set JAVA_HOME"
    if java is None:
        place = f"JAVA_HOME is {home!r}, and there is no bin/java in it" if home else "there is no `java` on the path"
        raise ClusterError(f"Spark needs Java {JAVA}, and {place}; {way_out}")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(?:1\.)?(\d+)', said)  # up to Java 8 it says 1.8
    if found is None:
        raise ClusterError(f"{java} does not say which Java it is ({said.strip()[:200]!r}); {way_out}")
    if int(found.group(1)) < JAVA:
        raise ClusterError(f"{java} is Java {found.group(1)}, and Spark needs {JAVA}; {way_out}")


def check_master(master: str) -> None:
    """Refuse a master that does not answer, in seconds rather than in Spark's minute."""
    if master == "yarn" or re.fullmatch(r"local(\[(\*|\d+)(,\d+)?\])?|local-cluster\[\d+,\d+,\d+\]", master):
        return
    hosts = re.fullmatch(r"(?:spark|k8s)://(?:https?://)?(.+?)/?", master)
    addresses = [re.fullmatch(r"(.+):(\d+)", host) for host in hosts.group(1).split(",")] if hosts else [None]
    if None in addresses:
        raise ClusterError(f"--spark-master is {master!r}, expected {MASTERS}")
    reasons = []
    for address in addresses:
        assert address is not None
        try:
            socket.create_connection((address.group(1).strip("[]"), int(address.group(2))), PATIENCE).close()
            return
        except OSError as error:
            reasons.append(f"{address.group(0)}: {error.strerror or error}")
    raise ClusterError(
        f"no Spark master answers at {master} ({'; '.join(reasons)}); is it running, and can it be reached from here?"
    )


@contextmanager
def told() -> Iterator[None]:
    """Say what goes wrong on a cluster in a user's words."""
    try:
        yield
    except Exception as error:
        if not type(error).__module__.startswith(("pyspark.", "py4j.")):
            raise
        if "cancellation of all jobs" in str(error):  # what pyspark makes of Ctrl-C, and nothing else
            raise KeyboardInterrupt from None
        raise explained(str(error)) from None


def explained(text: str) -> DataError:
    """An error of Spark's as one of ours. Those of our own code on a worker come back as they were raised there."""
    ours = re.findall(r"^pipeline\.errors\.(?:\w+): (.+?)(?=\n\n|\n\tat |\n  File |\Z)", text, re.M | re.S)
    if ours:
        return DataError(ours[-1].strip())
    way_out = (
        f"install pbm {__version__} there (pip install 'pbm-bandits[spark]'), "
        f"or name a Python that has it: --spark-conf spark.pyspark.python=PATH"
    )
    module = re.search(r"No module named '([\w.]+)'", text)
    if module:
        return ClusterError(f"a worker's Python has no module {module.group(1)!r}; {way_out}")
    program = re.search(r'Cannot run program "([^"]+)"[^\n]*', text)
    if program:
        return ClusterError(f"a worker cannot run {program.group(1)!r}, the Python of this side; {way_out}")
    if "PYTHON_VERSION_MISMATCH" in text:
        return ClusterError(f"a worker has another version of Python than the {sys.version.split()[0]} of this side; {way_out}")
    return ClusterError(f"Spark failed: {first_cause(text)}; --spark-conf spark.log.level=WARN shows its own log")


def first_cause(text: str) -> str:
    """The last exception that a text names, which is the first that happened, in one line."""
    causes = re.findall(r"^(?:Caused by: |: )?((?:[\w.]+\.)?\w+(?:Exception|Error)\b[^\n]*)", text, re.M)
    lines = [line for line in text.strip().split("\n") if not line.startswith("WARNING")]  # Java has some at every start
    return (causes[-1] if causes else lines[0])[:500]


def same_version(version: str) -> None:
    """On a worker: refuse to work beside a driver with another version of this package."""
    if version != __version__:
        raise ClusterError(f"a worker has pbm {__version__}, and this side {version}; install the same everywhere")


@contextmanager
def watched(spark: "SparkSession", what: str, tasks: int) -> Iterator[None]:
    """Progress of the jobs that the block starts: how many of so many tasks are done. Says so if there is nobody to do them."""
    context = spark.sparkContext
    group = f"pbm-{what}-{time.monotonic_ns()}"
    context.setJobGroup(group, f"pbm: {what}", interruptOnCancel=True)
    over = threading.Event()
    with progress(what, tasks, unit="tasks") as advance, told():
        watcher = threading.Thread(target=_watch, args=(context, group, advance, tasks, over), daemon=True)
        watcher.start()
        try:
            yield
        except BaseException:
            context.cancelJobGroup(group)
            raise
        finally:
            over.set()
            watcher.join()


def _watch(context: Any, group: str, advance: Any, tasks: int, over: threading.Event) -> None:
    tracker = context.statusTracker()
    said, since = False, time.monotonic()
    while not over.wait(POLL):
        done = active = 0
        for job in tracker.getJobIdsForGroup(group):
            for number in getattr(tracker.getJobInfo(job), "stageIds", ()):
                stage = tracker.getStageInfo(number)
                if stage is not None:
                    done, active = done + stage.numCompletedTasks, active + stage.numActiveTasks
        advance(min(done, tasks))
        if done or active:
            since = time.monotonic()
        elif not said and time.monotonic() - since > QUIET:
            said = True
            print(
                f"pbm: note: no executor has taken a task for {QUIET:.0f} s; has the cluster free cores and memory?",
                file=sys.stderr,
            )
