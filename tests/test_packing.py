"""A log is read as plain text, gzip, zstandard, zip or parquet, told by its first bytes; the rows are the same."""

import bz2
import gzip
import io
import random
import zipfile
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline import artefacts, formats
from pipeline.artefacts import COUNTS, REJECTS
from tests.conftest import Pbm, kdd

DRAWS = random.Random(0)
LINES = [kdd(DRAWS.randrange(3), DRAWS.randrange(3), DRAWS.randrange(1, 4), DRAWS.randrange(2), 2) for _ in range(3000)]
BAD = kdd(1, 1, 2, depth=1)
TEXT = b"\n".join([*LINES[:1500], BAD, *LINES[1500:]]) + b"\n"
NAMES = [column.name for column in formats.load("kdd2012").columns]
OPTIONS = ("--min-displays", 90, "--min-ads", 2)


def zipped(members: dict[str, bytes], how: int = zipfile.ZIP_DEFLATED) -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", how) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return archive.getvalue()


def parquet() -> bytes:
    rows = [[int(field) for field in line.split(b"\t")] for line in TEXT.splitlines()]
    columns = {name: pa.array([row[k] for row in rows], pa.uint64()) for k, name in reversed(list(enumerate(NAMES)))}
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink, row_group_size=700)
    return sink.getvalue()


PACKED = {
    "plain": TEXT,
    "gzip": gzip.compress(TEXT),
    "gzip of several members": gzip.compress(TEXT[:100]) + gzip.compress(TEXT[100:]),
    "zstd": pa.compress(TEXT, "zstd", asbytes=True),
    "zstd of several frames": pa.compress(TEXT[:100], "zstd", asbytes=True) + pa.compress(TEXT[100:], "zstd", asbytes=True),
    "bz2": bz2.compress(TEXT),
    "zip as distributed": zipped({"track2/": b"", "track2/training.txt": TEXT, "track2/userid_profile.txt": b"1\t2\t3\n"}),
    "zip, stored": zipped({"training.txt": TEXT}, zipfile.ZIP_STORED),
    "parquet": parquet(),
}


@pytest.mark.parametrize("engine", ["polars", "duckdb"])
@pytest.mark.parametrize("packing", PACKED)
def test_every_packing_gives_the_same_rows(packing: str, engine: str, tmp_path: Path, pbm: Pbm) -> None:
    plain, packed = tmp_path / "plain", tmp_path / "packed"
    (tmp_path / "log").write_bytes(TEXT)
    assert pbm("count", tmp_path / "log", "-w", plain, *OPTIONS).code == 0
    assert artefacts.read(COUNTS, plain).height > 5

    log = tmp_path / "it's a «log» of ours; DROP TABLE x"  # a blank, a quote, letters beyond ASCII; and no ending
    log.write_bytes(PACKED[packing])
    assert pbm("count", log, "-w", packed, "--engine", engine, *OPTIONS).code == 0
    assert artefacts.read(COUNTS, packed).equals(artefacts.read(COUNTS, plain))
    rejects = artefacts.read(REJECTS, packed)
    assert rejects["line"].to_list() == [1501]
    assert rejects["reason"].to_list() == ["Position above Depth"]
    fingerprints = [artefacts.provenance(COUNTS, workspace)["inputs"]["log"]["fingerprint"] for workspace in (plain, packed)]
    assert fingerprints[0] == fingerprints[1]


DAMAGED = {
    "gzip": (gzip.compress(TEXT)[:-200], "the gzip data is damaged or cut short"),
    "zstd": (pa.compress(TEXT, "zstd", asbytes=True)[:-200], "the zstd data is damaged or cut short"),
    "zip": (zipped({"training.txt": TEXT})[:-200], "the zip data is damaged or cut short"),
    "zip, a bit flipped": (
        (whole := zipped({"training.txt": TEXT}, zipfile.ZIP_STORED))[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:],
        "the zip data is damaged or cut short",
    ),
    "parquet": (parquet()[:-200], "is damaged parquet"),
    "parquet, a page broken": (parquet()[:400] + bytes(200) + parquet()[600:], "is damaged parquet"),
}


@pytest.mark.parametrize("packing", DAMAGED)
def test_damaged_archives_are_refused(packing: str, tmp_path: Path, pbm: Pbm) -> None:
    content, message = DAMAGED[packing]
    (tmp_path / "log").write_bytes(content)
    outcome = pbm("count", tmp_path / "log", "-w", tmp_path)
    assert (outcome.code, outcome.out) == (1, "")
    assert message in outcome.err
    assert outcome.err.count("\n") == 1
    assert not (tmp_path / "counts.parquet").exists()


