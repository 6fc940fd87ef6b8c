"""To look at: `pbm report`, `pbm show`."""

import json
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from pipeline.cli.app import DEFAULT_WORKSPACE, AsJson, Workspace, aligned, command, finite


@command
def report(
    out: Annotated[Path | None, typer.Option(help="Where to write it.", show_default="WORKSPACE/report", metavar="DIR")] = None,
    workspace: Workspace = DEFAULT_WORKSPACE,
    as_json: AsJson = False,
) -> None:
    """Put everything on one page: tables, figures, and which of the paper's claims hold.

    Writes index.html, which needs nothing else, and every figure as SVG and PNG. What is missing is named there, with the command
    that makes it.
    """
    from pipeline.stages.report import report as run

    result = run(workspace, out or workspace / "report")
    if as_json:
        claims = [{**claim._asdict(), "verdict": claim.verdict.value} for claim in result.claims]
        typer.echo(json.dumps({**result._asdict(), "page": str(result.page), "claims": finite(claims)}))
        return
    typer.echo(aligned([(claim.name, claim.verdict.value) for claim in result.claims]))
    missing = f"; not shown, as they are missing: {', '.join(result.missing)}" if result.missing else ""
    typer.echo(f"{result.page}: {result.figures} figures{missing}")


@command
def show(
    artefact: Annotated[
        str,
        typer.Argument(
            help="counts, rejects, matrices, diagnostics, models, truth, or simulations/, regret/, displays/, bounds/NAME.",
            metavar="ARTEFACT",
        ),
    ],
    rows: Annotated[int, typer.Option(min=1, help="So many rows at most (--json has all).")] = 50,
    columns: Annotated[str, typer.Option(help="Only these, separated by commas.", show_default="all that fit")] = "",
    workspace: Workspace = DEFAULT_WORKSPACE,
    as_json: AsJson = False,
) -> None:
    """Show an artefact as a table."""
    from pipeline.listing import listing
    from pipeline.stages.show import show as run

    table = run(workspace, artefact, list(dict.fromkeys(name.strip() for name in columns.split(",") if name.strip())))
    if as_json:
        typer.echo(table.write_json())
        return
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    text, hidden = listing(table.head(rows), width)
    typer.echo(text)
    if table.height > rows:
        typer.echo(f"... {table.height:,} rows in all; --rows N shows more")
    if hidden:
        typer.echo(f"... and the columns {', '.join(hidden)}; --columns chooses")
