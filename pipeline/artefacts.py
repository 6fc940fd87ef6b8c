"""Every artefact: its name, schema, key and version; read with checks, written whole or not at all.

A file's key-value metadata holds, under `pbm`, where it comes from: parameters, the identity of every input, the package's
version. No clock and no path, so that the same run gives the same bytes.
"""

import glob
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
FLOATS, INTEGERS = pa.list_(pa.float64()), pa.list_(pa.int64())
MATRICES = Artefact(
    "matrices",
    {"query_id": ID, "ad_id": ID, "displays": INTEGERS, "clicks": INTEGERS, "ctr": FLOATS},
    key=("query_id", "ad_id"),
    made_by="pbm matrices",
    made_from=("counts",),
)
DIAGNOSTICS = Artefact(
    "diagnostics",
    {
        "query_id": ID,
        "n_ads": pa.int32(),
        "n_positions": pa.int32(),
        "singular_values": FLOATS,
        "sigma1_share": pa.float64(),
        "sigma2_ratio": pa.float64(),
        "sigma2_ratio_q95": pa.float64(),
        "sigma2_p_value": pa.float64(),
    },
    key=("query_id",),
    made_by="pbm matrices",
    made_from=("counts",),
)
MODELS = Artefact(
    "models",
    {
        "query_id": ID,
        "n_ads": pa.int32(),
        "n_positions": pa.int32(),
        "records": pa.int64(),
        "theta_min": pa.float64(),
        "theta_max": pa.float64(),
        "ad_ids": tuple(map(pa.list_, ID)),
        "theta": FLOATS,
        "theta_se": FLOATS,
        "theta_low": FLOATS,
        "theta_high": FLOATS,
        "kappa": FLOATS,
        "kappa_se": FLOATS,
        "kappa_ref": pa.int8(),
        "log_likelihood": pa.float64(),
        "em_iterations": pa.int32(),
        "converged": pa.bool_(),
        "g2": pa.float64(),
        "dof": pa.int32(),
        "p_value": pa.float64(),
        "dispersion": pa.float64(),
        "kappa_low": FLOATS,
        "kappa_high": FLOATS,
        "theta_pooled": FLOATS,
        "theta_debiased": FLOATS,
        "pooled_variance_ratio": FLOATS,
    },
    key=("query_id",),
    made_by="pbm fit",
    made_from=("matrices",),
)
ALL = (TRUTH, COUNTS, REJECTS, MATRICES, DIAGNOSTICS, MODELS)  # each behind those it is made from


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
        if not source.is_file():
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
        dict(found["inputs"])
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
    with saving(workspace) as save:
        save.write(artefact, rows, origin)


@contextmanager
def saving(workspace: Path) -> Iterator["Save"]:
    """Write files that appear under their names, all of them, when the block ends well; otherwise none of them does."""
    save = Save(workspace)
    try:
        yield save
        save.publish()
    finally:
        save.discard()


