"""Why the parser is our own: one pass with every field checked, against what polars can check of it; and the digit trick.

    python -m benchmarks.parsing

polars reads the 12 columns as integers with `ignore_errors`, one more for fields too many, and the rules as expressions: it
finds most bad lines, not all (` 1`, `+1` and a trailing empty field pass).
"""

import statistics
import time
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np
import polars as pl
from numba import njit

from benchmarks.process import PBM, SCRATCH, run, verdict
from pipeline import formats
from pipeline.log import parser
from pipeline.log.digits import PADDING
from pipeline.log.opening import find
from pipeline.log.scanning import CAPACITY, scan
from pipeline.log.sniffing import recognised

LINES = 4_000_000
ROUNDS = 7
ZERO = 48


@njit
def plain(text, at):
    """Digit by digit: what `number` is compared with."""
    first = at
    value = np.uint64(0)
    digit = np.uint8(text[at] - ZERO)
    while digit < 10:
        value = value * np.uint64(10) + np.uint64(digit)
        at += 1
        digit = np.uint8(text[at] - ZERO)
    return value, at - first


def ratio(ours: Callable[[], object], theirs: Callable[[], object]) -> float:
    """The median over rounds of the time of `ours` over that of `theirs`, one after the other."""
    assert ours() == theirs()  # also compiles
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        ours()
        middle = time.perf_counter()
        theirs()
        times.append((middle - start) / (time.perf_counter() - middle))
    return statistics.median(times)


def main() -> None:
    path = SCRATCH / "parsing.txt"
    run(PBM, "synthesize", "--lines", str(LINES), "--out", str(path), "--workspace", str(SCRATCH))
    log = recognised(find(path, formats.load("kdd2012")))
    schema: dict[str, pl.DataType] = {column.name: pl.UInt64() for column in log.fmt.columns}
    rules = [
        pl.any_horizontal(pl.col(*schema).is_null()),
        pl.col("extra").is_not_null(),
        pl.col("Click") > pl.col("Impression"),
        pl.col("Impression") < 1,
        pl.col("Position") > pl.col("Depth"),
        ~pl.col("Position").is_between(1, 3),
    ]

    def by_polars() -> int:
        lines = pl.scan_csv(
            path,
            separator="\t",
            has_header=False,
            quote_char=None,
            schema={**schema, "extra": pl.String()},
            ignore_errors=True,
            truncate_ragged_lines=True,
            missing_columns="insert",
        )
        return int(lines.select((~pl.any_horizontal(rules)).sum()).collect(engine="streaming").item())

    def by_pbm() -> int:
        return sum(chunk.good for chunk in scan(log, lambda batch: None, most_bad=0))

    verdict("one checked pass over the log, time over polars'", ratio(by_pbm, by_polars), 1)
    text = np.fromfile(path, np.uint8, count=1 << 20)
    end = int(np.flatnonzero(text == ord("\n"))[-1]) + 1
    text = np.append(text, np.zeros(PADDING, np.uint8))
    columns, bad = parser.output(CAPACITY), np.empty((3, CAPACITY), np.int64)
    layout = parser.layout(log.fmt)
    one_by_one: Any = njit(FunctionType(parser.parse.py_func.__code__, {**vars(parser), "number": plain}))
    verdict(
        "numbers eight digits at a time, the parser's time over that with one by one",
        ratio(
            lambda: parser.parse(text, 0, end, layout, columns, bad),
            lambda: one_by_one(text, 0, end, layout, columns, bad),
        ),
        1,
    )


if __name__ == "__main__":
    main()
