"""Lines that come in batches from elsewhere are read as from the file: cut anywhere, in blocks of any size."""

from collections import Counter
from collections.abc import Iterator
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline import formats
from pipeline.errors import LogError
from pipeline.formats import LogFormat
from pipeline.log import parser
from pipeline.log.blocks import FILE, LINE, START, Block, Reading, parts
from pipeline.log.opening import find
from pipeline.log.scanning import Batch, scan
from pipeline.log.sniffing import recognised
from tests.conftest import kdd
from tests.test_counting import SHOP

KDD = formats.load("kdd2012")
Row = tuple[int, ...]


def rows(batch: Batch) -> list[Row]:
    """What is kept of good lines."""
    return [tuple(values) for values in batch.columns[: parser.DEPTH].T.tolist()]


def delivered(lines: list[bytes], starts: list[int], cuts: list[int], file: int = 7) -> Iterator[pa.RecordBatch]:
    """The lines of a file, each with where its block starts, in batches that end at the cuts."""
    edges = [0, *sorted(cut for cut in set(cuts) if 0 < cut < len(lines)), len(lines)]
    for first, end in pairwise(edges):
        columns = [
            pa.array(lines[first:end], pa.binary()),
            pa.array([file] * (end - first), pa.int64()),
            pa.array(starts[first:end], pa.int64()),
        ]
        yield pa.RecordBatch.from_arrays(columns, names=[LINE, FILE, START])


def blocks_of(lines: list[bytes], size: int) -> list[int]:
    """Where the block of each line starts: a line belongs to the block that its first byte is in."""
    at = np.cumsum([0, *(len(line) + 1 for line in lines)])[:-1]
    return (at // size * size).tolist()  # type: ignore[no-any-return]


BAD = st.sampled_from([b"", b"rubbish", b"1\t2", kdd(1, 1, 3, depth=2), kdd(1, 1, 1)[:-8] + b"\xff"])
GOOD = st.builds(kdd, st.integers(0, 3), st.integers(0, 3), st.integers(1, 3))


@settings(max_examples=60)
@given(
    lines=st.lists(GOOD | BAD | GOOD.map(lambda line: line + b"\r"), min_size=1, max_size=30),
    size=st.integers(10, 400),
    cuts=st.lists(st.integers(1, 30), max_size=5),
    terminated=st.booleans(),
)
def test_batches_and_blocks_give_what_the_file_gives(
    lines: list[bytes], size: int, cuts: list[int], terminated: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if not terminated and not lines[-1]:
        lines[-1] = b"cut"
    path = tmp_path_factory.mktemp("log") / "log.txt"
    path.write_bytes(b"\n".join(lines) + b"\n" * terminated)
    expected: list[Row] = []
    bad: list[tuple[int, str, str]] = []
    for chunk in scan(find(path, KDD), rows, most_bad=100):
        expected += chain(*chunk.results)
        bad += [tuple(row.values()) for table in chunk.bad for row in table.to_pylist()]

    starts = blocks_of(lines, size)
    in_block = Counter(starts)
    before = {start: sum(n for other, n in in_block.items() if other < start) for start in in_block}
    cut = frozenset() if terminated else frozenset({(Block(7, starts[-1]), in_block[starts[-1]])})
    found: list[Row] = []
    found_bad: list[tuple[int, str, str]] = []
    n_bytes = 0
    for part in parts(delivered(lines, starts, cuts), Reading(KDD, False, b"", 100, cut), rows):
        found += chain(*part.chunk.results)
        n_bytes += part.n_bytes
        for table in part.chunk.bad:
            for line, reason, text in (row.values() for row in table.to_pylist()):
                found_bad.append((before[part.block.start] + part.before + line + 1, reason, text))
    assert found == expected
    assert found_bad == bad
    assert n_bytes == path.stat().st_size + (not terminated)


def shop(header: bytes, tmp_path: Path) -> LogFormat:
    (tmp_path / "shop.toml").write_text(SHOP)
    (tmp_path / "log.csv").write_bytes(header + b"\n0,1,a,x\n")
    return recognised(find(tmp_path / "log.csv", formats.load(str(tmp_path / "shop.toml")))).fmt


def terms(batch: Batch) -> Any:
    return batch.ids(parser.QUERY, np.arange(batch.columns.shape[1])).to_pylist()


def test_a_header_is_skipped_where_a_file_starts_and_must_be_the_same_everywhere(tmp_path: Path) -> None:
    header = b"clicked,rank,sku,term"
    reading = Reading(shop(header, tmp_path), False, header, 9)
    mark = b"\xef\xbb\xbf"
    lines = [mark + header + b"\r", b'1,1,a,"red, big"', b"bad", b"0,2,b,blue"]
    found = list(parts(delivered(lines, [0, 0, 60, 60], [3]), reading, terms))
    assert [part.chunk.results for part in found] == [[["red, big"]], [], [["blue"]]]
    assert [(part.block.start, part.before, part.chunk.lines) for part in found] == [(0, 0, 1), (60, 0, 1), (60, 1, 1)]
    with pytest.raises(LogError) as error:
        list(parts(delivered([b"clicked,rank,term,sku", b"1,1,a,b"], [0, 0], []), reading, terms))
    assert str(error.value) == (
        "a file starts with b'clicked,rank,term,sku', and the first one with the header b'clicked,rank,sku,term'; "
        "make them the same"
    )
