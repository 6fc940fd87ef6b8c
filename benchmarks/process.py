"""A command run to its end: how long it took and the most memory it held."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

PBM = str(Path(sys.executable).with_name("pbm"))
SCRATCH = Path(__file__).parent / "scratch"


class Run(NamedTuple):
    seconds: float
    peak_mib: float


def run(*command: str) -> Run:
    """Run a command; it must succeed."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed with {process.returncode}")
    return Run(seconds, usage.ru_maxrss / 1024)


def verdict(claim: str, value: float, limit: float, *, at_least: bool = False) -> bool:
    """Print a claim with its figure; whether it holds."""
    holds = value >= limit if at_least else value <= limit
    print(f"{'ok  ' if holds else 'MISS'} {claim}: {value:.2f} ({'at least' if at_least else 'at most'} {limit:g})", flush=True)
    return holds
