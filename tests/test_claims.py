"""The paper's claims: the mechanism at its boundaries, the standard errors, and verdicts that follow the numbers."""

from collections.abc import Mapping

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from bandits.simulate import checkpoints
from pipeline.experiments import EXPERIMENTS
from pipeline.report.claims import (
    DOMINATING,
    DRAWS,
    STATEMENTS,
    Claim,
    Evidence,
    Number,
    Source,
    Verdict,
    Z,
    claims,
    ratio_of_means,
    slope_over_the_bound,
    smallest_share,
    verdict,
)

RUNS, HORIZON = 40, 3_000  # a tenth of it is no checkpoint
BOUND = 5.0  # the constant of the lower bound of every world here
SIGMAS = 4.5  # 7e-6 two-sided
# The regret of each policy is a constant times log t: these make every claim of the paper hold.
SLOPES: Mapping[str, Mapping[str, float]] = {
    "synthetic": {"pbm-pie": 5.0, "pbm-ts": 3.5},
    "kdd": {"pbm-pie": 2.5, "pbm-ts": 2.0, "pbm-ucb": 10.0, "rba-kl-ucb": 8.0},
    "high-theta": {"bc-mp-ts": 6.0, "pbm-ts": 3.0},
}
KAPPA = np.array([1.0, 0.5, 0.3])
THETA = {2: np.array([0.02, 0.08, 0.05, 0.03, 0.01]), 19: np.array([0.1, 0.02, 0.12, 0.04, 0.06, 0.08])}  # not sorted, as ads are
DISPLAYS = 5_000


def played(slopes: Mapping[str, float], runs: int = RUNS, bound: float = BOUND) -> tuple[pl.DataFrame, ...]:
    """The simulations, regret and bounds of an experiment. A run's constant is the policy's, up to 10% more or less."""
    rng = np.random.default_rng(0)
    rounds = checkpoints(HORIZON)
    simulations, regret = [], []
    for policy, slope in sorted(slopes.items()):
        constants = slope * rng.permutation(np.linspace(0.9, 1.1, runs))
        table = np.outer(constants, np.log(rounds))
        run, t = np.repeat(np.arange(runs, dtype=np.int32), rounds.size), np.tile(rounds, runs)
        simulations.append(pl.DataFrame({"policy": policy, "run": run, "query_id": 0, "round": t, "regret": table.ravel()}))
        std_error = table.std(axis=0, ddof=1) / np.sqrt(runs) if runs > 1 else np.full(rounds.size, np.nan)
        mean, lower_bound = table.mean(axis=0), bound * np.log(rounds)
        regret.append(
            pl.DataFrame({"policy": policy, "round": rounds, "mean": mean, "std_error": std_error, "lower_bound": lower_bound})
        )
    return pl.concat(simulations), pl.concat(regret), pl.DataFrame({"query_id": [0], "runs": [runs], "lower_bound": [bound]})


def counted(rates: Mapping[int, NDArray[np.float64]]) -> pl.DataFrame:
    """The rows of `matrices.parquet` for matrices of click-through rates."""
    rows = [(query, ad, [DISPLAYS] * KAPPA.size, row.tolist()) for query, ctr in rates.items() for ad, row in enumerate(ctr)]
    return pl.DataFrame(rows, schema=["query_id", "ad_id", "displays", "ctr"], orient="row")


RANK_ONE = {query: np.outer(theta, KAPPA) for query, theta in THETA.items()}
MODELS = pl.DataFrame(
    [(query, np.argsort(-theta).tolist(), np.sort(theta)[::-1].tolist(), KAPPA.tolist()) for query, theta in THETA.items()],
    schema=["query_id", "ad_ids", "theta", "kappa"],
    orient="row",
)


def evidence(
    slopes: Mapping[str, Mapping[str, float]] = SLOPES,
    rates: Mapping[int, NDArray[np.float64]] = RANK_ONE,
    runs: int = RUNS,
    bound: float = BOUND,
) -> Evidence:
    tables = {name: played(each, runs, bound) for name, each in slopes.items()}
    simulations, regret, bounds = ({name: each[part] for name, each in tables.items()} for part in range(3))
    return Evidence(counted(rates), MODELS, simulations, regret, bounds)


