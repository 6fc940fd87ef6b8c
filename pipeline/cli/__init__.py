"""The `pbm` command: parses, calls one stage, prints its closing result. Heavy imports wait inside the commands."""

import io
import sys

from pipeline.cli.app import app

# In the order in which --help lists their commands.
# isort: off
from pipeline.cli import log, models, games, results  # noqa: F401
# isort: on

__all__ = ["app", "main"]


def main() -> None:
    """Run the command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # file names need not be text
    app()
