"""What the policies of a game played: as rows, kept policy by policy, and found again.

A policy's rows depend on the game, on its label and on the package alone, so those of an earlier run can stand for playing
again. They are in the experiment's own files, or in a part: a folder simulations/.NAME.parts/LABEL with the same two files
for one policy, kept as soon as that policy is through, and removed when the experiment's own files are there.
"""

import shutil
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bandits.simulate import Played
from bandits.world import World
from pipeline import artefacts, saving
from pipeline.artefacts import Artefact, Provenance
from pipeline.errors import ArtefactError


class Game(NamedTuple):
    """What policies play, and where the rows go."""

    experiment: str
    workspace: Path
    ids: list[Any]  # of the worlds
    worlds: list[World]
    chosen: NDArray[np.int64]  # the world of each run
    rounds: NDArray[np.int64]  # the checkpoints
    parameters: Mapping[str, int]  # runs, horizon, seed
    inputs: Mapping[str, str]  # the identity of the models, if the worlds come from some


def simulations(game: Game) -> Artefact:
    """`simulations/NAME.parquet`. The models' identity is in the game from when they were read: they may change meanwhile."""
    return artefacts.simulations(game.experiment, from_models=False)


def simulation_rows(game: Game, label: str, found: Played) -> pl.DataFrame:
    """The rows of `simulations/NAME.parquet` of one policy, in the order of the key."""
    runs, n = found.regret.shape
    return pl.DataFrame(
        {
            "policy": pl.repeat(label, runs * n, eager=True),
            "run": np.repeat(np.arange(runs, dtype=np.int32), n),
            "query_id": pl.Series(game.ids).gather(np.repeat(game.chosen, n)),
            "round": np.tile(game.rounds, runs),
            "regret": found.regret.ravel(),
        }
    )


def display_rows(game: Game, label: str, found: Played) -> pl.DataFrame:
    """The rows of `displays/NAME.parquet` of one policy: the worlds that were played."""
    frames = []
    for query_id, shown in zip(game.ids, found.displays, strict=True):
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


def keep(game: Game, label: str, found: Played) -> None:
    """Write the part of one policy."""
    parameters = {**game.parameters, "policies": [label]}
    with saving.saving(_part(game, label)) as save:
        save.write(simulations(game), simulation_rows(game, label, found), Provenance(parameters, game.inputs))
        save.write(artefacts.displays(game.experiment), display_rows(game, label, found), Provenance(parameters, {}))


def taken(game: Game, labels: list[str]) -> dict[str, Played]:
    """What earlier runs of this game left of these policies, by label: in the experiment's own files, or in parts."""
    found = _taken(game, game.workspace, labels)
    for label in labels:
        if label not in found:
            found |= _taken(game, _part(game, label), [label])
    return found


def published(game: Game, labels: list[str]) -> pl.DataFrame | None:
    """The rows of `regret/NAME.parquet`, if the experiment's files are those that playing exactly these policies leaves."""
    others = (artefacts.displays(game.experiment), artefacts.bounds(game.experiment))
    try:
        if _policies(game, game.workspace) != labels:
            return None
        for each in others:
            artefacts.read(each, game.workspace)
        return artefacts.read(artefacts.regret(game.experiment), game.workspace)
    except ArtefactError:
        return None


def remove(game: Game) -> None:
    """Remove the parts of the experiment."""
    shutil.rmtree(_parts(game), ignore_errors=True)


def _parts(game: Game) -> Path:
    return game.workspace / "simulations" / f".{game.experiment}.parts"


def _part(game: Game, label: str) -> Path:
    """Where the part of a policy is: a workspace of its own. Labels have brackets and blanks, which are spelled out."""
    return _parts(game) / quote(label, safe="")


def _policies(game: Game, place: Path) -> list[str]:
    """The policies that a workspace has of this game; none, if the simulations in it are of another one."""
    origin = artefacts.provenance(simulations(game), place)
    parameters = dict(origin.get("parameters", {}))
    policies: list[str] = parameters.pop("policies", [])
    same = (origin.get("package"), parameters, origin["inputs"]) == (version("pbm-bandits"), game.parameters, game.inputs)
    return policies if same else []


def _taken(game: Game, place: Path, labels: list[str]) -> dict[str, Played]:
    """Of these policies those that a workspace has of this game. What is not whole, or not there, has none."""
    try:
        there = [label for label in _policies(game, place) if label in labels]
        if not there:
            return {}
        shown = artefacts.read(artefacts.displays(game.experiment), place)  # refused if not made from these simulations
        rows = artefacts.read(simulations(game), place)
    except ArtefactError:
        return {}
    return {label: _played(game, rows.filter(policy=label), shown.filter(policy=label)) for label in there}


def _played(game: Game, rows: pl.DataFrame, shown: pl.DataFrame) -> Played:
    """The inverse of `simulation_rows` and `display_rows`."""
    displays = [np.zeros((each.theta.size, each.kappa.size), np.int64) for each in game.worlds]
    by_id = {query_id: of_world["displays"].to_numpy() for (query_id,), of_world in shown.group_by("query_id")}
    for i in np.unique(game.chosen):
        displays[i] = by_id[game.ids[i]].reshape(displays[i].shape)
    return Played(rows["regret"].to_numpy().reshape(game.chosen.size, game.rounds.size), displays)
