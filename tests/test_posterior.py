"""Exact draws: against a quadrature of the posterior and the paper's own sampler, with wrong samplers as controls."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import kstest

from bandits import bell
from bandits.bell import (
    CENTRE,
    CUBE,
    DEVIATION,
    DUE,
    FOURTH,
    LEFT,
    MIDDLE,
    ONE,
    RIGHT,
    SQUARE,
    USED,
    WIDTH,
    C,
    E,
    G,
    adapt,
    draw_from_bell,
    fit,
)
from bandits.hull import HEIGHT, MASS, POINT, SLOPE, cover, draw_from_hull, place
from bandits.thompson import Sampler, draw, learn, prepare, sampler
from tests.naive_policies import slow_derivatives

pytestmark = pytest.mark.long

STATES = {
    "never shown": ([0, 0, 0], [0, 0, 0], [0.9, 0.6, 0.3]),
    "no clicks": ([0, 0, 0], [50, 30, 10], [1.0, 0.5, 0.2]),
    "all clicks": ([20, 10, 5], [20, 10, 5], [0.9, 0.6, 0.3]),
    "all clicks, one position": ([30], [30], [1.0]),
    "a million displays": ([30_000, 9_000, 2_000], [600_000, 300_000, 100_000], [1.0, 0.47, 0.33]),
    "kappa tiny": ([1, 0, 0], [100, 2000, 5000], [0.02, 0.01, 0.001]),
    "theta near 0": ([1, 0, 0], [5000, 3000, 1000], [1.0, 0.5, 0.3]),
    "theta near 1": ([88, 55, 29], [100, 100, 100], [0.9, 0.6, 0.3]),
    "a few clicks": ([3, 1, 0], [40, 40, 60], [1.0, 0.47, 0.33]),
    "some hundred displays": ([30, 12, 4], [100, 60, 30], [0.9, 0.6, 0.3]),
    "theta near 1, many displays": ([4_200, 1_400, 1_350], [5_000, 2_500, 5_000], [0.9, 0.6, 0.3]),
    "one of each": ([1, 0, 0], [1, 1, 0], [0.9, 0.6, 0.3]),
    "a hundred million displays": ([27_000_000, 9_000_000], [60_000_000, 40_000_000], [0.9, 0.45]),
}
LEVEL = 1e-4  # false alarm of each Kolmogorov-Smirnov test; the seeds are fixed


def made(clicks: Any, displays: Any, kappa: Any) -> Sampler:
    """One arm with these counts, bell and hull made for them."""
    found = sampler(1, np.array(kappa, float), 1.0, 1.0)
    found.posteriors.counts[0] = [sum(clicks), *(np.array(displays) - np.array(clicks))]
    found.bells.numbers[0, DUE] = 0
    prepare(found, 0)
    place(found.posteriors, found.hulls, 0)
    cover(found.hulls, 0)
    return found


def from_bell(found: Sampler, k: int, rng: np.random.Generator) -> float:
    return float(draw_from_bell(found.posteriors, found.bells, k, rng))


def from_hull(found: Sampler, k: int, rng: np.random.Generator) -> float:
    return float(draw_from_hull(found.posteriors, found.hulls, k, rng))


def draws(found: Sampler, n: int, how: Callable[..., float] = draw) -> NDArray[np.float64]:
    rng = np.random.default_rng(1)
    return np.array([how(found, 0, rng) for _ in range(n)])


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


@pytest.mark.parametrize("how", [draw, from_hull])
@pytest.mark.parametrize("state", STATES)
def test_thompson_draws_have_the_posteriors_distribution(state: str, how: Callable[..., float]) -> None:
    assert kstest(draws(made(*STATES[state]), 20_000, how), posterior_cdf(*STATES[state])).pvalue > LEVEL


# Where a bell fits, and by how many standard deviations its centre may be off; elsewhere tangents take over.
OFF = {
    "a million displays": (0, 1, -1),
    "kappa tiny": (0, 1),
    "theta near 0": (0, 1),
    "a few clicks": (0, 1, -1),
    "some hundred displays": (0, 1, -1),
    "theta near 1, many displays": (0, 1, -1),
    "a hundred million displays": (0, 1, -1),
}
CENTRED = [(state, away) for state in OFF for away in OFF[state]]


def centred(state: str, away: float) -> Sampler:
    """The bell was put where it would be with so many standard deviations more clicks."""
    found = made(*STATES[state])
    clicks = found.posteriors.counts[0, 0]
    found.posteriors.counts[0, 0] = max(clicks + away * np.sqrt(clicks + 1), 0)
    found.bells.numbers[0, DUE] = 0
    adapt(found.posteriors, found.bells, 0)
    found.bells.sums[0] += (clicks - found.posteriors.counts[0, 0]) * found.bells.weights[0, 0]
    found.posteriors.counts[0, 0] = clicks
    assert fit(found.bells, 0)
    return found


def test_bells_are_used_where_they_are_said_to_fit() -> None:
    assert [state for state in STATES if made(*STATES[state]).bells.numbers[0, USED]] == list(OFF)


@pytest.mark.parametrize(("state", "away"), CENTRED)
def test_a_bell_draws_the_posterior_wherever_its_centre_is(state: str, away: float) -> None:
    assert kstest(draws(centred(state, away), 20_000, from_bell), posterior_cdf(*STATES[state])).pvalue > LEVEL


def log_h(found: Sampler, y: NDArray[np.float64]) -> NDArray[np.float64]:
    """log h(y) - log h(0), from the posterior at x = m (1 + y)^3."""
    m, counts, kappa = found.bells.numbers[0, CENTRE], found.posteriors.counts[0], found.posteriors.kappa
    top = log_density(counts, kappa, np.array([m]))
    return np.asarray(log_density(counts, kappa, m * (1 + y) ** 3) - top + 2 * np.log1p(y))


def rounding(found: Sampler) -> float:
    """Of a sum of so many logarithms."""
    return float(1e-14 * np.abs(found.posteriors.counts).sum() + 1e-9)


@pytest.mark.parametrize(("state", "away"), CENTRED)
def test_the_posterior_lies_between_the_bell_and_its_squeeze_and_below_the_tails(state: str, away: float) -> None:
    found = centred(state, away)
    numbers, sums = found.bells.numbers[0], found.bells.sums[0]
    w, one = numbers[WIDTH], numbers[ONE]
    y = np.linspace(-w, min(w, one - 1e-12), 10_001)
    top = 0.5 * (numbers[MIDDLE] ** 2 - (y - numbers[MIDDLE]) ** 2) / numbers[DEVIATION] ** 2
    ratio = log_h(found, y) - top
    assert (ratio <= rounding(found)).all()
    squeeze = 1 - y**2 * (numbers[SQUARE] + numbers[CUBE] * y + numbers[FOURTH] * y**2)
    assert (np.exp(ratio + rounding(found)) >= squeeze).all()
    assert np.average(np.maximum(squeeze, 0), weights=np.exp(top)) > 0.5  # it does its work
    for side, fall, end in ((-1, sums[LEFT], 1.0), (1, sums[RIGHT], one)):
        at_end = log_h(found, np.array([side * w]))[0]
        beyond = np.linspace(0, end - w, 10_001)[:-1]
        assert (log_h(found, side * (w + beyond)) <= at_end - fall * beyond + rounding(found)).all()


@pytest.mark.parametrize("state", OFF)
def test_the_sums_of_a_bell_are_derivatives(state: str) -> None:
    found = made(*STATES[state])
    sums, m, w = found.bells.sums[0], found.bells.numbers[0, CENTRE], found.bells.numbers[0, WIDTH]
    clicks, *missed = found.posteriors.counts[0].tolist()
    kappa = found.posteriors.kappa.tolist()
    first, second, third, _ = slow_derivatives(clicks, missed, kappa, m)
    size = 1e-12 * found.posteriors.counts.sum()
    assert (sums[G], sums[C], sums[E]) == pytest.approx((first, -second, -third), rel=1e-9, abs=size)
    left, right = (slow_derivatives(clicks, missed, kappa, m * u**3)[0] / u for u in (1 - w, 1 + w))
    assert (sums[LEFT], sums[RIGHT]) == pytest.approx((left, -right), rel=1e-9)


class Scripted:
    """A generator that says what it was told to."""

    def __init__(self, *tosses: float, normal: float = 0.0, exponential: float = 0.0) -> None:
        self.tosses, self.normal, self.exponential = iter(tosses), normal, exponential

    def random(self) -> float:
        return next(self.tosses)

    def standard_normal(self) -> float:
        return self.normal

    def standard_exponential(self) -> float:
        return self.exponential


def accepted(found: Sampler, script: Callable[[float], Scripted]) -> float:
    """How much of the tosses in (0, 1) is accepted, by bisection: a refused proposal asks for more tosses than there are."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        try:
            draw_from_bell.py_func(found.posteriors, found.bells, 0, script(middle))
            low = middle
        except StopIteration:
            high = middle
    return low


