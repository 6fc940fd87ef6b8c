"""A scan: the lines of a log as checked columns, parsed on all cores, in order, with the bad lines beside them."""

import os
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipeline.errors import LogError
from pipeline.formats import Kind, LogFormat
from pipeline.log import parquet, parser, rules
from pipeline.log.digits import PADDING
from pipeline.log.opening import BYTE_ORDER_MARK, Log, fill, opened

BLOCK = 1 << 21  # bytes of text; with its columns it stays within a core's cache
CAPACITY = 1 << 15  # lines parsed at a time: about what a block of the KDD log holds

Result = TypeVar("Result")


class Batch(NamedTuple):
    """Good lines: `columns` is int64[ROWS, n]. A text id is a hash there; `ids` gives the ids of a row at some lines.

    Both look into buffers that are used again: they are gone when the function that was given them returns.
    """

    columns: NDArray[np.int64]
    ids: Callable[[int, NDArray[np.int64]], pa.Array]


class BadLine(NamedTuple):
    """A line that is not counted; a row of `rejects.parquet`."""

    line: int  # from 1
    reason: str
    text: str


class Chunk(NamedTuple, Generic[Result]):
    """What a stretch of the log gave."""

    lines: int
    good: int
    bad: list[BadLine]
    results: list[Result]
    done: int  # bytes on disk read so far
    unterminated: bool  # the log ends here, and not with a newline


class Desk(NamedTuple):
    """What one block needs while it is worked on; used again, so that memory does not depend on the log."""

    text: NDArray[np.uint8]
    columns: NDArray[np.int64]
    bad: NDArray[np.int64]


def scan(log: Log, work: Callable[[Batch], Result]) -> Generator[Chunk[Result]]:
    """Apply `work` to every batch of good lines, on threads; yield what it returns in the order of the log."""
    return _scan_parquet(log, work) if log.packing == "parquet" else _scan_text(log, work)


def _scan_text(log: Log, work: Callable[[Batch], Result]) -> Generator[Chunk[Result]]:
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    fmt = log.fmt
    layout = parser.layout(fmt)
    desks = deque(
        Desk(np.zeros(BLOCK + 1 + PADDING, np.uint8), parser.output(fmt, CAPACITY), np.empty((3, CAPACITY), np.int64))
        for _ in range(threads + 2)
    )
    running: deque[tuple[Desk, int, bool, Future[Parsed[Result]]]] = deque()
    line = 0

    def finished() -> Chunk[Result]:
        nonlocal line
        desk, done, unterminated, future = running.popleft()
        lines, good, spans, results = future.result()
        bad = [
            BadLine(
                line + number + 1,
                str(rules.broken(text, fmt, unterminated=unterminated and number == lines - 1)),
                rules.shown(text),
            )
            for number, text in spans
        ]
        line += lines
        desks.append(desk)
        return Chunk(lines, good, bad, results, done, unterminated)

    with opened(log) as (stream, tell), ThreadPoolExecutor(threads) as pool:
        try:
            rest = b""
            at_start, at_end = True, False
            while not at_end:
                desk = desks.popleft()
                text = memoryview(desk.text.data).cast("B")
                text[: len(rest)] = rest
                size = len(rest) + fill(stream, text[len(rest) : BLOCK])
                at_end = size < BLOCK
                first = len(BYTE_ORDER_MARK) if at_start and bytes(text[:3]) == BYTE_ORDER_MARK else 0
                if at_start and fmt.header:
                    first, line = _newline(text[:size]) + 1, 1
                at_start = False
                unterminated = at_end and size > first and text[size - 1] != parser.NEWLINE
                if unterminated:
                    text[size] = parser.NEWLINE
                    size += 1
                end = size if at_end else _last_newline(text[:size]) + 1
                if end == 0:
                    raise LogError(f"{log.path}: a line is longer than {BLOCK:,} bytes; this is no log in format {fmt.name!r}")
                rest = bytes(text[end:size])
                running.append((desk, tell(), unterminated, pool.submit(_parse, desk, first, end, fmt, layout, work)))
                if not desks:
                    yield finished()
            while running:
                yield finished()
        finally:
            for *_, future in running:
                future.cancel()


