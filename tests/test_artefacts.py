"""Artefacts: written whole or not at all, the same bytes for the same run, refused when they do not fit."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline import artefacts, saving
from pipeline.artefacts import COUNTS, REJECTS, TRUTH, Provenance
from pipeline.errors import ArtefactError

ROWS = pl.DataFrame(
    {
        "query_id": [2, 1],
        "ad_id": [5, 5],
        "position": pl.Series([1, 1], dtype=pl.Int8),
        "lines": [3, 4],
        "clicked_lines": [1, 1],
        "impressions": [3, 9],
        "clicks": [1, 2],
    }
)
ORIGIN = Provenance({"min_ads": 5}, {"log": {"name": "x"}})


def test_what_is_written_is_read_sorted_by_its_key(tmp_path: Path) -> None:
    saving.write(COUNTS, ROWS, ORIGIN, tmp_path)
    assert artefacts.read(COUNTS, tmp_path).equals(ROWS.sort("query_id"))
    found = artefacts.provenance(COUNTS, tmp_path)
    assert (found["parameters"], found["inputs"], found["artefact"]) == ({"min_ads": 5}, {"log": {"name": "x"}}, "counts")


def test_text_ids_are_kept(tmp_path: Path) -> None:
    rows = ROWS.with_columns(query_id=pl.Series(["b", "a"]))
    saving.write(COUNTS, rows, ORIGIN, tmp_path)
    assert artefacts.read(COUNTS, tmp_path)["query_id"].to_list() == ["a", "b"]


def test_the_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        saving.write(COUNTS, ROWS, ORIGIN, tmp_path / folder)
    assert COUNTS.path(tmp_path / "a").read_bytes() == COUNTS.path(tmp_path / "b").read_bytes()


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    saving.write(COUNTS, ROWS, ORIGIN, tmp_path)
    before = COUNTS.path(tmp_path).read_bytes()

    def fail_half_way() -> None:
        with saving.saving(tmp_path) as save:
            save.write(COUNTS, ROWS, ORIGIN)
            save.file(tmp_path / "another").write(memoryview(b"half"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_half_way()
    assert COUNTS.path(tmp_path).read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["counts.parquet"]


def test_either_all_files_of_a_run_change_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saving.write(COUNTS, ROWS, ORIGIN, tmp_path)
    before = COUNTS.path(tmp_path).read_bytes()

    def save_both() -> None:
        with saving.saving(tmp_path) as save:
            rejects = save.writer(REJECTS)
            rejects.origin = ORIGIN
            save.write(COUNTS, ROWS.head(1), ORIGIN)

    def full(descriptor: int, fsync: Callable[[int], None] = os.fsync) -> None:
        if "rejects" in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(ArtefactError) as refused:
            save_both()
    assert str(refused.value) == (
        f"cannot write {tmp_path}/rejects.parquet: No space left on device; make room there, or choose another place"
    )
    assert COUNTS.path(tmp_path).read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["counts.parquet"]
    save_both()
    assert artefacts.read(REJECTS, tmp_path).is_empty()


def test_a_link_is_followed_and_what_is_no_file_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    COUNTS.path(tmp_path).symlink_to(tmp_path / "real" / "counts.parquet")
    saving.write(COUNTS, ROWS, ORIGIN, tmp_path)
    assert COUNTS.path(tmp_path).is_symlink()
    assert COUNTS.path(tmp_path / "real").is_file()
    os.mkfifo(tmp_path / "rejects.parquet")
    with pytest.raises(ArtefactError, match="it is not a regular file; name another"):
        saving.write(REJECTS, pl.DataFrame({"line": [1], "reason": ["x"], "text": [""], "file": ["log"]}), ORIGIN, tmp_path)


def test_what_a_killed_run_left_is_swept_and_what_a_running_one_writes_is_not(tmp_path: Path) -> None:
    dead = next(pid for pid in range(2**22 - 1, 0, -1) if not Path(f"/proc/{pid}").exists())
    strays = [tmp_path / f".counts.parquet.{pid}.tmp" for pid in (dead, os.getppid())]
    for stray in strays:
        stray.write_bytes(b"half")
    saving.write(COUNTS, ROWS, ORIGIN, tmp_path)
    assert [stray.exists() for stray in strays] == [False, True]


def test_rejects_of_other_counts_are_refused(tmp_path: Path) -> None:
    saving.write(COUNTS, ROWS, ORIGIN, tmp_path)
    rejects = pl.DataFrame({"line": [3], "reason": ["empty line"], "text": [""], "file": ["log"]})
    saving.write(REJECTS, rejects, ORIGIN, tmp_path)
    assert artefacts.read(REJECTS, tmp_path).equals(rejects)
    saving.write(COUNTS, ROWS.head(1), ORIGIN, tmp_path)
    with pytest.raises(ArtefactError) as refused:
        artefacts.read(REJECTS, tmp_path)
    assert str(refused.value) == (
        f"{tmp_path}/rejects.parquet was made from another counts.parquet than the one beside it; run `pbm count LOG` again"
    )
    COUNTS.path(tmp_path).unlink()
    with pytest.raises(ArtefactError) as refused:
        artefacts.read(REJECTS, tmp_path)
    assert str(refused.value) == (
        f"{tmp_path}/rejects.parquet was made from {tmp_path}/counts.parquet, which is not there; run `pbm count LOG`"
    )


def written(path: Path, table: pa.Table, **metadata: object) -> None:
    encoded = {"pbm": json.dumps({"artefact": "counts", "version": 1, "inputs": {}, **metadata})}
    pq.write_table(table.replace_schema_metadata(encoded), path)


FOREIGN = {
    "nothing": (None, "there is no {path}; make it with `pbm count LOG`"),
    "no parquet": (b"hello", "cannot read {path}: "),
    "somebody's": (
        pa.table({"query_id": [1]}),
        "{path}: column 'ad_id' is missing, expected int64 or string; make it again with",
    ),
    "another type": (
        ROWS.with_columns(lines=pl.col("lines").cast(pl.Float64)).to_arrow(),
        "{path}: column 'lines' is double, expected int64; make it again with `pbm count LOG`",
    ),
    "a null": (
        ROWS.with_columns(clicks=pl.Series([None, 1], dtype=pl.Int64)).to_arrow(),
        "{path}: column 'clicks' has 1 nulls; make it again with `pbm count LOG`",
    ),
    "unsorted": (
        ROWS.to_arrow(),
        "{path}: the rows are not sorted by a unique (query_id, ad_id, position); make it again with `pbm count LOG`",
    ),
    "key twice": (
        pl.concat([ROWS.head(1), ROWS.head(1)]).to_arrow(),
        "{path}: the rows are not sorted by a unique (query_id, ad_id, position); make it again with `pbm count LOG`",
    ),
}


@pytest.mark.parametrize("what", FOREIGN)
def test_files_that_are_not_ours_are_refused(what: str, tmp_path: Path) -> None:
    content, message = FOREIGN[what]
    path = COUNTS.path(tmp_path)
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        written(path, content)
    with pytest.raises(ArtefactError) as refused:
        artefacts.read(COUNTS, tmp_path)
    assert str(refused.value).startswith(message.format(path=path))


def test_other_versions_and_files_without_provenance_are_refused(tmp_path: Path) -> None:
    path = COUNTS.path(tmp_path)
    rows = ROWS.sort("query_id").to_arrow()
    for metadata, message in (
        ({"version": 2}, "is 'counts' version 2, expected 'counts' version 1; run `pbm count LOG` again"),
        ({"artefact": "truth"}, "is 'truth' version 1, expected 'counts' version 1; run `pbm count LOG` again"),
    ):
        written(path, rows, **metadata)
        with pytest.raises(ArtefactError) as refused:
            artefacts.read(COUNTS, tmp_path)
        assert str(refused.value) == f"{path} {message}"
    for inputs in (None, [1]):
        written(path, rows, inputs=inputs)
        with pytest.raises(ArtefactError, match="was not written by pbm: it has no provenance"):
            artefacts.read(COUNTS, tmp_path)
    pq.write_table(rows, path)
    with pytest.raises(ArtefactError, match="was not written by pbm: it has no provenance"):
        artefacts.read(COUNTS, tmp_path)


def test_the_contract_of_the_design_is_kept() -> None:
    """Analysts rely on these names: columns may be added, none renamed."""
    assert list(COUNTS.columns) == ["query_id", "ad_id", "position", "lines", "clicked_lines", "impressions", "clicks"]
    assert list(REJECTS.columns) == ["line", "reason", "text", "file"]
    assert list(TRUTH.columns)[:7] == ["query_id", "ad_id", "position", "displays", "clicks", "theta", "kappa"]
