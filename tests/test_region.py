"""The confidence region of Eq. 7: the cost, its slope, the index and membership, against scipy and the definition."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bandits.kl import kl
from bandits.region import Region, cost, curvature, first_guess, learn, look_at, nothing_seen, reaches, slope, upper
from tests.naive_policies import slow_cost, slow_kl, slow_kl_ucb, slow_upper

pytestmark = pytest.mark.long


def region_of(clicks: Any, displays: Any, kappa: Any) -> Region:
    """One arm with these counts."""
    region = nothing_seen(1, np.array(kappa, float))
    for l, (s, n) in enumerate(zip(clicks, displays, strict=True)):
        for i in range(n):
            learn(region, 0, l, i < s)
    return region


def index_of(region: Region, k: int, delta: float) -> float:
    return float(upper(region, k, delta, first_guess(region, k, delta)))


@st.composite
def arm(draw_from: st.DrawFn) -> tuple[list[int], list[int], list[float], float]:
    """Clicks, displays, kappa (1 included) and delta of an arm; positions never shown, no clicks, all clicks."""
    n_positions = draw_from(st.integers(1, 4))
    displays = [draw_from(st.sampled_from([0, 1, 3, 20, 1000])) for _ in range(n_positions)]
    clicks = [draw_from(st.integers(0, n)) for n in displays]
    kappa = sorted([draw_from(st.sampled_from([1.0, 0.9, 0.5, 0.1, 0.01])) for _ in range(n_positions)], reverse=True)
    return clicks, displays, kappa, draw_from(st.floats(0.01, 20))


def rounding(displays: list[int]) -> float:
    """Of a cost that is a difference of sums of N log terms: 1e-16 each, logs up to 10, with room for their number."""
    return 1e-14 * (10 + sum(displays))


@given(st.floats(0, 1), st.floats(0, 1))
def test_the_divergence_is_its_definition(p: float, q: float) -> None:
    assert kl(p, q) == pytest.approx(slow_kl(p, q), rel=1e-12, abs=1e-300)


@settings(max_examples=500)
@given(arm(), st.floats(0.001, 0.999))
def test_the_cost_and_its_derivatives_are_those_of_the_definition(state: Any, q: float) -> None:
    clicks, displays, kappa, _ = state
    region = region_of(clicks, displays, kappa)
    log_q = look_at(region, q)
    assert cost(region, 0, log_q) == pytest.approx(slow_cost(clicks, displays, kappa, q), abs=rounding(displays))
    terms = [(n * k * q - s) / (1 - k * q) for s, n, k in zip(clicks, displays, kappa, strict=True)]
    assert slope(region, 0) == pytest.approx(sum(terms), rel=1e-9, abs=1e-9)
    seconds = [s + (n - s) * (k * q / (1 - k * q)) ** 2 for s, n, k in zip(clicks, displays, kappa, strict=True)]
    assert curvature(region, 0) == pytest.approx(sum(seconds), rel=1e-12)


@settings(max_examples=600)
@given(arm())
def test_the_index_of_pie_is_scipys_root(state: Any) -> None:
    clicks, displays, kappa, delta = state
    theta_min, slow = slow_upper(clicks, displays, kappa, delta)
    tolerance = 1e-5 if slow == theta_min else 1e-7  # the minimum of a flat function is only found to the root of rounding
    region = region_of(clicks, displays, kappa)
    for guess in (first_guess(region, 0, delta), 0.5, slow, 0.001, 0.999):
        assert upper(region, 0, delta, guess) == pytest.approx(slow, abs=tolerance)


@given(st.integers(0, 40), st.integers(0, 4000), st.floats(1e-3, 50))
def test_kl_ucb_is_the_index_of_one_position_that_is_always_examined(rewards: int, missed: int, budget: float) -> None:
    pulls = rewards + missed
    if pulls:
        index = index_of(region_of([rewards], [pulls], [1.0]), 0, budget)
        assert index == pytest.approx(slow_kl_ucb(rewards, pulls, budget), rel=1e-9, abs=1e-12)


@settings(max_examples=3000)
@given(arm(), st.floats(0, 1))
def test_membership_without_a_root_is_membership(state: Any, bar: float) -> None:
    clicks, displays, kappa, delta = state
    region = region_of(clicks, displays, kappa)
    index = slow_upper(clicks, displays, kappa, delta)[1]
    if abs(index - bar) > 1e-5 and bar > 0:  # nearer, scipy's minimum is too rough to tell
        assert reaches(region, 0, look_at(region, bar), delta) == (index >= bar)


def test_an_empty_region_has_its_least_costly_point_as_index() -> None:
    """Clicks at every display of position 1 and at none of position 2, kappa equal: no q explains both."""
    region = region_of([1000, 0], [1000, 1000], [1.0, 1.0])
    least = slow_cost([1000, 0], [1000, 1000], [1.0, 1.0], 0.5)
    assert least > 10
    assert index_of(region, 0, 10.0) == pytest.approx(0.5, abs=1e-9)
    assert reaches(region, 0, look_at(region, 0.4999), 10.0)
    assert not reaches(region, 0, look_at(region, 0.5001), 10.0)


def test_equal_counts_have_equal_indices_to_the_last_bit() -> None:
    """Whatever was looked at before: ties are ties."""
    region = nothing_seen(2, np.array([1.0, 0.4]))
    for k in (0, 1):
        for i in range(300):
            learn(region, k, i % 2, i % 7 == 0)
    first = index_of(region, 0, 6.0)
    look_at(region, 0.123)
    assert index_of(region, 1, 6.0) == first


def test_an_arm_never_shown_can_be_anything() -> None:
    assert index_of(nothing_seen(1, np.array([1.0, 0.5])), 0, 0.5) == 1.0
    assert math.isinf(slow_cost([1], [1], [1.0], 0.0))
