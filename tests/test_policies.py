"""Whole trajectories of every policy against plain Python, compiled against interpreted, and plain policies themselves."""

import hashlib
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from bandits.fresh import drop_stale_kernels
from bandits.plain import PlainPolicyError, plain
from bandits.play import play
from bandits.policies import POLICIES
from bandits.ranking import top
from bandits.simulate import play_run, player, simulate
from bandits.tally import empty, record, show_in_turn
from bandits.world import World, best_reward, world
from tests.naive_policies import naive_regret

SYNTHETIC = world([0.45, 0.35, 0.25, 0.15, 0.05], [0.9, 0.6, 0.3])
RARE = world([0.149, 0.103, 0.089, 0.052, 0.029, 0.022], [1.0, 0.47, 0.33])  # kappa_1 = 1, few clicks
ROOT = Path(__file__).parent.parent
LEARNING = ("pbm-ucb", "pbm-pie", "pbm-ts", "bc-mp-ts", "rba-kl-ucb", "pbm-kl-ucb")


def trajectory(name: str, played: World, horizon: int, seed: int) -> NDArray[np.float64]:
    """Regret after each round, arms in the world's order."""
    chosen, (n_arms, n_positions) = player(POLICIES[name]), (played.theta.size, played.kappa.size)
    regret = np.empty(horizon)
    play(
        *(chosen.policy.start(n_arms, played.kappa, **chosen.parameters), played.theta, played.kappa, best_reward(played)),
        *(np.arange(1, horizon + 1), np.random.default_rng(seed), np.arange(n_positions)),
        *(np.zeros(n_positions, np.bool_), regret, np.zeros((n_arms, n_positions), np.int64)),
    )
    return regret


@pytest.mark.long
@pytest.mark.parametrize("played", [SYNTHETIC, RARE], ids=["synthetic", "rare"])
@pytest.mark.parametrize("name", LEARNING)
def test_a_whole_trajectory_is_the_plain_one(name: str, played: World) -> None:
    horizon = 400
    for seed in range(3):
        slow = naive_regret(name, played.theta.tolist(), played.kappa.tolist(), horizon, np.random.default_rng(seed))
        np.testing.assert_allclose(trajectory(name, played, horizon, seed), slow, rtol=1e-9, atol=1e-12)


def test_the_comparison_would_notice_other_draws() -> None:
    slow = naive_regret("pbm-ts", SYNTHETIC.theta.tolist(), SYNTHETIC.kappa.tolist(), 400, np.random.default_rng(1))
    assert not np.allclose(trajectory("pbm-ts", SYNTHETIC, 400, 0), slow)


FINGERPRINTS = """
import numpy as np, hashlib
from bandits.play import play
from bandits.policies import POLICIES
from bandits.simulate import play_run, player
from tests.test_policies import SYNTHETIC
for policy in POLICIES.values():
    regret, _ = play_run(player(policy), SYNTHETIC, np.arange(1, 301), 0, 0)
    print(policy.name, hashlib.sha256(regret.tobytes()).hexdigest())
"""


def test_compiled_and_interpreted_runs_are_identical() -> None:
    interpreted = subprocess.run(
        [sys.executable, "-c", FINGERPRINTS],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
    ).stdout
    compiled = [
        f"{policy.name} {hashlib.sha256(play_run(player(policy), SYNTHETIC, np.arange(1, 301), 0, 0)[0].tobytes()).hexdigest()}"
        for policy in POLICIES.values()
    ]
    assert interpreted.splitlines() == compiled


def test_a_second_start_compiles_nothing() -> None:
    """In a new process every specialisation of the loop comes from the cache."""
    code = FINGERPRINTS + "\nprint(sum(play.stats.cache_hits.values()), sum(play.stats.cache_misses.values()))"
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout
        for _ in range(2)
    ]
    assert runs[1].splitlines()[-1] == f"{len(POLICIES)} 0"


def test_kernels_older_than_a_source_are_dropped(tmp_path: Path) -> None:
    kernel, source, other = tmp_path / "__pycache__" / "x.nbi", tmp_path / "policy.py", tmp_path / "other.py"
    kernel.parent.mkdir()
    for path in (kernel, source, other):
        path.write_text("")

    def kept(**times: int) -> bool:
        """After these times of the kernel, the source and the folder."""
        kernel.write_text("")
        for path, name in ((kernel, "kernel"), (source, "source"), (other, "source"), (tmp_path, "folder")):
            os.utime(path, (times[name], times[name]))
        drop_stale_kernels(tmp_path)
        return kernel.exists()

    assert kept(kernel=2, source=1, folder=1)
    assert not kept(kernel=1, source=2, folder=1)
    assert not kept(kernel=1, source=1, folder=2)  # something was added or removed


@given(
    st.lists(st.sampled_from([0.1, 0.2, 0.3, -math.inf, math.inf]), min_size=1, max_size=8),
    st.integers(1, 8),
    st.permutations(range(8)),
)
def test_the_top_arms_are_sorted_and_ties_go_to_the_lower_number(index: list[float], n_positions: int, last: list[int]) -> None:
    """Whatever the last list was."""
    action = np.array([k for k in last if k < len(index)][:n_positions])
    top(np.array(index), action)
    assert action.tolist() == sorted(range(len(index)), key=lambda k: (-index[k], k))[: action.size]


