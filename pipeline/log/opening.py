"""The bytes of a log, whatever it is packed in. What a file is, its first bytes say, not its name."""

import io
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import NamedTuple, Protocol

import pyarrow as pa

from pipeline.errors import LogError
from pipeline.formats import LogFormat

MAGIC = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PK\x03\x04": "zip",
    b"PK\x05\x06": "zip",
    b"PAR1": "parquet",
}
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Log(NamedTuple):
    """A log on disk: where it is, how it is packed and what its lines mean."""

    path: Path
    packing: str  # "plain" or a value of MAGIC
    size: int  # bytes on disk
    changed: int  # when it last was, in nanoseconds
    fmt: LogFormat


class Bytes(Protocol):
    """What we need of a file object."""

    def readinto(self, buffer: memoryview, /) -> int: ...


def find(path: Path, fmt: LogFormat) -> Log:
    """The log at a path, or an error that says what is there instead."""
    try:
        if path.is_dir():
            raise LogError(f"{path} is a directory; name the log file in it, e.g. {path / 'training.txt'}")
        if not path.is_file() and path.exists():
            raise LogError(f"{path} is not a regular file; pbm reads a log twice, so write the stream to a file first")
        status = path.stat()
        with path.open("rb") as file:
            head = file.read(len(b"PAR1"))
    except FileNotFoundError:
        raise LogError(f"there is no log at {path}; check the path, or make a synthetic log with `pbm synthesize`") from None
    except OSError as error:
        raise LogError(f"cannot read {path}: {error.strerror}") from None
    if status.st_size == 0:
        raise LogError(f"{path} is empty; expected a log in format {fmt.name!r}")
    packing = next((packing for magic, packing in MAGIC.items() if head.startswith(magic)), "plain")
    return Log(path, packing, status.st_size, status.st_mtime_ns, fmt)


def check_unchanged(log: Log) -> None:
    """Refuse a log that was written to since it was found."""
    status = log.path.stat()
    if (status.st_size, status.st_mtime_ns) != (log.size, log.changed):
        raise LogError(f"{log.path} was written to while it was read; count it again when it is complete")


@contextmanager
def opened(log: Log) -> Iterator[tuple[Bytes, Callable[[], int]]]:
    """The unpacked bytes of a text log as a file, and how many bytes on disk have been read so far."""
    with ExitStack() as stack:
        try:
            raw = stack.enter_context(log.path.open("rb", buffering=0))
            stream: Bytes = raw
            if log.packing == "zip":
                stream = stack.enter_context(_member(log, stack.enter_context(zipfile.ZipFile(raw))))
            elif log.packing != "plain":
                # Arrow's decompressors read several members or frames in a row and raise on a truncated one.
                stream = stack.enter_context(pa.CompressedInputStream(pa.PythonFile(raw, "r"), log.packing))
            yield stream, raw.tell
        except (OSError, EOFError, zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
            if isinstance(error, OSError) and error.strerror and log.packing == "plain":
                raise LogError(f"cannot read {log.path}: {error.strerror}") from None
            raise LogError(
                f"{log.path}: the {log.packing} data is damaged or cut short ({error}); fetch the file again"
            ) from None


def _member(log: Log, archive: zipfile.ZipFile) -> io.BufferedIOBase:
    """The one file of an archive that is the log."""
    files = [entry for entry in archive.infolist() if not entry.is_dir()]
    matching = [entry for entry in files if fnmatchcase(PurePosixPath(entry.filename).name, log.fmt.member)]
    if len(matching) != 1:
        listed = ", ".join(repr(entry.filename) for entry in (matching or files)[:10]) or "no file"
        raise LogError(
            f"{log.path}: expected one file that matches {log.fmt.member!r} (the member of format {log.fmt.name!r}), "
            f"found {len(matching) or 'none'}; it holds {listed}; unpack the right one, or set 'member' in a format of your own"
        )
    if matching[0].flag_bits & 0x1:  # the archive's own flag for an encrypted member
        raise LogError(f"{log.path}: {matching[0].filename!r} is encrypted; unpack it with its password first")
    return archive.open(matching[0])  # type: ignore[return-value] # typeshed calls it IO[bytes]; it is an io.BufferedIOBase


def first_lines(log: Log, most: int) -> tuple[list[bytes], bool]:
    """The first lines of a text log without their line ends, and whether the log ends with the last of them."""
    buffer = bytearray(1 << 16)
    with opened(log) as (stream, _):
        size = fill(stream, memoryview(buffer))
    whole = size < len(buffer)
    lines = bytes(buffer[:size]).removeprefix(BYTE_ORDER_MARK).split(b"\n")
    if not whole or not lines[-1]:
        lines.pop()  # cut off by the end of the buffer, or what is behind the last newline
    return [line.removesuffix(b"\r") for line in lines[:most]], whole and len(lines) <= most


def fill(stream: Bytes, buffer: memoryview) -> int:
    """Read until the buffer is full or the stream ends; returns the bytes read."""
    size = 0
    while size < len(buffer):
        count = stream.readinto(buffer[size:])
        if not count:
            break
        size += count
    return size
