"""Lines that an engine elsewhere has read: Arrow batches, a row for each line (or row of parquet), with the block it is in.

A block is a stretch of a file. Its lines come in order, one behind the other, but it may begin and end anywhere in a batch.
"""

from collections.abc import Callable, Iterator
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from pipeline.errors import LogError
from pipeline.formats import LogFormat
from pipeline.log import parser
from pipeline.log.opening import BYTE_ORDER_MARK
from pipeline.log.scanning import Batch, Chunk, new_desk, parse_block, parse_rows

LINE, FILE, START = "pbm line", "pbm file", "pbm start"  # columns: the bytes of a line; its file; where in it its block starts
UINT64 = pa.decimal128(20, 0)  # what engines without unsigned integers have for those of 64 bits

Result = TypeVar("Result")


class Block(NamedTuple):
    """A stretch of a file: the file's number, and the byte that it starts at."""

    file: int
    start: int


class Part(NamedTuple, Generic[Result]):
    """What some lines of a block gave, one behind the other."""

    block: Block
    before: int  # lines of the block before these; a header is none
    n_bytes: int  # of text, with a newline behind each line
    chunk: Chunk[Result]  # lines numbered from 0


class Reading(NamedTuple):
    """How the lines are to be read."""

    fmt: LogFormat
    is_parquet: bool
    header: bytes  # with which each file begins; empty if there is none
    most_bad: int  # bad lines of a batch to be described
    cut: frozenset[tuple[Block, int]] = frozenset()  # last lines without a newline: the block, and the lines before its end


def parts(batches: Iterator[pa.RecordBatch], reading: Reading, work: Callable[[Batch], Result]) -> Iterator[Part[Result]]:
    """Parse the lines and do the work on them, block by block."""
    block, before = Block(0, -1), 0
    for batch in batches:
        files, starts = batch.column(FILE).to_numpy(), batch.column(START).to_numpy()
        changes = (np.flatnonzero((np.diff(files) != 0) | (np.diff(starts) != 0)) + 1).tolist()
        for first, end in zip([0, *changes], [*changes, batch.num_rows], strict=True):
            if first == end:
                continue
            found = Block(int(files[first]), int(starts[first]))
            if found != block:
                block, before = found, 0
            rows = batch.slice(first, end - first)
            if reading.is_parquet:
                rows = rows.select([column.name for column in reading.fmt.columns])
                part = Part(block, before, 0, parse_rows(whole_numbers(rows), reading.fmt, work, reading.most_bad))
            else:
                part = _parsed(rows.column(LINE), block, before, reading, work)
            yield part
            before += part.chunk.lines


def _parsed(lines: pa.Array, block: Block, before: int, reading: Reading, work: Callable[[Batch], Result]) -> Part[Result]:
    """Lay the lines out as the text they were, and parse that."""
    binary = lines.cast(pa.large_binary())
    _, offsets, letters = binary.buffers()
    ends = np.frombuffer(offsets, np.int64)[binary.offset : binary.offset + len(binary) + 1]
    size = int(ends[-1] - ends[0]) + len(lines)
    desk = new_desk(size)
    parser.lay_out(np.frombuffer(letters or b"", np.uint8), ends, desk.text)
    at, n = 0, len(lines)
    if block.start == 0 and before == 0:
        first = lines[0].as_py()
        at = len(BYTE_ORDER_MARK) if first.startswith(BYTE_ORDER_MARK) else 0
        if reading.header:
            found = first[at:].removesuffix(b"\r")
            if found != reading.header:
                raise LogError(
                    f"a file starts with {found!r}, and the first one with the header {reading.header!r}; make them the same"
                )
            at, n = len(first) + 1, n - 1
    unterminated = (block, before + n) in reading.cut
    layout = parser.layout(reading.fmt)
    chunk = parse_block(desk, at, size, unterminated, reading.fmt, layout, work, reading.most_bad)
    return Part(block, before, size, chunk)


def whole_numbers(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows, with the numbers that came as decimals as what they are."""
    columns = [column.cast(pa.uint64()) if column.type == UINT64 else column for column in rows.columns]
    return pa.RecordBatch.from_arrays(columns, names=rows.schema.names)
