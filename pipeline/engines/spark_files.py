"""A log that Spark can read: its files, what they are, and their lines."""

import re
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.errors import LogError
from pipeline.formats import LogFormat
from pipeline.log import parquet
from pipeline.log.blocks import FILE, LINE, START, UINT64, Reading
from pipeline.log.opening import FIRST_BYTES, MAGIC, UNREADABLE, lines_of
from pipeline.log.sniffing import LOOKED_AT, recognised_text

# Hadoop unpacks by the ending of a name; what a file is, its first bytes say. These must agree.
ENDINGS = {"gzip": ".gz", "bz2": ".bz2", "zstd": ".zst"}


class File(NamedTuple):
    """A file of the log."""

    address: str  # as Spark writes it: a URI
    number: int  # a hash of it, by which lines name their file
    size: int
    changed: Any


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


def opened(spark: SparkSession, path: str, files: list[File], fmt: LogFormat) -> tuple[Reading, DataFrame]:
    """How the log is to be read, by its first file, and its lines (or rows) with the file and the block that each is in."""
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
        return Reading(fmt, True, b"", 0), rows.select(*columns, *where)
    first_lines, whole = lines_of(head_of(spark, first.address, unpacked=True), LOOKED_AT)
    found = recognised_text(first_lines, whole, fmt, shown)
    lines = spark.read.option("lineSep", "\n").text(path).select(f.col("value").cast("binary").alias(LINE), *where)
    return Reading(found, False, first_lines[0] if fmt.header else b"", 0), lines


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
