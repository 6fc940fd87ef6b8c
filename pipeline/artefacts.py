"""Every artefact: its name, schema, key and version; read with checks (`saving` writes them).

A file's key-value metadata holds, under `pbm`, where it comes from: parameters, the identity of every input, the package's
version. No clock and no path, so that the same run gives the same bytes.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.errors import ArtefactError

ID = (pa.int64(), pa.string())  # ids are integers, or text where the log's format says so
METADATA_KEY = b"pbm"


class Artefact(NamedTuple):
    """A parquet file of the workspace. A column's type is a tuple where several are allowed."""

    name: str  # its path in the workspace without .parquet
    columns: Mapping[str, pa.DataType | tuple[pa.DataType, ...]]
    key: tuple[str, ...]  # unique, and the order of the rows
    made_by: str
    made_from: tuple[str, ...] = ()  # artefacts beside it whose content it must have been made from
    version: int = 1

    def path(self, workspace: Path) -> Path:
        return workspace / f"{self.name}.parquet"


TRUTH = Artefact(
    "raw/truth",
    {
        "query_id": pa.int64(),
        "ad_id": pa.int64(),
        "position": pa.int8(),
        "displays": pa.int64(),
        "clicks": pa.int64(),
        "theta": pa.float64(),
        "kappa": pa.float64(),
        "impressions": pa.int64(),
        "impression_clicks": pa.int64(),
    },
    key=("query_id", "ad_id", "position"),
    made_by="pbm synthesize",
)
COUNTS = Artefact(
    "counts",
    {
        "query_id": ID,
        "ad_id": ID,
        "position": pa.int8(),
        "lines": pa.int64(),
        "clicked_lines": pa.int64(),
        "impressions": pa.int64(),
        "clicks": pa.int64(),
    },
    key=("query_id", "ad_id", "position"),
    made_by="pbm count LOG",
)
REJECTS = Artefact(
    "rejects",
    {"line": pa.int64(), "reason": pa.string(), "text": pa.string(), "file": pa.string()},
    key=("file", "line"),
    made_by="pbm count LOG",
    made_from=("counts",),
    version=2,
)
FLOATS, INTEGERS = pa.list_(pa.float64()), pa.list_(pa.int64())
MATRICES = Artefact(
    "matrices",
    {"query_id": ID, "ad_id": ID, "displays": INTEGERS, "clicks": INTEGERS, "ctr": FLOATS},
    key=("query_id", "ad_id"),
    made_by="pbm matrices",
    made_from=("counts",),
)
DIAGNOSTICS = Artefact(
    "diagnostics",
    {
        "query_id": ID,
        "n_ads": pa.int32(),
        "n_positions": pa.int32(),
        "singular_values": FLOATS,
        "sigma1_share": pa.float64(),
        "sigma2_ratio": pa.float64(),
        "sigma2_ratio_q95": pa.float64(),
        "sigma2_p_value": pa.float64(),
    },
    key=("query_id",),
    made_by="pbm matrices",
    made_from=("counts",),
)
MODELS = Artefact(
    "models",
    {
        "query_id": ID,
        "n_ads": pa.int32(),
        "n_positions": pa.int32(),
        "records": pa.int64(),
        "theta_min": pa.float64(),
        "theta_max": pa.float64(),
        "ad_ids": tuple(map(pa.list_, ID)),
        "theta": FLOATS,
        "theta_se": FLOATS,
        "theta_low": FLOATS,
        "theta_high": FLOATS,
        "kappa": FLOATS,
        "kappa_se": FLOATS,
        "kappa_ref": pa.int8(),
        "log_likelihood": pa.float64(),
        "em_iterations": pa.int32(),
        "converged": pa.bool_(),
        "g2": pa.float64(),
        "dof": pa.int32(),
        "p_value": pa.float64(),
        "dispersion": pa.float64(),
        "kappa_low": FLOATS,
        "kappa_high": FLOATS,
        "theta_pooled": FLOATS,
        "theta_debiased": FLOATS,
        "pooled_variance_ratio": FLOATS,
    },
    key=("query_id",),
    made_by="pbm fit",
    made_from=("matrices",),
)


def simulations(experiment: str, *, from_models: bool) -> Artefact:
    """The runs of an experiment; `from_models` if its worlds are those of models.parquet beside it."""
    return Artefact(
        f"simulations/{experiment}",
        {"policy": pa.string(), "run": pa.int32(), "query_id": ID, "round": pa.int64(), "regret": pa.float64()},
        key=("policy", "run", "round"),
        made_by=f"pbm simulate --experiment {experiment}",
        made_from=("models",) if from_models else (),
    )


def regret(experiment: str) -> Artefact:
    """The regret of an experiment's policies, over its runs."""
    numbers = ("mean", "std_error", "p10", "p90", "lower_bound")
    return Artefact(
        f"regret/{experiment}",
        {"policy": pa.string(), "round": pa.int64(), **dict.fromkeys(numbers, pa.float64())},
        key=("policy", "round"),
        made_by=f"pbm simulate --experiment {experiment}",
        made_from=(f"simulations/{experiment}",),
    )


def displays(experiment: str) -> Artefact:
    """Where each policy of an experiment showed the arms, ranked by theta, in all runs and rounds."""
    return Artefact(
        f"displays/{experiment}",
        {"policy": pa.string(), "query_id": ID, "rank": pa.int32(), "position": pa.int8(), "displays": pa.int64()},
        key=("policy", "query_id", "rank", "position"),
        made_by=f"pbm simulate --experiment {experiment}",
        made_from=(f"simulations/{experiment}",),
    )


