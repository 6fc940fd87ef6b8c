"""Runs on Spark are the runs of one machine, whatever the number of shards."""

from pathlib import Path

import polars as pl
import pytest

from bandits.simulate import Played
from pipeline import published
from pipeline.cluster import session
from pipeline.experiments import EXPERIMENTS
from pipeline.stages import simulate as stage
from pipeline.stages.parts import Game
from tests.conftest import Pbm, spark_here


def game(runs: int, tmp_path: Path) -> Game:
    return stage.game_of(EXPERIMENTS["synthetic"], tmp_path, runs, 3000, 5, None)


def assert_same_runs(one: Played, other: Played) -> None:
    assert one.regret.tobytes() == other.regret.tobytes()
    assert [shown.tobytes() for shown in one.displays] == [shown.tobytes() for shown in other.displays]


def test_rows_do_not_depend_on_where_or_in_how_many_shards_runs_are_played(
    tmp_path: Path, pbm: Pbm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All policies on the published models, by the command; then one with fewer and more shards than runs."""
    from pipeline import shards

    spark_here("local")
    models = [{"query_id": model.query_id, "theta": model.theta, "kappa": model.kappa} for model in published.MODELS]
    pl.DataFrame(models, strict=False).write_parquet(tmp_path / "models.parquet")
    options = ("simulate", "--models", tmp_path / "models.parquet", "--runs", 7, "--horizon", 200)
    policies = ("--policies", "pbm-ucb,pbm-pie(epsilon=0.1),pbm-ts,bc-mp-ts,rba-kl-ucb,pbm-kl-ucb,oracle,uniform")
    assert pbm(*options, *policies, "-w", tmp_path / "here").code == 0
    outcome = pbm(*options, *policies, "-w", tmp_path / "there", "--engine", "spark", "--spark-master", "local[2]")
    assert outcome.code == 0, outcome.err
    for folder in ("simulations", "regret", "displays", "bounds"):
        name = f"{folder}/kdd.parquet"
        assert (tmp_path / "there" / name).read_bytes() == (tmp_path / "here" / name).read_bytes(), name
    played, (player,) = game(5, tmp_path), stage.players("pbm-ts")
    expected = stage.play_here(1, played, player)[0]
    with session(spark_here("local[2]")) as spark:
        for each in (1, 2, 100):
            monkeypatch.setattr(shards, "SHARDS_PER_CORE", each)
            assert_same_runs(stage.play_on_spark(spark, played, player)[0], expected)
