"""A killed count leaves the old artefacts, and nothing that disturbs the next run."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipeline import artefacts
from pipeline.artefacts import COUNTS, REJECTS
from tests.conftest import Pbm

pytestmark = pytest.mark.long

PBM = str(Path(sys.executable).with_name("pbm"))
MOMENTS = 10


def test_sigkill_at_ten_moments_leaves_the_old_counts(default_workspace: Path, tmp_path: Path, pbm: Pbm) -> None:
    log = default_workspace / "raw" / "training.txt"
    old = ["count", str(log), "-w", str(tmp_path), "--min-ads", "6"]
    new = ["count", str(log), "-w", str(tmp_path)]
    assert pbm(*old).code == 0
    before = COUNTS.path(tmp_path).read_bytes()
    assert pbm("count", log, "-w", tmp_path / "new").code == 0
    after = COUNTS.path(tmp_path / "new").read_bytes()

    for _ in range(2):  # the first may have kernels to compile
        start = time.perf_counter()
        subprocess.run([PBM, *old], check=True, stdout=subprocess.DEVNULL)
        duration = time.perf_counter() - start
    killed = 0
    moments = random.Random(0)
    while killed < MOMENTS:
        # From the first byte read to just before the end; imports take the first half second.
        with subprocess.Popen([PBM, *new], stdout=subprocess.DEVNULL) as process:
            time.sleep(duration * (0.2 + 0.75 * (killed + moments.random()) / MOMENTS))
            process.send_signal(signal.SIGKILL)
        left = COUNTS.path(tmp_path).read_bytes()
        if left == before:
            killed += process.returncode == -signal.SIGKILL
        else:  # it was done before the signal came: put the old artefacts back and kill earlier
            assert left == after
            duration *= 0.9
            assert pbm(*old).code == 0
    assert artefacts.read(COUNTS, tmp_path)["query_id"].n_unique() == 6
    assert pbm(*new).code == 0
    assert artefacts.read(COUNTS, tmp_path)["query_id"].n_unique() == 8
    assert artefacts.read(REJECTS, tmp_path).is_empty()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["counts.parquet", "new", "rejects.parquet"]
