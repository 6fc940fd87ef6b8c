"""Every policy to the formula: indices against root finding, draws against quadrature, trajectories against plain Python."""

import hashlib
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize_scalar
from scipy.stats import kstest

from bandits import bounds
from bandits.fresh import drop_stale_kernels
from bandits.kl import kl, kl_upper
from bandits.play import play
from bandits.policies import POLICIES
from bandits.posterior import build_hull, draw, empty_hulls
from bandits.ranking import top
from bandits.region import challenges, cost, upper
from bandits.simulate import Player, checkpoints, generator, regret_of_run, simulate, worlds_of_runs
from bandits.world import World, WorldError, world
from pipeline.published import MODELS

SYNTHETIC = world([0.45, 0.35, 0.25, 0.15, 0.05], [0.9, 0.6, 0.3])
HIGH = world([0.95, 0.85, 0.75, 0.65, 0.55], [0.9, 0.6, 0.3])
ROOT = Path(__file__).parent.parent


def player(name: str, **parameters: float) -> Player:
    policy = POLICIES[name]
    return Player(policy, {**policy.parameters, **parameters}, name)


# --- the divergence, and KL-UCB


def slow_kl(p: float, q: float) -> float:
    first = 0.0 if p == 0 else math.inf if q == 0 else p * math.log(p / q)
    second = 0.0 if p == 1 else math.inf if q == 1 else (1 - p) * math.log((1 - p) / (1 - q))
    return first + second


@given(st.floats(0, 1), st.floats(0, 1))
def test_the_divergence_is_its_definition(p: float, q: float) -> None:
    assert kl(p, q) == pytest.approx(slow_kl(p, q), rel=1e-12, abs=1e-300)


@given(st.floats(0, 1), st.floats(1e-8, 50))
def test_kl_ucb_is_the_root_that_bisection_finds(mean: float, budget: float) -> None:
    q = kl_upper(mean, budget)
    low, high = mean, 1.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if slow_kl(mean, middle) <= budget else (low, middle)
    assert q == pytest.approx(low, rel=1e-9, abs=1e-12)


# --- the region of PBM-PIE


@st.composite
def arm(draw_from: st.DrawFn) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], float]:
    """Clicks, displays, kappa (1 included) and delta of an arm; positions never shown, no clicks, all clicks."""
    n_positions = draw_from(st.integers(1, 4))
    displays = [draw_from(st.sampled_from([0, 1, 3, 20, 1000])) for _ in range(n_positions)]
    clicks = [draw_from(st.integers(0, n)) for n in displays]
    kappa = sorted([draw_from(st.sampled_from([1.0, 0.9, 0.5, 0.1, 0.01])) for _ in range(n_positions)], reverse=True)
    return np.array(clicks), np.array(displays), np.array(kappa), draw_from(st.floats(0.01, 20))


def slow_cost(clicks: Any, displays: Any, kappa: Any, q: float) -> float:
    return float(sum(n * slow_kl(s / n, k * q) for s, n, k in zip(clicks, displays, kappa, strict=True) if n))


def slow_upper(clicks: Any, displays: Any, kappa: Any, delta: float) -> tuple[float, float]:
    """theta_min and the index, by scipy."""
    if not sum(displays):
        return 1.0, 1.0
    smallest = minimize_scalar(
        lambda q: slow_cost(clicks, displays, kappa, q), bounds=(0, 1), method="bounded", options={"xatol": 1e-12}
    )
    ends = [(slow_cost(clicks, displays, kappa, q), q) for q in (0.0, 1.0, float(smallest.x))]
    least, theta_min = min(ends)
    if least > delta:
        return theta_min, theta_min
    if slow_cost(clicks, displays, kappa, 1.0) <= delta:
        return theta_min, 1.0
    high = 1.0
    while math.isinf(slow_cost(clicks, displays, kappa, high)):
        high = theta_min + (high - theta_min) * (1 - 1e-9) if high == 1.0 else high - 1e-12
    return theta_min, float(brentq(lambda q: slow_cost(clicks, displays, kappa, q) - delta, theta_min, high, xtol=1e-14))


@settings(max_examples=400)
@given(arm())
def test_the_index_of_pie_is_scipys_root(state: Any) -> None:
    clicks, displays, kappa, delta = state
    assert cost(clicks, displays, kappa, 0.37) == pytest.approx(slow_cost(clicks, displays, kappa, 0.37), rel=1e-9)
    theta_min, slow = slow_upper(clicks, displays, kappa, delta)
    tolerance = 1e-5 if slow == theta_min else 1e-7  # the minimum of a flat function is only found to the root of rounding
    for guess in (0.5, slow, 0.001, 0.999):
        assert upper(clicks, displays, kappa, delta, guess) == pytest.approx(slow, abs=tolerance)


