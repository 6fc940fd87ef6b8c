"""What the paper's experiments claim, each as a number and an interval; the verdicts follow from the artefacts.

The paper says "comparable" or "slightly better" and shows pictures; the thresholds that make it a number are ours.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from estimation.rank import first_share
from pipeline import artefacts
from pipeline.artefacts import MATRICES, MODELS

Z = 1.96  # standard errors either way: 95% of a normal, and means over many runs are nearly normal
# Positive matrices have a large first singular value by themselves: without any structure (independent uniform entries), 1 in
# 23 of 5 x 3 matrices has this share of sigma_1^2, and fewer of larger ones. What rank one leaves is sqrt(0.05) = 22% of them.
DOMINATING = 0.95
COMPARABLE = 2.0  # a factor either way: a policy with more than twice another's regret is called worse
SLIGHTLY = 0.5  # of the other's regret: a policy with less than half of it is more than slightly better
SLOPE_WITHIN = 0.25  # of the bound's constant: about what the eye tells from parallel in the paper's picture
DECADE = 10  # the slope is taken over the last tenfold of the rounds
DRAWS = 200  # of the bootstrap: a standard deviation to 1 / sqrt(2 x 200) = 5%
SEED = 2016  # of the bootstrap: the paper's year, the same for every report


class Verdict(StrEnum):
    """What the numbers say of a claim."""

    holds = "holds"
    fails = "does not hold"
    undecided = "not decided at this size"
    missing = "not played"


class Claim(NamedTuple):
    """A claim of the paper with its number: it holds if low <= number <= high."""

    name: str
    paper: str  # what the paper says, in our words
    experiment: str  # where the number comes from: "matrices" or an experiment's name
    figure: str  # what the number is
    estimate: float
    std_error: float
    low: float
    high: float
    verdict: Verdict
    missing: str  # the command that makes what is missing, or ""


class Evidence(NamedTuple):
    """Rows of artefacts, those of experiments by name. None, or no entry, where there is none."""

    matrices: pl.DataFrame | None
    models: pl.DataFrame | None
    simulations: dict[str, pl.DataFrame]
    regret: dict[str, pl.DataFrame]
    bounds: dict[str, pl.DataFrame]


class Number(NamedTuple):
    """What was measured; NaN where it is not defined, or its error is not known."""

    estimate: float
    std_error: float


class Source(NamedTuple):
    """Where a number comes from: "matrices", or an experiment and the policies that it takes, under their plain names."""

    experiment: str
    policies: tuple[str, ...] = ()


class Statement(NamedTuple):
    """A claim before it is held against numbers."""

    name: str
    paper: str
    figure: str
    interval: tuple[float, float]
    source: Source
    measure: Callable[[Evidence, Source], Number]


def claims(evidence: Evidence) -> list[Claim]:
    """Every claim with its verdict."""
    found = []
    for name, paper, figure, (low, high), source, measure in STATEMENTS:
        missing = _missing(source, evidence)
        number = Number(np.nan, np.nan) if missing else measure(evidence, source)
        said = Verdict.missing if missing else verdict(number, low, high)
        found.append(Claim(name, paper, source.experiment, figure, *number, low, high, said, missing))
    return found


def verdict(number: Number, low: float, high: float) -> Verdict:
    """Holds if estimate +- Z standard errors lies within [low, high], fails if it lies wholly outside."""
    least, most = number.estimate - Z * number.std_error, number.estimate + Z * number.std_error
    if low <= least and most <= high:
        return Verdict.holds
    return Verdict.fails if most < low or high < least else Verdict.undecided  # NaN compares as neither


def _missing(source: Source, evidence: Evidence) -> str:
    """The command that makes what a claim needs and does not have. An experiment's artefacts are made together."""
    experiment, policies = source
    if experiment == MATRICES.name:
        needed = ((MATRICES, evidence.matrices), (MODELS, evidence.models))
        return " && ".join(artefact.made_by for artefact, rows in needed if rows is None)
    if all(experiment in rows for rows in evidence[2:]) and set(policies) <= set(evidence.regret[experiment]["policy"]):
        return ""
    return artefacts.regret(experiment).made_by


def smallest_share(evidence: Evidence, _: Source) -> Number:
    """The smallest share of sigma_1^2 over the queries, with its standard deviation under the fitted models.

    A parametric bootstrap: clicks drawn from Binomial(displays, kappa theta), or from the rates themselves where a query has no
    model. Chance adds to the smaller singular values: the estimate is low, if anything. Queries without a click have no share.
    """
    matrices, models = cast(tuple[pl.DataFrame, pl.DataFrame], evidence[:2])
    fitted = models.select("query_id", "kappa", "theta", ad_id="ad_ids").explode("ad_id", "theta")
    ads = matrices.join(fitted, on=["query_id", "ad_id"], how="left", maintain_order="left")
    rng = np.random.Generator(np.random.PCG64(SEED))
    observed, drawn = [], []
    for query in ads.partition_by("query_id", maintain_order=True):
        rates, displays = (np.array(query[name].to_list()) for name in ("ctr", "displays"))
        p = rates if query["theta"].null_count() else np.outer(query["theta"], query["kappa"][0])
        observed.append(first_share(np.linalg.svd(rates, compute_uv=False)))
        again = np.linalg.svd(rng.binomial(displays, p, size=(DRAWS, *p.shape)) / displays, compute_uv=False)
        drawn.append([first_share(values) for values in again])
    least = np.fmin.reduce(np.reshape(drawn, (-1, DRAWS)), axis=0, initial=np.nan)  # fmin passes over NaN
    return Number(float(np.fmin.reduce(observed, initial=np.nan)), float(least.std(ddof=1)))


