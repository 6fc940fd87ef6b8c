"""The same count on a Spark cluster: the log is read, checked and counted where its files and the executors are.

The plan is that of one machine in Spark's terms. The first pass checks every line and adds up the displays of each query; a query
passes the filter only with min_ads x positions x min_displays of them, so those that may pass are few: at most the log's displays
over that number. The second pass gets them as a broadcast and counts the cells of their lines exactly. Both passes run this
package's own parser on the executors (`mapInArrow`): a line that is bad on a laptop is bad on a cluster.

A line is known by its file and its number there. Spark cuts large files into blocks and hands on the lines of a block in order;
the first pass counts the lines of each block, so the second knows the number of each bad line.
"""

import posixpath
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import unquote

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark import Broadcast
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from pipeline import __version__
from pipeline.cluster import same_version, told, watched
from pipeline.engines import Census, Counted, Reject
from pipeline.errors import LogError
from pipeline.filter import Filter, Unit
from pipeline.formats import Kind, LogFormat
from pipeline.log import parquet, parser, sketch
from pipeline.log.blocks import FILE, LINE, START, UINT64, Block, Reading, parts
from pipeline.log.complaints import QUOTED_REJECTS, no_good_line, too_many
from pipeline.log.opening import BYTE_ORDER_MARK, FIRST_BYTES, MAGIC, UNREADABLE, lines_of
from pipeline.log.scanning import Batch, arrow
from pipeline.log.sniffing import LOOKED_AT, recognised_text

FOUND = ("lines", "good", "above", "low", "high", "bytes")  # of a block: lines, those above the positions, fingerprint, size
BLOCK = pa.struct([(name, pa.int64()) for name in ("file", "start", *FOUND)])
SURVEY = pa.schema([("query", pa.int64()), ("displays", pa.int64()), ("block", BLOCK)])
KEY = ("query_id", "ad_id", "position")
SUMS = ("lines", "clicked_lines", "impressions", "clicks")
LARGEST = 2**63 - 1  # that Spark's integers hold
# Hadoop unpacks by the ending of a name; what a file is, its first bytes say. These must agree.
ENDINGS = {"gzip": ".gz", "bz2": ".bz2", "zstd": ".zst"}


class File(NamedTuple):
    """A file of the log."""

    address: str  # as Spark writes it: a URI
    number: int  # a hash of it, by which lines name their file
    size: int
    changed: Any


class Log(NamedTuple):
    """What the executors must know of a log."""

    version: str  # of this package, which theirs must be, too
    reading: Reading
    wanted: Filter


class Plan(NamedTuple):
    """What the first pass found out for the second."""

    queries: NDArray[np.int64]  # that may pass, sorted; of text ids, their hashes
    lines_before: dict[Block, int]  # lines of its file before a block


def count(spark: SparkSession, path: str, fmt: LogFormat, wanted: Filter, max_bad_lines: int, reject: Reject) -> Counted:
    """Both passes over a log that Spark can read: a path or a glob, on any file system that it knows."""
    with told():
        files = files_of(spark, path)
        log, lines = opened(spark, path, files, fmt, wanted)
        tasks = lines.rdd.getNumPartitions()
    with watched(spark, "reading", tasks):
        queries, blocks = surveyed(lines, log)
    total = {name: sum(blocks[name].to_list()) for name in FOUND}
    n_bad = total["lines"] - total["good"]
    lines_before, cut = numbered(blocks, files, header=bool(log.reading.header))
    plan = spark.sparkContext.broadcast(Plan(queries, lines_before))
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


# The log, seen from the driver


def files_of(spark: SparkSession, path: str) -> list[File]:
    """The files of a log, in the order of their addresses. Nothing of them is read."""
    described = f.xxhash64("_metadata.file_path"), "_metadata.file_size", "_metadata.file_modification_time"
    try:
        found = spark.read.format("binaryFile").load(path).select("_metadata.file_path", *described).collect()
    except Exception as error:
        if "PATH_NOT_FOUND" in str(error):
            raise LogError(f"there is no log at {path}; check the path, or make a synthetic log with `pbm synthesize`") from None
        raise
    files = sorted(File(*row) for row in found)
    if not sum(file.size for file in files):
        raise LogError(f"{path} is empty; expected a log")
    return files


def opened(spark: SparkSession, path: str, files: list[File], fmt: LogFormat, wanted: Filter) -> tuple[Log, DataFrame]:
    """The log, recognised by its first file, and its lines (or rows) with the file and the block that each is in."""
    first = next(file for file in files if file.size)
    shown = place(first.address)
    head = head_of(spark, first.address, unpacked=False)
    for magic, what in UNREADABLE.items():
        if head.startswith(magic):
            raise LogError(f"{shown} is {what}")
    packing = next((packing for magic, packing in MAGIC.items() if head.startswith(magic)), "plain")
    if packing == "zip":
        raise LogError(f"{shown} is a zip archive, which Spark does not read; unpack it, or pack it again with gzip")
    if not shown.endswith(ENDINGS.get(packing, "")):
        raise LogError(
            f"{shown} is {packing} data, which Spark knows by its ending alone; let the name end in {ENDINGS[packing]}"
        )
    where = f.xxhash64("_metadata.file_path").alias(FILE), f.col("_metadata.file_block_start").alias(START)
    if packing == "parquet":
        rows = spark.read.parquet(path)
        fmt = parquet.described_schema(unsigned(to_arrow_schema(rows.schema)), fmt, shown)
        columns = [f.col("`" + column.name.replace("`", "``") + "`") for column in fmt.columns]
        return Log(__version__, Reading(fmt, True, b"", 0), wanted), rows.select(*columns, *where)
    first_lines, whole = lines_of(head_of(spark, first.address, unpacked=True), LOOKED_AT)
    found = recognised_text(first_lines, whole, fmt, shown)
    lines = spark.read.option("lineSep", "\n").text(path).select(f.col("value").cast("binary").alias(LINE), *where)
    return Log(__version__, Reading(found, False, first_lines[0] if fmt.header else b"", 0), wanted), lines


