"""`pbm synthesize` and `pbm count` on 30 million lines, against duckdb's bare count(*) of the same file in the same run.

    python -m benchmarks.counting [LINES] [ROUNDS]

Machines are noisy, so every round times all three commands one after the other, and the median of the rounds' ratios is judged.
"""

import statistics
import sys
from pathlib import Path

from benchmarks.process import PBM, SCRATCH, Run, run, verdict
from pipeline import formats

SMALLER = 10  # memory is compared with a log this many times smaller
COUNT_STAR = """
import duckdb, sys
duckdb.sql("SET enable_progress_bar = false")
columns = ", ".join(f"'{name}': 'UBIGINT'" for name in sys.argv[2].split(","))
options = "delim='\\t', header=false, quote='', escape=''"
print(duckdb.sql(f"SELECT count(*) FROM read_csv('{sys.argv[1]}', {options}, columns={{{columns}}})").fetchall())
"""


def synthesized(lines: int) -> tuple[Path, Run]:
    log = SCRATCH / f"{lines}.txt"
    return log, run(PBM, "synthesize", "--lines", str(lines), "--out", str(log), "--workspace", str(SCRATCH))


def counted(log: Path, engine: str) -> Run:
    return run(PBM, "count", str(log), "--engine", engine, "--workspace", str(SCRATCH))


def main() -> None:
    lines = int(sys.argv[1]) if len(sys.argv) > 1 else 30_000_000
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    smaller, _ = synthesized(max(lines // SMALLER, 3_000_000))  # also compiles what is not compiled yet
    small = {engine: counted(smaller, engine) for engine in ("polars", "duckdb")}
    log, synthesis = synthesized(lines)
    names = ",".join(column.name for column in formats.load("kdd2012").columns)
    bare, counts = [], []
    for _ in range(rounds):
        bare.append(run(sys.executable, "-c", COUNT_STAR, str(log), names))
        counts.append({engine: counted(log, engine) for engine in small})
        print("  ".join(f"{name} {r.seconds:.2f} s" for name, r in {"count(*)": bare[-1], **counts[-1]}.items()), flush=True)

    holds = [verdict("synthesize, million lines per second", lines / synthesis.seconds / 1e6, 1.5, at_least=True)]
    holds.append(verdict("synthesize, peak MiB", synthesis.peak_mib, 1024))
    for engine, limit in (("polars", 2.5), ("duckdb", 4.0)):
        ratios = [count[engine].seconds / star.seconds for count, star in zip(counts, bare, strict=True)]
        peak = max(count[engine].peak_mib for count in counts)
        holds.append(verdict(f"{engine}: time over count(*)", statistics.median(ratios), limit))
        holds.append(verdict(f"{engine}: peak MiB", peak, 768))
        holds.append(
            verdict(f"{engine}: peak over that of {max(lines // SMALLER, 3_000_000):,} lines", peak / small[engine].peak_mib, 1.3)
        )
    sys.exit(not all(holds))


if __name__ == "__main__":
    main()
