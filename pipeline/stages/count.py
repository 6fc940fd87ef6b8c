"""`pbm count`: from a log to exact counts per (query, ad, position) of what passes the paper's filter.

Two passes over the log. The first checks every line and fills the cell sketch; the second hands the lines of cells that may
pass to an engine, which counts them exactly and filters. For thresholds well above the mean counter of the sketch, memory depends
neither on the lines nor on the queries nor on the cells of the log (see `pipeline.log.sketch`).
"""

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from pipeline import saving
from pipeline.artefacts import COUNTS, REJECTS, Provenance
from pipeline.engines import Census, Counted, Engine, Lines, Reject
from pipeline.errors import DataError, LogError
from pipeline.filter import Filter, Unit
from pipeline.formats import Kind, LogFormat
from pipeline.log import parser, rules, sketch
from pipeline.log.complaints import QUOTED_REJECTS, no_good_line, too_many
from pipeline.log.opening import Log, check_unchanged, find
from pipeline.log.scanning import Batch, arrow, scan
from pipeline.log.sniffing import recognised
from pipeline.progress import progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Summary(NamedTuple):
    """The closing sums: lines = rejected + dropped + kept."""

    lines: int
    rejected: dict[str, int]
    dropped_positions: int  # at positions above those of the filter
    dropped_filter: int
    kept: int
    queries: int
    ads: int
    unterminated: bool


def count(name: str, workspace: Path, fmt: LogFormat, wanted: Filter, read: Callable[[Reject], Counted]) -> Summary:
    """Write `counts.parquet` and `rejects.parquet` of the log of that name, as `read` counts it."""
    with saving.saving(workspace) as save:
        rejects = save.writer(REJECTS)
        census, counts = read(rejects.append)
        identity = {"name": name, "lines": census.lines, "fingerprint": f"{census.fingerprint:016x}"}
        declaration = {"name": fmt.name, "digest": hashlib.sha256(repr(fmt).encode()).hexdigest()}
        rejects.origin = Provenance({"format": declaration}, {"log": identity})
        parameters = {**wanted._asdict(), "unit": wanted.unit.value, "format": declaration}
        save.write(COUNTS, counts, Provenance(parameters, {"log": identity}))
    kept = int(counts["lines"].sum())
    return Summary(
        lines=census.lines,
        rejected=dict(census.rejected.most_common()),
        dropped_positions=census.above,
        dropped_filter=census.good - census.above - kept,
        kept=kept,
        queries=counts["query_id"].n_unique(),
        ads=counts.select("query_id", "ad_id").n_unique(),
        unterminated=census.unterminated,
    )


def count_here(path: Path, workspace: Path, fmt: LogFormat, engine: Engine, wanted: Filter, max_bad_lines: int) -> Summary:
    """Count on this machine."""
    check(wanted, fmt)
    log = recognised(find(path, fmt))
    return count(path.name, workspace, fmt, wanted, partial(read_here, log, engine, wanted, max_bad_lines))


def count_on_spark(
    path: str, workspace: Path, fmt: LogFormat, spark: "SparkSession", wanted: Filter, max_bad_lines: int
) -> Summary:
    """Count on a cluster. The path is whatever its Spark reads."""
    from pipeline.engines import spark as engine  # only here is pyspark needed

    check(wanted, fmt)
    name = PurePosixPath(path).name
    return count(name, workspace, fmt, wanted, partial(engine.count, spark, path, fmt, wanted, max_bad_lines))


def read_here(log: Log, engine: Engine, wanted: Filter, max_bad_lines: int, reject: Reject) -> Counted:
    """Both passes over a log on this machine."""
    demand = sketch.Demand(wanted.min_displays, wanted.positions, wanted.unit is Unit.impressions)
    counters, census = survey(log, demand, max_bad_lines, reject)
    counts = exactly(engine, candidates(log, demand, counters), wanted)
    check_unchanged(log)
    return Counted(census, counts)


def check(wanted: Filter, fmt: LogFormat) -> None:
    """Refuse a filter that no log of this format can pass."""
    position = fmt.column(fmt.roles.position)
    most = position.high - position.low + 1
    if not 1 <= wanted.positions <= most:
        raise DataError(f"--positions is {wanted.positions}, expected 1 to {most}, the positions of format {fmt.name!r}")
    if not 1 <= wanted.min_displays <= int(sketch.FULL):
        raise DataError(f"--min-displays is {wanted.min_displays}, expected 1 to {int(sketch.FULL)}")
    if wanted.min_ads < 1:
        raise DataError(f"--min-ads is {wanted.min_ads}, expected at least 1")


