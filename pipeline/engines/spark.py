"""The same count on a Spark cluster: the log is read, checked and counted where its files and the executors are.

The plan is that of one machine in Spark's terms. The first pass checks every line and adds its displays to a counter that a hash
of its query chooses. A query passes the filter only with min_ads x positions x min_displays of them, so the few counters with as
many are broadcast, and the second pass counts the cells of their queries' lines exactly. Both passes run this package's own
parser on the executors (`mapInArrow`): a line that is bad on a laptop is bad on a cluster.

A line is known by its file and its number there. Spark cuts large files into blocks and hands on the lines of a block in order;
the first pass counts the lines of each block, so the second knows the number of each bad line.
"""

import posixpath
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark import Broadcast
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from pipeline import __version__
from pipeline.cluster import same_version, told, watched
from pipeline.engines import Census, Counted, Reject
from pipeline.engines.spark_files import ENDINGS, File, files_of, opened, place
from pipeline.errors import LogError
from pipeline.filter import Filter, Unit
from pipeline.formats import Kind, LogFormat
from pipeline.log import parser, sketch
from pipeline.log.blocks import Block, Reading, parts
from pipeline.log.complaints import QUOTED_REJECTS, no_good_line, too_many
from pipeline.log.opening import BYTE_ORDER_MARK
from pipeline.log.scanning import CAPACITY, Batch, arrow

FOUND = ("lines", "good", "above", "low", "high", "bytes")  # of a block: lines, those above the positions, fingerprint, size
BLOCK = pa.struct([(name, pa.int64()) for name in ("file", "start", *FOUND)])
SURVEY = pa.schema([("counter", pa.int64()), ("displays", pa.int64()), ("block", BLOCK)])
KEY = ("query_id", "ad_id", "position")
SUMS = ("lines", "clicked_lines", "impressions", "clicks")
LARGEST = 2**63 - 1  # that Spark's integers hold
SHORTEST_LINE = 24  # bytes: of twelve fields, or of packed ones
SPARSE = 64  # so much less than a query needs is the mean counter to have: few cold queries then share a hot one
# 2^24 counters are 64 MiB in each worker. For the paper's filter they stay as sparse up to 4 x 10^9 displays; beyond, more and
# more queries are counted that do not pass, and the result is exact all the same.
FEWEST_BITS, MOST_BITS = 12, 24


class Log(NamedTuple):
    """What the executors must know of a log."""

    version: str  # of this package, which theirs must be, too
    reading: Reading
    wanted: Filter
    bits: int  # 2^bits counters


class Plan(NamedTuple):
    """What the first pass found out for the second."""

    hot: NDArray[np.int64]  # the counters with enough displays
    lines_before: dict[Block, int]  # lines of its file before a block


def count(spark: SparkSession, path: str, fmt: LogFormat, wanted: Filter, max_bad_lines: int, reject: Reject) -> Counted:
    """Both passes over a log that Spark can read: a path or a glob, on any file system that it knows."""
    with told():
        files = files_of(spark, path)
        reading, lines = opened(spark, path, files, fmt)
        log = Log(__version__, reading, wanted, counter_bits(files, wanted))
        tasks = lines.rdd.getNumPartitions()
    with watched(spark, "reading", tasks):
        hot, blocks = surveyed(lines, log)
    total = {name: sum(blocks[name].to_list()) for name in FOUND}
    n_bad = total["lines"] - total["good"]
    lines_before, cut = numbered(blocks, files, header=bool(log.reading.header))
    plan = spark.sparkContext.broadcast(Plan(hot, lines_before))
    refused = n_bad > max_bad_lines or total["good"] == 0
    log = log._replace(reading=log.reading._replace(cut=cut, most_bad=QUOTED_REJECTS if refused else max_bad_lines))
    if refused:
        with told():
            quoted = first_bad(lines, log, plan, files, blocks).to_dicts()
        if total["good"] == 0:
            raise LogError(no_good_line(path, fmt, quoted))
        raise LogError(too_many(path, max_bad_lines, f"{n_bad:,} of {total['lines']:,} lines", quoted))
    with watched(spark, "counting", tasks):
        counts, rejects = counted(lines, log, plan, files, n_bad)
    with told():
        if files_of(spark, path) != files:
            raise LogError(f"{path} was written to while it was read; count it again when it is complete")
    if len(rejects):
        reject(rejects.to_arrow())
    census = Census(
        lines=total["lines"],
        good=total["good"],
        fingerprint=(total["low"] + (total["high"] << 32)) % 2**64,
        rejected=Counter(rejects["reason"].to_list()),
        unterminated=bool(cut),
        above=total["above"],
    )
    return Counted(census, counts)


# The two passes, as the driver asks for them


