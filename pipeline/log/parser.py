"""Bytes to columns: one loop over the text that checks every field and keeps the few that are counted.

Written here because no reader of ours does it. polars and duckdb accept ` 1601`, `+1`, `1.7` or an extra empty field, cannot
say on which line a rule is broken, and take more than twice the time even so (`benchmarks/parsing.py`). The kernel only tells
good lines from bad ones; `rules.broken` says in plain Python why a line is bad, and a test holds the two together.
"""

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from pipeline.formats import COUNT_MAX, Kind, LogFormat, Roles
from pipeline.log.digits import fits, number

# Rows of the output. Text ids are kept as a hash, with the place of their text in the block.
QUERY, ITEM, POSITION, CLICKS, IMPRESSIONS, DEPTH = range(6)
QUERY_START, QUERY_END, ITEM_START, ITEM_END, UNUSED = range(6, 11)
ROWS = 11

NEWLINE, RETURN = 10, 13
EMPTY, NOT_UTF8, NUL = 1, 2, 3  # what can be wrong with a text id
FNV_START, FNV_PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)  # FNV-1a, 64 bits

INTEGER, TEXT = int(Kind.INTEGER), int(Kind.TEXT)


class Layout(NamedTuple):
    """A format as the kernel sees it: arrays over the columns, and the bytes that separate and quote."""

    kind: NDArray[np.uint8]
    low: NDArray[np.uint64]
    high: NDArray[np.uint64]
    row: NDArray[np.int64]  # of the output
    separator: int
    quote: int  # 0: none
    first_position: int


def layout(fmt: LogFormat) -> Layout:
    """The kernel's view of a format."""
    row_of = {name: row for row, name in enumerate(fmt.roles) if name is not None}
    return Layout(
        kind=np.array([column.kind for column in fmt.columns], np.uint8),
        low=np.array([column.low for column in fmt.columns], np.uint64),
        high=np.array([column.high for column in fmt.columns], np.uint64),
        row=np.array([row_of.get(column.name, UNUSED) for column in fmt.columns], np.int64),
        separator=ord(fmt.separator),
        quote=ord(fmt.quote) if fmt.quote else 0,
        first_position=fmt.column(fmt.roles.position).low,
    )


def output(capacity: int) -> NDArray[np.int64]:
    """Columns for `capacity` lines. What the format has no column for holds what makes its rule always true."""
    columns = np.zeros((ROWS, capacity), np.int64)
    columns[IMPRESSIONS] = 1
    columns[DEPTH] = COUNT_MAX
    return columns


assert Roles._fields == ("query", "item", "position", "clicks", "impressions", "depth")  # the order of the rows


@njit(cache=True, nogil=True)
def parse(text, at, size, layout, columns, bad):
    """Parse lines of `text[at:size]` until the text ends or `columns` or `bad` is full.

    text: uint8; its last byte before `size` is a newline, and digits.PADDING bytes follow. columns: int64[ROWS, capacity].
    bad: int64[3, capacity], for each bad line its number in this call (from 0) and where it starts and ends. Returns where it
    stopped, the lines read, the good ones among them, and the bad.
    """
    n_columns = layout.kind.size
    lines = good = n_bad = 0
    while at < size and good < columns.shape[1] and n_bad < bad.shape[1]:
        start, column, ok = at, 0, True
        while True:
            row = layout.row[column]
            if layout.quote != 0 and text[at] == layout.quote:
                ok, at = quoted_field(text, at, column, layout, columns, good)
            elif layout.kind[column] == INTEGER:
                value, length = number(text, at)
                ok = fits(value, length, text[at])
                at += length
                ok = ok and layout.low[column] <= value <= layout.high[column]
                columns[row, good] = np.int64(value)
            else:
                first = at
                while text[at] != layout.separator and text[at] != NEWLINE and text[at] != 0:
                    at += 1
                ok = text[at] != 0
                last = at - 1 if text[at] == NEWLINE and at > first and text[at - 1] == RETURN else at
                if layout.kind[column] == TEXT:
                    ok = ok and keep_text(text, first, last, False, layout.quote, row, columns, good)
            end_of_line = text[at] == NEWLINE or (text[at] == RETURN and text[at + 1] == NEWLINE)
            column += 1
            if not ok or end_of_line or column == n_columns or text[at] != layout.separator:
                ok = ok and end_of_line and column == n_columns
                break
            at += 1
        while text[at] != NEWLINE:
            at += 1
        if ok:
            columns[POSITION, good] -= layout.first_position - 1
            ok = columns[CLICKS, good] <= columns[IMPRESSIONS, good] and columns[POSITION, good] <= columns[DEPTH, good]
        if ok:
            good += 1
        else:
            bad[0, n_bad], bad[1, n_bad], bad[2, n_bad] = lines, start, at
            n_bad += 1
        at += 1
        lines += 1
    return at, lines, good, n_bad


