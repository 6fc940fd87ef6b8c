"""The count is the brute-force count: every engine, both units, any log."""

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline import artefacts, formats
from pipeline.artefacts import COUNTS, REJECTS
from pipeline.engines import Engine
from pipeline.engines import duckdb as duckdb_engine
from pipeline.engines import polars as polars_engine
from pipeline.filter import Filter, Unit
from pipeline.formats import LogFormat
from pipeline.log import scanning, sketch
from pipeline.stages.count import count_here as count
from tests import naive
from tests.conftest import Pbm, kdd

KDD = formats.load("kdd2012")
ENGINES = {"polars": polars_engine.count, "duckdb": duckdb_engine.count}
MANY = 10**6  # bad lines tolerated


def counted(log: Path, engine: Engine, wanted: Filter, fmt: LogFormat = KDD) -> list[naive.Row]:
    workspace = log.parent / "workspace"
    count(log, workspace, fmt, engine, wanted, MANY)
    return artefacts.read(COUNTS, workspace).rows()


def expected(lines: Sequence[naive.Line], wanted: Filter) -> list[naive.Row]:
    limits = {"min_displays": wanted.min_displays, "min_ads": wanted.min_ads, "positions": wanted.positions}
    return naive.count(lines, by_impressions=wanted.unit is Unit.impressions, **limits)


def text(lines: list[naive.Line]) -> list[bytes]:
    return [kdd(query, ad, position, clicks, shown) for query, ad, position, clicks, shown in lines]  # type: ignore[arg-type]


# Few ids, thresholds of 1 to 4: duplicates, ties at the threshold and missing positions in almost every example.
LINE = st.integers(1, 3).flatmap(
    lambda shown: st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(1, 3), st.integers(0, shown), st.just(shown))
)
FILTER = st.builds(
    Filter, unit=st.sampled_from(Unit), min_displays=st.integers(1, 4), min_ads=st.integers(1, 3), positions=st.integers(1, 3)
)


