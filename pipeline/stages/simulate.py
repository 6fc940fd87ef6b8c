"""`pbm simulate`: an experiment played, run by run, and its regret."""

import re
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bandits import bounds
from bandits.policies import POLICIES
from bandits.simulate import Played, Player, checkpoints, player, simulate, worlds_of_runs
from bandits.world import World, WorldError, world
from pipeline import artefacts, saving
from pipeline.artefacts import MODELS, Provenance
from pipeline.errors import ArtefactError, DataError
from pipeline.experiments import EXPERIMENTS, Experiment
from pipeline.near import near
from pipeline.progress import progress
from pipeline.stages import parts
from pipeline.stages.parts import Game

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPEC = re.compile(r"([\w-]+)(?:\(([^()]*)\))?")  # name, or name(parameter=value, ...)
DECILES = (0.1, 0.9)
Keep = Callable[[str, Played], None]  # told what a policy played, by its label
Play = Callable[[Game, Player], tuple[Played, float]]  # what a policy played, and the microseconds of core time of a round


class Worlds(NamedTuple):
    """The worlds that runs are drawn from, with the ids they go by."""

    ids: list[Any]
    worlds: list[World]


class Row(NamedTuple):
    """A line of the closing table, at the last round."""

    policy: str
    mean_regret: float
    std_error: float
    p10: float
    p90: float
    lower_bound: float
    microseconds_per_round: float  # over all threads; NaN if it was not played now


def experiment_named(name: str) -> Experiment:
    """The experiment, or an error with the nearest name."""
    if name not in EXPERIMENTS:
        raise DataError(f"there is no experiment {name!r}{near(name, EXPERIMENTS)}")
    return EXPERIMENTS[name]


def players(specs: str) -> list[Player]:
    """The policies that a text such as "pbm-ts,pbm-pie(epsilon=0.1)" names, each with its parameters."""
    found = []
    for spec in re.split(r",(?![^(]*\))", specs):
        match = SPEC.fullmatch(spec.strip())
        if match is None:
            raise DataError(f"cannot read the policy {spec.strip()!r}; expected NAME or NAME(PARAMETER=NUMBER, ...)")
        name, options = match.group(1), match.group(2) or ""
        if name not in POLICIES:
            raise DataError(f"there is no policy {name!r}{near(name, POLICIES)}")
        policy, given = POLICIES[name], {}
        for option in filter(None, (option.strip() for option in options.split(","))):
            key, _, value = (part.strip() for part in option.partition("="))
            if key not in policy.parameters:
                takes = near(key, policy.parameters) if policy.parameters else "; it takes none"
                raise DataError(f"the policy {name} has no parameter {key!r}{takes}")
            try:
                given[key] = float(value)
            except ValueError:
                raise DataError(f"{key} of {name} is {value!r}, expected a number") from None
            if not policy.parameters[key].least <= given[key] < np.inf:
                raise DataError(f"{key} of {name} is {value}, expected a number from {policy.parameters[key].least:g} on")
        found.append(player(policy, **given))
    labels = [each.label for each in found]
    twice = next((label for label in labels if labels.count(label) > 1), None)
    if twice:
        raise DataError(f"the policy {twice} is named twice")
    return sorted(found, key=lambda each: each.label)


def worlds_of(experiment: Experiment, workspace: Path, models: Path | None) -> Worlds:
    """The worlds of an experiment: its own, those of `models`, or those of the workspace."""
    if models is None and experiment.theta:
        return Worlds([0], [world(experiment.theta, experiment.kappa)])
    source = models or MODELS.path(workspace)
    rows = artefacts.read(MODELS, workspace) if models is None else _foreign(models)
    if rows.is_empty():
        raise ArtefactError(f"{source} has no models; nothing can be played")
    ids, found = [], []
    for query_id, theta, kappa in rows.select("query_id", "theta", "kappa").iter_rows():
        try:
            found.append(world(theta, kappa))
        except (WorldError, TypeError, ValueError) as error:
            raise ArtefactError(f"{source}: query {query_id!r}: {error}") from None
        ids.append(query_id)
    return Worlds(ids, found)


def _foreign(path: Path) -> pl.DataFrame:
    """Somebody's parquet with query_id, theta and kappa."""
    try:
        rows = pl.DataFrame(pq.read_table(path, columns=["query_id", "theta", "kappa"]))
    except FileNotFoundError:
        raise ArtefactError(f"there is no {path}; --models takes a parquet file with query_id, theta, kappa (lists)") from None
    except (pa.ArrowException, OSError) as error:
        raise ArtefactError(f"cannot read {path}: {error}; --models takes parquet with query_id, theta, kappa (lists)") from None
    if rows.width < 3 or any(rows[name].dtype.base_type() is not pl.List for name in ("theta", "kappa")):
        raise ArtefactError(f"{path}: expected the columns query_id, theta, kappa, the last two lists of numbers")
    ids = rows["query_id"]
    if ids.dtype.is_integer():
        ids = ids.cast(pl.Int64, strict=False)  # null from 2^63 on
    if ids.dtype not in (pl.Int64, pl.String) or ids.null_count() or ids.is_duplicated().any():
        raise ArtefactError(f"{path}: expected a query_id of its own in each row, an integer below 2^63 or a text")
    return rows.with_columns(ids)