@pytest.mark.parametrize("how", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_no_flipped_byte_of_a_zip_goes_unnoticed(how: int, tmp_path: Path, pbm: Pbm) -> None:
    packed = bytearray(zipped({"training.txt": TEXT}, how))
    for at in range(60, len(packed) - 200, len(packed) // 40):
        packed[at] ^= 0x55
        (tmp_path / "log").write_bytes(packed)
        outcome = pbm("count", tmp_path / "log", "-w", tmp_path)
        assert (outcome.code, outcome.out) == (1, "")
        assert outcome.err.startswith("pbm: error: ")
        packed[at] ^= 0x55


def test_a_zip_without_the_log_is_refused(tmp_path: Path, pbm: Pbm) -> None:
    log = tmp_path / "log.zip"
    log.write_bytes(zipped({"a.txt": b"1", "../../b'.txt": b"2"}))
    assert pbm("count", log, "-w", tmp_path).err == (
        f"pbm: error: {log}: expected one file that matches 'training.txt' (the member of format 'kdd2012'), found none; "
        "it holds 'a.txt', \"../../b'.txt\"; unpack the right one, or set 'member' in a format of your own\n"
    )
    log.write_bytes(zipped({"x/training.txt": TEXT, "y/training.txt": TEXT}))
    assert pbm("count", log, "-w", tmp_path).err == (
        f"pbm: error: {log}: expected one file that matches 'training.txt' (the member of format 'kdd2012'), found 2; "
        "it holds 'x/training.txt', 'y/training.txt'; unpack the right one, or set 'member' in a format of your own\n"
    )


def test_parquet_is_checked_by_the_same_rules(tmp_path: Path, pbm: Pbm) -> None:
    (tmp_path / "own.toml").write_text(
        'name = "own"\nseparator = ","\nheader = true\n'
        '[roles]\nquery = "term"\nitem = "sku"\nposition = "rank"\nclicks = "clicked"\nimpressions = "shown"\n'
        '[columns]\nterm = { type = "text" }\nrank = { max = 3 }\n'
    )
    rows = pl.DataFrame(
        {
            "term": ["shoes", "shoes", "shoes", None, "", "shoes", "shoes", "shoes", "sh\N{OGHAM SPACE MARK}es"],
            "sku": [1, 1, 1, 1, 1, -1, None, 1, 2],
            "rank": [1, 2, 3, 1, 1, 1, 1, 4, 1],
            "clicked": [True, False, True, True, True, True, True, True, True],
            "shown": [1, 1, 1, 1, 1, 1, 1, 1, 0],
            "note": [0.5] * 9,
        }
    )
    rows.write_parquet(tmp_path / "log.parquet")
    outcome = pbm(
        "count", tmp_path / "log.parquet", "-w", tmp_path, "--format", tmp_path / "own.toml", "--min-displays", 1, "--min-ads", 1
    )
    assert outcome.code == 0, outcome.err
    assert artefacts.read(COUNTS, tmp_path).rows() == [
        ("shoes", 1, 1, 1, 1, 1, 1),
        ("shoes", 1, 2, 1, 0, 1, 0),
        ("shoes", 1, 3, 1, 1, 1, 1),
    ]
    assert artefacts.read(REJECTS, tmp_path).select("line", "reason").rows() == [
        (4, "term is empty"),
        (5, "term is empty"),
        (6, "sku outside 0 to 9223372036854775807"),
        (7, "sku is not a number"),
        (8, "rank outside 1 to 3"),
        (9, "shown outside 1 to 4294967295"),
    ]


def test_parquet_text_is_checked_as_text_is(tmp_path: Path, pbm: Pbm) -> None:
    (tmp_path / "own.toml").write_text(
        'name = "own"\nseparator = ","\nheader = true\n'
        '[roles]\nquery = "term"\nitem = "sku"\nposition = "rank"\nclicks = "clicked"\n'
        '[columns]\nterm = { type = "text" }\nsku = { min = 1000, max = 2000 }\n'
    )
    terms = pa.array([b"a", b"a\xff", b"a\0b", b"a"]).cast(pa.binary())
    for sku in (pa.int16(), pa.uint64()):
        columns = {
            "term": pa.Array.from_buffers(pa.string(), 4, terms.buffers()),
            "sku": pa.array([1000, 1000, 1000, 999], sku),
            "rank": pa.array([1] * 4),
            "clicked": pa.array([True] * 4),
        }
        pq.write_table(pa.table(columns), tmp_path / "log.parquet")
        outcome = pbm("count", tmp_path / "log.parquet", "-w", tmp_path, "--format", tmp_path / "own.toml")
        assert outcome.code == 0, outcome.err
        assert artefacts.read(REJECTS, tmp_path).select("line", "reason", "text").rows() == [
            (2, "term is not UTF-8", "a\\xff\t1000\t1\tTrue"),
            (3, "NUL byte", "a\\x00b\t1000\t1\tTrue"),
            (4, "sku outside 1000 to 2000", "a\t999\t1\tTrue"),
        ]


def test_a_dictionary_column_is_text_too(tmp_path: Path, pbm: Pbm) -> None:
    (tmp_path / "own.toml").write_text(
        'name = "own"\nseparator = ","\nheader = true\n'
        '[roles]\nquery = "term"\nitem = "sku"\nposition = "rank"\nclicks = "clicked"\n'
        '[columns]\nterm = { type = "text" }\n'
    )
    pl.DataFrame(
        {"term": pl.Series(["x", "y", "x"], dtype=pl.Categorical), "sku": [1, 1, 1], "rank": [1, 1, 1], "clicked": [0, 1, 1]}
    ).write_parquet(tmp_path / "log.parquet")
    options = ("--min-displays", 1, "--min-ads", 1, "--positions", 1)
    outcome = pbm("count", tmp_path / "log.parquet", "-w", tmp_path, "--format", tmp_path / "own.toml", *options)
    assert outcome.code == 0, outcome.err
    assert artefacts.read(COUNTS, tmp_path).rows() == [("x", 1, 1, 2, 1, 2, 1), ("y", 1, 1, 1, 1, 1, 1)]


def test_parquet_of_other_columns_or_types_is_refused(tmp_path: Path, pbm: Pbm) -> None:
    log = tmp_path / "log.parquet"
    pl.DataFrame({"Click": [1], "QueryID": [1]}).write_parquet(log)
    assert pbm("count", log, "-w", tmp_path).err.startswith(f"pbm: error: {log}: the column 'Impression', 'DisplayURL', 'AdID'")
    pl.DataFrame({name: [1.5] for name in NAMES}).write_parquet(log)
    assert pbm("count", log, "-w", tmp_path).err == (
        f"pbm: error: {log}: column 'Click' is double, format 'kdd2012' says integer; "
        "cast it, or declare another type in a .toml and pass it with --format\n"
    )
