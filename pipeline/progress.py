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
            scale, of = (1e6, f"million {unit}") if total >= 1e6 else (1, unit)
            done, speed = (f"{(value or 0) / scale:,.{1 if scale > 1 else 0}f}" for value in (task.completed, task.speed))
            return Text(f"{done} of {total / scale:,.0f} {of}, {speed} a second")

    columns = [DownloadColumn(), TransferSpeedColumn()] if unit == "bytes" else [Count()]
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
