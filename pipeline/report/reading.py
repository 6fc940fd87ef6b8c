"""What a workspace holds for the report. What is missing or does not fit together is named, with the command that makes it."""

from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from pipeline import artefacts
from pipeline.artefacts import COUNTS, DIAGNOSTICS, MATRICES, MODELS, REJECTS, Artefact
from pipeline.errors import ArtefactError
from pipeline.experiments import EXPERIMENTS


class Missing(NamedTuple):
    """An artefact that cannot be shown."""

    name: str
    reason: str  # the error's text, without paths of this machine
    made_by: str


class Findings(NamedTuple):
    """The artefacts by name, e.g. "models" or "regret/kdd", with their provenance; and those that are not to be had."""

    rows: dict[str, pl.DataFrame]
    provenance: dict[str, dict[str, Any]]
    missing: dict[str, Missing]


def findings(workspace: Path) -> Findings:
    """Read everything; nothing that is wrong with one artefact keeps the others from being shown."""
    found = Findings({}, {}, {})
    for artefact in (COUNTS, REJECTS, MATRICES, DIAGNOSTICS, MODELS):
        _read(artefact, workspace, found)
    for experiment in EXPERIMENTS:
        try:
            parts = artefacts.of_experiment(experiment, workspace)
        except ArtefactError as error:
            runs = artefacts.simulations(experiment, from_models=False)
            found.missing[runs.name] = Missing(runs.name, _plain(error, workspace), runs.made_by)
            continue
        for artefact in parts.values():
            _read(artefact, workspace, found)
    return found


def _read(artefact: Artefact, workspace: Path, found: Findings) -> None:
    try:
        found.rows[artefact.name] = artefacts.read(artefact, workspace)
        found.provenance[artefact.name] = artefacts.provenance(artefact, workspace)
    except ArtefactError as error:
        found.missing[artefact.name] = Missing(artefact.name, _plain(error, workspace), artefact.made_by)


def _plain(error: ArtefactError, workspace: Path) -> str:
    """A report is sent to others: it tells of files by their names in the workspace."""
    return str(error).replace(f"{workspace}/", "")