def needed(wanted: Filter) -> int:
    """Displays without which no query passes."""
    return min(wanted.min_ads * wanted.positions * wanted.min_displays, LARGEST)


def counter_bits(files: list[File], wanted: Filter) -> int:
    """So many that the mean counter of a log of these files stays well below what a query needs."""
    most_lines = sum(file.size for file in files) // SHORTEST_LINE
    return min(max((SPARSE * most_lines // needed(wanted)).bit_length(), FEWEST_BITS), MOST_BITS)


def surveyed(lines: DataFrame, log: Log) -> tuple[NDArray[np.int64], pl.DataFrame]:
    """The counters with enough displays for a query to pass, and what was found in each block, in the order of the log."""
    found = pl.DataFrame(
        lines.mapInArrow(partial(survey, log), from_arrow_schema(SURVEY))
        .groupBy("counter", "block")
        .agg(f.sum("displays").alias("displays"))
        .where(f.col("block").isNotNull() | (f.col("displays") >= min(needed(log.wanted), int(sketch.FULL))))
        .toArrow()
    )
    blocks = found.filter(pl.col("block").is_not_null())["block"].struct.unnest()
    return found.filter(pl.col("block").is_null())["counter"].to_numpy(), blocks.sort("file", "start")


def numbered(blocks: pl.DataFrame, files: list[File], *, header: bool) -> tuple[dict[Block, int], frozenset[tuple[Block, int]]]:
    """How many lines of its file there are before each block, and the last lines that lack their newline (see `Reading.cut`)."""
    before = blocks.select("file", "start", pl.col("lines").cum_sum().over("file") - pl.col("lines") + int(header))
    plain = {file.number: file.size for file in files if not file.address.endswith(tuple(ENDINGS.values()))}
    last = blocks.group_by("file").agg(pl.col("start", "lines").last(), pl.col("bytes").sum())
    # Every line was taken to end with a newline, and Hadoop's reader drops a byte order mark.
    missing = (1, 1 - len(BYTE_ORDER_MARK))
    cut = ((Block(file, start), n) for file, start, n, read in last.iter_rows() if read - plain.get(file, read) in missing)
    return {Block(file, start): n for file, start, n in before.iter_rows()}, frozenset(cut)


def counted(
    lines: DataFrame, log: Log, plan: Broadcast[Plan], files: list[File], n_bad: int
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The rows of `counts.parquet` and of `rejects.parquet`."""
    wanted = log.wanted
    rows = lines.mapInArrow(partial(tally, log, plan), from_arrow_schema(tally_schema(log.reading.fmt)))
    if n_bad:
        rows = rows.persist()  # asked for twice, and few beside the log
    ad, query = Window.partitionBy("query_id", "ad_id"), Window.partitionBy("query_id")
    counts = (
        rows.where(f.col("reason").isNull())
        .groupBy(*KEY)
        .agg(*(f.sum(name).alias(name) for name in SUMS))
        .where(f.col(wanted.unit.value) >= wanted.min_displays)
        .withColumn("positions", f.count("*").over(ad))
        .where(f.col("positions") == wanted.positions)
        .withColumn("cells", f.count("*").over(query))
        .where(f.col("cells") >= min(wanted.min_ads * wanted.positions, LARGEST))
        .select(*KEY, *SUMS)
    )
    found = pl.DataFrame(counts.toArrow()), rejected(rows if n_bad else rows.limit(0), files)
    rows.unpersist()
    return found


def first_bad(lines: DataFrame, log: Log, plan: Broadcast[Plan], files: list[File], blocks: pl.DataFrame) -> pl.DataFrame:
    """The first bad lines of the first file that has some."""
    bad = set(blocks.filter(pl.col("lines") > pl.col("good"))["file"])
    address = next((file.address for file in files if file.number in bad), "")
    there = lines.where(f.col("_metadata.file_path") == address)
    rows = there.mapInArrow(partial(tally, log, plan), from_arrow_schema(tally_schema(log.reading.fmt)))
    return rejected(rows.where(f.col("reason").isNotNull()).orderBy("line").limit(QUOTED_REJECTS), files)


def rejected(rows: DataFrame, files: list[File]) -> pl.DataFrame:
    """The rows of `rejects.parquet`, a file called by its path from the folder that holds them all."""
    paths = [place(file.address) for file in files]
    folder = posixpath.commonpath([posixpath.dirname(path) for path in paths])
    names = {file.number: posixpath.relpath(path, folder) for file, path in zip(files, paths, strict=True)}
    bad = rows.where(f.col("reason").isNotNull()).select("line", "reason", "text", "file").toArrow()
    return pl.DataFrame(bad).with_columns(pl.col("file").replace_strict(names, return_dtype=pl.String)).sort("file", "line")


# What runs on the executors


def demand_of(wanted: Filter) -> sketch.Demand:
    return sketch.Demand(wanted.min_displays, wanted.positions, wanted.unit is Unit.impressions)


def survey(log: Log, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The first pass over some lines: the counters that are not 0, and what was in each block."""
    same_version(log.version)
    demand, counters = demand_of(log.wanted), np.zeros(1 << log.bits, np.uint32)

    def work(batch: Batch) -> tuple[int, int]:
        size = batch.columns.shape[1]
        buckets, weights = np.empty(size, np.uint32), np.empty(size, np.uint32)
        n, fingerprint = sketch.tally(batch.columns, demand, buckets, weights)
        sketch.query_buckets(batch.columns, demand, log.bits, buckets)
        sketch.add(counters, buckets[:n], weights[:n])
        return size - n, int(fingerprint)

    blocks: dict[Block, Counter[str]] = defaultdict(Counter)
    for part in parts(batches, log.reading, work):
        found = blocks[part.block]
        found.update(lines=part.chunk.lines, good=part.chunk.good, bytes=part.n_bytes)
        for above, fingerprint in part.chunk.results:
            found.update(above=above, fingerprint=fingerprint)
    for found in blocks.values():  # a fingerprint in halves, so that sums of many stay below 2^63
        found.update(low=found["fingerprint"] % 2**32, high=(found["fingerprint"] >> 32) % 2**32)
    described = [{**block._asdict(), **{name: found[name] for name in FOUND}} for block, found in blocks.items()]
    columns = [pa.nulls(len(blocks), pa.int64()), arrow(np.zeros(len(blocks), np.int64)), pa.array(described, BLOCK)]
    yield pa.RecordBatch.from_arrays(columns, schema=SURVEY)
    filled = np.flatnonzero(counters)
    for at in range(0, filled.size, CAPACITY):
        some = filled[at : at + CAPACITY]
        columns = [arrow(some), arrow(counters[some].astype(np.int64)), pa.nulls(some.size, BLOCK)]
        yield pa.RecordBatch.from_arrays(columns, schema=SURVEY)


def tally(log: Log, plan: Broadcast[Plan], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The second pass over some lines: the cells of queries that may pass, counted batch by batch, and the bad lines."""
    same_version(log.version)
    demand, schema, lines_before = demand_of(log.wanted), tally_schema(log.reading.fmt), plan.value.lines_before
    hot = np.zeros(1 << log.bits, np.bool_)
    hot[plan.value.hot] = True

    def work(batch: Batch) -> pa.Table:
        columns = batch.columns
        kept = np.empty(columns.shape[1], np.int64)
        kept = kept[: sketch.hot_queries(columns, hot, demand, log.bits, kept)]
        clicks, impressions = columns[parser.CLICKS, kept], columns[parser.IMPRESSIONS, kept]
        lines = pa.table(
            {
                "query_id": batch.ids(parser.QUERY, kept),
                "ad_id": batch.ids(parser.ITEM, kept),
                "position": arrow(columns[parser.POSITION, kept].astype(np.int8)),
                "lines": arrow(np.ones(kept.size, np.int64)),
                "clicked_lines": arrow((clicks > 0).astype(np.int64)),
                "impressions": arrow(impressions),
                "clicks": arrow(clicks),
            }
        )
        sums = lines.group_by(list(KEY), use_threads=False).aggregate([(name, "sum") for name in SUMS])
        return sums.rename_columns([name.removesuffix("_sum") for name in sums.column_names])

    for block, before, _, chunk in parts(batches, log.reading, work):
        for bad in chunk.bad:
            lines = pc.add(bad["line"], lines_before[block] + before + 1)
            yield padded(bad.set_column(0, "line", lines).append_column("file", pa.array([block.file] * len(bad))), schema)
        for cells in chunk.results:
            yield padded(cells, schema)


def tally_schema(fmt: LogFormat) -> pa.Schema:
    """A row of the second pass: a cell, or a bad line."""
    ids = [pa.int64() if fmt.column(name).kind is Kind.INTEGER else pa.string() for name in (fmt.roles.query, fmt.roles.item)]
    cell = zip((*KEY, *SUMS), (*ids, pa.int8(), *[pa.int64()] * len(SUMS)), strict=True)
    return pa.schema([*cell, ("file", pa.int64()), ("line", pa.int64()), ("reason", pa.string()), ("text", pa.string())])


def padded(rows: pa.Table, schema: pa.Schema) -> pa.RecordBatch:
    """Rows of a schema with some of its columns; the others are null."""
    columns = [
        rows[field.name].combine_chunks() if field.name in rows.column_names else pa.nulls(len(rows), field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
