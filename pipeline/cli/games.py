"""Bandits on the models: `pbm simulate`, `pbm policies`, `pbm experiments`."""

import json
import math
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from pipeline.cli.app import DEFAULT_WORKSPACE, AsJson, SparkConf, SparkMaster, Workspace, cluster_of, command, note


class EngineName(StrEnum):
    local = "local"
    spark = "spark"


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
    engine: Annotated[EngineName, typer.Option(help="Where the runs are played; the rows are the same.")] = EngineName.local,
    spark_master: SparkMaster = None,
    spark_conf: SparkConf = None,
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

    cluster = cluster_of(engine is EngineName.spark, spark_master, spark_conf)
    if cluster is not None and threads is not None:
        raise typer.BadParameter(
            "--threads is of this machine; with --engine spark, --spark-master and --spark-conf say how many"
        )
    wanted = stage.experiment_named(experiment)
    named = stage.players(policies or ",".join(wanted.policies))
    game = stage.game_of(wanted, workspace, runs or wanted.runs, horizon or wanted.horizon, seed, models)
    run = stage.resume if resume else stage.run
    if cluster is not None:
        from pipeline.cluster import session

        with session(cluster) as spark:
            rows = run(game, named, partial(stage.play_on_spark, spark))
    else:
        rows = run(game, named, partial(stage.play_here, threads or cores()))
    before = [row.policy for row in rows if math.isnan(row.microseconds_per_round)]
    if before:
        note(f"taken from before: {', '.join(before)}")
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
