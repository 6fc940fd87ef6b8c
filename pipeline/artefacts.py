"""Every artefact: its name, schema, key and version; read with checks, written whole or not at all.

A file's key-value metadata holds, under `pbm`, where it comes from: parameters, the identity of every input, the package's
version. No clock and no path, so that the same run gives the same bytes.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline import __version__
from pipeline.errors import ArtefactError

ID = (pa.int64(), pa.string())  # ids are integers, or text where the log's format says so
METADATA_KEY = b"pbm"


class Artefact(NamedTuple):
    """A parquet file of the workspace. A column's type is a tuple where several are allowed."""

    name: str  # its path in the workspace without .parquet
    columns: Mapping[str, pa.DataType | tuple[pa.DataType, ...]]
    key: tuple[str, ...]  # unique, and the order of the rows
    made_by: str
    made_from: tuple[str, ...] = ()  # artefacts beside it whose content it must have been made from
    version: int = 1

    def path(self, workspace: Path) -> Path:
        return workspace / f"{self.name}.parquet"


TRUTH = Artefact(
    "raw/truth",
    {
        "query_id": pa.int64(),
        "ad_id": pa.int64(),
        "position": pa.int8(),
        "displays": pa.int64(),
        "clicks": pa.int64(),
        "theta": pa.float64(),
        "kappa": pa.float64(),
        "impressions": pa.int64(),
        "impression_clicks": pa.int64(),
    },
    key=("query_id", "ad_id", "position"),
    made_by="pbm synthesize",
)
COUNTS = Artefact(
    "counts",
    {
        "query_id": ID,
        "ad_id": ID,
        "position": pa.int8(),
        "lines": pa.int64(),
        "clicked_lines": pa.int64(),
        "impressions": pa.int64(),
        "clicks": pa.int64(),
    },
    key=("query_id", "ad_id", "position"),
    made_by="pbm count LOG",
)
REJECTS = Artefact(
    "rejects",
    {"line": pa.int64(), "reason": pa.string(), "text": pa.string()},
    key=("line",),
    made_by="pbm count LOG",
    made_from=("counts",),
)
ALL = (TRUTH, COUNTS, REJECTS)


class Provenance(NamedTuple):
    """Where an artefact comes from."""

    parameters: Mapping[str, Any]
    inputs: Mapping[str, Any]  # name to identity; those of `made_from` are added by the writer


def identity(path: Path) -> str:
    """What identifies a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read(artefact: Artefact, workspace: Path) -> pl.DataFrame:
    """The rows of an artefact, if it is whole, of its schema, sorted by its key and made from what lies beside it."""
    path = artefact.path(workspace)
    table = _table(artefact, path)
    found = provenance(artefact, workspace)
    for name in artefact.made_from:
        source = workspace / f"{name}.parquet"
        if not source.exists():
            commands = " and ".join(dict.fromkeys(f"`{command}`" for command in (_maker(name), artefact.made_by)))
            raise ArtefactError(f"{path} was made from {source}, which is not there; run {commands}")
        if found["inputs"].get(name) != identity(source):
            raise ArtefactError(
                f"{path} was made from another {source.name} than the one beside it; run `{artefact.made_by}` again"
            )
    rows = pl.DataFrame(table)
    _check(artefact, rows, path)
    return rows


def provenance(artefact: Artefact, workspace: Path) -> dict[str, Any]:
    """The `pbm` metadata of an artefact: artefact, version, package, parameters, inputs."""
    path = artefact.path(workspace)
    metadata = _footer(artefact, path).metadata or {}
    try:
        found: dict[str, Any] = json.loads(metadata[METADATA_KEY])
        name, version = found["artefact"], found["version"]
    except (KeyError, ValueError, TypeError):
        raise ArtefactError(f"{path} was not written by pbm: it has no provenance; make it with `{artefact.made_by}`") from None
    if (name, version) != (artefact.name, artefact.version):
        raise ArtefactError(
            f"{path} is {name!r} version {version}, expected {artefact.name!r} version {artefact.version}; "
            f"run `{artefact.made_by}` again"
        )
    return found


def write(artefact: Artefact, rows: pl.DataFrame, origin: Provenance, workspace: Path) -> None:
    """Write an artefact, sorted by its key."""
    rows = rows.select(list(artefact.columns)).sort(artefact.key)
    _check(artefact, rows, artefact.path(workspace))
    with writing(artefact, workspace) as file:
        file.append(rows.to_arrow())
        file.origin = origin


class Writer:
    """An artefact being written, in pieces; it appears under its name when the `with` block ends well."""

    origin: Provenance

    def __init__(self, artefact: Artefact, file: Any) -> None:
        self._artefact = artefact
        self._file = file
        self._parquet: pq.ParquetWriter | None = None

    def append(self, table: pa.Table) -> None:
        """Add rows; the caller keeps them in the order of the key."""
        if self._parquet is None:
            kinds = ((name, _kind(kind, table.schema.field(name).type)) for name, kind in self._artefact.columns.items())
            self._parquet = pq.ParquetWriter(self._file, pa.schema(list(kinds)), compression="zstd")
        self._parquet.write_table(table.cast(self._parquet.schema))

    def close(self, workspace: Path) -> None:
        """Add the provenance and end the file."""
        if self._parquet is None:
            self.append(pa.schema([(name, _kind(kind, None)) for name, kind in self._artefact.columns.items()]).empty_table())
        assert self._parquet is not None
        sources = {name: identity(workspace / f"{name}.parquet") for name in self._artefact.made_from}
        metadata = {
            "artefact": self._artefact.name,
            "version": self._artefact.version,
            "package": __version__,
            "parameters": dict(self.origin.parameters),
            "inputs": {**self.origin.inputs, **sources},
        }
        self._parquet.add_key_value_metadata({METADATA_KEY: json.dumps(metadata, sort_keys=True, ensure_ascii=False).encode()})
        self._parquet.close()

    def abandon(self) -> None:
        """End what will not be kept, so that it does not write into a closed file later."""
        if self._parquet is not None:
            with suppress(Exception):
                self._parquet.close()


@contextmanager
def writing(artefact: Artefact, workspace: Path) -> Iterator[Writer]:
    """Write an artefact in pieces. `origin` must be set before the block ends."""
    with whole(artefact.path(workspace)) as file:
        writer = Writer(artefact, file)
        try:
            yield writer
            writer.close(workspace)
        except BaseException:
            writer.abandon()
            raise


@contextmanager
def whole(path: Path) -> Iterator[Any]:
    """A file to write that takes its name when the block ends well, and is gone without a trace otherwise."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep(path)
        try:
            with temporary.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # the new name, too, outlives a power cut
        finally:
            os.close(folder)
    except OSError as error:
        raise ArtefactError(
            f"cannot write {path}: {error.strerror or error}; nothing was changed; make room there, or choose another --workspace"
        ) from None