def game_of(experiment: Experiment, workspace: Path, runs: int, horizon: int, seed: int, models: Path | None) -> Game:
    """What the policies of an experiment play."""
    source = models or (None if experiment.theta else MODELS.path(workspace))
    played = worlds_of(experiment, workspace, models)
    inputs = {"--models" if models else MODELS.name: artefacts.identity(source)} if source else {}
    chosen = worlds_of_runs(len(played.worlds), runs, seed)
    parameters = {"runs": runs, "horizon": horizon, "seed": seed}
    return Game(experiment.name, workspace, *played, chosen, checkpoints(horizon), parameters, inputs)


def run(game: Game, named: list[Player], play: Play) -> list[Row]:
    """Play the policies, and write `simulations/`, `regret/`, `displays/` and `bounds/NAME.parquet`."""
    return _publish(game, named, play, {}, lambda label, found: None)


def resume(game: Game, named: list[Player], play: Play) -> list[Row]:
    """The files and rows of `run`, but policies that were played before are taken from there, and took no time."""
    labels = [each.label for each in named]
    summaries = parts.published(game, labels)
    if summaries is not None:
        table = [_row(summaries.filter(policy=label), np.nan) for label in labels]
    else:
        # What is taken is kept as well: a kill while the files get their names could leave some of the old and some of the new.
        table = _publish(game, named, play, parts.taken(game, labels), partial(parts.keep, game))
    parts.remove(game)
    return table


def _publish(game: Game, named: list[Player], play: Play, taken: Mapping[str, Played], keep: Keep) -> list[Row]:
    """Write the experiment's files, all together, of what was taken and what is played now. `keep` is told of each policy."""
    bound = _bounds(game)
    lower_bounds = np.average(bound["lower_bound"], weights=bound["runs"]) * np.log(game.rounds)
    parameters = {**game.parameters, "policies": [each.label for each in named]}
    table: list[Row] = []
    summaries, shown = [], []
    with saving.saving(game.workspace) as save:
        writer = save.writer(parts.simulations(game))
        writer.origin = Provenance(parameters, game.inputs)
        for each in named:
            found, microseconds = (taken[each.label], np.nan) if each.label in taken else play(game, each)
            keep(each.label, found)
            writer.append(parts.simulation_rows(game, each.label, found).to_arrow())
            summaries.append(summarised(each.label, found.regret, game.rounds, lower_bounds))
            shown.append(parts.display_rows(game, each.label, found))
            table.append(_row(summaries[-1], microseconds))
        save.write(artefacts.regret(game.experiment), pl.concat(summaries), Provenance(parameters, {}))
        save.write(artefacts.displays(game.experiment), pl.concat(shown), Provenance(parameters, {}))
        save.write(artefacts.bounds(game.experiment), bound, Provenance(parameters, {}))
    return table


def play_here(threads: int, game: Game, each: Player) -> tuple[Played, float]:
    """On threads of this machine."""
    rounds = game.chosen.size * int(game.rounds[-1])
    start = time.perf_counter()
    with progress(each.label, rounds, unit="rounds") as advance:
        found = simulate(each, game.worlds, game.chosen, game.rounds, game.parameters["seed"], threads=threads, advance=advance)
    return found, (time.perf_counter() - start) * threads * 1e6 / rounds


def play_on_spark(spark: "SparkSession", game: Game, each: Player) -> tuple[Played, float]:
    """In shards over the executors of a cluster."""
    from pipeline import shards  # only here is pyspark needed

    start = time.perf_counter()
    found = shards.simulate(spark, each, game.worlds, game.chosen, game.rounds, game.parameters["seed"])
    seconds = (time.perf_counter() - start) * spark.sparkContext.defaultParallelism
    return found, seconds * 1e6 / (game.chosen.size * int(game.rounds[-1]))


def _row(summary: pl.DataFrame, microseconds: float) -> Row:
    """The line of the closing table of one policy's rows of `regret/NAME.parquet`."""
    label, _, mean, std_error, p10, p90, lower_bound = summary.row(-1)
    return Row(label, mean, std_error, p10, p90, lower_bound, microseconds)


def summarised(label: str, found: NDArray[np.float64], rounds: NDArray[np.int64], bounds: NDArray[np.float64]) -> pl.DataFrame:
    """The rows of `regret/NAME.parquet` of one policy."""
    p10, p90 = np.quantile(found, DECILES, axis=0)
    runs = found.shape[0]
    return pl.DataFrame(
        {
            "policy": [label] * rounds.size,
            "round": rounds,
            "mean": found.mean(axis=0),
            "std_error": found.std(axis=0, ddof=1) / np.sqrt(runs) if runs > 1 else np.full(rounds.size, np.nan),
            "p10": p10,
            "p90": p90,
            "lower_bound": bounds,
        }
    )


def _bounds(game: Game) -> pl.DataFrame:
    """The rows of `bounds/NAME.parquet`: every world that was played."""
    runs = np.bincount(game.chosen, minlength=len(game.worlds))
    return pl.DataFrame(
        [
            {
                "query_id": query_id,
                "runs": n,
                "lower_bound": bounds.lower_bound(each),
                "exploring_positions": bounds.exploring_positions(each).tolist(),
                "multiple_play": bounds.multiple_play_bound(each),
                "weighted_cascade": bounds.weighted_cascade_bound(each),
                "pie_upper": bounds.pie_upper_bound(each),
                "ucb_upper": bounds.ucb_upper_bound(each),
            }
            for query_id, each, n in zip(game.ids, game.worlds, runs.tolist(), strict=True)
            if n
        ],
        schema_overrides={"exploring_positions": pl.List(pl.Int64)},
    )
