"""The synthetic log: exact where it is exact, like the real one where that is known, and the same for the same seed."""

import hashlib
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from pipeline import artefacts, formats
from pipeline.artefacts import COUNTS, REJECTS, TRUTH
from pipeline.filter import Filter, Unit
from pipeline.published import MODELS
from pipeline.stages.count import count_here as count
from pipeline.stages.synthesize import synthesize
from pipeline.synthesis import background, planted, shares, spelling
from tests.conftest import Pbm
from tests.test_counting import ENGINES

KDD = formats.load("kdd2012")
KEY = ["query_id", "ad_id", "position"]
Z = 5.0  # two-sided false-alarm rate 6e-7 for each share


def counted(workspace: Path, engine: str, unit: Unit) -> pl.DataFrame:
    count(workspace / "raw" / "training.txt", workspace, KDD, ENGINES[engine], Filter(unit), 0)
    return artefacts.read(COUNTS, workspace)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("unit", Unit)
def test_counts_are_the_planted_truth(default_workspace: Path, engine: str, unit: Unit) -> None:
    counts = counted(default_workspace, engine, unit)
    truth = artefacts.read(TRUTH, default_workspace)
    expected = truth.select(*KEY, lines="displays", clicked_lines="clicks", impressions="impressions", clicks="impression_clicks")
    assert counts.join(truth, on=KEY, how="semi").equals(expected)
    beside = counts.join(truth, on=KEY, how="anti")["query_id"].unique().to_list()
    assert sorted(beside) == ([] if unit is Unit.lines else list(planted.IMPRESSION_QUERIES))
    assert artefacts.read(REJECTS, default_workspace).is_empty()


def test_records_and_ads_are_the_papers(default_workspace: Path) -> None:
    counts = counted(default_workspace, "polars", Unit.lines)
    table = counts.group_by("query_id").agg(records=pl.sum("lines"), ads=pl.col("ad_id").n_unique()).sort("query_id")
    assert table.rows() == sorted((model.query_id, model.records, len(model.theta)) for model in MODELS)
    assert counts["lines"].min() >= Filter().min_displays  # type: ignore[operator]


def test_clicks_follow_kappa_times_theta(default_workspace: Path) -> None:
    truth = artefacts.read(TRUTH, default_workspace)
    rate = truth["kappa"] * truth["theta"]
    z = ((truth["clicks"] - truth["displays"] * rate) / (truth["displays"] * rate * (1 - rate)).sqrt()).to_numpy()
    chi_square = float(np.sum(z**2))  # 174 cells: mean 174, standard deviation sqrt(348)
    assert abs(chi_square - z.size) < Z * np.sqrt(2 * z.size)
    shuffled = truth["theta"].shuffle(seed=1) * truth["kappa"]  # the control: with wrong rates it would be far off
    wrong = ((truth["clicks"] - truth["displays"] * shuffled) / (truth["displays"] * shuffled).sqrt()).to_numpy()
    assert float(np.sum(wrong**2)) > 10 * chi_square


def test_the_near_misses_are_there_and_miss_by_one(default_workspace: Path) -> None:
    generous = Filter(min_displays=Filter().min_displays - 1, min_ads=Filter().min_ads - 1)
    count(default_workspace / "raw" / "training.txt", default_workspace, KDD, ENGINES["polars"], generous, 0)
    counts = artefacts.read(COUNTS, default_workspace)
    ads = dict(counts.group_by("query_id").agg(pl.col("ad_id").n_unique()).rows())
    assert ads == {model.query_id: len(model.theta) + 1 for model in MODELS} | dict.fromkeys(
        planted.FEW_ADS_QUERIES, Filter().min_ads
    )


def test_what_is_planted_does_not_depend_on_the_lines(default_workspace: Path, tmp_path: Path) -> None:
    n_planted = int(sum(cell.displays for cell in planted.cells()))
    synthesize(tmp_path / "raw" / "training.txt", tmp_path, n_planted, 0)  # no background at all
    assert TRUTH.path(tmp_path).read_bytes() == TRUTH.path(default_workspace).read_bytes()
    counted(tmp_path, "polars", Unit.lines)
    assert artefacts.read(COUNTS, tmp_path).equals(counted(default_workspace, "polars", Unit.lines))


def test_the_same_seed_gives_the_same_bytes_and_another_does_not(tmp_path: Path) -> None:
    digests = set()
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        synthesize(tmp_path / name, tmp_path, 2_900_000, seed)
        digests.add(hashlib.sha256((tmp_path / name).read_bytes()).hexdigest())
    assert len(digests) == 2


