"""`pbm simulate`: rows that depend on nothing but the seed, and errors that help."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from bandits.bounds import lower_bound
from bandits.world import world
from pipeline import artefacts
from pipeline.artefacts import regret, simulations
from pipeline.errors import DataError
from pipeline.stages.simulate import players
from tests.conftest import Pbm

SHORT = ("--runs", 6, "--horizon", 200)


def model_file(path: Path, theta: object = (0.3, 0.2, 0.1), kappa: object = (1.0, 0.5)) -> Path:
    pl.DataFrame({"query_id": [7, 8], "theta": [theta, theta], "kappa": [kappa, kappa]}, strict=False).write_parquet(path)
    return path


def test_rows_do_not_depend_on_threads_or_on_other_policies(tmp_path: Path, pbm: Pbm) -> None:
    models = model_file(tmp_path / "models.parquet")
    for name, options in {
        "one": ("--threads", 1, "--policies", "pbm-pie,pbm-ts,bc-mp-ts"),
        "two": ("--threads", 2, "--policies", "bc-mp-ts,pbm-ts,pbm-pie"),
        "alone": ("--policies", "pbm-ts"),
    }.items():
        assert pbm("simulate", "-w", tmp_path / name, "--models", models, *SHORT, *options).code == 0
    files = [simulations("kdd", from_models=False).path(tmp_path / name).read_bytes() for name in ("one", "two")]
    assert files[0] == files[1]
    rows = {name: artefacts.read(simulations("kdd", from_models=False), tmp_path / name) for name in ("one", "alone")}
    assert rows["one"].filter(pl.col("policy") == "pbm-ts").equals(rows["alone"])
    played = rows["one"].select("policy", "run", "query_id").unique()
    assert (
        played.group_by("run").agg(pl.col("query_id").n_unique())["query_id"].to_list() == [1] * 6
    )  # the same query for each policy


def test_the_summary_is_that_of_the_runs(tmp_path: Path, pbm: Pbm) -> None:
    models = model_file(tmp_path / "models.parquet")
    result = json.loads(pbm("simulate", "-w", tmp_path, "--models", models, *SHORT, "--policies", "uniform", "--json").out)
    runs = artefacts.read(simulations("kdd", from_models=False), tmp_path)
    summary = artefacts.read(regret("kdd"), tmp_path)
    last = runs.filter(pl.col("round") == 200)["regret"].to_numpy()
    row = summary.filter(pl.col("round") == 200).row(0, named=True)
    assert row["mean"] == pytest.approx(last.mean())
    assert row["std_error"] == pytest.approx(last.std(ddof=1) / np.sqrt(6))
    assert (row["p10"], row["p90"]) == pytest.approx(tuple(np.quantile(last, [0.1, 0.9])))
    assert row["lower_bound"] == pytest.approx(lower_bound(world([0.3, 0.2, 0.1], [1.0, 0.5])) * np.log(200))
    assert result[0]["mean_regret"] == row["mean"]


@pytest.mark.parametrize("experiment", ["synthetic", "high-theta"])
def test_the_papers_own_worlds_need_no_models(experiment: str, tmp_path: Path, pbm: Pbm) -> None:
    outcome = pbm("simulate", "-w", tmp_path, "--experiment", experiment, *SHORT)
    assert outcome.code == 0
    assert outcome.out.split()[:5] == ["policy", "mean_regret", "std_error", "p10", "p90"]
    assert pbm("show", f"regret/{experiment}", "-w", tmp_path).code == 0


def test_where_displays_went_and_what_bounds_regret_is_kept(tmp_path: Path, pbm: Pbm) -> None:
    models = model_file(tmp_path / "models.parquet")
    assert pbm("simulate", "-w", tmp_path, "--models", models, *SHORT, "--policies", "oracle,uniform").code == 0
    kept = artefacts.of_experiment("kdd", tmp_path)
    shown = artefacts.read(kept["displays"], tmp_path)
    by_policy = shown.group_by("policy", "position").agg(pl.col("displays").sum())
    assert by_policy["displays"].to_list() == [6 * 200] * 4  # every position of every round shows something
    best = shown.filter(pl.col("policy") == "oracle", pl.col("rank") == pl.col("position"))
    assert best["displays"].sum() == 2 * 6 * 200  # the best arm first, the second second
    bounds = artefacts.read(kept["bounds"], tmp_path)
    assert bounds["runs"].sum() == 6
    assert set(bounds["lower_bound"]) == {lower_bound(world([0.3, 0.2, 0.1], [1.0, 0.5]))}
    for name in ("displays/kdd", "bounds/kdd", "simulations/kdd", "regret/kdd"):
        assert pbm("show", name, "-w", tmp_path).code == 0


def test_simulations_of_other_models_are_refused(default_workspace: Path, pbm: Pbm) -> None:
    for command in (
        ("count", default_workspace / "raw" / "training.txt"),
        ("matrices",),
        ("fit",),
        ("simulate", *SHORT, "--policies", "pbm-ucb"),
    ):
        assert pbm(*command, "-w", default_workspace).code == 0
    assert pbm("show", "simulations/kdd", "-w", default_workspace).code == 0
    assert pbm("fit", "--method", "newton", "-w", default_workspace).code == 0
    assert (
        "simulations/kdd.parquet was made from another models.parquet"
        in pbm("show", "simulations/kdd", "-w", default_workspace).err
    )


def test_policies_are_read_with_their_parameters() -> None:
    found = players("pbm-ts, pbm-pie(epsilon=0.1, horizon=1000),pbm-pie")
    assert [player.label for player in found] == ["pbm-pie", "pbm-pie(epsilon=0.1, horizon=1000)", "pbm-ts"]
    assert found[1].parameters == {"epsilon": 0.1, "horizon": 1000.0}
    assert players("pbm-ucb(epsilon=0.10000001)")[0].label == "pbm-ucb(epsilon=0.10000001)"  # not the label of another


@pytest.mark.parametrize(
    ("specs", "message"),
    [
        ("pbm-pi", "there is no policy 'pbm-pi'; did you mean 'pbm-pie'?"),
        ("pbm-pie(eps=1)", "the policy pbm-pie has no parameter 'eps'; there are epsilon, horizon"),
        ("pbm-ts(epsilon=1)", "the policy pbm-ts has no parameter 'epsilon'; there are alpha, beta"),
        ("uniform(epsilon=1)", "the policy uniform has no parameter 'epsilon'; it takes none"),
        ("pbm-ts(alpha=0.5)", "alpha of pbm-ts is 0.5, expected a number from 1 on"),
        ("pbm-pie(epsilom=1)", "the policy pbm-pie has no parameter 'epsilom'; did you mean 'epsilon'?"),
        ("pbm-ucb(epsilon=much)", "epsilon of pbm-ucb is 'much', expected a number"),
        ("pbm-ucb(epsilon=-1)", "epsilon of pbm-ucb is -1, expected a number from 0 on"),
        ("pbm-ucb(epsilon=nan)", "epsilon of pbm-ucb is nan, expected a number from 0 on"),
        ("pbm-ucb,pbm-ucb", "the policy pbm-ucb is named twice"),
        ("pbm-ucb(", "cannot read the policy 'pbm-ucb('; expected NAME or NAME(PARAMETER=NUMBER, ...)"),
    ],
)
def test_wrong_policies_are_refused(specs: str, message: str) -> None:
    with pytest.raises(DataError) as refused:
        players(specs)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("theta", "kappa", "message"),
    [
        ((0.3, 1.2), (1.0,), "query 7: theta of arm 2 is 1.2, expected 0 to 1"),
        ((0.3, float("nan")), (1.0,), "query 7: theta of arm 2 is nan, expected 0 to 1"),
        ((0.3, 0.2), (1.0, 0.0), "query 7: kappa of position 2 is 0.0, expected above 0 and up to 1"),
        ((0.3,), (1.0, 0.5), "query 7: 1 arms for 2 positions, expected at least as many arms as positions"),
    ],
)
def test_models_that_are_none_are_refused(theta: object, kappa: object, message: str, tmp_path: Path, pbm: Pbm) -> None:
    models = model_file(tmp_path / "models.parquet", theta, kappa)
    assert pbm("simulate", "-w", tmp_path, "--models", models) == (1, "", f"pbm: error: {models}: {message}\n")


def test_what_cannot_be_played_is_refused(tmp_path: Path, pbm: Pbm) -> None:
    assert pbm("simulate", "-w", tmp_path).err == f"pbm: error: there is no {tmp_path}/models.parquet; make it with `pbm fit`\n"
    assert (
        pbm("simulate", "-w", tmp_path, "--experiment", "kd").err
        == "pbm: error: there is no experiment 'kd'; did you mean 'kdd'?\n"
    )
    models = tmp_path / "empty.parquet"
    pl.DataFrame(schema={"query_id": pl.Int64, "theta": pl.List(pl.Float64), "kappa": pl.List(pl.Float64)}).write_parquet(models)
    assert (
        pbm("simulate", "-w", tmp_path, "--models", models).err == f"pbm: error: {models} has no models; nothing can be played\n"
    )
    pl.DataFrame({"query_id": [1], "theta": [0.5], "kappa": [0.5]}).write_parquet(models)
    assert pbm("simulate", "-w", tmp_path, "--models", models).err == (
        f"pbm: error: {models}: expected the columns query_id, theta, kappa, the last two lists of numbers\n"
    )
    assert "there is no" in pbm("simulate", "-w", tmp_path, "--models", tmp_path / "no.parquet").err


def test_the_lists_name_everything(pbm: Pbm) -> None:
    assert [line.split()[0] for line in pbm("policies").out.splitlines() if not line.startswith(" ")] == [
        *("pbm-ucb", "pbm-pie", "pbm-ts", "bc-mp-ts", "rba-kl-ucb", "pbm-kl-ucb", "oracle", "uniform"),
    ]
    assert list(json.loads(pbm("experiments", "--json").out)) == ["kdd", "synthetic", "high-theta"]
    assert list(json.loads(pbm("policies", "--json").out)["pbm-pie"]["parameters"]) == ["epsilon", "horizon"]