class Draft:
    """A file under a temporary name in the folder of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if path.exists() and not path.is_file():
            raise ArtefactError(f"cannot write {path}: it is not a regular file; name another")
        target = path.resolve()  # what a link points to is replaced, not the link
        self.temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        with self.told():
            target.parent.mkdir(parents=True, exist_ok=True)
            _sweep(target)
            self.file = self.temporary.open("wb")

    @contextmanager
    def told(self) -> Iterator[None]:
        """Tell what goes wrong with the disk in a user's words."""
        try:
            yield
        except OSError as error:
            reason = error.strerror or str(error)
            raise ArtefactError(f"cannot write {self.path}: {reason}; make room there, or choose another place") from None

    def write(self, data: memoryview) -> None:
        with self.told():
            self.file.write(data)

    def finish(self) -> None:
        """Nothing is written any more; everything is on the disk."""
        if not self.file.closed:
            with self.told():
                self.file.flush()
                os.fsync(self.file.fileno())
                self.file.close()

    def publish(self) -> None:
        """Give it its name, and make that, too, outlive a power cut."""
        with self.told():
            self.temporary.replace(self.path.resolve())
            folder = os.open(self.temporary.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def discard(self) -> None:
        with suppress(OSError):
            self.file.close()
        with suppress(OSError):
            self.temporary.unlink(missing_ok=True)


class Writer:
    """An artefact being written in pieces. `origin` must be set before the save is published."""

    origin: Provenance

    def __init__(self, artefact: Artefact, draft: Draft) -> None:
        self.artefact = artefact
        self.draft = draft
        self._parquet: pq.ParquetWriter | None = None

    def append(self, table: pa.Table) -> None:
        """Add rows; the caller keeps them in the order of the key."""
        with self.draft.told():
            if self._parquet is None:
                kinds = ((name, _kind(kind, table.schema.field(name).type)) for name, kind in self.artefact.columns.items())
                self._parquet = pq.ParquetWriter(self.draft.file, pa.schema(list(kinds)), compression="zstd")
            self._parquet.write_table(table.cast(self._parquet.schema))

    def finish(self, sources: Mapping[str, str]) -> None:
        """Add the provenance, with the identities of the artefacts it was made from, and end the file."""
        if self._parquet is None:
            self.append(pa.schema([(name, _kind(kind, None)) for name, kind in self.artefact.columns.items()]).empty_table())
        assert self._parquet is not None
        metadata = {
            "artefact": self.artefact.name,
            "version": self.artefact.version,
            "package": __version__,
            "parameters": dict(self.origin.parameters),
            "inputs": {**self.origin.inputs, **sources},
        }
        with self.draft.told():
            self._parquet.add_key_value_metadata({METADATA_KEY: json.dumps(metadata, sort_keys=True).encode()})
            self._parquet.close()
        self._parquet = None
        self.draft.finish()

    def discard(self) -> None:
        if self._parquet is not None:
            with suppress(Exception):  # a writer left open would write into a closed file when it is collected
                self._parquet.close()


class Save:
    """Files of one run, published together."""

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace
        self._drafts: list[Draft] = []
        self._writers: list[Writer] = []

    def file(self, path: Path) -> Draft:
        """A file that is no artefact."""
        self._drafts.append(Draft(path))
        return self._drafts[-1]

    def writer(self, artefact: Artefact) -> Writer:
        """An artefact to be written in pieces."""
        self._writers.append(Writer(artefact, self.file(artefact.path(self._workspace))))
        return self._writers[-1]

    def write(self, artefact: Artefact, rows: pl.DataFrame, origin: Provenance) -> None:
        """A whole artefact, sorted by its key."""
        rows = rows.select(list(artefact.columns)).sort(artefact.key)
        _check(artefact, rows, artefact.path(self._workspace))
        writer = self.writer(artefact)
        writer.append(rows.to_arrow())
        writer.origin = origin

    def publish(self) -> None:
        """Finish every file, then rename them all: what can fail is over before the first one changes."""
        drafts = {writer.artefact.name: writer.draft.temporary for writer in self._writers}
        order = [artefact.name for artefact in ALL]
        for writer in sorted(self._writers, key=lambda writer: order.index(writer.artefact.name)):
            made_from = writer.artefact.made_from
            writer.finish({name: identity(drafts.get(name, self._workspace / f"{name}.parquet")) for name in made_from})
        for draft in self._drafts:
            draft.finish()
        for draft in self._drafts:
            draft.publish()

    def discard(self) -> None:
        """Remove what was not published."""
        for writer in self._writers:
            writer.discard()
        for draft in self._drafts:
            draft.discard()


def _sweep(path: Path) -> None:
    """Remove what killed runs left of earlier attempts at this file."""
    for stray in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        owner = stray.name.split(".")[-2]
        if owner.isdigit() and int(owner) != os.getpid() and not Path(f"/proc/{owner}").exists() and Path("/proc/self").exists():
            stray.unlink(missing_ok=True)


def _maker(name: str) -> str:
    return next(artefact.made_by for artefact in ALL if artefact.name == name)


def _kind(declared: pa.DataType | tuple[pa.DataType, ...], found: pa.DataType | None) -> pa.DataType:
    """The declared type, or of several the one that the data has (the first, if there is no data)."""
    if not isinstance(declared, tuple):
        return declared
    element = found.value_type if found is not None and hasattr(found, "value_type") else found
    text = element is not None and not pa.types.is_integer(element)
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
