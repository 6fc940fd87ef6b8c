"""`pbm count --engine spark` in local mode on 30 million lines, beside the polars engine in the same run, and its memory.

    python -m benchmarks.cluster [LINES] [ROUNDS]

The ratio is reported as it is: Spark is for logs that one machine cannot hold, not for speed on one that it can. What is judged
is memory. The heap is bounded by Spark's own setting; of the Python workers the most that all of them hold together is compared
with that on a log ten times smaller.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

from benchmarks.counting import SMALLER, counted, synthesized
from benchmarks.process import PBM, SCRATCH, verdict

EVENTS = SCRATCH / "events"
HEAP = "1g"
POLL = 0.2  # seconds between two looks at the workers' memory
JVM_MIB = 1024 + 768  # the heap, and what Java itself takes: code, threads, buffers
WORKER_MIB = 512  # of a Python worker, of which there is one for each core


def on_spark(log: Path) -> tuple[float, float, float]:
    """Seconds, and the most MiB that Java and that the Python workers held together. Spark's events go to EVENTS."""
    shutil.rmtree(EVENTS, ignore_errors=True)
    EVENTS.mkdir(parents=True)
    settings = {
        "driver.memory": HEAP,
        "eventLog.enabled": "true",
        "eventLog.dir": EVENTS.resolve().as_uri(),
        "eventLog.rolling.enabled": "false",
        "eventLog.compress": "false",
    }
    conf = [word for key, value in settings.items() for word in ("--spark-conf", f"spark.{key}={value}")]
    options = ("--engine", "spark", *conf, "--workspace", str(SCRATCH))
    peaks = {"java": 0.0, "python": 0.0}
    over = threading.Event()
    start = time.perf_counter()
    with subprocess.Popen([PBM, "count", str(log), *options], stdout=subprocess.DEVNULL) as process:

        def watch() -> None:
            while not over.wait(POLL):
                held = dict.fromkeys(peaks, 0.0)
                for name, mib in descendants(process.pid):
                    held["java" if name.startswith("java") else "python"] += mib
                for kind, mib in held.items():
                    peaks[kind] = max(peaks[kind], mib)

        watcher = threading.Thread(target=watch)
        watcher.start()
        code = process.wait()
        over.set()
        watcher.join()
    if code:
        raise SystemExit(f"the count of {log} failed with {code}")
    return time.perf_counter() - start, peaks["java"], peaks["python"]


def shuffled() -> float:
    """MiB that the last count sent from executor to executor, by Spark's own events."""
    events = [json.loads(line) for path in EVENTS.iterdir() for line in path.read_text().splitlines()]
    ended = [event["Task Metrics"] for event in events if event["Event"] == "SparkListenerTaskEnd"]
    return float(sum(task["Shuffle Write Metrics"]["Shuffle Bytes Written"] for task in ended)) / 2**20


def descendants(pid: int) -> list[tuple[str, float]]:
    """Names and resident MiB of all processes below one, itself not included. Shared pages count in each."""
    parents, held = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                name, _, rest = (entry / "stat").read_text().partition("(")[2].rpartition(")")
                pages = int((entry / "statm").read_text().split()[1])
            except (OSError, ValueError):
                continue  # gone meanwhile
            parents[int(entry.name)] = int(rest.split()[1])
            held[int(entry.name)] = (name, pages * os.sysconf("SC_PAGE_SIZE") / 2**20)
    below = {pid}
    while more := {child for child, parent in parents.items() if parent in below and child not in below}:
        below |= more
    return [held[child] for child in below - {pid}]


def main() -> None:
    lines = int(sys.argv[1]) if len(sys.argv) > 1 else 30_000_000
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    smaller, log = (synthesized(size)[0] for size in (max(lines // SMALLER, 3_000_000), lines))
    small_seconds, _, small_python = on_spark(smaller)
    ratios, runs = [], []
    for _ in range(rounds):
        polars = counted(log, "polars").seconds
        runs.append(on_spark(log))
        ratios.append(runs[-1][0] / polars)
        print(
            f"polars {polars:.1f} s  spark {runs[-1][0]:.1f} s  java {runs[-1][1]:.0f} MiB  python {runs[-1][2]:.0f} MiB",
            flush=True,
        )
    seconds, java, python = zip(*runs, strict=True)
    start = small_seconds - (statistics.median(seconds) - small_seconds) / (SMALLER - 1)
    per_line = (statistics.median(seconds) - start) / lines * (os.cpu_count() or 1)
    print(f"spark over polars, {lines:,} lines: {statistics.median(ratios):.1f}")
    print(f"seconds before the first line: {start:.1f}; core time of a line, both passes: {per_line * 1e6:.2f} microseconds")
    print(f"sent between executors: {shuffled():.1f} MiB of a log of {log.stat().st_size / 2**20:,.0f} MiB")
    holds = [
        verdict("peak MiB of Java", max(java), JVM_MIB),
        verdict("peak MiB of the Python workers", max(python), WORKER_MIB * (1 + (os.cpu_count() or 1))),
        verdict(f"peak of the Python workers over that of {lines // SMALLER:,} lines", max(python) / small_python, 1.3),
    ]
    sys.exit(not all(holds))


if __name__ == "__main__":
    main()
