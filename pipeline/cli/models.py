"""From counts to models: `pbm matrices`, `pbm fit`."""

import json
from enum import StrEnum
from typing import Annotated

import typer

from pipeline.cli.app import DEFAULT_WORKSPACE, AsJson, Workspace, command, note

MOST_ROWS, MOST_WARNINGS = 50, 20  # printed; everything is in the artefacts


class Method(StrEnum):
    em = "em"
    newton = "newton"


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
        note(warning)
    if len(result.warnings) > MOST_WARNINGS:
        note(f"and {len(result.warnings) - MOST_WARNINGS:,} more; --json has them all")
    columns = ["query_id", "n_ads", "records", "theta_min", "theta_max", "kappa", "p_value", "sigma2_ratio"]
    if as_json:
        rows = result.table.select(columns).fill_nan(None).to_dicts()  # JSON has no NaN
        typer.echo(json.dumps({"models": rows, "warnings": result.warnings}))
        return
    from pipeline.listing import listing

    typer.echo(listing(result.table.head(MOST_ROWS).select(columns), None)[0])
    if result.table.height > MOST_ROWS:
        typer.echo(f"... {result.table.height:,} models in all; see `pbm show models`")