def changed(experiment: str, **slopes: float) -> dict[str, Mapping[str, float]]:
    """The slopes with those of some policies of an experiment changed."""
    given = {policy.replace("_", "-"): slope for policy, slope in slopes.items()}
    assert set(given) <= set(SLOPES[experiment])
    return {**SLOPES, experiment: {**SLOPES[experiment], **given}}


def named(found: list[Claim], name: str) -> Claim:
    return next(claim for claim in found if claim.name == name)


HALF = Z * 0.1  # of the interval around an estimate with the standard error 0.1


@pytest.mark.parametrize(
    ("estimate", "std_error", "low", "high", "expected"),
    [
        (HALF, 0.1, 0.0, np.inf, Verdict.holds),  # touches the end from within
        (np.nextafter(HALF, 0), 0.1, 0.0, np.inf, Verdict.undecided),
        (-HALF, 0.1, 0.0, np.inf, Verdict.undecided),  # touches it from outside
        (np.nextafter(-HALF, -1), 0.1, 0.0, np.inf, Verdict.fails),
        (-HALF, 0.1, -1.0, 0.0, Verdict.holds),
        (np.nextafter(-HALF, 0), 0.1, -1.0, 0.0, Verdict.undecided),
        (HALF, 0.1, -1.0, 0.0, Verdict.undecided),
        (np.nextafter(HALF, 1), 0.1, -1.0, 0.0, Verdict.fails),
        (0.5, 10.0, 0.0, 1.0, Verdict.undecided),  # wider than the interval
        (1.0, 0.0, 1.0, 1.0, Verdict.holds),
        (np.nextafter(1.0, 2), 0.0, 1.0, 1.0, Verdict.fails),
        (np.nan, 0.1, 0.0, 1.0, Verdict.undecided),
        (0.5, np.nan, 0.0, 1.0, Verdict.undecided),
        (np.nan, np.nan, -np.inf, np.inf, Verdict.undecided),
    ],
)
def test_verdicts_at_their_boundaries(estimate: float, std_error: float, low: float, high: float, expected: Verdict) -> None:
    assert verdict(Number(estimate, std_error), low, high) is expected


def test_every_claim_of_the_paper_can_hold() -> None:
    found = claims(evidence())
    assert [claim.verdict for claim in found] == [Verdict.holds] * len(STATEMENTS)
    assert not any(claim.missing for claim in found)
    assert all(claim.std_error > 0 for claim in found)