@settings(max_examples=1000)
@given(arm(), st.floats(0, 1))
def test_membership_without_a_root_is_membership(state: Any, bar: float) -> None:
    clicks, displays, kappa, delta = state
    index = upper(clicks, displays, kappa, delta, 0.5)
    if abs(index - bar) > 1e-6:  # nearer, the two round differently
        assert challenges(clicks, displays, kappa, bar, delta) == (index >= bar)


# --- the exact posterior

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
}


def draws(clicks: Any, displays: Any, kappa: Any, n: int, seed: int = 1) -> NDArray[np.float64]:
    hull, missed = empty_hulls(1)[0], np.array(displays) - np.array(clicks)
    build_hull(sum(clicks), missed, np.array(kappa), hull)
    rng = np.random.default_rng(seed)
    return np.array([draw(sum(clicks), missed, np.array(kappa), hull, rng) for _ in range(n)])


def posterior_cdf(clicks: Any, displays: Any, kappa: Any) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    """By the trapezium rule on a grid that is fine where the mass is."""
    s, f, k = sum(clicks), np.array(displays) - np.array(clicks), np.array(kappa)
    x = np.unique(np.concatenate([np.linspace(0, 1, 200_001), np.geomspace(1e-9, 1, 100_000)]))[1:-1]

    def log_density(x: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(s * np.log(x) + (f * np.log1p(-np.outer(x, k))).sum(axis=1))

    centre = x[np.argmax(log_density(x))]
    x = np.unique(np.concatenate([x, np.clip(centre + np.linspace(-0.01, 0.01, 200_001), 1e-12, 1 - 1e-12)]))
    density = np.exp(log_density(x) - log_density(np.array([centre])))
    mass = np.concatenate([[0], np.cumsum(np.diff(x) * (density[1:] + density[:-1]) / 2)])
    return lambda at: np.interp(at, x, mass / mass[-1])


LEVEL = 1e-4  # false alarm of each Kolmogorov-Smirnov test; the seeds are fixed


@pytest.mark.parametrize("state", STATES)
def test_thompson_draws_have_the_posteriors_distribution(state: str) -> None:
    assert kstest(draws(*STATES[state], 20_000), posterior_cdf(*STATES[state])).pvalue > LEVEL


def test_a_wrong_sampler_is_found_out() -> None:
    """The control: the Beta of BC-MP-TS where theta is near 1, and the posterior without the prior's +1."""
    clicks, displays, kappa = STATES["theta near 1"]
    seen = float(np.dot(displays, kappa))
    beta = np.random.default_rng(2).beta(sum(clicks) + 1, max(seen - sum(clicks), 0) + 1, 20_000)
    assert kstest(beta, posterior_cdf(clicks, displays, kappa)).pvalue < LEVEL
    shifted = draws(
        [s + 1 if l == 0 else s for l, s in enumerate(clicks)], [n + (l == 0) for l, n in enumerate(displays)], kappa, 20_000
    )
    assert kstest(shifted, posterior_cdf(clicks, displays, kappa)).pvalue < 0.05


@pytest.mark.parametrize("state", ["no clicks", "theta near 0", "theta near 1", "one of each"])
def test_the_papers_own_rejection_sampler_agrees(state: str) -> None:
    """Proposal Beta(S_m + 1, F_m + 1) / kappa_m of the most shown position m; the rest of the posterior decides."""
    clicks, displays, kappa = (np.array(values) for values in STATES[state])
    m = int(np.argmax(displays))
    others = np.arange(kappa.size) != m
    s, f = clicks[others].sum(), (displays - clicks)[others]

    def rest(x: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(s * np.log(x) + (f * np.log1p(-np.outer(x, kappa[others]))).sum(axis=1))

    grid = np.linspace(1e-6, 1 - 1e-6, 100_001)
    ceiling = rest(grid).max() + 1e-3
    rng = np.random.default_rng(3)
    kept: list[float] = []
    while len(kept) < 5000:
        x = rng.beta(clicks[m] + 1, (displays - clicks)[m] + 1, 100_000) / kappa[m]
        x = x[x < 1]
        kept += x[np.log(rng.random(x.size)) < rest(x) - ceiling].tolist()
    assert kstest(kept[:5000], draws(clicks, displays, kappa, 5000)).pvalue > LEVEL


def test_most_proposals_are_accepted() -> None:
    """The hull's mass over the posterior's: less than 1.35 in every state, or 26% rejected."""
    for clicks, displays, kappa in STATES.values():
        hull, missed = empty_hulls(1)[0], np.array(displays) - np.array(clicks)
        build_hull(sum(clicks), missed, np.array(kappa), hull)
        x = np.unique(
            np.concatenate([np.linspace(0, 1, 400_001), np.clip(hull[0, 1] + np.linspace(-0.01, 0.01, 100_001), 0, 1)])
        )[1:-1]
        log_density = sum(clicks) * np.log(x) + (missed * np.log1p(-np.outer(x, kappa))).sum(axis=1)
        middle = sum(clicks) * np.log(hull[0, 1]) + (missed * np.log1p(-hull[0, 1] * np.array(kappa))).sum()
        mass = np.trapezoid(np.exp(log_density - middle), x)
        assert hull[4, -1] / mass < 1.35


# --- ranking and trajectories


@given(st.lists(st.sampled_from([0.1, 0.2, 0.3, -math.inf, math.inf]), min_size=1, max_size=8), st.integers(1, 8))
def test_the_top_arms_are_sorted_and_ties_go_to_the_lower_number(index: list[float], n_positions: int) -> None:
    action = np.zeros(min(n_positions, len(index)), np.int64)
    top(np.array(index), action)
    assert action.tolist() == sorted(range(len(index)), key=lambda k: (-index[k], k))[: action.size]


class Naive:
    """The policies in plain Python, by their definitions; they toss the same coins in the same order."""

    def __init__(self, name: str, n_arms: int, kappa: list[float]) -> None:
        self.name, self.kappa, self.arms, self.positions = name, kappa, range(n_arms), range(len(kappa))
        self.s = [[0] * len(kappa) for _ in self.arms]
        self.n = [[0] * len(kappa) for _ in self.arms]
        self.rewards = [[0] * n_arms for _ in self.positions]
        self.pulls = [[0] * n_arms for _ in self.positions]
        self.picks = [0] * len(kappa)

    def best(self, index: list[float]) -> list[int]:
        return sorted(self.arms, key=lambda k: (-index[k], k))[: len(self.kappa)]

    def choose(self, t: int, rng: np.random.Generator) -> list[int]:
        n_arms = len(self.arms)
        seen = [sum(k * n for k, n in zip(self.kappa, self.n[a], strict=True)) for a in self.arms]
        if self.name == "bc-mp-ts":
            return self.best([rng.beta(sum(self.s[k]) + 1.0, max(seen[k] - sum(self.s[k]), 0.0) + 1.0) for k in self.arms])
        if t <= n_arms:
            self.picks = [(t - 1 + l) % n_arms for l in self.positions]
            return list(self.picks)
        if self.name == "pbm-ucb":
            return self.best(
                [
                    sum(self.s[k]) / seen[k] + math.sqrt(sum(self.n[k]) / seen[k]) * math.sqrt(math.log(t) / (2 * seen[k]))
                    for k in self.arms
                ]
            )
        if self.name == "pbm-kl-ucb":
            return self.best([slow_upper(self.s[k], self.n[k], self.kappa, math.log(t))[1] for k in self.arms])
        if self.name == "pbm-pie":
            estimate = [sum(self.s[k]) / seen[k] for k in self.arms]
            leaders = self.best(estimate)
            if rng.random() < 0.5:
                bar = estimate[leaders[-1]]
                explorable = [
                    k
                    for k in self.arms
                    if k not in leaders and slow_upper(self.s[k], self.n[k], self.kappa, math.log(t))[1] >= bar
                ]
                if explorable:
                    leaders[-1] = explorable[int(rng.random() * len(explorable))]
            return leaders
        action: list[int] = []
        for l in self.positions:
            index = [kl_upper(r / m, math.log(t) / m) for r, m in zip(self.rewards[l], self.pulls[l], strict=True)]
            winner = max(self.arms, key=lambda k: (index[k], k == self.picks[l], -k))  # used at once
            self.picks[l] = winner
            if winner in action:
                free = [k for k in self.arms if k not in action]
                winner = free[int(rng.random() * len(free))]
            action.append(winner)
        return action

    def observe(self, action: list[int], clicked: list[bool]) -> None:
        for l, k in enumerate(action):
            self.n[k][l] += 1
            self.s[k][l] += clicked[l]
            self.pulls[l][self.picks[l]] += 1
            self.rewards[l][self.picks[l]] += k == self.picks[l] and clicked[l]


def naive_regret(name: str, theta: list[float], kappa: list[float], horizon: int, rng: np.random.Generator) -> list[float]:
    policy = Naive(name, len(theta), kappa)
    best = sum(k * t for k, t in zip(kappa, sorted(theta, reverse=True), strict=False))
    total, regret = 0.0, []
    for t in range(1, horizon + 1):
        action = policy.choose(t, rng)
        p = [k * theta[a] for k, a in zip(kappa, action, strict=True)]
        clicked = [bool(rng.random() < q) for q in p]
        policy.observe(action, clicked)
        total += best - sum(p)
        regret.append(total)
    return regret


@pytest.mark.parametrize("name", ["pbm-ucb", "pbm-pie", "bc-mp-ts", "rba-kl-ucb", "pbm-kl-ucb"])
def test_a_whole_trajectory_is_the_plain_one(name: str) -> None:
    horizon = 400
    rounds = np.arange(1, horizon + 1)
    for seed in range(3):
        rng = np.random.default_rng(seed)
        regret = np.empty(horizon)
        play(
            player(name).policy.start(5, SYNTHETIC.kappa, **player(name).parameters),
            SYNTHETIC.theta,
            SYNTHETIC.kappa,
            rounds,
            rng,
            regret,
        )
        slow = naive_regret(name, SYNTHETIC.theta.tolist(), SYNTHETIC.kappa.tolist(), horizon, np.random.default_rng(seed))
        np.testing.assert_allclose(regret, slow, rtol=1e-9, atol=1e-12)


FINGERPRINTS = """
import numpy as np, hashlib
from tests.test_bandits import SYNTHETIC, player
from bandits.simulate import regret_of_run
for name in {names}:
    regret = regret_of_run(player(name), SYNTHETIC, np.arange(1, 301), 0, 0)
    print(name, hashlib.sha256(regret.tobytes()).hexdigest())
"""
NAMES = tuple(POLICIES)


def test_compiled_and_interpreted_runs_are_identical() -> None:
    code = FINGERPRINTS.format(names=NAMES)
    interpreted = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
    ).stdout
    compiled = [
        f"{name} {hashlib.sha256(regret_of_run(player(name), SYNTHETIC, np.arange(1, 301), 0, 0).tobytes()).hexdigest()}"
        for name in NAMES
    ]
    assert interpreted.splitlines() == compiled


# --- regret


@pytest.fixture(scope="module")
def published_regret() -> dict[str, NDArray[np.float64]]:
    """Final regrets at T = 10^4, 40 runs on the published models."""
    worlds = [world(model.theta, model.kappa) for model in MODELS]
    chosen = worlds_of_runs(len(worlds), 40, 0)
    names = ("oracle", "uniform", "pbm-ucb", "pbm-pie", "pbm-ts", "rba-kl-ucb")
    return {name: simulate(player(name), worlds, chosen, np.array([10_000]), 0, 2, lambda done: None)[:, 0] for name in names}


def test_the_yardsticks_are_what_they_say(published_regret: dict[str, NDArray[np.float64]]) -> None:
    assert np.abs(published_regret["oracle"]).max() < 1e-8  # rounding of 10^4 sums
    regret = simulate(player("uniform"), [SYNTHETIC], np.zeros(50, np.int64), np.array([1000]), 0, 2, lambda done: None)[:, 0]
    expected = 1000 * (0.9 * 0.45 + 0.6 * 0.35 + 0.3 * 0.25 - 0.25 * 1.8)  # every arm equally often everywhere
    assert abs(regret.mean() - expected) < 4.5 * regret.std() / np.sqrt(50)


def test_the_order_is_the_papers(published_regret: dict[str, NDArray[np.float64]]) -> None:
    """Differences of means on the same worlds, each more than three standard errors from 0."""

    def above(worse: str, better: str) -> float:
        difference = published_regret[worse] - published_regret[better]
        return float(difference.mean() / (difference.std() / np.sqrt(difference.size)))

    for better in ("pbm-ts", "pbm-pie"):
        assert above("rba-kl-ucb", better) > 3
        assert above("pbm-ucb", better) > 3
    assert above("pbm-ucb", "rba-kl-ucb") > 3
    assert above("uniform", "pbm-ucb") > 3


def test_runs_do_not_depend_on_threads_or_on_other_runs() -> None:
    chosen = np.zeros(6, np.int64)
    rounds = checkpoints(500)
    one, two = (simulate(player("pbm-ts"), [SYNTHETIC], chosen, rounds, 3, threads, lambda done: None) for threads in (1, 2))
    np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(one[4], regret_of_run(player("pbm-ts"), SYNTHETIC, rounds, 3, 4))
    assert not np.array_equal(one[4], one[3])
    assert generator(0, 1, "a").random() != generator(0, 1, "b").random()


def test_a_second_start_compiles_nothing() -> None:
    """In a new process every specialisation of the loop comes from the cache."""
    code = FINGERPRINTS.format(names=NAMES) + "\nfrom bandits.play import play\nprint(sum(play.stats.cache_misses.values()))"
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout
        for _ in range(2)
    ]
    assert runs[1].splitlines()[-1] == "0"


