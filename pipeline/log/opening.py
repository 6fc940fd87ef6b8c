"""The bytes of a log, whatever it is packed in. What a file is, its first bytes say, not its name."""

import io
import lzma
import zipfile
import zlib
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
    b"BZh": "bz2",
    b"PK\x03\x04": "zip",
    b"PK\x05\x06": "zip",
    b"PAR1": "parquet",
}
UNREADABLE = {
    b"\xfd7zXZ": "xz data; unpack it first",
    b"\xff\xfe": "UTF-16 text; convert it to UTF-8",
    b"\xfe\xff": "UTF-16 text; convert it to UTF-8",
}
FIRST_BYTES = 1 << 16  # looked at to recognise a format
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


Read = Callable[[memoryview], int]  # fills a buffer as far as the log goes, and returns how far


def find(path: Path, fmt: LogFormat) -> Log:
    """The log at a path, or an error that says what is there instead."""
    try:
        if path.is_dir():
            raise LogError(f"{path} is a directory; name the log file in it, e.g. {path / 'training.txt'}")
        if not path.is_file() and path.exists():
            raise LogError(f"{path} is not a regular file; pbm reads a log twice, so write the stream to a file first")
        status = path.stat()
        with path.open("rb") as file:
            head = file.read(max(map(len, [*MAGIC, *UNREADABLE])))
    except FileNotFoundError:
        raise LogError(f"there is no log at {path}; check the path, or make a synthetic log with `pbm synthesize`") from None
    except OSError as error:
        raise LogError(f"cannot read {path}: {error.strerror}") from None
    if status.st_size == 0:
        raise LogError(f"{path} is empty; expected a log in format {fmt.name!r}")
    for magic, what in UNREADABLE.items():
        if head.startswith(magic):
            raise LogError(f"{path} is {what}")
    packing = next((packing for magic, packing in MAGIC.items() if head.startswith(magic)), "plain")
    return Log(path, packing, status.st_size, status.st_mtime_ns, fmt)


def check_unchanged(log: Log) -> None:
    """Refuse a log that was written to since it was found."""
    try:
        status = log.path.stat()
    except OSError as error:
        raise LogError(f"{log.path} vanished while it was read: {error.strerror}") from None
    if (status.st_size, status.st_mtime_ns) != (log.size, log.changed):
        raise LogError(f"{log.path} was written to while it was read; count it again when it is complete")


@contextmanager
def opened(log: Log) -> Iterator[tuple[Read, Callable[[], int]]]:
    """What reads the unpacked bytes of a text log, and what says how many bytes on disk have been read so far."""
    with ExitStack() as stack:
        with _told(log):
            raw = stack.enter_context(log.path.open("rb", buffering=0))
            stream: Bytes = raw
            if log.packing == "zip":
                stream = stack.enter_context(_member(log, stack.enter_context(zipfile.ZipFile(raw))))
            elif log.packing != "plain":
                # Arrow's decompressors read several members or frames in a row and raise on a truncated one.
                stream = stack.enter_context(pa.CompressedInputStream(pa.PythonFile(raw, "r"), log.packing))

        def read(buffer: memoryview) -> int:
            size = 0
            with _told(log):
                while size < len(buffer) and (count := stream.readinto(buffer[size:])):
                    size += count
            return size

        yield read, raw.tell


@contextmanager
def _told(log: Log) -> Iterator[None]:
    """Tell what goes wrong with reading in a user's words."""
    try:
        yield
    except (OSError, EOFError, RuntimeError, NotImplementedError, zipfile.BadZipFile, zlib.error, lzma.LZMAError) as error:
        if log.packing == "plain":
            raise LogError(f"cannot read {log.path}: {getattr(error, 'strerror', None) or error}") from None
        raise LogError(f"{log.path}: the {log.packing} data is damaged or cut short ({error}); fetch the file again") from None


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
    buffer = bytearray(FIRST_BYTES)
    with opened(log) as (read, _):
        size = read(memoryview(buffer))
    return lines_of(bytes(buffer[:size]), most)


def lines_of(head: bytes, most: int) -> tuple[list[bytes], bool]:
    """The lines in the first FIRST_BYTES of a text, or in all of it, and whether it ends with the last of them."""
    whole = len(head) < FIRST_BYTES
    lines = head.removeprefix(BYTE_ORDER_MARK).split(b"\n")
    if not whole or not lines[-1]:
        lines.pop()  # cut off by the end of the buffer, or what is behind the last newline
    return [line.removesuffix(b"\r") for line in lines[:most]], whole and len(lines) <= most
