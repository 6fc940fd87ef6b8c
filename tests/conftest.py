"""What several tests share: the command run in this process, the default synthetic log, small logs."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import settings

from bandits.fresh import drop_stale_kernels

ROOT = Path(__file__).parent.parent
for package in ("pipeline", "estimation", "bandits"):
    drop_stale_kernels(ROOT / package)  # before anything of ours is imported

from pipeline import cli
from pipeline.errors import ClusterError
from pipeline.stages.synthesize import synthesize

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.cluster import Cluster

settings.register_profile("default", deadline=None, derandomize=True, print_blob=False)  # the same examples on every run
settings.load_profile("default")


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


Pbm = Callable[..., Outcome]


@pytest.fixture
def pbm(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Pbm:
    """Run `pbm ARGUMENTS` as the shell would, in this process."""
    monkeypatch.delenv("PBM_WORKSPACE", raising=False)
    monkeypatch.setenv("COLUMNS", "100")

    def run(*arguments: object) -> Outcome:
        monkeypatch.setattr("sys.argv", ["pbm", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as stop:
            cli.main()
        return Outcome(int(stop.value.code or 0), *capfd.readouterr())

    return run


@pytest.fixture(scope="session")
def default_workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with the log and the truth of a plain `pbm synthesize`."""
    workspace = tmp_path_factory.mktemp("default")
    synthesize(workspace / "raw" / "training.txt", workspace, 4_000_000, 0)
    return workspace


def kdd(query: int, ad: int, position: int, click: int = 0, impression: int = 1, depth: int = 3, user: int = 7) -> bytes:
    """A line of the KDD format."""
    fields = (click, impression, 2**63 + 11, ad, 385, depth, position, query, 5521, 7709, 576, user)
    return "\t".join(map(str, fields)).encode()


def skip_outside_ci(reason: str) -> None:
    """Skip a test that this machine cannot run; in CI, where everything can be run, fail instead."""
    if os.environ.get("CI"):
        pytest.fail(f"cannot run in CI: {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="module")
def spark() -> "Iterator[SparkSession]":
    """Spark on two cores of this machine."""
    from pipeline.cluster import session

    with session(spark_here("local[2]")) as started:
        yield started


def spark_here(master: str, **settings: str) -> "Cluster":
    """A Spark to test on, if this machine can run one."""
    from pipeline.cluster import Cluster, check_java

    try:
        import pyspark  # noqa: F401

        check_java()
    except (ModuleNotFoundError, ClusterError) as error:
        skip_outside_ci(str(error))
    few = {"spark.sql.shuffle.partitions": "4"}  # logs are small here
    return Cluster(master, {**few, **settings})