def survey(log: Log, demand: sketch.Demand, max_bad_lines: int, reject: Reject) -> tuple[NDArray[np.uint32], Census]:
    """The first pass: check every line, keep the bad ones, fill the sketch."""
    counters = sketch.empty()
    rejected: Counter[str] = Counter()
    lines = good = fingerprint = above = 0
    unterminated = False
    name = rules.shown(os.fsencode(log.path.name))
    first_bad: list[dict[str, Any]] = []

    def tally(batch: Batch) -> tuple[NDArray[np.uint32], NDArray[np.uint32], int, int]:
        size = batch.columns.shape[1]
        buckets, weights = np.empty(size, np.uint32), np.empty(size, np.uint32)
        n, printed = sketch.tally(batch.columns, demand, buckets, weights)
        return buckets[:n], weights[:n], size - n, int(printed)

    with progress("reading", log.size) as advance, closing(scan(log, tally, most_bad=max_bad_lines + 1)) as chunks:
        for chunk in chunks:
            for buckets, weights, beyond, printed in chunk.results:
                sketch.add(counters, buckets, weights)
                above += beyond
                fingerprint = (fingerprint + printed) % 2**64
            lines += chunk.lines
            good += chunk.good
            unterminated |= chunk.unterminated
            for bad in chunk.bad:
                first_bad += bad.slice(0, QUOTED_REJECTS - len(first_bad)).to_pylist()
                rejected.update(bad["reason"].to_pylist())
            if lines - good > max_bad_lines:
                seen = f"{lines - good:,} of the first {lines:,} lines"
                raise LogError(too_many(str(log.path), max_bad_lines, seen, first_bad))
            for bad in chunk.bad:
                reject(bad.append_column("file", pa.array([name] * len(bad), pa.string())))
            advance(chunk.done)
    if good == 0:
        raise LogError(no_good_line(str(log.path), log.fmt, first_bad[:1]))
    return counters, Census(lines, good, fingerprint, rejected, unterminated, above)


def exactly(engine: Engine, lines: Lines, wanted: Filter) -> pl.DataFrame:
    """The engine's counts. What goes wrong while it reads the lines is raised as it was, not as the engine wraps it."""
    raised: list[BaseException] = []

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            yield from lines.batches
        except BaseException as error:
            raised.append(error)
            raise

    try:
        return engine(Lines(lines.schema, batches()), wanted)
    except BaseException as error:
        if raised and not isinstance(raised[0], GeneratorExit):
            raise raised[0] from None
        if "interrupt" in str(error).lower():  # what engines make of Ctrl-C, where it meets their own code
            raise KeyboardInterrupt from None
        raise


def candidates(log: Log, demand: sketch.Demand, counters: NDArray[np.uint32]) -> Lines:
    """The second pass: the lines whose ad may have enough displays at every position."""
    fmt = log.fmt
    ids = [pa.int64() if fmt.column(name).kind is Kind.INTEGER else pa.string() for name in (fmt.roles.query, fmt.roles.item)]
    schema = pa.schema(
        [
            ("query_id", ids[0]),
            ("ad_id", ids[1]),
            ("position", pa.int8()),
            ("clicks", pa.int64()),
            ("impressions", pa.int64()),
        ]
    )

    def hot(batch: Batch) -> pa.RecordBatch:
        columns = batch.columns
        kept = np.empty(columns.shape[1], np.int64)
        kept = kept[: sketch.hot(columns, counters, demand, kept)]
        rows = [
            batch.ids(parser.QUERY, kept),
            batch.ids(parser.ITEM, kept),
            arrow(columns[parser.POSITION, kept].astype(np.int8)),
            arrow(columns[parser.CLICKS, kept]),
            arrow(columns[parser.IMPRESSIONS, kept]),
        ]
        return pa.RecordBatch.from_arrays(rows, schema=schema)

    def batches() -> Iterator[pa.RecordBatch]:
        with progress("counting", log.size) as advance, closing(scan(log, hot, most_bad=0)) as chunks:
            for chunk in chunks:
                advance(chunk.done)
                yield from (batch for batch in chunk.results if batch.num_rows)

    return Lines(schema, batches())