@settings(max_examples=100)
@given(lines=st.lists(LINE, min_size=1, max_size=60), wanted=FILTER, end=st.sampled_from([b"", b"\n", b"\r\n"]))
def test_counts_are_the_brute_force_counts(
    lines: list[naive.Line], wanted: Filter, end: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    log = tmp_path_factory.mktemp("log") / "log.txt"
    log.write_bytes((b"\r\n" if end == b"\r\n" else b"\n").join(text(lines)) + end)
    for engine in ENGINES.values():
        assert counted(log, engine, wanted) == expected(lines, wanted)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("block", [97, 256, 4096, "whole", "half"])
def test_blocks_of_any_size_give_the_same(engine: str, block: int | str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    lines = [tuple(row) for row in rng.integers([0, 0, 1, 0, 1], [3, 3, 4, 2, 9], (500, 5)).tolist()]
    written = text(lines)
    written[100:100] = [b"", b"rubbish", kdd(1, 1, 1)[:-20]]
    content = b"\n".join(written) + b"\n"
    if len(content) % 2:  # so that a half is a whole number of bytes
        content = content.replace(b"rubbish", b"rubbish!")
    (tmp_path / "log.txt").write_bytes(content)
    monkeypatch.setattr(scanning, "BLOCK", {"whole": len(content), "half": len(content) // 2}.get(str(block), block))
    monkeypatch.setattr(scanning, "CAPACITY", 3)
    wanted = Filter(min_displays=10, min_ads=2)
    rows = expected(lines, wanted)
    assert rows
    assert counted(tmp_path / "log.txt", ENGINES[engine], wanted) == rows
    assert artefacts.read(REJECTS, tmp_path / "workspace")["line"].to_list() == [101, 102, 103]


SHOP = """
name = "shop"
separator = ","
quote = '"'
header = true
[roles]
query = "term"
item = "sku"
position = "rank"
clicks = "clicked"
[columns]
term = { type = "text" }
sku = { type = "text" }
rank = { min = 0, max = 9 }
"""


@pytest.mark.parametrize("engine", ENGINES)
def test_a_log_of_ones_own_needs_a_declaration_and_no_code(engine: str, tmp_path: Path) -> None:
    (tmp_path / "shop.toml").write_text(SHOP)
    terms = ['red, "big" shoes', "<script>alert(1)</script>", "\u202e\u05d7\u05dc"]
    draws = np.random.default_rng(1).integers([0, 0, 0, 0], [2, 3, 3, 3], (400, 4)).tolist()
    with (tmp_path / "log.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["clicked", "day", "rank", "sku", "term"])  # another order, and a column more
        writer.writerows([click, "mon", rank, "abc"[sku], terms[term]] for click, rank, sku, term in draws)
        writer.writerow([2, "mon", 0, "a", "x"])
    wanted = Filter(min_displays=5, min_ads=3)
    lines = [(terms[term], "abc"[sku], rank + 1, click, 1) for click, rank, sku, term in draws]
    rows = expected(lines, wanted)
    assert {row[0] for row in rows} == set(terms)
    fmt = formats.load(str(tmp_path / "shop.toml"))
    assert counted(tmp_path / "log.csv", ENGINES[engine], wanted, fmt) == rows
    assert artefacts.read(REJECTS, tmp_path / "workspace").rows() == [(402, "clicked above 1", "2,mon,0,a,x\r", "log.csv")]


def test_a_log_with_nothing_but_a_header_is_refused(tmp_path: Path, pbm: Pbm) -> None:
    (tmp_path / "shop.toml").write_text(SHOP)
    log = tmp_path / "log.csv"
    for end in ("", "\n"):
        log.write_text("clicked,rank,sku,term" + end)
        assert pbm("count", log, "--format", tmp_path / "shop.toml", "-w", tmp_path) == (
            1,
            "",
            f"pbm: error: {log} has no good line in format 'shop'; is it a log of this format? see --format\n",
        )


def test_positions_from_0_end_at_the_127th(tmp_path: Path, pbm: Pbm) -> None:
    (tmp_path / "shop.toml").write_text(SHOP.replace("rank = { min = 0, max = 9 }", "rank = { min = 0 }"))
    log = tmp_path / "log.csv"
    log.write_text("clicked,rank,sku,term\n" + "".join(f"1,{rank},a,x\n" for rank in range(128)))
    options = ("--format", tmp_path / "shop.toml", "-w", tmp_path, "--min-displays", 1, "--min-ads", 1, "--positions")
    assert pbm("count", log, *options, 127).code == 0
    assert artefacts.read(COUNTS, tmp_path)["position"].to_list() == list(range(1, 128))
    assert artefacts.read(REJECTS, tmp_path)["reason"].to_list() == ["rank outside 0 to 126"]
    assert pbm("count", log, *options, 128).err == (
        "pbm: error: --positions is 128, expected 1 to 127, the positions of format 'shop'\n"
    )


def test_a_filter_that_nothing_passes_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_bytes(kdd(1, 1, 1))
    for engine in ENGINES.values():
        assert counted(tmp_path / "log.txt", engine, Filter(min_displays=1, min_ads=2**62, positions=3)) == []


def test_lines_above_the_positions_are_dropped_and_counted(tmp_path: Path) -> None:
    lines = [kdd(1, 1, position) for position in (1, 1, 2, 2, 3, 3)]
    (tmp_path / "log.txt").write_bytes(b"\n".join(lines) + b"\n")
    wanted = Filter(min_displays=2, min_ads=1, positions=2)
    summary = count(tmp_path / "log.txt", tmp_path, KDD, polars_engine.count, wanted, 0)
    assert (summary.lines, summary.dropped_positions, summary.dropped_filter, summary.kept) == (6, 2, 0, 4)
    assert summary.rejected == {}


@given(
    lines=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 3), st.integers(1, 2**32 - 1)), max_size=50),
    enough=st.integers(1, 2**32 - 1),
)
def test_the_sketch_misses_no_cell(lines: list[tuple[int, int, int, int]], enough: int) -> None:
    """Even when its counters run over: they stop at the largest value, which is always enough."""
    columns = np.zeros((11, len(lines)), np.int64)
    if lines:
        columns[[0, 1, 2, 4]] = np.array(lines).T
    demand = sketch.Demand(enough, 3, True)
    counters, kept = sketch.empty(), np.empty(len(lines), np.int64)
    buckets, weights = np.empty(len(lines), np.uint32), np.empty(len(lines), np.uint32)
    n, _ = sketch.tally(columns, demand, buckets, weights)
    sketch.add(counters, buckets[:n], weights[:n])
    hot = {lines[i][:2] for i in kept[: sketch.hot(columns, counters, demand, kept)]}
    totals = pl.DataFrame(lines, orient="row", schema=["query", "ad", "position", "shown"])
    cells = totals.group_by("query", "ad", "position").agg(pl.sum("shown")).filter(pl.col("shown") >= enough)
    ads = cells.group_by("query", "ad").len().filter(pl.col("len") == 3)
    assert set(ads.select("query", "ad").rows()) <= hot


def test_the_sketch_leaves_little_to_count() -> None:
    """A million cells of one display each, and one ad with enough: hardly another line gets through."""
    n = 1_000_000
    columns = np.zeros((11, n), np.int64)
    columns[0] = np.arange(n)
    columns[2] = 1
    columns[:3, -300:] = [[5], [9], [0]]
    columns[2, -300:] = np.repeat([1, 2, 3], 100)
    demand = sketch.Demand(100, 3, False)
    counters, kept = sketch.empty(), np.empty(n, np.int64)
    buckets, weights = np.empty(n, np.uint32), np.empty(n, np.uint32)
    sketch.tally(columns, demand, buckets, weights)
    sketch.add(counters, buckets, weights)
    assert sketch.hot(columns, counters, demand, kept) == 300


def test_the_fingerprint_follows_what_is_counted_and_not_its_order(tmp_path: Path) -> None:
    def fingerprint(lines: list[bytes]) -> object:
        (tmp_path / "log.txt").write_bytes(b"\n".join(lines) + b"\n")
        count(tmp_path / "log.txt", tmp_path, KDD, polars_engine.count, Filter(), 0)
        return artefacts.provenance(COUNTS, tmp_path)["inputs"]["log"]["fingerprint"]

    lines = [kdd(1, 2, 1), kdd(1, 2, 2, click=1), kdd(1, 2, 2)]
    assert fingerprint(lines) == fingerprint(lines[::-1])
    assert fingerprint(lines) == fingerprint([kdd(1, 2, 1, user=8), *lines[1:]])  # the user is not counted
    for other in (kdd(1, 2, 3), kdd(2, 1, 1), kdd(1, 2, 1, click=1), kdd(1, 2, 1, impression=2)):
        assert fingerprint(lines) != fingerprint([other, *lines[1:]])