def test_kernels_older_than_a_source_are_dropped(tmp_path: Path) -> None:
    kernel, source = tmp_path / "__pycache__" / "x.nbi", tmp_path / "policy.py"
    kernel.parent.mkdir()
    for first, second, kept in ((kernel, source, False), (source, kernel, True)):
        for moment, path in enumerate((first, second)):
            path.write_text("")
            os.utime(path, (moment, moment))
        drop_stale_kernels(tmp_path)
        assert kernel.exists() == kept


def test_checkpoints_run_from_1_to_the_horizon() -> None:
    for horizon in (1, 2, 10, 12_345):
        rounds = checkpoints(horizon)
        assert (rounds[0], rounds[-1]) == (1, horizon)
        assert (np.diff(rounds) > 0).all()


# --- bounds


def test_known_constants_of_the_lower_bound() -> None:
    assert bounds.lower_bound(SYNTHETIC) == pytest.approx(5.592, abs=5e-4)
    assert bounds.exploring_positions(SYNTHETIC).tolist() == [3, 3]
    assert bounds.lower_bound(HIGH) == pytest.approx(14.06, abs=5e-3)
    assert bounds.exploring_positions(HIGH).tolist() == [1, 1]
    known = {1: 41.90, 4: 38.05, 7: 12.84, 8: 92.75, 10: 6.231, 19: 42.24}  # theta to full precision; ours has four digits
    for model in MODELS:
        modelled = world(model.theta, model.kappa)
        assert set(bounds.exploring_positions(modelled).tolist()) == {3}
        if model.query_id in known:
            assert bounds.lower_bound(modelled) == pytest.approx(known[model.query_id], rel=0.005)