def density_over_posterior(found: Sampler) -> NDArray[np.float64]:
    """What the bell's sampler returns, over h, at points of the bell and of both tails: density proposed times share accepted."""
    numbers, sums = found.bells.numbers[0], found.bells.sums[0]
    in_a_tail = bell.IN_A_TAIL
    y, density = [], []

    def in_bell(z: float, u: float) -> Scripted:
        return Scripted(2 * in_a_tail + u * (1 - 2 * in_a_tail), normal=z)

    for z in (-2.0, -1.0, 0.0, 0.5, 1.0, 2.0):
        y.append(numbers[MIDDLE] + numbers[DEVIATION] * z)
        share = accepted(found, partial(in_bell, z))
        density.append((1 - 2 * in_a_tail) * np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi) / numbers[DEVIATION] * share)
    for side, fall, toss in ((-1, sums[LEFT], 0.5 * in_a_tail), (1, sums[RIGHT], 1.5 * in_a_tail)):
        for e in (0.1, 1.0, 2.0):
            y.append(side * (numbers[WIDTH] + e / fall))
            share = accepted(found, partial(Scripted, toss, exponential=e))
            density.append(in_a_tail * fall * np.exp(-e) * share)
    return np.asarray(np.array(density) / np.exp(log_h(found, np.array(y))))