@njit(cache=True, nogil=True)
def quoted_field(text, at, column, layout, columns, good):
    """A field that starts with the quote at `text[at]`: is it good, and where does it end?"""
    first = at + 1
    at = first
    doubled = False
    while True:
        if text[at] == NEWLINE or text[at] == 0:
            return False, at
        if text[at] == layout.quote:
            if text[at + 1] != layout.quote:
                break
            doubled = True
            at += 1
        at += 1
    row = layout.row[column]
    if layout.kind[column] == TEXT:
        return keep_text(text, first, at, doubled, layout.quote, row, columns, good), at + 1
    if layout.kind[column] != INTEGER:
        return True, at + 1
    value, length = number(text, first)
    ok = length == at - first and fits(value, length, text[first])
    columns[row, good] = np.int64(value)
    return ok and layout.low[column] <= value <= layout.high[column], at + 1


@njit(cache=True, nogil=True)
def keep_text(text, first, last, doubled, quote, row, columns, good):
    """Keep a text id: its hash (of what the field says, not of how it is quoted) and where it stands. Is it good?"""
    hashed = FNV_START
    ascii_only = True
    i = first
    while i < last:
        if doubled and text[i] == quote:
            i += 1  # of two quotes the second one counts
        hashed = (hashed ^ np.uint64(text[i])) * FNV_PRIME
        ascii_only = ascii_only and text[i] < 128
        i += 1
    columns[row, good] = np.int64(hashed)
    columns[QUERY_START + 2 * row, good] = first
    columns[QUERY_END + 2 * row, good] = last
    return last > first and (ascii_only or is_utf8(text, first, last))


@njit(cache=True, nogil=True)
def keep_texts(text, offsets, row, columns, faults):
    """Keep a column of text ids that lie one behind the other. faults: uint8[n], written: 0, EMPTY, NOT_UTF8 or NUL."""
    for k in range(faults.size):
        first, last = offsets[k], offsets[k + 1]
        faults[k] = 0
        if not keep_text(text, first, last, False, 0, row, columns, k):
            faults[k] = EMPTY if first == last else NOT_UTF8
        for i in range(first, last):
            if text[i] == 0:
                faults[k] = NUL


@njit(cache=True, nogil=True)
def is_utf8(text, first, last):
    """Whether the bytes are UTF-8 as RFC 3629 defines it: no overlong forms, no surrogates, nothing above U+10FFFF."""
    i = first
    while i < last:
        lead = text[i]
        if lead < 0x80:
            i += 1
            continue
        if 0xC2 <= lead <= 0xDF:
            more, low, high = 1, 0x80, 0xBF
        elif 0xE0 <= lead <= 0xEF:
            more, low, high = 2, 0xA0 if lead == 0xE0 else 0x80, 0x9F if lead == 0xED else 0xBF
        elif 0xF0 <= lead <= 0xF4:
            more, low, high = 3, 0x90 if lead == 0xF0 else 0x80, 0x8F if lead == 0xF4 else 0xBF
        else:
            return False
        if i + more >= last or not low <= text[i + 1] <= high:
            return False
        for j in range(i + 2, i + more + 1):
            if not 0x80 <= text[j] <= 0xBF:
                return False
        i += more + 1
    return True


@njit(cache=True, nogil=True)
def gather_text(text, starts, ends, quote, offsets, letters):
    """Copy the texts between `starts` and `ends` one behind the other, doubled quotes of quoted fields undone.

    offsets: int64[n + 1] and letters: uint8, the layout of an Arrow large string.
    """
    n = 0
    offsets[0] = 0
    for k in range(starts.size):
        quoted = quote != 0 and starts[k] > 0 and text[starts[k] - 1] == quote
        i = starts[k]
        while i < ends[k]:
            if quoted and text[i] == quote:
                i += 1
            letters[n] = text[i]
            n += 1
            i += 1
        offsets[k + 1] = n


@njit(cache=True, nogil=True)
def lay_out(letters, offsets, text):
    """Copy lines that lie one behind the other, `letters[offsets[k]:offsets[k + 1]]`, with a newline behind each."""
    n = 0
    for k in range(offsets.size - 1):
        length = offsets[k + 1] - offsets[k]
        text[n : n + length] = letters[offsets[k] : offsets[k + 1]]
        n += length
        text[n] = NEWLINE
        n += 1