class Parsed(NamedTuple, Generic[Result]):
    """What a block gave: bad lines are still bytes, numbered from 0 within it."""

    lines: int
    good: int
    bad: list[tuple[int, bytes]]
    results: list[Result]


def _parse(
    desk: Desk, at: int, end: int, fmt: LogFormat, layout: parser.Layout, work: Callable[[Batch], Result]
) -> Parsed[Result]:
    """Parse the lines of a block and do the work on them; on a thread."""
    lines = good = 0
    bad: list[tuple[int, bytes]] = []
    results = []
    while at < end:
        at, n_lines, n_good, n_bad = parser.parse(desk.text, at, end, layout, desk.columns, desk.bad)
        bad += [(lines + n, desk.text[start:stop].tobytes()) for n, start, stop in desk.bad[:, :n_bad].T.tolist()]
        if n_good:
            columns = desk.columns[:, :n_good]
            results.append(work(Batch(columns, partial(_ids, desk.text, columns, fmt))))
        lines, good = lines + n_lines, good + n_good
    return Parsed(lines, good, bad, results)


def _ids(text: NDArray[np.uint8], columns: NDArray[np.int64], fmt: LogFormat, row: int, kept: NDArray[np.int64]) -> pa.Array:
    """The query (row QUERY) or item (row ITEM) ids of the lines `kept`."""
    if fmt.column(fmt.roles[row] or "").kind is Kind.INTEGER:
        return arrow(columns[row, kept])
    starts, ends = columns[parser.QUERY_START + 2 * row, kept], columns[parser.QUERY_END + 2 * row, kept]
    offsets, letters = np.empty(kept.size + 1, np.int64), np.empty(int((ends - starts).sum()), np.uint8)
    parser.gather_text(text, starts, ends, parser.layout(fmt).quote, offsets, letters)
    return pa.LargeStringArray.from_buffers(kept.size, pa.py_buffer(offsets), pa.py_buffer(letters)).cast(pa.string())


def arrow(values: NDArray[np.integer[Any]]) -> pa.Array:
    """Integers as an Arrow array. `pa.array` does the same, but imports pandas (half a second) wherever that is installed."""
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), values.size, [None, pa.py_buffer(values)])


def _newline(text: memoryview) -> int:
    return bytes(text).find(b"\n")


def _last_newline(text: memoryview) -> int:
    """Where the last newline is, or -1; searched from the end in growing pieces, as memoryviews cannot search."""
    size, piece = len(text), 1 << 10
    while True:
        found = bytes(text[max(0, size - piece) :]).rfind(b"\n")
        if found >= 0 or piece >= size:
            return max(0, size - piece) + found if found >= 0 else -1
        piece *= 8


def _scan_parquet(log: Log, work: Callable[[Batch], Result]) -> Generator[Chunk[Result]]:
    """Arrow decodes the columns on its own threads; the rules are checked on whole columns."""
    line = 0
    with pq.ParquetFile(log.path) as file:
        names = [column.name for column in log.fmt.columns]
        total = max(file.metadata.num_rows, 1)
        for rows in file.iter_batches(1 << 16, columns=names):
            columns, good, bad = parquet.checked(rows, log.fmt)
            rejects = [BadLine(line + number + 1, reason, parquet.shown(rows, number)) for number, reason in bad]
            line += rows.num_rows
            results = []
            if good.size:
                results.append(work(Batch(columns[:, good], partial(parquet.ids, rows.take(pa.array(good)), log.fmt))))
            yield Chunk(rows.num_rows, good.size, rejects, results, log.size * line // total, False)
