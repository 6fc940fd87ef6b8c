"""Why a line is bad, in plain Python: the slow and obvious twin of the parser's kernel, run on bad lines alone."""

from pipeline.formats import UINT64_MAX, Column, Kind, LogFormat
from pipeline.log.digits import LONGEST

SHOWN = 4096  # bytes of a bad line that are kept; no line of a click log is longer


def broken(line: bytes, fmt: LogFormat, *, unterminated: bool = False) -> str | None:
    """The first rule of the format that a line (without its newline) breaks, or None if it is good.

    `unterminated` says that this is the log's last line and has no newline: if fields are missing, it was cut off.
    """
    line = line.removesuffix(b"\r")
    if not line:
        return "empty line"
    if b"\0" in line:
        return "NUL byte"
    fields = split(line, fmt)
    if isinstance(fields, str):
        return fields
    if len(fields) != len(fmt.columns):
        if unterminated and len(fields) < len(fmt.columns):
            return "truncated last line"
        return f"too {'few' if len(fields) < len(fmt.columns) else 'many'} fields ({len(fields)} of {len(fmt.columns)})"
    values = {}
    for column, field in zip(fmt.columns, fields, strict=True):
        reason = broken_field(column, field)
        if reason is not None:
            return reason
        if column.kind is Kind.INTEGER:
            values[column.name] = int(field)
    roles = fmt.roles
    if values[roles.clicks] > (values[roles.impressions] if roles.impressions else 1):
        return f"{roles.clicks} above {roles.impressions or 1}"
    if roles.depth and values[roles.position] - fmt.column(roles.position).low + 1 > values[roles.depth]:
        return f"{roles.position} above {roles.depth}"
    return None


def broken_field(column: Column, field: bytes) -> str | None:
    """The rule of its column that one field breaks, or None."""
    if column.kind is Kind.INTEGER:
        if not field.isdigit() or len(field) > LONGEST:  # of bytes: ASCII digits only
            return f"{column.name} is not a number"
        if not column.low <= int(field) <= column.high or (len(field) == LONGEST and field.startswith(b"0")):
            return outside(column)
    elif column.kind is Kind.TEXT:
        if not field:
            return f"{column.name} is empty"
        try:
            field.decode()
        except UnicodeDecodeError:
            return f"{column.name} is not UTF-8"
    return None


def outside(column: Column) -> str:
    """What is said of an integer that its column does not allow."""
    if column.high == UINT64_MAX:
        return f"{column.name} below {column.low} or beyond 64 bits"
    return f"{column.name} outside {column.low} to {column.high}"


def split(line: bytes, fmt: LogFormat) -> list[bytes] | str:
    """The fields of a line, quotes undone; or what is wrong with its quotes."""
    separator, quote = fmt.separator.encode(), fmt.quote.encode()
    if not quote or quote not in line:
        return line.split(separator)
    fields, rest = [], line
    while True:
        if rest.startswith(quote):
            pieces, rest = [], rest[1:]
            while True:
                piece, closing, rest = rest.partition(quote)
                if not closing:
                    return "unclosed quote"
                pieces.append(piece)
                if not rest.startswith(quote):
                    break
                rest = rest[1:]
            fields.append(quote.join(pieces))
            if rest and not rest.startswith(separator):
                return "text behind a closing quote"
            if not rest:
                return fields
            rest = rest[1:]
        else:
            field, more, rest = rest.partition(separator)
            fields.append(field)
            if not more:
                return fields


def shown(line: bytes) -> str:
    """A bad line as it is kept in `rejects.parquet`: readable whatever its bytes are."""
    return line[:SHOWN].decode("utf-8", "backslashreplace").replace("\0", "\\x00")
