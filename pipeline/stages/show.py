"""`pbm show`: any artefact of the workspace, checked."""

from pathlib import Path

import polars as pl

from pipeline import artefacts
from pipeline.errors import DataError
from pipeline.experiments import EXPERIMENTS
from pipeline.near import near


def show(workspace: Path, name: str, columns: list[str]) -> pl.DataFrame:
    """The rows of the artefact called `name`, of all columns or the given ones."""
    known = {artefact.name.split("/")[-1]: artefact for artefact in artefacts.ALL}
    for experiment in EXPERIMENTS:
        known |= {each.name: each for each in artefacts.of_experiment(experiment, workspace).values()}
    name = name.removesuffix(".parquet").removeprefix("raw/")
    if name not in known:
        raise DataError(f"there is no artefact {name!r}{near(name, known)}")
    rows = artefacts.read(known[name], workspace)
    for column in columns:
        if column not in rows.columns:
            raise DataError(f"{name} has no column {column!r}{near(column, rows.columns)}")
    return rows.select(columns) if columns else rows
