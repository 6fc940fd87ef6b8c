"""A scan: the lines of a log as checked columns, parsed on all cores, in order, with the bad lines beside them."""

import os
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipeline.errors import LogError
from pipeline.formats import Kind, LogFormat
from pipeline.log import parquet, parser, rules
from pipeline.log.digits import PADDING
from pipeline.log.opening import BYTE_ORDER_MARK, Log, opened

BLOCK = 1 << 21  # bytes of text; with its columns it stays within a core's cache
CAPACITY = 1 << 15  # lines parsed at a time: about what a block of the KDD log holds
BAD_LINES = pa.schema([("line", pa.int64()), ("reason", pa.string()), ("text", pa.string())])

Result = TypeVar("Result")


class Batch(NamedTuple):
    """Good lines: `columns` is int64[ROWS, n]. A text id is a hash there; `ids` gives the ids of a row at some lines.

    Both look into buffers that are used again: they are gone when the function that was given them returns.
    """

    columns: NDArray[np.int64]
    ids: Callable[[int, NDArray[np.int64]], pa.Array]


class Chunk(NamedTuple, Generic[Result]):
    """What a stretch of the log gave."""

    lines: int
    good: int
    bad: list[pa.Table]  # rows of `rejects.parquet`: line (from 1), reason, text; not more than were asked for
    results: list[Result]
    done: int  # bytes on disk read so far
    unterminated: bool  # the log ends here, and not with a newline


class Desk(NamedTuple):
    """What one block needs while it is worked on; used again, so that memory does not depend on the log."""

    text: NDArray[np.uint8]
    columns: NDArray[np.int64]
    bad: NDArray[np.int64]


def new_desk(size: int) -> Desk:
    """Room for so many bytes of text."""
    return Desk(np.zeros(size + PADDING, np.uint8), parser.output(CAPACITY), np.empty((3, CAPACITY), np.int64))


def scan(log: Log, work: Callable[[Batch], Result], *, most_bad: int) -> Generator[Chunk[Result]]:
    """Apply `work` to every batch of good lines, on threads; yield what it returns in the order of the log.

    Of the bad lines of a chunk at most `most_bad` are described; the others are only counted.
    """
    return _scan_parquet(log, work, most_bad) if log.packing == "parquet" else _scan_text(log, work, most_bad)


def _scan_text(log: Log, work: Callable[[Batch], Result], most_bad: int) -> Generator[Chunk[Result]]:
    threads = cores()
    fmt = log.fmt
    layout = parser.layout(fmt)
    desks = deque(new_desk(BLOCK + 1) for _ in range(threads + 2))
    running: deque[tuple[Desk, int, bool, Future[Chunk[Result]]]] = deque()
    line = 0

    def finished() -> Chunk[Result]:
        nonlocal line
        desk, done, unterminated, future = running.popleft()
        chunk = future.result()
        bad = [table.set_column(0, "line", pc.add(table["line"], line + 1)) for table in chunk.bad]
        line += chunk.lines
        desks.append(desk)
        return chunk._replace(bad=bad, done=done, unterminated=unterminated)

    with opened(log) as (read, tell), ThreadPoolExecutor(threads) as pool:
        try:
            rest = b""
            at_start, at_end = True, False
            while not at_end:
                desk = desks.popleft()
                text = memoryview(desk.text.data).cast("B")
                text[: len(rest)] = rest
                size = len(rest) + read(text[len(rest) : BLOCK])
                at_end = size < BLOCK
                first = 0
                if at_start:
                    at_start = False
                    first = len(BYTE_ORDER_MARK) if bytes(text[: len(BYTE_ORDER_MARK)]) == BYTE_ORDER_MARK else 0
                    if fmt.header:
                        first, line = (bytes(text[:size]) + b"\n").find(b"\n") + 1, 1
                if at_end and size <= first:
                    break
                unterminated = at_end and text[size - 1] != parser.NEWLINE
                if unterminated:
                    text[size] = parser.NEWLINE
                    size += 1
                end = size if at_end else _last_newline(text[:size]) + 1
                if end == 0:
                    raise LogError(f"{log.path}: a line is longer than {BLOCK:,} bytes; this is no log in format {fmt.name!r}")
                rest = bytes(text[end:size])
                task = pool.submit(parse_block, desk, first, end, unterminated, fmt, layout, work, most_bad)
                running.append((desk, tell(), unterminated, task))
                if not desks:
                    yield finished()
            while running:
                yield finished()
        finally:
            for *_, task in running:
                task.cancel()


