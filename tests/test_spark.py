"""The count on Spark is the count on one machine: whatever the files, their packing, and how Spark cuts them into blocks."""

import bz2
import csv
import gzip
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal
from pyspark.sql import SparkSession

from pipeline import __version__, artefacts, formats
from pipeline.artefacts import COUNTS, REJECTS
from pipeline.engines import duckdb, polars
from pipeline.errors import DataError
from pipeline.filter import Filter, Unit
from pipeline.formats import LogFormat
from pipeline.stages.count import Summary, count_here, count_on_spark
from tests import naive
from tests.conftest import kdd
from tests.test_bad_lines import CASES, GOOD
from tests.test_counting import FILTER, LINE, SHOP, expected, text

KDD = formats.load("kdd2012")
SMALL = Filter(min_displays=3, min_ads=2)


def counted(
    spark: SparkSession, log: object, folder: Path, wanted: Filter, fmt: LogFormat = KDD, most_bad: int = 10**6
) -> tuple[Summary, pl.DataFrame, pl.DataFrame]:
    """What the count on Spark says, and the rows of both artefacts."""
    summary = count_on_spark(str(log), folder / "on spark", fmt, spark, wanted, most_bad)
    return summary, artefacts.read(COUNTS, folder / "on spark"), artefacts.read(REJECTS, folder / "on spark")


def assert_as_here(spark: SparkSession, log: Path, wanted: Filter, fmt: LogFormat = KDD) -> None:
    """Summary, counts and rejects of one file are those of polars, and the provenance, too."""
    folder = log.parent
    here = count_here(log, folder / "here", fmt, polars.count, wanted, 10**6)
    summary, counts, rejects = counted(spark, log, folder, wanted, fmt)
    assert summary == here
    assert_frame_equal(counts, artefacts.read(COUNTS, folder / "here"))
    assert_frame_equal(rejects, artefacts.read(REJECTS, folder / "here"))
    assert artefacts.provenance(COUNTS, folder / "on spark") == artefacts.provenance(COUNTS, folder / "here")


