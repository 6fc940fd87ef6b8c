"""A log kept as parquet: the same rules as for text, checked on whole columns."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipeline.errors import FormatError, LogError
from pipeline.formats import Column, Kind, LogFormat, with_header
from pipeline.log import parser, rules
from pipeline.log.opening import Log


def described(log: Log) -> Log:
    """The log with its format's columns found in the file, or an error that says which are not there or not of their type."""
    try:
        schema = pq.read_schema(log.path)
    except (pa.ArrowInvalid, OSError) as error:
        raise LogError(f"{log.path} is damaged parquet ({error}); fetch or write it again") from None
    return log._replace(fmt=described_schema(schema, log.fmt, str(log.path)))


def described_schema(schema: pa.Schema, fmt: LogFormat, path: str) -> LogFormat:
    """The format with the declared columns that a file of this schema has, in its order."""
    found = with_header(fmt, schema.names, path)
    declared = tuple(column for column in found.columns if column.kind is not Kind.ANY)
    for column in declared:
        kind = schema.field(column.name).type
        text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_dictionary(kind)
        number = pa.types.is_integer(kind) or pa.types.is_boolean(kind)
        if not (text if column.kind is Kind.TEXT else number):
            raise FormatError(
                f"{path}: column {column.name!r} is {kind}, format {fmt.name!r} says {column.kind.name.lower()}; "
                f"cast it, or declare another type in a .toml and pass it with --format"
            )
    return found._replace(columns=declared)


def checked(
    rows: pa.RecordBatch, fmt: LogFormat, most_bad: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], list[tuple[int, str]]]:
    """The parser's columns (of all rows), which rows are good, and the first bad ones with their reasons."""
    n = rows.num_rows
    columns = parser.output(n)
    reasons = np.full(n, "", object)

    def reject(bad: NDArray[np.bool_], reason: str) -> None:
        reasons[bad & (reasons == "")] = reason

    layout = parser.layout(fmt)
    for column, row in zip(fmt.columns, layout.row, strict=True):
        values = rows.column(column.name)
        if column.kind is Kind.TEXT:
            faults = np.empty(n, np.uint8)
            parser.keep_texts(*_letters(values), int(row), columns, faults)
            reject(faults == parser.NUL, "NUL byte")
            reject(faults == parser.EMPTY, f"{column.name} is empty")
            reject(faults == parser.NOT_UTF8, f"{column.name} is not UTF-8")
        else:
            reject(np.asarray(values.is_null()), f"{column.name} is not a number")
            outside, columns[row] = _integers(values, column)
            reject(outside, rules.outside(column))
    columns[parser.POSITION] -= layout.first_position - 1
    roles = fmt.roles
    reject(columns[parser.CLICKS] > columns[parser.IMPRESSIONS], f"{roles.clicks} above {roles.impressions or 1}")
    reject(columns[parser.POSITION] > columns[parser.DEPTH], f"{roles.position} above {roles.depth}")
    good = reasons == ""
    return columns, np.flatnonzero(good), [(int(k), str(reasons[k])) for k in np.flatnonzero(~good)[:most_bad]]


def _letters(values: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The letters of a text column one behind the other, and where each value starts; nulls are empty."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    text = values.cast(pa.large_binary()).fill_null(b"")
    _, offsets, letters = text.buffers()
    return (
        np.frombuffer(letters or b"", np.uint8),
        np.frombuffer(offsets, np.int64)[text.offset : text.offset + len(text) + 1],
    )


def _integers(values: pa.Array, column: Column) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Which values lie outside their column's range, and all of them as int64 (wrapped beyond, as in the parser)."""
    wide = pa.uint64() if pa.types.is_uint64(values.type) else pa.int64()
    numbers = pc.fill_null(values.cast(wide), 0).to_numpy(zero_copy_only=False)
    outside = (numbers > column.high) | (numbers < column.low)
    return outside & ~np.asarray(values.is_null()), numbers.astype(np.int64)


def ids(rows: pa.RecordBatch, fmt: LogFormat, row: int, kept: NDArray[np.int64]) -> pa.Array:
    """The query (row QUERY) or item (row ITEM) ids of the rows `kept`."""
    name = fmt.roles[row] or ""
    kind = pa.int64() if fmt.column(name).kind is Kind.INTEGER else pa.string()
    return rows.column(name).take(pa.array(kept)).cast(kind)


def row_text(rows: pa.RecordBatch, number: int) -> bytes:
    """A bad row as a line of text."""
    values = []
    for column in rows.slice(number, 1).columns:
        kind = column.type
        text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        value = column.cast(pa.binary())[0].as_py() if text else column[0].as_py()
        values.append(value if isinstance(value, bytes) else b"" if value is None else str(value).encode())
    return b"\t".join(values)
