"""Is this log in the format at all? Asked of the first lines, before ten gigabytes are rejected line by line."""

from pipeline.errors import FormatError, LogError
from pipeline.formats import Kind, LogFormat, with_header
from pipeline.log import parquet, rules
from pipeline.log.opening import FIRST_BYTES, Log, first_lines

LOOKED_AT = 100  # lines
SEPARATORS = {"\t": "tabs", ",": "commas", ";": "semicolons", "|": "bars", " ": "blanks"}
ADVICE = "declare it in a .toml and pass it with --format (`pbm formats` shows a declaration)"


def recognised(log: Log) -> Log:
    """The log, with the columns of its header if it has one; or an error that says what was found instead."""
    if log.packing == "parquet":
        return parquet.described(log)
    return log._replace(fmt=recognised_text(*first_lines(log, LOOKED_AT), log.fmt, str(log.path)))


def recognised_text(lines: list[bytes], whole: bool, fmt: LogFormat, path: str) -> LogFormat:
    """The format of a text that starts with these lines, with the columns of its header if it has one."""
    if not lines:
        if whole:
            raise LogError(f"{path} is empty; expected a log in format {fmt.name!r}")
        raise LogError(f"{path}: the first line is longer than {FIRST_BYTES:,} bytes; this is no log in format {fmt.name!r}")
    if fmt.header:
        names = rules.split(lines[0], fmt)
        if isinstance(names, str):
            raise FormatError(f"{path}:1: {names} in the header")
        fmt = with_header(fmt, [name.decode("utf-8", "backslashreplace") for name in names], f"{path}:1")
        lines = lines[1:]
    elif _is_header(lines, fmt):
        start = ", ".join(repr(name.decode("utf-8", "replace")) for name in lines[0].split(fmt.separator.encode())[:3])
        raise FormatError(
            f"{path}:1: the first line is a header ({start}, ...), and format {fmt.name!r} has none; "
            f"remove the line, or set header = true in a format of your own: {ADVICE}"
        )
    _check_fields(path, fmt, lines)
    return fmt


def _is_header(lines: list[bytes], fmt: LogFormat) -> bool:
    """The first line has the right number of fields, none of its integers is one, and the second line is good."""
    fields = rules.split(lines[0], fmt)
    if isinstance(fields, str) or len(fields) != len(fmt.columns) or len(lines) < 2 or rules.broken(lines[1], fmt):
        return False
    numbers = [field for column, field in zip(fmt.columns, fields, strict=True) if column.kind is Kind.INTEGER]
    return not any(field.isdigit() for field in numbers)


def _check_fields(path: str, fmt: LogFormat, lines: list[bytes]) -> None:
    """Refuse a log whose first lines agree on another separator or another number of fields."""
    lines = [line for line in lines if line]
    counts = {_fields(line, fmt) for line in lines}
    if len(counts) != 1 or len(fmt.columns) in counts:
        return
    expected = f"expected {len(fmt.columns)} fields separated by {SEPARATORS.get(fmt.separator, repr(fmt.separator))}"
    if counts == {1}:
        for separator, plural in SEPARATORS.items():
            others = {_fields(line, fmt._replace(separator=separator)) for line in lines}
            if len(others) == 1 and others != {1} and separator not in (fmt.separator, fmt.quote):
                raise FormatError(
                    f"{path}: the fields are separated by {plural} ({others.pop()} a line); "
                    f"{expected}, as in format {fmt.name!r}; {ADVICE}"
                )
    if len(lines) > 1:
        raise FormatError(
            f"{path}: each of the first {len(lines)} lines has {(count := counts.pop())} field{'s' * (count != 1)}; "
            f"{expected}, as in format {fmt.name!r}; {ADVICE}"
        )


def _fields(line: bytes, fmt: LogFormat) -> int:
    fields = rules.split(line, fmt)
    return 0 if isinstance(fields, str) else len(fields)
