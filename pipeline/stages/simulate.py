"""`pbm simulate`: an experiment played, run by run, and its regret."""

import re
import time
from pathlib import Path
from typing import Any, NamedTuple

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

SPEC = re.compile(r"([\w-]+)(?:\(([^()]*)\))?")  # name, or name(parameter=value, ...)
DECILES = (0.1, 0.9)


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
    microseconds_per_round: float  # over all threads


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
    return rows


def run(
    experiment: Experiment,
    workspace: Path,
    named: list[Player],
    runs: int,
    horizon: int,
    seed: int,
    threads: int,
    models: Path | None,
) -> list[Row]:
    """Write what was played to `simulations/`, `regret/`, `displays/` and `bounds/NAME.parquet`, all of them together."""
    played = worlds_of(experiment, workspace, models)
    chosen = worlds_of_runs(len(played.worlds), runs, seed)
    rounds = checkpoints(horizon)
    bound = _bounds(played, chosen)
    lower_bounds = np.average(bound["lower_bound"], weights=bound["runs"]) * np.log(rounds)
    from_models = not experiment.theta and models is None
    inputs = {"--models": artefacts.identity(models)} if models else {}
    parameters = {"runs": runs, "horizon": horizon, "seed": seed, "policies": [each.label for each in named]}
    table: list[Row] = []
    summaries, shown = [], []
    with saving.saving(workspace) as save:
        writer = save.writer(artefacts.simulations(experiment.name, from_models=from_models))
        writer.origin = Provenance(parameters, inputs)
        for each in named:
            start = time.perf_counter()
            with progress(each.label, runs * horizon, unit="rounds") as advance:
                found = simulate(each, played.worlds, chosen, rounds, seed, threads=threads, advance=advance)
            seconds = time.perf_counter() - start
            writer.append(_rows(each.label, found, rounds, chosen, played.ids))
            summary = summarised(each.label, found.regret, rounds, lower_bounds)
            summaries.append(summary)
            shown.append(_displays(each.label, found, played.ids))
            mean, std_error, p10, p90, lower_bound = summary.drop("policy", "round").row(-1)
            table.append(Row(each.label, mean, std_error, p10, p90, lower_bound, seconds * threads * 1e6 / (runs * horizon)))
        save.write(artefacts.regret(experiment.name), pl.concat(summaries), Provenance(parameters, {}))
        save.write(artefacts.displays(experiment.name), pl.concat(shown), Provenance(parameters, {}))
        save.write(artefacts.bounds(experiment.name), bound, Provenance(parameters, {}))
    return table


def _rows(label: str, found: Played, rounds: NDArray[np.int64], chosen: NDArray[np.int64], ids: list[Any]) -> pa.Table:
    """The rows of `simulations/NAME.parquet` of one policy, in the order of the key."""
    runs, n = found.regret.shape
    return pl.DataFrame(
        {
            "policy": pl.repeat(label, runs * n, eager=True),
            "run": np.repeat(np.arange(runs, dtype=np.int32), n),
            "query_id": pl.Series(ids).gather(np.repeat(chosen, n)),
            "round": np.tile(rounds, runs),
            "regret": found.regret.ravel(),
        }
    ).to_arrow()


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


def _displays(label: str, found: Played, ids: list[Any]) -> pl.DataFrame:
    """The rows of `displays/NAME.parquet` of one policy: the worlds that were played."""
    frames = []
    for query_id, shown in zip(ids, found.displays, strict=True):
        n_arms, n_positions = shown.shape
        frames.append(
            pl.DataFrame(
                {
                    "policy": [label] * shown.size,
                    "query_id": [query_id] * shown.size,
                    "rank": np.repeat(np.arange(1, n_arms + 1, dtype=np.int32), n_positions),
                    "position": np.tile(np.arange(1, n_positions + 1, dtype=np.int8), n_arms),
                    "displays": shown.ravel(),
                }
            )
        )
    return pl.concat([frame for frame in frames if frame["displays"].sum() > 0])


def _bounds(played: Worlds, chosen: NDArray[np.int64]) -> pl.DataFrame:
    """The rows of `bounds/NAME.parquet`: every world that was played."""
    runs = np.bincount(chosen, minlength=len(played.worlds))
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
            for query_id, each, n in zip(played.ids, played.worlds, runs.tolist(), strict=True)
            if n
        ],
        schema_overrides={"exploring_positions": pl.List(pl.Int64)},
    )
