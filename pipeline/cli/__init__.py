"""The `pbm` command: parses, calls one stage, prints its closing result. Heavy imports wait inside the commands."""

import io
import sys

from pipeline.cli import games, log, models, results  # noqa: F401 # in the order in which --help lists their commands
from pipeline.cli.app import app


def main() -> None:
    """Run the command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # file names need not be text
    app()
