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
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )
    from rich.text import Text

    class Count(ProgressColumn):
        """How much of how much is done, and how fast, in millions where there are some."""

        def render(self, task: Task) -> Text:
            scale, letter, digits = (1e6, "M", 1) if total >= 1e6 else (1, "", 0)
            done, speed = (f"{(value or 0) / scale:,.{digits}f}{letter}" for value in (task.completed, task.speed))
            return Text(f"{done} of {total / scale:,.0f}{letter} {unit}, {speed}/s", no_wrap=True)

    columns = [DownloadColumn(), TransferSpeedColumn()] if unit == "bytes" else [Count()]
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),  # what stands beside it fits into 80 letters
        *columns,
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)
