"""From a log to counts: `pbm synthesize`, `pbm count`, `pbm formats`."""

import json
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from pipeline.cli.app import DEFAULT_WORKSPACE, AsJson, SparkConf, SparkMaster, Workspace, aligned, cluster_of, command, note
from pipeline.filter import Filter, Unit

PAPER = Filter()


class EngineName(StrEnum):
    polars = "polars"
    duckdb = "duckdb"
    spark = "spark"


@command
def synthesize(
    lines: Annotated[int, typer.Option(min=1, help="Lines of the log. What is planted does not depend on it.")] = 4_000_000,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same bytes.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Where to write it.", show_default="WORKSPACE/raw/training.txt", metavar="FILE")
    ] = None,
    workspace: Workspace = DEFAULT_WORKSPACE,
    as_json: AsJson = False,
) -> None:
    """Write a synthetic log with the paper's models planted.

    The format is KDD Cup 2012 Track 2's, exactly; the background has the real log's shares. What was planted is in
    WORKSPACE/raw/truth.parquet.
    """
    from pipeline.stages.synthesize import synthesize as run

    out = out or workspace / "raw" / "training.txt"
    result = run(out, workspace, lines, seed)
    typer.echo(
        json.dumps({**result._asdict(), "path": str(out)})
        if as_json
        else f"{out}: {result.lines:,} lines ({result.planted:,} of 8 published models, {result.near_misses:,} of near misses, "
        f"{result.background:,} of background), {result.bytes:,} bytes"
    )


@command
def count(
    log: Annotated[
        str,
        typer.Argument(
            help="The log: text, .gz, .bz2, .zst, .zip or parquet; with --engine spark any path or glob that Spark reads.",
            metavar="LOG",
            show_default=False,
        ),
    ],
    fmt: Annotated[
        str,
        typer.Option("--format", help="A format by name, or your own declaration in a .toml file (see `pbm formats`)."),
    ] = "kdd2012",
    engine: Annotated[EngineName, typer.Option(help="What counts; the result is the same.")] = EngineName.polars,
    unit: Annotated[
        Unit,
        typer.Option(
            help="What one display is. lines: each line, clicked if it has a click; the paper's reading, which calls a line a "
            "record with a binary reward. impressions: each impression of a line; the statistically full one. "
            "The filter and the estimates follow the unit."
        ),
    ] = PAPER.unit,
    min_displays: Annotated[
        int, typer.Option(min=1, help="Keep ads with so many displays at every position.")
    ] = PAPER.min_displays,
    min_ads: Annotated[int, typer.Option(min=1, help="Keep queries with so many such ads.")] = PAPER.min_ads,
    positions: Annotated[
        int, typer.Option(min=1, help="Look at positions 1 to this; lines at others are dropped.")
    ] = PAPER.positions,
    max_bad_lines: Annotated[
        int, typer.Option(min=0, help="Set up to so many bad lines aside in rejects.parquet; stop at more.")
    ] = 1000,
    spark_master: SparkMaster = None,
    spark_conf: SparkConf = None,
    workspace: Workspace = DEFAULT_WORKSPACE,
    as_json: AsJson = False,
) -> None:
    """Count displays and clicks of the ads that pass the filter.

    The counts per (query, ad, position) are exact, and every line is checked. The filter is the paper's: ads with enough
    displays at every position, queries with enough such ads. Writes counts.parquet and rejects.parquet.
    """
    from pipeline.formats import load
    from pipeline.stages import count as stage

    start = time.perf_counter()
    wanted = Filter(unit, min_displays, min_ads, positions)
    cluster = cluster_of(engine is EngineName.spark, spark_master, spark_conf)
    if cluster is not None:
        from pipeline.cluster import session

        with session(cluster) as spark:
            result = stage.count_on_spark(log, workspace, load(fmt), spark, wanted, max_bad_lines)
    else:
        if engine is EngineName.duckdb:
            from pipeline.engines.duckdb import count as engine_count
        else:
            from pipeline.engines.polars import count as engine_count
        result = stage.count_here(Path(log), workspace, load(fmt), engine_count, wanted, max_bad_lines)
    seconds = time.perf_counter() - start
    if result.unterminated:
        note(f"{log} does not end with a newline; if its last line was cut inside its last field, no check can tell")
    if result.rejected:
        note(
            f"bad lines are set aside in {workspace / 'rejects.parquet'}; up to {max_bad_lines:,} are tolerated (--max-bad-lines)"
        )
    if result.queries == 0:
        note(
            f"no query has {min_ads} ad{'s' * (min_ads > 1)} with {min_displays:,} {unit} at each of {positions} positions, "
            f"so counts.parquet is empty; lower --min-displays, --min-ads or --positions"
        )
    speed = {"seconds": round(seconds, 3), "lines_per_second": round(result.lines / seconds)}
    if as_json:
        typer.echo(json.dumps({**result._asdict(), **speed}))
        return
    rejected = sum(result.rejected.values())
    rows: list[tuple[str, Any]] = [
        ("lines read", result.lines),
        ("- rejected", rejected),
        *((f"    {reason}", n) for reason, n in result.rejected.items()),
        (f"- dropped: position above {positions}", result.dropped_positions),
        ("- dropped by the filter", result.dropped_filter),
        ("= kept", result.kept),
        ("queries kept", result.queries),
        ("ads kept", result.ads),
        ("seconds", f"{seconds:.2f}"),
        ("lines per second", speed["lines_per_second"]),
    ]
    typer.echo(aligned(rows))


@command
def formats(
    name: Annotated[str | None, typer.Argument(help="Print the declaration of this one.", show_default=False)] = None,
    as_json: AsJson = False,
) -> None:
    """List the log formats, or print one's declaration.

    A declaration is a .toml file; copy one, change it, and pass it to `pbm count --format`.
    """
    from pipeline.formats import load, names, source

    if name is None:
        known = {known: source(known)[1].splitlines()[0].removeprefix("# ") for known in names()}
        typer.echo(json.dumps(known) if as_json else "\n".join(f"{known}  {text}" for known, text in known.items()))
    else:
        load(name)
        text = source(name)[1]
        typer.echo(json.dumps({"name": name, "toml": text}) if as_json else text, nl=as_json)