def test_the_bounds_against_each_other() -> None:
    for modelled in (SYNTHETIC, HIGH, *(world(model.theta, model.kappa) for model in MODELS)):
        last = modelled.kappa[-1]
        theta = np.sort(modelled.theta)[::-1]
        worst = theta[modelled.kappa.size - 1]
        relaxed = last * sum((worst - t) / slow_kl(last * t, last * worst) for t in theta[modelled.kappa.size :])
        assert bounds.pie_upper_bound(modelled) == pytest.approx(relaxed)
        assert bounds.lower_bound(modelled) >= relaxed - 1e-9 or bounds.exploring_positions(modelled)[0] != modelled.kappa.size
        assert bounds.lower_bound(modelled) <= relaxed + 1e-9  # PIE explores at L, which is one of the positions
        assert bounds.weighted_cascade_bound(modelled) == pytest.approx(last * bounds.multiple_play_bound(modelled))
        assert bounds.ucb_upper_bound(modelled) > bounds.pie_upper_bound(modelled)
    assert bounds.lower_bound(world([0.3, 0.2], [1.0, 0.5])) == 0  # every arm is shown


@pytest.mark.parametrize(
    ("theta", "kappa", "message"),
    [
        ([0.5, 1.1], [1.0], "theta of arm 2 is 1.1, expected 0 to 1"),
        ([0.5, math.nan], [1.0], "theta of arm 2 is nan, expected 0 to 1"),
        ([0.5], [0.0], "kappa of position 1 is 0.0, expected above 0 and up to 1"),
        ([0.5], [1.0, 0.5], "1 arms for 2 positions, expected at least as many arms as positions"),
        ([], [1.0], "theta has shape (0,), expected a list of at least one number"),
    ],
)
def test_worlds_that_are_none_are_refused(theta: list[float], kappa: list[float], message: str) -> None:
    with pytest.raises(WorldError) as refused:
        world(theta, kappa)
    assert str(refused.value) == message


def test_positions_are_ranked_by_kappa() -> None:
    assert world([0.5] * 3, [0.8, 1.0, 0.4]).kappa.tolist() == [1.0, 0.8, 0.4]
    assert isinstance(SYNTHETIC, World)