UNRELATED = {**RANK_ONE, 19: np.vstack([np.eye(3), np.eye(3)]) * 0.1}  # an ad is clicked at one position only: equal sigmas
MUTATIONS = {
    "one query without a dominating value": ("The first singular value dominates", evidence(rates=UNRELATED)),
    "TS far below PIE": ("PBM-TS is comparable to PBM-PIE", evidence(changed("synthetic", pbm_ts=2.0))),
    "TS far above PIE": ("PBM-TS is comparable to PBM-PIE", evidence(changed("synthetic", pbm_ts=11.0))),
    "TS above the bound": ("PBM-TS is below the lower bound", evidence(changed("synthetic", pbm_ts=5.5))),
    "a bound below TS": ("PBM-TS is below the lower bound", evidence(bound=3.0)),
    "PIE too steep": ("PBM-PIE matches the lower bound", evidence(changed("synthetic", pbm_pie=7.0))),
    "PIE too flat": ("PBM-PIE matches the lower bound", evidence(changed("synthetic", pbm_pie=3.0))),
    "a bound below PIE": ("PBM-PIE matches the lower bound", evidence(bound=3.0)),
    "RBA worse": ("RBA-KL-UCB is slightly better than PBM-UCB", evidence(changed("kdd", rba_kl_ucb=11.0))),
    "RBA much better": ("RBA-KL-UCB is slightly better than PBM-UCB", evidence(changed("kdd", rba_kl_ucb=4.0))),
    "PIE worse than RBA": ("PBM-TS and PBM-PIE outperform both", evidence(changed("kdd", pbm_pie=9.0))),
    "TS worse than RBA": ("PBM-TS and PBM-PIE outperform both", evidence(changed("kdd", pbm_ts=9.0))),
    "UCB better than PIE": ("PBM-TS and PBM-PIE outperform both", evidence(changed("kdd", pbm_ucb=2.2))),
    "RBA better than PIE": ("PBM-TS and PBM-PIE outperform both", evidence(changed("kdd", rba_kl_ucb=2.2))),
    "BC-MP-TS better": ("BC-MP-TS explores too little for high theta", evidence(changed("high-theta", bc_mp_ts=2.0))),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_other_numbers_flip_the_verdict(mutation: str) -> None:
    name, mutated = MUTATIONS[mutation]
    assert named(claims(mutated), name).verdict is Verdict.fails


def test_every_claim_has_a_mutation_that_flips_it() -> None:
    assert {name for name, _ in MUTATIONS.values()} == {statement.name for statement in STATEMENTS}


def test_one_run_decides_nothing() -> None:
    assert {claim.verdict for claim in claims(evidence(runs=1)) if claim.experiment != "matrices"} == {Verdict.undecided}


def test_the_estimates_are_ratios_of_what_was_played() -> None:
    expected = {
        "PBM-TS is comparable to PBM-PIE": 3.5 / 5,
        "PBM-TS is below the lower bound": 3.5 / BOUND,
        "PBM-PIE matches the lower bound": 5 / BOUND,
        "RBA-KL-UCB is slightly better than PBM-UCB": 8 / 10,
        "PBM-TS and PBM-PIE outperform both": 2.5 / 8,  # PIE and RBA: the worse of two over the better of two
        "BC-MP-TS explores too little for high theta": 6 / 3,
    }
    found = {claim.name: claim.estimate for claim in claims(evidence()) if claim.experiment != "matrices"}
    assert found == pytest.approx(expected, rel=1e-12)  # the constants of the runs have the policy's as their mean


# Missing artefacts and policies


def test_nothing_played_names_the_commands() -> None:
    found = claims(Evidence(None, None, {}, {}, {}))
    assert {claim.verdict for claim in found} == {Verdict.missing}
    assert {claim.experiment: claim.missing for claim in found} == {
        "matrices": "pbm matrices && pbm fit",
        **{name: f"pbm simulate --experiment {name}" for name in ("synthetic", "kdd", "high-theta")},
    }
    assert all(np.isnan(claim.estimate) and np.isnan(claim.std_error) for claim in found)


def test_only_what_is_missing_is_named() -> None:
    whole = evidence()
    assert claims(whole._replace(models=None))[0].missing == "pbm fit"
    assert claims(whole._replace(matrices=None))[0].missing == "pbm matrices"
    for part in ("simulations", "regret", "bounds"):
        kept = {name: rows for name, rows in getattr(whole, part).items() if name != "kdd"}
        found = claims(Evidence(**{**whole._asdict(), part: kept}))
        assert {claim.experiment for claim in found if claim.verdict is Verdict.missing} == {"kdd"}
        assert {claim.missing for claim in found if claim.experiment == "kdd"} == {"pbm simulate --experiment kdd"}


def test_a_policy_with_other_parameters_does_not_count() -> None:
    slopes = {"pbm-pie(epsilon=0.1)": 5.0, "pbm-ts": 3.5}
    found = {claim.name: claim for claim in claims(evidence({**SLOPES, "synthetic": slopes}))}
    assert found["PBM-TS is comparable to PBM-PIE"].missing == "pbm simulate --experiment synthetic"
    assert found["PBM-PIE matches the lower bound"].verdict is Verdict.missing
    assert found["PBM-TS is below the lower bound"].verdict is Verdict.holds


def test_the_commands_play_what_the_claims_need() -> None:
    for statement in STATEMENTS:
        if statement.source.experiment != "matrices":
            assert set(statement.source.policies) <= set(EXPERIMENTS[statement.source.experiment].policies)


# Ratios of means


def test_the_error_of_a_ratio_is_that_of_resampled_pairs() -> None:
    rng = np.random.default_rng(0)
    runs, resamples = 400, 4_000
    shared = rng.lognormal(sigma=0.5, size=runs)  # the world that a run draws
    above, below = shared * rng.gamma(20, 1 / 20, runs), 2 * shared * rng.gamma(20, 1 / 20, runs)
    picked = rng.integers(runs, size=(resamples, runs))
    resampled = (above[picked].mean(axis=1) / below[picked].mean(axis=1)).std(ddof=1)
    # A standard deviation over n nearly normal values is off by 1 / sqrt(2n) of itself; the delta method and ddof by 1 / runs.
    tolerance = SIGMAS / np.sqrt(2 * resamples) + 2 / runs
    found = ratio_of_means(above, below)
    assert found.estimate == above.mean() / below.mean()
    assert found.std_error == pytest.approx(resampled, rel=tolerance)
    unpaired = ratio_of_means(above, rng.permutation(below)).std_error
    assert unpaired != pytest.approx(resampled, rel=tolerance)  # the control: without the covariance


def test_the_error_of_a_ratio_is_the_delta_methods() -> None:
    rng = np.random.default_rng(1)
    above, below = rng.normal(3, 1, 50), rng.normal(5, 1, 50)
    a, b, c = above.mean(), below.mean(), np.cov(above, below)
    expected = a / b * np.sqrt((c[0, 0] / a**2 + c[1, 1] / b**2 - 2 * c[0, 1] / (a * b)) / above.size)
    assert ratio_of_means(above, below).std_error == pytest.approx(expected, rel=1e-12)


def test_runs_are_aligned_by_their_number() -> None:
    whole = evidence()
    shuffled = {name: rows.sample(fraction=1, shuffle=True, seed=1) for name, rows in whole.simulations.items()}
    for one, other in zip(claims(whole), claims(whole._replace(simulations=shuffled)), strict=True):
        assert one.estimate == pytest.approx(other.estimate, rel=1e-12)
        assert one.std_error == pytest.approx(other.std_error, rel=1e-9)


def test_a_ratio_to_nothing_is_not_defined() -> None:
    assert all(map(np.isnan, ratio_of_means(np.ones(3), np.zeros(3))))
    assert all(map(np.isnan, ratio_of_means(np.ones(1), np.ones(1))))


# Slopes

PIE = Source("synthetic", ("pbm-pie",))


def curve(regret: NDArray[np.float64], rounds: NDArray[np.int64], bounds: pl.DataFrame, runs: int = 3) -> Evidence:
    """PBM-PIE played with the same regret in every run."""
    run, t = np.repeat(np.arange(runs), rounds.size), np.tile(rounds, runs)
    simulations = pl.DataFrame({"policy": "pbm-pie", "run": run, "round": t, "regret": np.tile(regret, runs)})
    summary = pl.DataFrame({"policy": "pbm-pie", "round": rounds})
    return Evidence(None, None, {"synthetic": simulations}, {"synthetic": summary}, {"synthetic": bounds})


@pytest.mark.parametrize("horizon", [2, 7, 299, 3_000, 10_000, 123_456])
def test_the_slope_of_c_log_t_is_c(horizon: int) -> None:
    rounds = checkpoints(horizon)
    bounds = pl.DataFrame({"runs": [3, 1], "lower_bound": [2.0, 6.0]})  # 3 on average over the runs
    found = slope_over_the_bound(curve(4.2 * np.log(rounds) + 17, rounds, bounds), PIE)
    assert found.estimate == pytest.approx(4.2 / 3, rel=1e-12)
    assert found.std_error == pytest.approx(0, abs=1e-12)


def test_the_slope_is_that_of_the_last_decade() -> None:
    rounds = np.array([1, 10, 90, 105, 300, 1_000])
    regret = np.array([0, 50, 70, 80, 99, 100.0])
    found = slope_over_the_bound(curve(regret, rounds, pl.DataFrame({"runs": [3], "lower_bound": [2.0]})), PIE)
    assert found.estimate == pytest.approx((100 - 80) / np.log(1_000 / 105) / 2)


def test_slopes_that_are_not_defined() -> None:
    bounds = pl.DataFrame({"runs": [3], "lower_bound": [2.0]})
    assert all(map(np.isnan, slope_over_the_bound(curve(np.zeros(1), np.array([1]), bounds), PIE)))  # one round
    no_bound = bounds.with_columns(lower_bound=0.0)  # every arm is shown
    assert all(map(np.isnan, slope_over_the_bound(curve(np.arange(2.0), np.array([1, 10]), no_bound), PIE)))


def test_no_bound_in_the_first_round() -> None:
    whole = evidence()
    first = {name: rows.filter(pl.col("round") == 1) for name, rows in whole.regret.items()}
    assert named(claims(whole._replace(regret=first)), "PBM-TS is below the lower bound").verdict is Verdict.undecided


# Singular values

MATRICES = Source("matrices")


def shares(rates: NDArray[np.float64]) -> NDArray[np.float64]:
    """The share of sigma_1^2 of each matrix: the largest eigenvalue of M' M over its trace."""
    values = np.linalg.eigvalsh(rates.swapaxes(-1, -2) @ rates)
    return np.asarray(values[..., -1] / values.sum(axis=-1))


def test_few_matrices_without_structure_are_dominated() -> None:
    drawn = shares(np.random.default_rng(0).random((20_000, 5, 3)))
    dominated, expected = float((drawn >= DOMINATING).mean()), 1 / 23
    assert abs(dominated - expected) < SIGMAS * np.sqrt(expected * (1 - expected) / drawn.size)


def test_the_smallest_share_is_that_of_the_worst_query() -> None:
    assert smallest_share(evidence(), MATRICES).estimate == pytest.approx(1, abs=1e-12)
    assert smallest_share(evidence(rates=UNRELATED), MATRICES).estimate == pytest.approx(1 / 3)


def test_the_error_of_the_smallest_share_is_that_of_other_draws() -> None:
    rng = np.random.default_rng(0)
    draws = 4_000
    drawn = np.min([shares(rng.binomial(DISPLAYS, p, (draws, *p.shape)) / DISPLAYS) for p in RANK_ONE.values()], axis=0)
    # Relative variance of a standard deviation over n values: (kurtosis - 1) / 4n.
    kurtosis = ((drawn - drawn.mean()) ** 4).mean() / drawn.var() ** 2
    tolerance = SIGMAS * np.sqrt((kurtosis - 1) / 4 * (1 / DRAWS + 1 / draws))
    found = smallest_share(evidence(), MATRICES).std_error
    assert found == pytest.approx(drawn.std(), rel=tolerance)
    rarer = evidence()._replace(models=MODELS.with_columns(pl.col("theta").list.eval(pl.element() / 4)))
    assert smallest_share(rarer, MATRICES).std_error > (1 + tolerance) * drawn.std()  # the control: a model with fewer clicks


def test_the_draws_do_not_depend_on_the_order_of_ads_in_a_model() -> None:
    other = MODELS.with_columns(pl.col("ad_ids", "theta").list.reverse()).reverse()
    assert smallest_share(evidence()._replace(models=other), MATRICES) == smallest_share(evidence(), MATRICES)


def test_ids_may_be_text() -> None:
    matrices = counted(RANK_ONE).with_columns(pl.col("query_id", "ad_id").cast(pl.String))
    models = MODELS.with_columns(pl.col("query_id").cast(pl.String), pl.col("ad_ids").cast(pl.List(pl.String)))
    assert smallest_share(evidence()._replace(matrices=matrices, models=models), MATRICES) == smallest_share(evidence(), MATRICES)


def test_a_query_without_a_model_is_still_looked_at() -> None:
    some = evidence(rates=UNRELATED)._replace(models=MODELS.head(1))
    found = smallest_share(some, MATRICES)
    assert found.estimate == pytest.approx(1 / 3)
    assert found.std_error > 0


def test_queries_without_clicks_have_no_share() -> None:
    nothing = {query: np.zeros_like(p) for query, p in RANK_ONE.items()}
    assert smallest_share(evidence(rates={**UNRELATED, 2: nothing[2]}), MATRICES).estimate == pytest.approx(1 / 3)
    for matrices in (counted(nothing), counted(nothing).clear()):
        claim = claims(Evidence(matrices, MODELS.clear(), {}, {}, {}))[0]
        assert np.isnan(claim.estimate)
        assert claim.verdict is Verdict.undecided
