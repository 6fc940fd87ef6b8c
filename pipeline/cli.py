"""The `pbm` command: parses, calls one stage, prints its closing result. Heavy imports wait inside the commands."""

import functools
import io
import json
import math
import shutil
import sys
import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from pipeline.errors import DataError
from pipeline.filter import Filter, Unit

app = typer.Typer(
    name="pbm",
    help="From a click log to position-based models and bandit experiments, stage by stage.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
PAPER = Filter()
MOST_ROWS, MOST_WARNINGS = 50, 20  # printed; everything is in the artefacts


class Method(StrEnum):
    em = "em"
    newton = "newton"


class EngineName(StrEnum):
    polars = "polars"
    duckdb = "duckdb"


Workspace = Annotated[
    Path, typer.Option("--workspace", "-w", envvar="PBM_WORKSPACE", help="Folder of the artefacts.", metavar="DIR")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the closing result as JSON.")]
DEFAULT_WORKSPACE = Path("data")


def _version(asked: bool) -> None:
    if asked:
        from pipeline import __version__

        typer.echo(f"pbm {__version__}")
        raise typer.Exit


def command(function: Callable[..., None]) -> Callable[..., None]:
    """A command of the app; errors in the data become one message and exit code 1."""

    @functools.wraps(function)
    def run(*arguments: Any, **options: Any) -> None:
        try:
            function(*arguments, **options)
        except DataError as error:
            typer.echo(f"pbm: error: {error}", err=True)
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            typer.echo("pbm: interrupted", err=True)
            raise typer.Exit(130) from None

    app.command()(run)
    return function


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    pass


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
        Path, typer.Argument(help="The log: text, .gz, .bz2, .zst, .zip or parquet.", metavar="LOG", show_default=False)
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
    workspace: Workspace = DEFAULT_WORKSPACE,
    as_json: AsJson = False,
) -> None:
    """Count displays and clicks of the ads that pass the filter.

    The counts per (query, ad, position) are exact, and every line is checked. The filter is the paper's: ads with enough
    displays at every position, queries with enough such ads. Writes counts.parquet and rejects.parquet.
    """
    from pipeline.formats import load
    from pipeline.stages.count import count as run

    if engine is EngineName.duckdb:
        from pipeline.engines.duckdb import count as engine_count
    else:
        from pipeline.engines.polars import count as engine_count

    start = time.perf_counter()
    wanted = Filter(unit, min_displays, min_ads, positions)
    result = run(log, workspace, load(fmt), engine_count, wanted, max_bad_lines)
    seconds = time.perf_counter() - start
    if result.unterminated:
        _note(f"{log} does not end with a newline; if its last line was cut inside its last field, no check can tell")
    if result.rejected:
        _note(
            f"bad lines are set aside in {workspace / 'rejects.parquet'}; up to {max_bad_lines:,} are tolerated (--max-bad-lines)"
        )
    if result.queries == 0:
        _note(
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
    typer.echo(_aligned(rows))


@command
def matrices(
    bootstrap: Annotated[int, typer.Option(min=19, help="Draws of sigma_2 / sigma_1 under the fitted model, per query.")] = 2000,
    seed: Annotated[int, typer.Option(min=0, help="Of the draws.")] = 0,
    workspace: Workspace = DEFAULT_WORKSPACE,
    as_json: AsJson = False,
) -> None:
    """Build the matrices of click-through rates, and test their rank.

    The paper looks at the singular values. Here sigma_2 / sigma_1 is also held against its distribution under the fitted
    rank-one model. Writes matrices.parquet and diagnostics.parquet.
    """
    from pipeline.stages.matrices import matrices as run

    result = run(workspace, bootstrap, seed)
    typer.echo(
        json.dumps(result._asdict())
        if as_json
        else f"{result.queries:,} matrices of {result.ads:,} ads at {result.positions} positions, counted in {result.unit}; "
        f"share of sigma_1^2 at least {result.sigma1_share_min or 0:.4f}; "
        f"sigma_2 / sigma_1 too large for the model (5%): {result.rank_one_rejected:,}"
    )


@command
def fit(
    method: Annotated[
        Method, typer.Option(help="em: the paper's estimator, polished to the maximum. newton: the same maximum, sooner.")
    ] = Method.em,
    workspace: Workspace = DEFAULT_WORKSPACE,
    as_json: AsJson = False,
) -> None:
    """Fit one position-based model per query.

    Prints the paper's table (K, records, smallest and largest theta), with kappa, the p-value of G2 (does the model fit?) and
    sigma_2 / sigma_1 beside it. Writes models.parquet.
    """
    from pipeline.stages.fit import fit_by_em, fit_by_newton

    result = (fit_by_em if method is Method.em else fit_by_newton)(workspace)
    for warning in result.warnings[:MOST_WARNINGS]:
        _note(warning)
    if len(result.warnings) > MOST_WARNINGS:
        _note(f"and {len(result.warnings) - MOST_WARNINGS:,} more; --json has them all")
    columns = ["query_id", "n_ads", "records", "theta_min", "theta_max", "kappa", "p_value", "sigma2_ratio"]
    if as_json:
        rows = result.table.select(columns).fill_nan(None).to_dicts()  # JSON has no NaN
        typer.echo(json.dumps({"models": rows, "warnings": result.warnings}))
        return
    from pipeline.listing import listing

    typer.echo(listing(result.table.head(MOST_ROWS).select(columns), None)[0])
    if result.table.height > MOST_ROWS:
        typer.echo(f"... {result.table.height:,} models in all; see `pbm show models`")


@command
def simulate(
    experiment: Annotated[str, typer.Option(help="kdd, synthetic or high-theta (see `pbm experiments`).")] = "kdd",
    policies: Annotated[
        str,
        typer.Option(
            help='Policies, with parameters where wanted: "pbm-ts,pbm-pie(epsilon=0.1)" (see `pbm policies`).',
            show_default="the experiment's",
        ),
    ] = "",
    runs: Annotated[int | None, typer.Option(min=1, help="Runs of each policy.", show_default="the experiment's")] = None,
    horizon: Annotated[int | None, typer.Option(min=1, help="Rounds of a run.", show_default="the experiment's")] = None,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same regrets.")] = 0,
    threads: Annotated[int | None, typer.Option(min=1, help="Results do not depend on it.", show_default="all cores")] = None,
    models: Annotated[
        Path | None,
        typer.Option(
            help="Play these models instead: parquet with query_id, theta, kappa (lists).", metavar="FILE", show_default=False
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Take what was played before with the same seed, runs, horizon and models; play the rest."),
    ] = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
    as_json: AsJson = False,
) -> None:
    """Play the policies, and keep their regret.

    The default is the paper's real-data experiment: 2,000 runs of 10,000 rounds, each on a query drawn from models.parquet, the
    same for every policy. Writes simulations/, regret/, displays/ and bounds/NAME.parquet. With --resume every policy is kept
    as soon as it is through, so that a run that was stopped can go on; a change of a policy's code is not noticed.
    """
    from pipeline.log.scanning import cores
    from pipeline.stages import simulate as stage

    wanted = stage.experiment_named(experiment)
    named = stage.players(policies or ",".join(wanted.policies))
    game = stage.game_of(wanted, workspace, runs or wanted.runs, horizon or wanted.horizon, seed, models)
    rows = (stage.resume if resume else stage.run)(game, named, threads or cores())
    before = [row.policy for row in rows if math.isnan(row.microseconds_per_round)]
    if before:
        _note(f"taken from before: {', '.join(before)}")
    import polars as pl

    if as_json:
        typer.echo(json.dumps(pl.DataFrame(rows).fill_nan(None).to_dicts()))  # JSON has no NaN
        return
    from pipeline.listing import listing

    typer.echo(listing(pl.DataFrame(sorted(rows, key=lambda row: row.mean_regret)), None)[0])


@command
def policies(as_json: AsJson = False) -> None:
    """List the policies and their parameters."""
    from bandits.policies import POLICIES

    if as_json:
        rows = {
            policy.name: {
                "summary": policy.summary,
                "parameters": {name: parameter._asdict() for name, parameter in policy.parameters.items()},
            }
            for policy in POLICIES.values()
        }
        typer.echo(json.dumps(rows))
        return
    for policy in POLICIES.values():
        typer.echo(f"{policy.name:<14}{policy.summary}")
        for name, parameter in policy.parameters.items():
            typer.echo(f"{'':<14}  {f'{name}={parameter.default:g}':<11} {parameter.meaning}")


@command
def experiments(as_json: AsJson = False) -> None:
    """List the experiments."""
    from pipeline.experiments import EXPERIMENTS

    if as_json:
        typer.echo(json.dumps({name: experiment._asdict() for name, experiment in EXPERIMENTS.items()}))
        return
    for experiment in EXPERIMENTS.values():
        typer.echo(f"{experiment.name:<12}{experiment.summary} ({experiment.runs:,} runs of {experiment.horizon:,} rounds)")


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
        typer.echo(json.dumps({**result._asdict(), "page": str(result.page), "claims": _finite(claims)}))
        return
    typer.echo(_aligned([(claim.name, claim.verdict.value) for claim in result.claims]))
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


def _aligned(rows: list[tuple[str, Any]]) -> str:
    """Names and values in two columns."""
    texts = [(name, f"{value:,}" if isinstance(value, int) else value) for name, value in rows]
    names, values = (max(len(text[i]) for text in texts) for i in (0, 1))
    return "\n".join(f"{name:<{names}}  {value:>{values}}" for name, value in texts)


def _finite(value: Any) -> Any:
    """The same with null for what JSON has no word for."""
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _note(text: str) -> None:
    typer.echo(f"pbm: note: {text}", err=True)


def main() -> None:
    """Run the command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # file names need not be text
    app()


if __name__ == "__main__":
    main()
