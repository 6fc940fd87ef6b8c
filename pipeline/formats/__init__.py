"""A log format is a declaration: a TOML file that names the columns, their ranges and their roles. No code.

`kdd2012.toml` beside this file is the first and the model for others. The keys:

    name       how the format is called
    separator  one character between two fields
    quote      a character that may enclose a field ("" inside stands for one); default: none
    header     true if the first line names the columns (they may then come in any order, with others); default: false
    member     which file of a .zip is the log, as a glob on its base name; default: "*"
    [roles]    query, item, position, clicks; and, where the log has them, impressions and depth: names of columns
    [columns]  NAME = { type, min, max }, in the order of the file; type is "integer" (default), "text" (query and item
               only) or "any" (not looked at). Undeclared columns of a header or a parquet file are "any".

Positions are numbered from 1 in every artefact: the position column's `min` (default 1) is the first position.
"""

import tomllib
from enum import IntEnum
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.errors import FormatError
from pipeline.near import near

UINT64_MAX = 2**64 - 1
ID_MAX = 2**63 - 1  # ids are int64 in the artefacts
COUNT_MAX = 2**32 - 1  # per line; sums of 2^31 such lines still fit an int64
POSITIONS_MAX = 2**7 - 1  # positions are int8 in the artefacts
TOML_NAMES = {str: "a string", bool: "true or false", dict: "a table"}


class Kind(IntEnum):
    """How a field is checked; the numbers are what the parser's kernel sees."""

    INTEGER = 0
    TEXT = 1
    ANY = 2


class Column(NamedTuple):
    """A column of the log and the range its integers must have."""

    name: str
    kind: Kind = Kind.INTEGER
    low: int = 0
    high: int = UINT64_MAX


class Roles(NamedTuple):
    """Which column plays which part. Without `impressions` a line is one display; without `depth` it is not checked."""

    query: str
    item: str
    position: str
    clicks: str
    impressions: str | None = None
    depth: str | None = None


class LogFormat(NamedTuple):
    """A log described: see the module's documentation."""

    name: str
    separator: str
    quote: str
    header: bool
    member: str
    columns: tuple[Column, ...]
    roles: Roles

    def column(self, name: str) -> Column:
        return next(column for column in self.columns if column.name == name)


def names() -> list[str]:
    """The formats that come with the package."""
    return sorted(Path(entry.name).stem for entry in resources.files(__name__).iterdir() if entry.name.endswith(".toml"))


def source(name_or_path: str) -> tuple[str, str]:
    """Where a format is declared, for errors, and the declaration."""
    if name_or_path in names():
        name = f"{name_or_path}.toml"
        return name, resources.files(__name__).joinpath(name).read_text("utf-8")
    if not name_or_path.endswith(".toml"):
        raise FormatError(
            f"there is no format {name_or_path!r}; there are {', '.join(names())}, "
            f"and any declaration of your own: --format FILE.toml (see `pbm formats`)"
        )
    try:
        return name_or_path, Path(name_or_path).read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise FormatError(f"cannot read the format {name_or_path!r}: {reason}") from None


def load(name_or_path: str) -> LogFormat:
    """The format of that name, or the one declared in that .toml file."""
    name, text = source(name_or_path)
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{name}: not valid TOML: {error}") from None
    return declared(table, name)