@pytest.mark.parametrize(("state", "away"), CENTRED)
def test_bell_and_tails_return_the_posterior_to_rounding(state: str, away: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample hardly tells a tail that is 2% too heavy, or a bell from the posterior: proposal times acceptance does."""
    found = centred(state, away)
    assert np.ptp(np.log(density_over_posterior(found))) < 1e-6
    monkeypatch.setattr(bell, "IN_A_TAIL", bell.TAIL)  # the control: tails proposed as if the bell's share were 1
    assert np.ptp(np.log(density_over_posterior(found))) > 1e-2


def test_a_squeeze_that_accepts_everything_is_found_out() -> None:
    found = made(*STATES["theta near 0"])
    found.bells.numbers[0, [SQUARE, CUBE, FOURTH]] = 0
    assert np.ptp(np.log(density_over_posterior(found))) > 1e-2


@pytest.mark.parametrize("state", ["no clicks", "theta near 0", "theta near 1", "one of each"])
def test_a_sampler_that_grew_with_its_counts_draws_the_same_distribution(state: str) -> None:
    """Display by display from the prior, so that hull and bell take their turn and m follows late."""
    clicks, displays, kappa = STATES[state]
    found = sampler(1, np.array(kappa), 1.0, 1.0)
    for i in range(max(displays)):
        for l, (s, n) in enumerate(zip(clicks, displays, strict=True)):
            if i < n:
                learn(found, 0, l, i < s)
    assert kstest(draws(found, 20_000), posterior_cdf(clicks, displays, kappa)).pvalue > LEVEL


def test_a_miss_that_moves_the_mode_far_moves_the_centre() -> None:
    """Two clicks where hardly anybody looks, then a miss where everybody does: with m left near 1, nothing would be accepted."""
    found = sampler(1, np.array([1.0, 0.1781, 0.1012]), 1.0, 1.0)
    for clicked, l in ((True, 2), (True, 1), (False, 1), (False, 1), *((False, 2),) * 4, (False, 0)):
        learn(found, 0, l, clicked)
    assert found.posteriors.counts[0].tolist() == [2, 1, 2, 4]
    assert kstest(draws(found, 20_000), posterior_cdf([0, 1, 1], [1, 3, 5], [1.0, 0.1781, 0.1012])).pvalue > LEVEL


def test_a_prior_is_clicks_and_misses_before_the_first() -> None:
    """Beta(3, 5) before anything is shown; and after a click at a half-examined position, Beta(4, 5)."""
    found = sampler(1, np.array([0.5]), 3.0, 5.0)
    assert kstest(draws(found, 20_000), "beta", args=(3, 5)).pvalue > LEVEL
    learn(found, 0, 0, True)
    assert kstest(draws(found, 20_000), "beta", args=(4, 5)).pvalue > LEVEL
    assert kstest(draws(found, 20_000), "beta", args=(3, 5)).pvalue < LEVEL


def test_a_wrong_sampler_is_found_out() -> None:
    """The controls: the Beta of BC-MP-TS, five clicks too many, another posterior under the hull."""
    clicks, displays, kappa = STATES["theta near 1"]
    exact = posterior_cdf(clicks, displays, kappa)
    seen = float(np.dot(displays, kappa))
    beta = np.random.default_rng(2).beta(sum(clicks) + 1, max(seen - sum(clicks), 0) + 1, 20_000)
    assert kstest(beta, exact).pvalue < LEVEL
    wrong = made(clicks, displays, kappa)
    for _ in range(5):
        learn(wrong, 0, 0, True)
    assert kstest(draws(wrong, 20_000), exact).pvalue < LEVEL
    other = made(clicks, displays, kappa)
    other.posteriors.counts[0] = 0  # the hull stands, and the posterior under it is another
    assert kstest(draws(other, 20_000, from_hull), exact).pvalue < LEVEL


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
    assert kstest(kept[:5000], draws(made(clicks, displays, kappa), 5000)).pvalue > LEVEL


@pytest.mark.parametrize("state", STATES)
def test_the_hull_lies_above_the_posterior_and_not_far(state: str) -> None:
    """Its mass over the posterior's: less than 1.35 in every state, or 26% refused."""
    found = made(*STATES[state])
    hull, counts, kappa = found.hulls[0], found.posteriors.counts[0], found.posteriors.kappa
    x = grid(hull[POINT, 1])
    logs = log_density(counts, kappa, x) - log_density(counts, kappa, hull[POINT, 1:2])
    tangents = hull[HEIGHT, :, None] + hull[SLOPE, :, None] * (x - hull[POINT, :, None])
    assert (tangents.min(axis=0) >= logs - rounding(found)).all()
    mass = np.trapezoid(np.exp(logs), x)
    assert np.trapezoid(np.exp(tangents.min(axis=0)), x) == pytest.approx(hull[MASS, -1], rel=1e-3)
    assert hull[MASS, -1] / mass < 1.35