def test_too_few_lines_for_what_is_planted_are_refused(tmp_path: Path, pbm: Pbm) -> None:
    assert pbm("synthesize", "-w", tmp_path, "--lines", 1_000_000) == (
        1,
        "",
        "pbm: error: --lines is 1,000,000, expected at least 2,784,083: the published models and the near misses beside them\n",
    )
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def lines() -> pl.DataFrame:
    """A million lines of the background, as the kernel draws them."""
    tables, size = background.tables(), 1 << 20
    columns, variants = np.zeros((12, size), np.uint64), np.zeros(size, np.uint64)
    rng = np.random.default_rng(5)
    background.fill(rng, tables, 0, background.user_0_runs(shares.user_0_share()), columns, variants)
    names = [column.name for column in KDD.columns]
    return pl.DataFrame({name: columns[k] for k, name in enumerate(names)}).with_columns(variant=variants)


def within(share: float, expected: float, n: int, inflation: float = 1.0) -> bool:
    """Z standard errors; `inflation` is the variance of correlated draws over that of independent ones."""
    return bool(abs(share - expected) <= Z * np.sqrt(inflation * expected * (1 - expected) / n))


REPEATS = 1 + 2 * shares.REPEATED / (1 - shares.REPEATED)  # a line repeated k times has k copies: geometric
RUNS = 2 * shares.LINES_PER_USER_0_RUN  # a run of geometric length has variance inflation of about twice its mean


def test_positions_and_depths_have_the_real_shares(lines: pl.DataFrame) -> None:
    for (depth, position), share in shares.LAYOUTS.items():
        found = lines.select((pl.col("Depth") == depth) & (pl.col("Position") == position)).to_series().mean()
        assert within(float(found), share / sum(shares.LAYOUTS.values()), lines.height, REPEATS)  # type: ignore[arg-type]
    assert not within(0.27, shares.LAYOUTS[1, 1], lines.height, REPEATS)  # the control: half a percent off is seen


def test_user_0_has_its_share_and_its_heavy_lines(lines: pl.DataFrame) -> None:
    user_0 = lines["UserID"] == 0
    assert within(float(user_0.mean()), shares.user_0_share(), lines.height, RUNS)  # type: ignore[arg-type]
    for is_0, column in ((True, 2), (False, 3)):
        impressions = lines.filter(user_0 == is_0)["Impression"]
        for low, high, *share in shares.IMPRESSIONS:
            found = float(((impressions >= low) & (impressions < high)).mean())  # type: ignore[arg-type]
            total = sum(row[column] for row in shares.IMPRESSIONS)
            assert within(found, share[column - 2] / total, impressions.len())
    assert int(lines["Impression"].max()) > 1000  # type: ignore[arg-type]


def test_queries_have_the_real_skew(lines: pl.DataFrame) -> None:
    """The background and the planted lines together, at the real log's size, have the real log's shares."""
    n = shares.LINES - sum(model.records for model in MODELS)
    for edge, share, _ in shares.QUERIES[:-1]:
        expected = (share * shares.LINES - sum(model.records for model in MODELS if model.query_id < edge)) / n
        assert within(float((lines["QueryID"] < edge).mean()), expected, lines.height, RUNS)  # type: ignore[arg-type]


def test_keys_repeat_users_come_in_runs_and_urls_go_beyond_int64(lines: pl.DataFrame) -> None:
    repeated = float((lines["variant"] > 0).mean())  # type: ignore[arg-type]
    user_0 = shares.user_0_share()
    first = (1 - user_0) / shares.LINES_PER_USER + user_0 / shares.LINES_PER_USER_0_RUN  # a run's first line repeats nothing
    assert within(repeated, shares.REPEATED * (1 - first), lines.height)
    identified = lines.filter(pl.col("UserID") > 0)["UserID"]
    assert identified.n_unique() == identified.rle_id().n_unique()
    urls = np.zeros((12, 100_000), np.uint64)
    urls[3] = background.FIRST_AD + background.AD_STRIDE * np.arange(100_000)
    spelling.dress(urls, np.zeros(100_000, np.uint64))
    assert within(float((urls[2] >= 2**63).mean()), shares.BEYOND_INT64, 100_000)


def test_no_background_ad_is_shown_at_every_position_or_is_a_planted_one(lines: pl.DataFrame) -> None:
    number = (lines["AdID"] - background.FIRST_AD) // background.AD_STRIDE
    assert (number % background.POSITIONS + 1 != lines["Position"]).all()
    assert not lines["AdID"].is_in(sorted({cell.ad_id for cell in planted.cells()})).any()


def test_planted_ads_of_a_query_have_different_ids() -> None:
    cells = [(cell.query_id, cell.ad_id, cell.position) for cell in planted.cells()]
    assert len(set(cells)) == len(cells)
