"""What is said of a log with too many bad lines, whoever read it."""

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.formats import LogFormat

QUOTED_REJECTS = 5  # bad lines shown when there are too many of them
QUOTED_LETTERS = 80  # of each


def too_many(path: str, max_bad_lines: int, seen: str, first_bad: Sequence[Mapping[str, Any]]) -> str:
    """More bad lines than are tolerated; `seen` says how many of how many."""
    quoted = "\n".join(f"  {_place(bad)}: {bad['reason']}: {bad['text'][:QUOTED_LETTERS]!r}" for bad in first_bad)
    return (
        f"{path}: {seen} are bad, and --max-bad-lines allows {max_bad_lines:,}; "
        f"nothing was changed; the first are\n{quoted}\n"
        f"correct them, declare the format of this log (see `pbm formats`), or raise --max-bad-lines to have them set aside"
    )


def no_good_line(path: str, fmt: LogFormat, first_bad: Sequence[Mapping[str, Any]]) -> str:
    """Nothing in it is of the format."""
    quoted = f"; the first is bad: {first_bad[0]['reason']}" if first_bad else ""
    return f"{path} has no good line in format {fmt.name!r}{quoted}; is it a log of this format? see --format"


def _place(bad: Mapping[str, Any]) -> str:
    """Where a bad line is; of several files, in which."""
    return f"{bad['file']}, line {bad['line']}" if "file" in bad else f"line {bad['line']}"