def declared(table: dict[str, Any], source: str) -> LogFormat:
    """The format that a TOML table declares, checked; `source` names it in errors."""

    def refuse(what: str) -> FormatError:
        return FormatError(f"{source}: {what}")

    def known(keys: dict[str, Any], allowed: tuple[str, ...], where: str) -> None:
        for key in keys:
            if key not in allowed:
                raise refuse(f"unknown key {key!r} in {where}{near(key, allowed)}")

    def typed(keys: dict[str, Any], key: str, kind: type, default: Any, where: str) -> Any:
        value = keys.get(key, default)
        if value is None:
            raise refuse(f"{key!r} is missing in {where}")
        if type(value) is not kind:
            raise refuse(f"{key!r} in {where} is {value!r}, expected {TOML_NAMES[kind]}")
        return value

    top = "the top level"
    known(table, ("name", "separator", "quote", "header", "member", "roles", "columns"), top)
    roles_table = typed(table, "roles", dict, None, top)
    known(roles_table, Roles._fields, "[roles]")
    for role in ("query", "item", "position", "clicks"):
        typed(roles_table, role, str, None, "[roles]")
    roles = Roles(**{role: typed(roles_table, role, str, None, "[roles]") for role in roles_table})
    named = [name for name in roles if name is not None]
    if len(set(named)) < len(named):
        raise refuse(f"one column plays two roles: {', '.join(named)}")

    header = typed(table, "header", bool, False, top)
    columns_table: dict[str, Any] = typed(table, "columns", dict, {} if header else None, top)
    for name in named:
        if name not in columns_table:
            if not header:
                raise refuse(f"[roles] names the column {name!r}, which is not in [columns]")
            columns_table[name] = {}
    columns = tuple(_column(name, keys, roles, refuse, known) for name, keys in columns_table.items())

    separator, quote = typed(table, "separator", str, None, top), typed(table, "quote", str, "", top)
    for key, value, empty in (("separator", separator, False), ("quote", quote, True)):
        if (not value and not empty) or len(value.encode()) > 1 or (value and (value in "\r\n\0" or value.isdigit())):
            raise refuse(f"{key!r} is {value!r}, expected one ASCII character that is no digit and ends no line")
    if separator == quote:
        raise refuse(f"'separator' and 'quote' are both {quote!r}")
    name = typed(table, "name", str, None, top)
    return LogFormat(name, separator, quote, header, typed(table, "member", str, "*", top), columns, roles)


def _column(name: str, keys: Any, roles: Roles, refuse: Any, known: Any) -> Column:
    """One entry of [columns], with the limits that its role adds."""
    where = f"[columns] {name}"
    if not isinstance(keys, dict):
        raise refuse(f"{where} is {keys!r}, expected a table such as {{ min = 0 }}")
    known(keys, ("type", "min", "max"), where)
    kinds = {kind.name.lower(): kind for kind in Kind}
    kind = kinds.get(str(keys.get("type", "integer")))
    if kind is None:
        raise refuse(f"type of {where} is {keys['type']!r}, expected one of {', '.join(kinds)}")
    role = next((role for role, column in zip(Roles._fields, roles, strict=True) if column == name), None)
    if kind is not Kind.INTEGER and ("min" in keys or "max" in keys):
        raise refuse(f"{where} has a range, which only integers have")
    if kind is Kind.TEXT and role not in ("query", "item"):
        raise refuse(f'{where} is text, which only the query and the item may be; use type = "any"')
    if kind is Kind.ANY and role is not None:
        raise refuse(f'{where} is {role}, so its type cannot be "any"')
    least = 1 if role == "impressions" else 0
    low = keys.get("min", 1 if role == "position" else least)
    most = {None: UINT64_MAX, "query": ID_MAX, "item": ID_MAX}.get(role, COUNT_MAX)
    if role == "position" and type(low) is int:
        most = low + POSITIONS_MAX - 1
    high = keys.get("max", most)
    if type(low) is not int or type(high) is not int or not least <= low <= high <= most:
        raise refuse(f"range of {where} is {low!r} to {high!r}, expected integers within {least} to {most}")
    return Column(name, kind, low, high)


def with_header(fmt: LogFormat, found: list[str], where: str) -> LogFormat:
    """The format with its columns in the order of the names found in a header or a parquet file."""
    missing = [column.name for column in fmt.columns if column.name not in found]
    if missing:
        raise FormatError(
            f"{where}: the column {', '.join(map(repr, missing))} of format {fmt.name!r} is not there; "
            f"the file has {', '.join(map(repr, found))}; declare its names in a .toml and pass it with --format"
        )
    repeated = [column.name for column in fmt.columns if found.count(column.name) > 1]
    if repeated:
        raise FormatError(f"{where}: the column {repeated[0]!r} is there {found.count(repeated[0])} times; rename one")
    declared_columns = {column.name: column for column in fmt.columns}
    return fmt._replace(columns=tuple(declared_columns.get(name, Column(name, Kind.ANY)) for name in found))
