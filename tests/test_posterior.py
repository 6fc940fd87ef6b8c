"""Exact draws: against a quadrature of the posterior and the paper's own sampler, with wrong samplers as controls."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import kstest

from bandits.posterior import (
    CENTRE,
    DUE,
    FAR,
    FLOOR,
    HEIGHT,
    MASS,
    POINT,
    RHO,
    SHAPE,
    SLOPE,
    Posteriors,
    cover,
    draw,
    draw_beta,
    draw_hull,
    learn,
    place,
    prepare,
    prior,
    weigh,
)

STATES = {
    "never shown": ([0, 0, 0], [0, 0, 0], [0.9, 0.6, 0.3]),
    "no clicks": ([0, 0, 0], [50, 30, 10], [1.0, 0.5, 0.2]),
    "all clicks": ([20, 10, 5], [20, 10, 5], [0.9, 0.6, 0.3]),
    "all clicks, one position": ([30], [30], [1.0]),
    "a million displays": ([30_000, 9_000, 2_000], [600_000, 300_000, 100_000], [1.0, 0.47, 0.33]),
    "kappa tiny": ([1, 0, 0], [100, 2000, 5000], [0.02, 0.01, 0.001]),
    "theta near 0": ([1, 0, 0], [5000, 3000, 1000], [1.0, 0.5, 0.3]),
    "theta near 1": ([88, 55, 29], [100, 100, 100], [0.9, 0.6, 0.3]),
    "one of each": ([1, 0, 0], [1, 1, 0], [0.9, 0.6, 0.3]),
    "a hundred million displays": ([27_000_000, 9_000_000], [60_000_000, 40_000_000], [0.9, 0.45]),
}
LEVEL = 1e-4  # false alarm of each Kolmogorov-Smirnov test; the seeds are fixed


def posterior(clicks: Any, displays: Any, kappa: Any) -> Posteriors:
    """One arm with these counts, both samplers made for them."""
    found = prior(1, np.array(kappa, float), 1.0, 1.0)
    found.counts[0] = [sum(clicks), *(np.array(displays) - np.array(clicks))]
    prepare(found, 0)
    place(found, 0)
    cover(found, 0)
    return found


def draws(found: Posteriors, n: int, sampler: Callable[..., float] = draw) -> NDArray[np.float64]:
    rng = np.random.default_rng(1)
    return np.array([sampler(found, 0, rng) for _ in range(n)])


def log_density(counts: NDArray[np.float64], kappa: NDArray[np.float64], x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(counts[0] * np.log(x) + (counts[1:] * np.log1p(-np.outer(x, kappa))).sum(axis=1))


def grid(centre: float) -> NDArray[np.float64]:
    """Fine near both ends, and ever finer towards the mode."""
    around = np.concatenate([centre + reach * np.linspace(-1, 1, 100_001) for reach in (1e-2, 1e-3)])
    x = np.unique(np.concatenate([np.linspace(0, 1, 200_001), np.geomspace(1e-9, 1, 100_000), around]))
    return x[(x > 1e-12) & (x < 1 - 1e-12)]


def posterior_cdf(clicks: Any, displays: Any, kappa: Any) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    """By the trapezium rule."""
    counts, k = np.array([sum(clicks), *(np.array(displays) - np.array(clicks))], float), np.array(kappa)
    x = grid(0.5)
    x = grid(float(x[np.argmax(log_density(counts, k, x))]))
    logs = log_density(counts, k, x)
    density = np.exp(logs - logs.max())
    mass = np.concatenate([[0], np.cumsum(np.diff(x) * (density[1:] + density[:-1]) / 2)])
    return lambda at: np.interp(at, x, mass / mass[-1])


@pytest.mark.parametrize("sampler", [draw, draw_hull])
@pytest.mark.parametrize("state", STATES)
def test_thompson_draws_have_the_posteriors_distribution(state: str, sampler: Callable[..., float]) -> None:
    assert kstest(draws(posterior(*STATES[state]), 20_000, sampler), posterior_cdf(*STATES[state])).pvalue > LEVEL


def centred(state: str, away: float) -> Posteriors:
    """m was put where it would be with so many standard deviations more clicks."""
    clicks = sum(STATES[state][0])
    found = posterior(*STATES[state])
    found.counts[0, 0] = max(clicks + away * np.sqrt(clicks + 1), 0)
    found.beta[0, DUE] = 0
    prepare(found, 0)
    found.counts[0, 0] = clicks
    weigh(found, 0)  # and m stays
    return found


# Where enough of the scaled Beta lies below 1; elsewhere tangents take over.
BETA_STATES = ["no clicks", "a million displays", "theta near 0", "theta near 1", "one of each", "a hundred million displays"]


@pytest.mark.parametrize("away", [0, 2, -2])
@pytest.mark.parametrize("state", BETA_STATES)
def test_the_scaled_beta_draws_the_posterior_wherever_its_centre_is(state: str, away: float) -> None:
    assert kstest(draws(centred(state, away), 20_000, draw_beta), posterior_cdf(*STATES[state])).pvalue > LEVEL


@pytest.mark.parametrize("away", [0, 2, -2])
@pytest.mark.parametrize("state", STATES)
def test_posterior_over_scaled_beta_is_largest_at_the_centre_and_above_its_squeeze(state: str, away: float) -> None:
    found = centred(state, away)
    floor, m, shape, rho, far = (float(found.beta[0, row]) for row in (FLOOR, CENTRE, SHAPE, RHO, FAR))
    x = grid(m)

    def log_ratio(x: NDArray[np.float64]) -> NDArray[np.float64]:
        without_clicks = np.array([0, *found.counts[0, 1:]])
        return log_density(without_clicks, found.kappa, x) - (shape - 1) * np.log1p(-floor * x)

    ratio = log_ratio(x) - log_ratio(np.array([m]))
    rounding = 1e-14 * found.counts.sum() + 1e-9
    assert (ratio <= rounding).all()
    near = x <= far
    assert (np.exp(ratio[near] + rounding) >= 1 - 0.5 * rho * (x[near] - m) ** 2).all()


@pytest.mark.parametrize("state", ["no clicks", "theta near 0", "theta near 1", "one of each"])
def test_a_sampler_that_grew_with_its_counts_draws_the_same_distribution(state: str) -> None:
    """Display by display from the prior, so that both samplers take their turn and m follows late."""
    clicks, displays, kappa = STATES[state]
    found = prior(1, np.array(kappa), 1.0, 1.0)
    for i in range(max(displays)):
        for l, (s, n) in enumerate(zip(clicks, displays, strict=True)):
            if i < n:
                learn(found, 0, i < s, l)
    assert kstest(draws(found, 20_000), posterior_cdf(clicks, displays, kappa)).pvalue > LEVEL


def test_a_miss_that_moves_the_mode_far_moves_the_centre() -> None:
    """Two clicks where hardly anybody looks, then a miss where everybody does: with m left near 1, nothing would be accepted."""
    found = prior(1, np.array([1.0, 0.1781, 0.1012]), 1.0, 1.0)
    for clicked, l in ((True, 2), (True, 1), (False, 1), (False, 1), *((False, 2),) * 4, (False, 0)):
        learn(found, 0, clicked, l)
    assert found.counts[0].tolist() == [2, 1, 2, 4]
    assert kstest(draws(found, 20_000), posterior_cdf([0, 1, 1], [1, 3, 5], [1.0, 0.1781, 0.1012])).pvalue > LEVEL


def test_a_prior_is_clicks_and_misses_before_the_first() -> None:
    """Beta(3, 5) before anything is shown; and after a click at a half-examined position, Beta(4, 5)."""
    found = prior(1, np.array([0.5]), 3.0, 5.0)
    assert kstest(draws(found, 20_000), "beta", args=(3, 5)).pvalue > LEVEL
    learn(found, 0, True, 0)
    assert kstest(draws(found, 20_000), "beta", args=(4, 5)).pvalue > LEVEL
    assert kstest(draws(found, 20_000), "beta", args=(3, 5)).pvalue < LEVEL


def test_a_wrong_sampler_is_found_out() -> None:
    """The controls: the Beta of BC-MP-TS, five clicks too many, another posterior under the hull, every draw accepted."""
    clicks, displays, kappa = STATES["theta near 1"]
    exact = posterior_cdf(clicks, displays, kappa)
    seen = float(np.dot(displays, kappa))
    beta = np.random.default_rng(2).beta(sum(clicks) + 1, max(seen - sum(clicks), 0) + 1, 20_000)
    assert kstest(beta, exact).pvalue < LEVEL
    wrong = posterior(clicks, displays, kappa)
    for _ in range(5):
        learn(wrong, 0, True, 0)
    assert kstest(draws(wrong, 20_000), exact).pvalue < LEVEL
    other = posterior(clicks, displays, kappa)
    other.counts[0] = 0  # the hull stands, and the posterior under it is another
    assert kstest(draws(other, 20_000, draw_hull), exact).pvalue < LEVEL
    all_accepted = posterior(clicks, displays, kappa)
    all_accepted.beta[0, RHO] = 0  # the squeeze accepts everything
    assert kstest(draws(all_accepted, 20_000, draw_beta), exact).pvalue < LEVEL


@pytest.mark.parametrize("state", ["no clicks", "theta near 0", "theta near 1", "one of each"])
def test_the_papers_own_rejection_sampler_agrees(state: str) -> None:
    """Proposal Beta(S_m + 1, F_m + 1) / kappa_m of the most shown position m; the rest of the posterior decides."""
    clicks, displays, kappa = (np.array(values) for values in STATES[state])
    m = int(np.argmax(displays))
    others = np.arange(kappa.size) != m
    counts = np.array([clicks[others].sum(), *(displays - clicks)[others]], float)
    ceiling = log_density(counts, kappa[others], np.linspace(1e-6, 1 - 1e-6, 100_001)).max() + 1e-3
    rng = np.random.default_rng(3)
    kept: list[float] = []
    while len(kept) < 5000:
        x = rng.beta(clicks[m] + 1, (displays - clicks)[m] + 1, 100_000) / kappa[m]
        x = x[x < 1]
        kept += x[np.log(rng.random(x.size)) < log_density(counts, kappa[others], x) - ceiling].tolist()
    assert kstest(kept[:5000], draws(posterior(clicks, displays, kappa), 5000)).pvalue > LEVEL


@pytest.mark.parametrize("state", STATES)
def test_the_hull_lies_above_the_posterior_and_not_far(state: str) -> None:
    """Its mass over the posterior's: less than 1.35 in every state, or 26% refused."""
    found = posterior(*STATES[state])
    hull = found.hull[0]
    x = grid(hull[POINT, 1])
    logs = log_density(found.counts[0], found.kappa, x)
    logs -= log_density(found.counts[0], found.kappa, hull[POINT, 1:2])
    tangents = hull[HEIGHT, :, None] + hull[SLOPE, :, None] * (x - hull[POINT, :, None])
    size = 1e-14 * np.abs(found.counts).sum()  # rounding of sums of so many logarithms
    assert (tangents.min(axis=0) >= logs - 1e-9 - size).all()
    mass = np.trapezoid(np.exp(logs), x)
    assert np.trapezoid(np.exp(tangents.min(axis=0)), x) == pytest.approx(hull[MASS, -1], rel=1e-3)
    assert hull[MASS, -1] / mass < 1.35