def ratio_of_means(above: NDArray[np.float64], below: NDArray[np.float64]) -> Number:
    """mean(above) / mean(below) of paired runs, with its standard error by the delta method.

    The error of the ratio R is, to first order, that of the mean of (above - R below) / mean(below), run by run: both
    variances and the covariance at once.
    """
    if below.size < 2 or below.mean() == 0:
        return Number(np.nan, np.nan)
    ratio = above.mean() / below.mean()
    residuals = (above - ratio * below) / below.mean()
    return Number(float(ratio), float(residuals.std(ddof=1) / np.sqrt(below.size)))


def final_ratio(evidence: Evidence, source: Source) -> Number:
    """At the last round, the largest mean regret of the first half of the policies over the smallest of the other half."""
    last = cast(int, evidence.regret[source.experiment]["round"].max())
    regret = _regret(evidence.simulations[source.experiment], source.policies, last)
    half = len(regret) // 2
    return ratio_of_means(max(regret[:half], key=np.mean), min(regret[half:], key=np.mean))


def over_the_bound(evidence: Evidence, source: Source) -> Number:
    """The policy's mean regret over the lower bound, at the last round."""
    (policy,) = source.policies
    last = evidence.regret[source.experiment].filter(policy=policy).sort("round").row(-1, named=True)
    bound = last["lower_bound"] or np.nan  # 0 in the first round, and where every arm is shown
    return Number(last["mean"] / bound, last["std_error"] / bound)


def slope_over_the_bound(evidence: Evidence, source: Source) -> Number:
    """How much the policy's regret grows per unit of log T over the last decade of rounds, over the constant of the bound.

    A run's slope is (regret(T) - regret(t)) / log(T / t), with T the last checkpoint and t the nearest to T / 10.
    """
    bound, rounds = evidence.bounds[source.experiment], evidence.regret[source.experiment]["round"].unique().sort().to_numpy()
    first, last = rounds[np.abs(np.log(rounds * DECADE / rounds[-1])).argmin()], rounds[-1]
    constant = np.average(bound["lower_bound"], weights=bound["runs"])
    if first == last:
        return Number(np.nan, np.nan)
    (early,), (late,) = (_regret(evidence.simulations[source.experiment], source.policies, t) for t in (first, last))
    return ratio_of_means((late - early) / np.log(last / first), np.full(late.size, constant))


def _regret(simulations: pl.DataFrame, policies: tuple[str, ...], t: int) -> list[NDArray[np.float64]]:
    """The regret of each policy at round t, aligned by run: NaN for a run that it did not play."""
    at_t = simulations.filter(pl.col("round") == t, pl.col("policy").is_in(policies))
    by_run = at_t.pivot(on="policy", index="run", values="regret").sort("run")
    return [by_run[policy].to_numpy() for policy in policies]


STATEMENTS = (
    Statement(
        "The first singular value dominates",
        "Every query's matrix of click-through rates has a highly dominating first singular value, which supports rank one.",
        "smallest share of sigma_1^2 over the queries",
        (DOMINATING, np.inf),  # not 1: a share next to 1 is not undecided because its error reaches beyond
        Source("matrices"),
        smallest_share,
    ),
    Statement(
        "PBM-TS is comparable to PBM-PIE",
        "On synthetic data, PBM-PIE and PBM-TS perform comparably.",
        "mean regret of PBM-TS over that of PBM-PIE at the last round",
        (1 / COMPARABLE, COMPARABLE),
        Source("synthetic", ("pbm-ts", "pbm-pie")),
        final_ratio,
    ),
    Statement(
        "PBM-TS is below the lower bound",
        "On synthetic data, the regret of PBM-TS is even below the lower bound, which is asymptotic.",
        "mean regret of PBM-TS over the lower bound at the last round",
        (0.0, 1.0),
        Source("synthetic", ("pbm-ts",)),
        over_the_bound,
    ),
    Statement(
        "PBM-PIE matches the lower bound",
        "On synthetic data, the regret of PBM-PIE grows as the lower bound does once the horizon is large enough.",
        "slope of the mean regret of PBM-PIE in log T over the last decade of rounds, over the constant of the lower bound",
        (1 - SLOPE_WITHIN, 1 + SLOPE_WITHIN),
        Source("synthetic", ("pbm-pie",)),
        slope_over_the_bound,
    ),
    Statement(
        "RBA-KL-UCB is slightly better than PBM-UCB",
        "On the models of the log, RBA-KL-UCB does slightly better than PBM-UCB.",
        "mean regret of RBA-KL-UCB over that of PBM-UCB at the last round",
        (SLIGHTLY, 1.0),
        Source("kdd", ("rba-kl-ucb", "pbm-ucb")),
        final_ratio,
    ),
    Statement(
        "PBM-TS and PBM-PIE outperform both",
        "On the models of the log, PBM-TS and PBM-PIE both do better than RBA-KL-UCB and PBM-UCB.",
        "larger mean regret of PBM-TS and PBM-PIE over the smaller one of RBA-KL-UCB and PBM-UCB at the last round",
        (0.0, 1.0),
        Source("kdd", ("pbm-ts", "pbm-pie", "rba-kl-ucb", "pbm-ucb")),
        final_ratio,
    ),
    Statement(
        "BC-MP-TS explores too little for high theta",
        "With parameters close to one, BC-MP-TS does not explore enough, and PBM-TS does better.",
        "mean regret of BC-MP-TS over that of PBM-TS at the last round",
        (1.0, np.inf),
        Source("high-theta", ("bc-mp-ts", "pbm-ts")),
        final_ratio,
    ),
)
