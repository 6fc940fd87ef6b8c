"""What is said, and how soon, when Spark, Java, a master, a worker's package or the log is not there."""

import re
import socket
import subprocess
import sys
import time
import venv
from pathlib import Path

import pytest

from pipeline.cluster import PATIENCE, check_java, check_master, explained, first_cause
from pipeline.errors import ClusterError
from tests.conftest import Pbm, kdd, spark_here
from tests.test_cluster import free_port

SOON = 60  # seconds, on a busy machine, with the start of Java; Spark alone would try for as long before it names the cause
ON_ONE_CORE = ("--engine", "spark", "--spark-master", "local[1]")
WAY_OUT = "install Java 17 or newer (a headless one will do) and have `java` on the path, or set JAVA_HOME"


def test_no_master_there(tmp_path: Path, pbm: Pbm) -> None:
    url = f"spark://127.0.0.1:{free_port()}"
    (tmp_path / "log.txt").write_bytes(kdd(1, 1, 1))
    spark_here("local")
    start = time.monotonic()
    for command in (("count", tmp_path / "log.txt"), ("simulate", "--experiment", "synthetic")):
        assert pbm(*command, "-w", tmp_path, "--engine", "spark", "--spark-master", url) == (
            1,
            "",
            f"pbm: error: no Spark master answers at {url} ({url[8:]}: Connection refused); "
            "is it running, and can it be reached from here?\n",
        )
    assert time.monotonic() - start < 2 * PATIENCE
    assert [path.name for path in tmp_path.iterdir()] == ["log.txt"]


def test_a_master_that_answers_is_one_of_several_that_may() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        check_master(f"spark://127.0.0.1:{free_port()},127.0.0.1:{listener.getsockname()[1]}")
        check_master(f"k8s://https://127.0.0.1:{listener.getsockname()[1]}")
    for fine in ("local", "local[3]", "local[*]", "local[2,4]", "yarn"):
        check_master(fine)
    for wrong in ("spark://host", "localhost:7077", "local[x]", "", "spark://host:port"):
        with pytest.raises(ClusterError) as error:
            check_master(wrong)
        assert str(error.value) == (
            f"--spark-master is {wrong!r}, expected local[N], spark://HOST:PORT, yarn or k8s://https://HOST:PORT"
        )


def test_java_missing_or_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClusterError) as error:
        check_java()
    assert str(error.value) == f"Spark needs Java 17, and there is no `java` on the path; {WAY_OUT}"
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ClusterError) as error:
        check_java()
    assert (
        str(error.value) == f"Spark needs Java 17, and JAVA_HOME is {str(tmp_path)!r}, and there is no bin/java in it; {WAY_OUT}"
    )
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    for version, said in (("1.8.0_392", "8"), ("11.0.21", "11")):
        java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2023-10-17' >&2\n")
        java.chmod(0o755)
        with pytest.raises(ClusterError) as error:
            check_java()
        assert str(error.value) == f"{java} is Java {said}, and Spark needs 17; {WAY_OUT}"
    for version in ("17.0.15", "21", "25-ea"):
        java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
        check_java()


def test_pyspark_missing(tmp_path: Path) -> None:
    spark_here("local")
    code = (
        "import sys; sys.modules['pyspark'] = sys.modules['pyspark.sql'] = None\n"
        f"sys.argv = ['pbm', 'count', 'log', '--engine', 'spark', '-w', {str(tmp_path)!r}]\n"
        "from pipeline import cli; cli.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        1,
        "pbm: error: the engine spark needs the package pyspark, which is not installed: "
        "pip install 'pbm-bandits[spark]', or make install EXTRAS=spark\n",
    )


@pytest.mark.parametrize(
    ("there", "said"),
    [
        (True, r"a worker's Python has no module '[\w.]+'"),
        (False, r"a worker cannot run '\S+/bare/bin/python', the Python of this side"),
    ],
)
@pytest.mark.long
def test_a_worker_without_the_package_or_the_python(there: bool, said: str, tmp_path: Path, pbm: Pbm) -> None:
    (tmp_path / "log.txt").write_bytes(kdd(1, 1, 1))
    if there:
        venv.create(tmp_path / "bare", with_pip=False)
    spark_here("local")
    start = time.monotonic()
    conf = f"spark.pyspark.python={tmp_path}/bare/bin/python"
    outcome = pbm("count", tmp_path / "log.txt", "-w", tmp_path, *ON_ONE_CORE, "--spark-conf", conf)
    assert (outcome.code, outcome.out) == (1, "")
    assert time.monotonic() - start < SOON
    assert re.fullmatch(
        rf"pbm: error: {said}; install pbm \S+ there \(pip install 'pbm-bandits\[spark\]'\), "
        r"or name a Python that has it: --spark-conf spark\.pyspark\.python=PATH\n",
        outcome.err,
    ), outcome.err


@pytest.mark.long
def test_a_log_that_is_not_there(tmp_path: Path, pbm: Pbm) -> None:
    spark_here("local")
    start = time.monotonic()
    assert pbm("count", tmp_path / "log.txt", "-w", tmp_path, *ON_ONE_CORE) == (
        1,
        "",
        f"pbm: error: there is no log at {tmp_path}/log.txt; check the path, or make a synthetic log with `pbm synthesize`\n",
    )
    assert time.monotonic() - start < SOON


def test_a_setting_that_java_refuses(tmp_path: Path) -> None:
    """In a process of its own, as Java is started once in each."""
    spark_here("local")
    (tmp_path / "log.txt").write_bytes(kdd(1, 1, 1))
    command = [str(Path(sys.executable).with_name("pbm")), "count", str(tmp_path / "log.txt"), "-w", str(tmp_path), *ON_ONE_CORE]
    done = subprocess.run([*command, "--spark-conf", "spark.driver.memory=lots"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("pbm: error: Spark failed: ")
    assert "-Xmxlots" in done.stderr
    assert done.stderr.count("\n") == 1


def test_options_that_go_with_spark_alone(tmp_path: Path, pbm: Pbm) -> None:
    for options in (("--spark-master", "local"), ("--spark-conf", "spark.a=b")):
        for command in (("count", "log"), ("simulate",)):
            outcome = pbm(*command, *options, "-w", tmp_path)
            assert outcome.code == 2
            assert "--spark-master and --spark-conf go with --engine spark" in outcome.err
    outcome = pbm("simulate", "--engine", "spark", "--threads", 2, "-w", tmp_path)
    assert outcome.code == 2
    assert "--threads is of this machine" in " ".join(outcome.err.split())
    assert pbm("count", "log", "--engine", "spark", "--spark-conf", "memory=1g", "-w", tmp_path).err == (
        "pbm: error: --spark-conf is 'memory=1g', expected spark.KEY=VALUE\n"
    )


def test_errors_of_ours_come_back_from_a_worker_as_they_were() -> None:
    said = explained(
        "An exception was thrown from the Python worker. Please see the stack trace below.\n"
        'Traceback (most recent call last):\n  File "/x/pipeline/cluster.py", line 3, in f\n    raise ClusterError(text)\n'
        "pipeline.errors.ClusterError: a worker has pbm 1.0, and this side 2.0; install the same everywhere\n\n\tat org.apache"
    )
    assert str(said) == "a worker has pbm 1.0, and this side 2.0; install the same everywhere"
    text = (
        "An error occurred while calling o1.\n: java.lang.RuntimeException: outer\n\tat a\nCaused by: java.io.IOException: inner"
    )
    assert first_cause(text) == "java.io.IOException: inner"