def place(address: str) -> str:
    """A file's address as people write it."""
    return re.sub("^file:/+", "/", unquote(address))


def head_of(spark: SparkSession, address: str, *, unpacked: bool) -> bytes:
    """The first bytes of a file, through Hadoop, which knows the file system and its keys."""
    context = spark.sparkContext
    java: Any = context._jvm
    configuration = context._jsc.hadoopConfiguration()
    path = java.org.apache.hadoop.fs.Path(java.java.net.URI(address))
    stream = path.getFileSystem(configuration).open(path)
    codec = java.org.apache.hadoop.io.compress.CompressionCodecFactory(configuration).getCodec(path) if unpacked else None
    if codec is not None:
        stream = codec.createInputStream(stream)
    try:
        return bytes(stream.readNBytes(FIRST_BYTES))
    finally:
        stream.close()


def unsigned(schema: pa.Schema) -> pa.Schema:
    """The schema with unsigned integers where Spark has decimals for them."""
    return pa.schema([(field.name, pa.uint64() if field.type == UINT64 else field.type) for field in schema])


# The two passes, as the driver asks for them


def surveyed(lines: DataFrame, log: Log) -> tuple[NDArray[np.int64], pl.DataFrame]:
    """The queries with enough displays to pass, sorted, and what was found in each block, in the order of the log."""
    wanted = log.wanted
    enough = min(wanted.min_ads * wanted.positions * wanted.min_displays, LARGEST)
    found = pl.DataFrame(
        lines.mapInArrow(partial(survey, log), from_arrow_schema(SURVEY))
        .groupBy("query", "block")
        .agg(f.sum("displays").alias("displays"))
        .where(f.col("block").isNotNull() | (f.col("displays") >= enough))
        .toArrow()
    )
    blocks = found.filter(pl.col("block").is_not_null())["block"].struct.unnest()
    return np.sort(found.filter(pl.col("block").is_null())["query"].to_numpy()), blocks.sort("file", "start")


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


def survey(log: Log, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The first pass over some lines: displays by query, and at the end what was in each block."""
    demand = sketch.Demand(log.wanted.min_displays, log.wanted.positions, log.wanted.unit is Unit.impressions)

    def work(batch: Batch) -> tuple[NDArray[np.int64], NDArray[np.int64], int, int]:
        columns = batch.columns
        size = columns.shape[1]
        buckets, weights = np.empty(size, np.uint32), np.empty(size, np.uint32)
        n, fingerprint = sketch.tally(columns, demand, buckets, weights)
        counted = columns[parser.POSITION] <= demand.n_positions
        order = np.argsort(columns[parser.QUERY, counted])
        queries = columns[parser.QUERY, counted][order]
        first = np.flatnonzero(np.diff(queries, prepend=queries[:1] - 1)) if n else np.empty(0, np.int64)
        displays = np.add.reduceat(weights[:n][order].astype(np.int64), first) if n else np.empty(0, np.int64)
        return queries[first], displays, size - n, int(fingerprint)

    blocks: dict[Block, Counter[str]] = defaultdict(Counter)
    same_version(log.version)
    for part in parts(batches, log.reading, work):
        block = blocks[part.block]
        block.update(lines=part.chunk.lines, good=part.chunk.good, bytes=part.n_bytes)
        for queries, displays, above, fingerprint in part.chunk.results:
            block.update(above=above, fingerprint=fingerprint)
            columns = [arrow(queries), arrow(displays), pa.nulls(queries.size, BLOCK)]
            yield pa.RecordBatch.from_arrays(columns, schema=SURVEY)
    for found in blocks.values():  # a fingerprint in halves, so that sums of many stay below 2^63
        found.update(low=found["fingerprint"] % 2**32, high=(found["fingerprint"] >> 32) % 2**32)
    described = [{**block._asdict(), **{name: found[name] for name in FOUND}} for block, found in blocks.items()]
    columns = [pa.nulls(len(blocks), pa.int64()), arrow(np.zeros(len(blocks), np.int64)), pa.array(described, BLOCK)]
    yield pa.RecordBatch.from_arrays(columns, schema=SURVEY)


def tally(log: Log, plan: Broadcast[Plan], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The second pass over some lines: the cells of queries that may pass, counted batch by batch, and the bad lines."""
    same_version(log.version)
    queries, lines_before = plan.value
    schema = tally_schema(log.reading.fmt)

    def work(batch: Batch) -> pa.Table:
        columns = batch.columns
        among = np.searchsorted(queries, columns[parser.QUERY])
        among[among == queries.size] = 0
        may_pass = queries[among] == columns[parser.QUERY] if queries.size else np.zeros(columns.shape[1], np.bool_)
        kept = np.flatnonzero(may_pass & (columns[parser.POSITION] <= log.wanted.positions))
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