def some_lines(seed: int, n: int) -> list[bytes]:
    """Good lines of few queries and ads, and a bad one here and there."""
    rng = np.random.default_rng(seed)
    lines = [kdd(*row) for row in rng.integers([0, 0, 1, 0], [4, 4, 4, 2], (n, 4)).tolist()]
    bad = [line for _, line in CASES]
    for at in rng.integers(0, n, n // 10).tolist():
        lines[at] = bad[at % len(bad)]
    return lines


@pytest.mark.long
@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=st.lists(LINE, min_size=1, max_size=60), wanted=FILTER)
def test_counts_are_the_brute_force_counts(
    spark: SparkSession, lines: list[naive.Line], wanted: Filter, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("log")
    (folder / "log.txt").write_bytes(b"\n".join(text(lines)))
    assert counted(spark, folder / "log.txt", folder, wanted)[1].rows() == expected(lines, wanted)


@pytest.mark.long
def test_the_default_log_with_bad_lines_gives_the_same_rows_by_every_engine(
    spark: SparkSession, default_workspace: Path, tmp_path: Path
) -> None:
    """Every kind of bad line is put into the four million, and the last line is cut."""
    lines = (default_workspace / "raw" / "training.txt").read_bytes().split(b"\n")
    step = len(lines) // len(CASES)
    for number, (_, line) in enumerate(CASES):
        lines[number * step] = line
    log = tmp_path / "log.txt"
    log.write_bytes(b"\n".join(lines)[:-20])
    found = {}
    for name, engine in (("polars", polars), ("duckdb", duckdb)):
        summary = count_here(log, tmp_path / name, KDD, engine.count, Filter(), 1000)
        found[name] = (summary, artefacts.read(COUNTS, tmp_path / name), artefacts.read(REJECTS, tmp_path / name))
    found["spark"] = counted(spark, log, tmp_path, Filter(), most_bad=1000)
    summary, counts, rejects = found["polars"]
    assert (summary.queries, len(rejects)) == (8, len(CASES) + 1)
    for other in ("duckdb", "spark"):
        assert found[other][0] == summary
        assert_frame_equal(found[other][1], counts)
        assert_frame_equal(found[other][2], rejects)


@pytest.mark.long
@pytest.mark.parametrize(
    ("end", "unit"), [(b"", Unit.lines), (b"\n", Unit.impressions), (b"\r\n", Unit.lines), (b"\n\n", Unit.lines)]
)
def test_line_ends_and_a_byte_order_mark(spark: SparkSession, unit: Unit, end: bytes, tmp_path: Path) -> None:
    newline = b"\r\n" if end == b"\r\n" else b"\n"
    log = tmp_path / "log.txt"
    for mark in (b"", b"\xef\xbb\xbf"):
        log.write_bytes(mark + newline.join([*some_lines(1, 300), GOOD[:-30] if not end else GOOD]) + end)
        assert_as_here(spark, log, SMALL._replace(unit=unit))


@pytest.mark.long
@pytest.mark.parametrize("block", [1000, 4097, 100_000])
def test_blocks_of_any_size_number_lines_alike(spark: SparkSession, block: int, tmp_path: Path) -> None:
    before = spark.conf.get("spark.sql.files.maxPartitionBytes")
    spark.conf.set("spark.sql.files.maxPartitionBytes", str(block))
    spark.conf.set("spark.sql.files.minPartitionNum", "1")
    try:
        (tmp_path / "log.txt").write_bytes(b"\n".join(some_lines(2, 500)) + b"\n" + GOOD[:-30])
        assert_as_here(spark, tmp_path / "log.txt", SMALL)
    finally:
        spark.conf.set("spark.sql.files.maxPartitionBytes", str(before))


@pytest.mark.long
@pytest.mark.parametrize("name", ["with blanks, 50%25 off.txt", "#ünï & a+b;c='\".txt"])
def test_odd_names(spark: SparkSession, name: str, tmp_path: Path) -> None:
    folder = tmp_path / f"in {name}"
    folder.mkdir()
    (folder / name).write_bytes(b"\n".join(some_lines(3, 100)))
    assert_as_here(spark, folder / name, SMALL)


@pytest.mark.long
def test_packed_logs(spark: SparkSession, tmp_path: Path) -> None:
    content = b"\n".join(some_lines(4, 1000)) + b"\n"
    for name, packed in (("log.gz", gzip.compress(content)), ("log.txt.bz2", bz2.compress(content))):
        (tmp_path / name).write_bytes(packed)
        assert_as_here(spark, tmp_path / name, SMALL)
    two_members = gzip.compress(content[:5000]) + gzip.compress(content[5000:])
    (tmp_path / "log.gz").write_bytes(two_members)
    assert_as_here(spark, tmp_path / "log.gz", SMALL)


def test_a_parquet_log(spark: SparkSession, tmp_path: Path) -> None:
    """Unsigned integers of 64 bits included, which Spark has no type for; a row out of range and a null are rejected."""
    rng = np.random.default_rng(5)
    n = 2000
    names = [column.name for column in KDD.columns]
    columns = {name: pa.array(rng.integers(0, 4, n)) for name in names}
    columns["Click"], columns["Impression"] = pa.array(rng.integers(0, 2, n)), pa.array(rng.integers(1, 3, n))
    columns["Position"], columns["Depth"] = pa.array(rng.integers(1, 4, n)), pa.array(np.full(n, 3))
    columns["DisplayURL"] = pa.array(rng.integers(2**62, 2**64, n, dtype=np.uint64))
    columns["AdID"] = pa.array([None if at == 77 else at % 5 for at in range(n)], pa.int64())
    columns["UserID"] = pa.array([-1 if at == 1500 else at for at in range(n)])
    pq.write_table(pa.table(columns), tmp_path / "log.parquet", row_group_size=300)
    assert_as_here(spark, tmp_path / "log.parquet", SMALL)
    assert artefacts.read(REJECTS, tmp_path / "on spark")["line"].to_list() == [78, 1501]


def test_a_log_of_ones_own_with_text_ids_and_a_header(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "shop.toml").write_text(SHOP)
    terms = ['red, "big" shoes', "<script>alert(1)</script>", "\u202e\u05d7\u05dc"]
    with (tmp_path / "log.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["clicked", "day", "rank", "sku", "term"])
        for click, rank, sku, term in np.random.default_rng(1).integers([0, 0, 0, 0], [2, 3, 3, 3], (400, 4)).tolist():
            writer.writerow([click, "mon", rank, "abc"[sku], terms[term]])
        writer.writerow([2, "mon", 1, "a", "x"])
    assert_as_here(spark, tmp_path / "log.csv", SMALL, formats.load(str(tmp_path / "shop.toml")))
    assert set(artefacts.read(COUNTS, tmp_path / "on spark")["query_id"]) == set(terms)


def test_a_folder_or_glob_of_files_is_one_log(spark: SparkSession, tmp_path: Path) -> None:
    """Plain and packed ones beside each other, a folder deeper; a bad line is named by file and line."""
    folder = tmp_path / "log"
    pieces = {"day=1/a.txt": some_lines(6, 200), "day=2/a.txt.gz": some_lines(7, 200), "day=2/b.txt": some_lines(8, 200)}
    whole = [line for lines in pieces.values() for line in lines]
    for name, lines in pieces.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        content = b"\n".join(lines) + b"\n"
        (folder / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    (tmp_path / "whole.txt").write_bytes(b"\n".join(whole) + b"\n")
    here = count_here(tmp_path / "whole.txt", tmp_path / "here", KDD, polars.count, SMALL, 10**6)
    rejects_here = artefacts.read(REJECTS, tmp_path / "here")
    for log in (folder, f"{folder}/day=*/*", f"file://{folder}"):
        summary, counts, rejects = counted(spark, log, tmp_path, SMALL)
        assert summary == here
        assert_frame_equal(counts, artefacts.read(COUNTS, tmp_path / "here"))
        assert rejects["reason"].to_list() == rejects_here["reason"].to_list()
        place = [(name, line) for name in pieces for line in range(1, 201)]
        assert rejects.select("file", "line").rows() == [place[line - 1] for line in rejects_here["line"]]
    rejects = counted(spark, f"{folder}/day=2", tmp_path, SMALL)[2]
    assert set(rejects["file"]) == {"a.txt.gz", "b.txt"}


def refused(spark: SparkSession, log: object, folder: Path, most_bad: int = 1000, fmt: LogFormat = KDD) -> str:
    with pytest.raises(DataError) as error:
        count_on_spark(str(log), folder / "w", fmt, spark, SMALL, most_bad)
    assert not (folder / "w" / "counts.parquet").exists()
    return str(error.value)


@pytest.mark.long
def test_what_is_no_log_is_refused_in_words(spark: SparkSession, tmp_path: Path) -> None:
    missing = tmp_path / "nothing*.txt"
    assert refused(spark, missing, tmp_path) == (
        f"there is no log at {missing}; check the path, or make a synthetic log with `pbm synthesize`"
    )
    log = tmp_path / "log.txt"
    log.write_bytes(b"")
    assert refused(spark, log, tmp_path) == f"{log} is empty; expected a log"
    log.write_bytes(gzip.compress(GOOD))
    assert refused(spark, log, tmp_path) == (
        f"{log} is gzip data, which Spark knows by its ending alone; let the name end in .gz"
    )
    log.write_bytes(b"PK\x03\x04rest")
    assert refused(spark, log, tmp_path) == (
        f"{log} is a zip archive, which Spark does not read; unpack it, or pack it again with gzip"
    )
    log.write_bytes(GOOD.replace(b"\t", b",") + b"\n")
    assert "the fields are separated by commas (12 a line)" in refused(spark, log, tmp_path)
    log.write_bytes(b"rubbish\n")
    assert refused(spark, log, tmp_path) == (
        f"{log} has no good line in format 'kdd2012'; the first is bad: too few fields (1 of 12); "
        "is it a log of this format? see --format"
    )
    assert "No FileSystem for scheme" in refused(spark, "nowhere://bucket/log.txt", tmp_path)


@pytest.mark.long
def test_too_many_bad_lines_stop_the_count_and_are_quoted(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_bytes(b"\n".join([GOOD] * 50 + [b"rubbish", GOOD, b"", GOOD]) + b"\n")
    assert refused(spark, tmp_path / "*.txt", tmp_path, most_bad=3) == (
        f"{tmp_path}/*.txt: 4 of 108 lines are bad, and --max-bad-lines allows 3; nothing was changed; the first are\n"
        "  a.txt, line 51: too few fields (1 of 12): 'rubbish'\n"
        "  a.txt, line 53: empty line: ''\n"
        "correct them, declare the format of this log (see `pbm formats`), or raise --max-bad-lines to have them set aside"
    )


@pytest.mark.long
def test_files_with_other_headers_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "shop.toml").write_text(SHOP)
    (tmp_path / "a.csv").write_text("clicked,rank,sku,term\n1,1,a,x\n")
    (tmp_path / "b.csv").write_text("clicked,rank,term,sku\n1,1,a,x\n")
    assert refused(spark, tmp_path / "*.csv", tmp_path, fmt=formats.load(str(tmp_path / "shop.toml"))) == (
        "a file starts with b'clicked,rank,term,sku', and the first one with the header b'clicked,rank,sku,term'; "
        "make them the same"
    )


@pytest.mark.long
def test_a_worker_with_another_version_is_told_apart(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.engines.spark.__version__", "0.0")
    (tmp_path / "log.txt").write_bytes(GOOD)
    assert refused(spark, tmp_path / "log.txt", tmp_path) == (
        f"a worker has pbm {__version__}, and this side 0.0; install the same everywhere"
    )


@pytest.mark.long
def test_a_log_that_changes_under_way_is_refused(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pipeline.engines import spark as engine

    log, surveyed = tmp_path / "log.txt", engine.surveyed
    log.write_bytes(GOOD)

    def grown(*arguments: Any) -> Any:
        found = surveyed(*arguments)
        with log.open("ab") as file:
            file.write(b"\n" + GOOD)
        return found

    monkeypatch.setattr(engine, "surveyed", grown)
    assert refused(spark, log, tmp_path) == f"{log} was written to while it was read; count it again when it is complete"


@pytest.mark.long
def test_a_filter_that_nothing_passes_is_no_error(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_bytes(GOOD)
    wanted = Filter(min_displays=1, min_ads=2**62, positions=3)
    assert counted(spark, tmp_path / "log.txt", tmp_path, wanted)[1].is_empty()
