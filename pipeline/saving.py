"""Writing files whole or not at all: under a temporary name in the same folder, synced to the disk, then renamed."""

import glob
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline import __version__
from pipeline.artefacts import METADATA_KEY, Artefact, Provenance, check, identity
from pipeline.errors import ArtefactError


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
        check(artefact, rows, artefact.path(self._workspace))
        writer = self.writer(artefact)
        writer.append(rows.to_arrow())
        writer.origin = origin

    def publish(self) -> None:
        """Finish every file, then rename them all: what can fail is over before the first one changes."""
        drafts = {writer.artefact.name: writer.draft.temporary for writer in self._writers}
        waiting = list(self._writers)
        while waiting:  # an artefact is finished behind those it is made from
            names = {writer.artefact.name for writer in waiting}
            writer = next(writer for writer in waiting if not names & set(writer.artefact.made_from))
            made_from = writer.artefact.made_from
            writer.finish({name: identity(drafts.get(name, self._workspace / f"{name}.parquet")) for name in made_from})
            waiting.remove(writer)
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


def _kind(declared: pa.DataType | tuple[pa.DataType, ...], found: pa.DataType | None) -> pa.DataType:
    """The declared type, or of several the one that the data has (the first, if there is no data)."""
    if not isinstance(declared, tuple):
        return declared
    element = found.value_type if found is not None and hasattr(found, "value_type") else found
    text = element is not None and not pa.types.is_integer(element)
    return declared[1] if text else declared[0]