def _sweep(path: Path) -> None:
    """Remove what killed runs left of earlier attempts at this file."""
    for stray in path.parent.glob(f".{path.name}.*.tmp"):
        owner = stray.name.split(".")[-2]
        if owner.isdigit() and int(owner) != os.getpid() and not Path(f"/proc/{owner}").exists() and Path("/proc/self").exists():
            stray.unlink(missing_ok=True)


def _maker(name: str) -> str:
    return next(artefact.made_by for artefact in ALL if artefact.name == name)


def _kind(declared: pa.DataType | tuple[pa.DataType, ...], found: pa.DataType | None) -> pa.DataType:
    """The declared type, or of several the one that the data has (the first, if there is no data)."""
    if not isinstance(declared, tuple):
        return declared
    text = found is not None and not pa.types.is_integer(found)
    return declared[1] if text else declared[0]


def _footer(artefact: Artefact, path: Path) -> pq.FileMetaData:
    try:
        return pq.read_metadata(path)
    except FileNotFoundError:
        raise ArtefactError(f"there is no {path}; make it with `{artefact.made_by}`") from None
    except (pa.ArrowException, OSError) as error:
        raise ArtefactError(f"cannot read {path}: {error}; make it again with `{artefact.made_by}`") from None


def _table(artefact: Artefact, path: Path) -> pa.Table:
    schema = _footer(artefact, path).schema.to_arrow_schema()
    for name, declared in artefact.columns.items():
        allowed = declared if isinstance(declared, tuple) else (declared,)
        found = schema.field(name).type if name in schema.names else None
        if found not in allowed:
            expected = " or ".join(map(str, allowed))
            what = f"is {found}" if found is not None else "is missing"
            raise ArtefactError(f"{path}: column {name!r} {what}, expected {expected}; make it again with `{artefact.made_by}`")
    try:
        return pq.read_table(path, columns=list(artefact.columns))
    except (pa.ArrowException, OSError) as error:
        raise ArtefactError(f"cannot read {path}: {error}; make it again with `{artefact.made_by}`") from None


def _check(artefact: Artefact, rows: pl.DataFrame, path: Path) -> None:
    """Refuse nulls, and rows that are not sorted by a unique key."""
    for name in artefact.columns:
        if rows[name].null_count():
            raise ArtefactError(
                f"{path}: column {name!r} has {rows[name].null_count()} nulls; make it again with `{artefact.made_by}`"
            )
    key = rows.select(artefact.key)
    if not key.equals(key.unique().sort(artefact.key)):
        raise ArtefactError(
            f"{path}: the rows are not sorted by a unique ({', '.join(artefact.key)}); make it again with `{artefact.made_by}`"
        )