def parse_block(
    desk: Desk,
    at: int,
    end: int,
    unterminated: bool,
    fmt: LogFormat,
    layout: parser.Layout,
    work: Callable[[Batch], Result],
    most_bad: int,
) -> Chunk[Result]:
    """Parse the lines of `desk.text[at:end]` and do the work on them. Lines are numbered from 0."""
    lines = good = 0
    bad: list[pa.Table] = []
    results = []
    while at < end:
        at, n_lines, n_good, n_bad = parser.parse(desk.text, at, end, layout, desk.columns, desk.bad)
        if n_bad and most_bad > 0:
            spans = desk.bad[:, : min(n_bad, most_bad)].T.tolist()
            texts = [desk.text[start:stop].tobytes() for _, start, stop in spans]
            cut = [unterminated and stop == end - 1 for _, _, stop in spans]
            bad.append(
                pa.table(
                    {
                        "line": [lines + number for number, _, _ in spans],
                        "reason": [rules.broken(text, fmt, unterminated=last) for text, last in zip(texts, cut, strict=True)],
                        "text": [rules.shown(text) for text in texts],
                    },
                    schema=BAD_LINES,
                )
            )
            most_bad -= len(spans)
        if n_good:
            columns = desk.columns[:, :n_good]
            results.append(work(Batch(columns, partial(_ids, desk.text, columns, fmt))))
        lines, good = lines + n_lines, good + n_good
    return Chunk(lines, good, bad, results, 0, False)


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


def _last_newline(text: memoryview) -> int:
    """Where the last newline is, or -1; searched from the end in growing pieces, as memoryviews cannot search."""
    size, piece = len(text), 1 << 10
    while True:
        found = bytes(text[max(0, size - piece) :]).rfind(b"\n")
        if found >= 0 or piece >= size:
            return max(0, size - piece) + found if found >= 0 else -1
        piece *= 8


def _scan_parquet(log: Log, work: Callable[[Batch], Result], most_bad: int) -> Generator[Chunk[Result]]:
    """Arrow decodes the columns on its own threads; the rules are checked on whole columns."""
    line = 0
    try:
        with pq.ParquetFile(log.path) as file:
            total = max(file.metadata.num_rows, 1)
            for rows in file.iter_batches(CAPACITY, columns=[column.name for column in log.fmt.columns]):
                chunk = parse_rows(rows, log.fmt, work, most_bad)
                bad = [table.set_column(0, "line", pc.add(table["line"], line + 1)) for table in chunk.bad]
                line += rows.num_rows
                yield chunk._replace(bad=bad, done=log.size * line // total)
    except (pa.ArrowException, OSError) as error:
        raise LogError(f"{log.path} is damaged parquet ({error}); fetch or write it again") from None


def parse_rows(rows: pa.RecordBatch, fmt: LogFormat, work: Callable[[Batch], Result], most_bad: int) -> Chunk[Result]:
    """Check the rows of a parquet log and do the work on them. Rows are numbered from 0."""
    columns, good, described = parquet.checked(rows, fmt, most_bad)
    bad = pa.table(
        {
            "line": [number for number, _ in described],
            "reason": [reason for _, reason in described],
            "text": [rules.shown(parquet.row_text(rows, number)) for number, _ in described],
        },
        schema=BAD_LINES,
    )
    kept = partial(parquet.ids, rows.take(arrow(good)), fmt)
    results = [work(Batch(np.ascontiguousarray(columns[:, good]), kept))] if good.size else []
    return Chunk(rows.num_rows, good.size, [bad] * bool(described), results, 0, False)


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