def bounds(experiment: str) -> Artefact:
    """What regret is bounded by in the worlds of an experiment, as constants c of c log T."""
    constants = ("multiple_play", "weighted_cascade", "pie_upper", "ucb_upper")
    return Artefact(
        f"bounds/{experiment}",
        {
            "query_id": ID,
            "runs": pa.int64(),
            "lower_bound": pa.float64(),
            "exploring_positions": INTEGERS,  # of each arm that is not among the L best
            **dict.fromkeys(constants, pa.float64()),
        },
        key=("query_id",),
        made_by=f"pbm simulate --experiment {experiment}",
        made_from=(f"simulations/{experiment}",),
    )


def of_experiment(experiment: str, workspace: Path) -> dict[str, Artefact]:
    """The artefacts of an experiment as they are in the workspace, by the folder they are in."""
    runs = simulations(experiment, from_models=False)
    if runs.path(workspace).is_file() and "models" in provenance(runs, workspace)["inputs"]:
        runs = simulations(experiment, from_models=True)
    return {each.name.split("/")[0]: each for each in (runs, regret(experiment), displays(experiment), bounds(experiment))}


ALL = (TRUTH, COUNTS, REJECTS, MATRICES, DIAGNOSTICS, MODELS)  # and the simulations, which are named by their experiment


class Provenance(NamedTuple):
    """Where an artefact comes from."""

    parameters: Mapping[str, Any]
    inputs: Mapping[str, Any]  # name to identity; those of `made_from` are added by the writer


def identity(path: Path) -> str:
    """What identifies a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read(artefact: Artefact, workspace: Path) -> pl.DataFrame:
    """The rows of an artefact, if it is whole, of its schema, sorted by its key and made from what lies beside it."""
    path = artefact.path(workspace)
    table = _table(artefact, path)
    found = provenance(artefact, workspace)
    for name in artefact.made_from:
        source = workspace / f"{name}.parquet"
        if not source.is_file():
            commands = " and ".join(dict.fromkeys(f"`{command}`" for command in (_maker(name), artefact.made_by)))
            raise ArtefactError(f"{path} was made from {source}, which is not there; run {commands}")
        if found["inputs"].get(name) != identity(source):
            raise ArtefactError(
                f"{path} was made from another {source.name} than the one beside it; run `{artefact.made_by}` again"
            )
    rows = pl.DataFrame(table)
    check(artefact, rows, path)
    return rows


def provenance(artefact: Artefact, workspace: Path) -> dict[str, Any]:
    """The `pbm` metadata of an artefact: artefact, version, package, parameters, inputs."""
    path = artefact.path(workspace)
    metadata = _footer(artefact, path).metadata or {}
    try:
        found: dict[str, Any] = json.loads(metadata[METADATA_KEY])
        name, version = found["artefact"], found["version"]
        dict(found["inputs"])
    except (KeyError, ValueError, TypeError):
        raise ArtefactError(f"{path} was not written by pbm: it has no provenance; make it with `{artefact.made_by}`") from None
    if (name, version) != (artefact.name, artefact.version):
        raise ArtefactError(
            f"{path} is {name!r} version {version}, expected {artefact.name!r} version {artefact.version}; "
            f"run `{artefact.made_by}` again"
        )
    return found


def _maker(name: str) -> str:
    return next(artefact.made_by for artefact in ALL if artefact.name == name)


def _footer(artefact: Artefact, path: Path) -> pq.FileMetaData:
    try:
        return pq.read_metadata(path)
    except FileNotFoundError:
        raise ArtefactError(f"there is no {path}; make it with `{artefact.made_by}`") from None
    except (pa.ArrowException, OSError) as error:
        raise ArtefactError(f"cannot read {path}: {error}; make it again with `{artefact.made_by}`") from None


def _table(artefact: Artefact, path: Path) -> pa.Table:
    schema = _footer(artefact, path).schema.to_arrow_schema()
    for name, declared in artefact.columns.items():
        allowed = declared if isinstance(declared, tuple) else (declared,)
        found = schema.field(name).type if name in schema.names else None
        if found not in allowed:
            expected = " or ".join(map(str, allowed))
            what = f"is {found}" if found is not None else "is missing"
            raise ArtefactError(f"{path}: column {name!r} {what}, expected {expected}; make it again with `{artefact.made_by}`")
    try:
        return pq.read_table(path, columns=list(artefact.columns))
    except (pa.ArrowException, OSError) as error:
        raise ArtefactError(f"cannot read {path}: {error}; make it again with `{artefact.made_by}`") from None


def check(artefact: Artefact, rows: pl.DataFrame, path: Path) -> None:
    """Refuse nulls, and rows that are not sorted by a unique key."""
    for name in artefact.columns:
        if rows[name].null_count():
            raise ArtefactError(
                f"{path}: column {name!r} has {rows[name].null_count()} nulls; make it again with `{artefact.made_by}`"
            )
    key = rows.select(artefact.key)
    if not key.equals(key.unique().sort(artefact.key)):
        raise ArtefactError(
            f"{path}: the rows are not sorted by a unique ({', '.join(artefact.key)}); make it again with `{artefact.made_by}`"
        )
