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
    fmt = with_header(log.fmt, schema.names, str(log.path))
    declared = tuple(column for column in fmt.columns if column.kind is not Kind.ANY)
    for column in declared:
        kind = schema.field(column.name).type
        text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_dictionary(kind)
        number = pa.types.is_integer(kind) or pa.types.is_boolean(kind)
        if not (text if column.kind is Kind.TEXT else number):
            raise FormatError(
                f"{log.path}: column {column.name!r} is {kind}, format {log.fmt.name!r} says {column.kind.name.lower()}; "
                f"cast it, or declare another type in a .toml and pass it with --format"
            )
    return log._replace(fmt=fmt._replace(columns=declared))


def checked(rows: pa.RecordBatch, fmt: LogFormat) -> tuple[NDArray[np.int64], NDArray[np.int64], list[tuple[int, str]]]:
    """The parser's columns (of all rows), which rows are good, and the bad ones with their reasons."""
    n = rows.num_rows
    columns = parser.output(fmt, n)
    reasons = np.full(n, "", object)

    def reject(bad: NDArray[np.bool_], reason: str) -> None:
        reasons[bad & (reasons == "")] = reason

    layout = parser.layout(fmt)
    for column, row in zip(fmt.columns, layout.row, strict=True):
        values = rows.column(column.name)
        missing = np.asarray(values.is_null())
        reject(missing, f"{column.name} is empty" if column.kind is Kind.TEXT else f"{column.name} is not a number")
        if column.kind is Kind.TEXT:
            text = values.cast(pa.large_string()).fill_null("")
            starts = np.frombuffer(text.buffers()[1], np.int64)[text.offset : text.offset + n + 1]
            letters = np.frombuffer(text.buffers()[2] or b"", np.uint8)
            bad = np.zeros(n, np.bool_)
            for k in range(n):
                bad[k] = not parser.keep_text(letters, starts[k], starts[k + 1], False, 0, int(row), columns, k)
            reject(bad, f"{column.name} is empty")
        else:
            bad, columns[row] = _integers(values, column)
            reject(bad, rules.outside(column))
    columns[parser.POSITION] -= layout.first_position - 1
    roles = fmt.roles
    reject(columns[parser.CLICKS] > columns[parser.IMPRESSIONS], f"{roles.clicks} above {roles.impressions or 1}")
    reject(columns[parser.POSITION] > columns[parser.DEPTH], f"{roles.position} above {roles.depth}")
    good = reasons == ""
    return columns, np.flatnonzero(good), [(int(k), str(reasons[k])) for k in np.flatnonzero(~good)]


def _integers(values: pa.Array, column: Column) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Which values lie outside their column's range, and all of them as int64 (wrapped beyond, as in the parser)."""
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.uint8())
    numbers = pc.fill_null(values, column.low).to_numpy(zero_copy_only=False)
    outside = (numbers > column.high) | (numbers < column.low)
    return outside, numbers.astype(np.int64)


def ids(rows: pa.RecordBatch, fmt: LogFormat, row: int, kept: NDArray[np.int64]) -> pa.Array:
    """The query (row QUERY) or item (row ITEM) ids of the rows `kept`."""
    name = fmt.roles[row] or ""
    kind = pa.int64() if fmt.column(name).kind is Kind.INTEGER else pa.string()
    return rows.column(name).take(pa.array(kept)).cast(kind)


def shown(rows: pa.RecordBatch, number: int) -> str:
    """A bad row as it is kept in `rejects.parquet`."""
    return str(rows.slice(number, 1).to_pylist()[0])
