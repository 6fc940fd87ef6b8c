"""Progress on stderr: bytes or lines done, rate and time left. Silent where nobody watches."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[int], None]  # told how much is done so far


@contextmanager
def progress(what: str, total: int, *, unit: str = "bytes") -> Iterator[Advance]:
    """A bar while the block runs."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console  # here, as `pbm --help` has no use for it
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = [DownloadColumn(), TransferSpeedColumn()] if unit == "bytes" else [MofNCompleteColumn(), TextColumn(unit)]
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        *columns,
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)