def test_the_first_k_rounds_show_every_arm_at_every_position() -> None:
    shown = np.zeros((5, 3), int)
    action = np.zeros(3, np.int64)
    for t in range(1, 6):
        show_in_turn(t, 5, action)
        shown[action, [0, 1, 2]] += 1
    assert (shown == 1).all()


def test_the_tally_keeps_the_papers_statistics() -> None:
    tally, kappa = empty(2, 2), np.array([0.9, 0.3])
    for k, l, clicked in ((0, 0, True), (0, 1, False), (1, 0, False), (0, 0, False)):
        record(tally, kappa, k, l, clicked)
    assert (tally.clicks.tolist(), tally.missed.tolist()) == ([[1, 0], [0, 0]], [[1, 1], [1, 0]])
    assert (tally.arm_clicks.tolist(), tally.arm_displays.tolist()) == ([1, 0], [3, 1])
    assert tally.seen.tolist() == pytest.approx([0.9 * 2 + 0.3, 0.9])


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("pbm-ucb", {"epsilon": 1.0}),
        ("pbm-pie", {"epsilon": 1.0}),
        ("pbm-pie", {"horizon": 1e6}),
        ("pbm-ts", {"alpha": 3.0}),
        ("pbm-ts", {"beta": 3.0}),
        ("bc-mp-ts", {"alpha": 3.0}),
        ("bc-mp-ts", {"beta": 3.0}),
        ("rba-kl-ucb", {"epsilon": 1.0}),
        ("pbm-kl-ucb", {"epsilon": 1.0}),
    ],
)
def test_every_parameter_does_something(name: str, changed: dict[str, float]) -> None:
    """With the same draws."""
    default = player(POLICIES[name])
    other = default._replace(parameters={**default.parameters, **changed})
    regrets = [play_run(each, SYNTHETIC, np.array([5000]), 0, 0)[0] for each in (default, other)]
    assert regrets[0] != regrets[1]


# --- plain policies


class PlainUcb:
    """PBM-UCB again."""

    def __init__(self, n_arms: int, kappa: NDArray[np.float64]) -> None:
        self.kappa, self.n_arms = kappa, n_arms
        self.clicks, self.displays = np.zeros(n_arms), np.zeros((n_arms, kappa.size))

    def choose(self, t: int, rng: np.random.Generator) -> Sequence[int]:
        if t <= self.n_arms:
            return [(t - 1 + l) % self.n_arms for l in range(self.kappa.size)]
        seen = self.displays @ self.kappa
        index = self.clicks / seen + np.sqrt(self.displays.sum(axis=1)) / seen * np.sqrt(0.5 * np.log(t))
        return [int(k) for k in np.argsort(-index, kind="stable")[: self.kappa.size]]

    def observe(self, action: NDArray[np.int64], clicked: NDArray[np.bool_]) -> None:
        for l, k in enumerate(action):
            self.displays[k, l] += 1
            self.clicks[k] += clicked[l]


def plain_ucb(t: int, clicks: Any, displays: Any, kappa: Any, rng: np.random.Generator) -> Sequence[int]:
    if t <= len(clicks):
        return [(t - 1 + l) % len(clicks) for l in range(kappa.size)]
    seen = displays @ kappa
    index = clicks.sum(axis=1) / seen + np.sqrt(displays.sum(axis=1)) / seen * np.sqrt(0.5 * np.log(t))
    return list(np.argsort(-index, kind="stable")[: kappa.size])


@pytest.mark.parametrize("idea", [PlainUcb, plain_ucb])
def test_a_plain_class_or_function_plays_like_the_compiled_policy(idea: Any) -> None:
    slow = plain("pbm-ucb", idea)  # the name gives it the same draws
    chosen, rounds = np.zeros(3, np.int64), np.array([10, 300])
    ours = simulate(player(slow), [SYNTHETIC], chosen, rounds, 0)
    compiled = simulate(player(POLICIES["pbm-ucb"]), [SYNTHETIC], chosen, rounds, 0)
    np.testing.assert_allclose(ours.regret, compiled.regret, rtol=1e-12)
    np.testing.assert_array_equal(ours.displays[0], compiled.displays[0])
    assert compiled.displays[0].sum(axis=0).tolist() == [900] * 3


@pytest.mark.parametrize("wrong", [[0, 1], [0, 1, 1], [0, 1, 5], [0, 1, -1], [0, 1, 2.5]])
def test_a_plain_policy_that_shows_no_list_is_told_so(wrong: list[int]) -> None:
    with pytest.raises(PlainPolicyError) as refused:
        play_run(player(plain("mine", lambda *given: wrong)), SYNTHETIC, np.array([5]), 0, 0)
    assert str(refused.value) == f"mine chose {wrong} in round 1, expected 3 different arms of 0 to 4"
