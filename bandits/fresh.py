"""numba's cache does not see when a kernel that another one calls has changed: here is what does."""

from contextlib import suppress
from pathlib import Path


def drop_stale_kernels(package: Path = Path(__file__).parent) -> None:
    """Remove compiled kernels that are older than some source of the package, so that an edited policy is played as it stands.

    Folders count, too: their time tells of a source that is gone, which the cache may still want to import.
    """
    folders = [package, *(path for path in package.rglob("*") if path.is_dir() and path.name != "__pycache__")]
    newest = max(path.stat().st_mtime for path in (*folders, *package.rglob("*.py")))
    for compiled in package.rglob("*.nb[ci]"):
        with suppress(OSError):  # another process may have been faster, or the folder is not ours to write
            if compiled.stat().st_mtime < newest:
                compiled.unlink()
