"""numba's cache does not see when a kernel that another one calls has changed: here is what does."""

from contextlib import suppress
from pathlib import Path


def drop_stale_kernels(package: Path = Path(__file__).parent) -> None:
    """Remove compiled kernels that are older than some source of the package, so that an edited policy is played as it stands."""
    newest = max(source.stat().st_mtime for source in package.rglob("*.py"))
    for compiled in package.rglob("*.nb[ci]"):
        with suppress(OSError):  # another process may have been faster, or the folder is not ours to write
            if compiled.stat().st_mtime < newest:
                compiled.unlink()
