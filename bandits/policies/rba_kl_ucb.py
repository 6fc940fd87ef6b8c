"""RBA-KL-UCB: ranked bandits (Radlinski et al. 2008), a KL-UCB of its own at every position."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bandits.play import register
from bandits.policies.policy import EPSILON, Kappa, Policy
from bandits.region import ROUNDING, Region, closer, learn, look_at, nothing_seen, reaches, upper
from bandits.tally import show_in_turn


class RbaKlUcbState(NamedTuple):
    region: Region  # row l K + k: arm k as the bandit of position l sees it, examined for certain
    pick: NDArray[np.int64]  # [L]: the row that each bandit wants in this round
    indices: NDArray[np.float64]  # [L K]: as last found; where to look for the largest one first
    n_arms: int
    epsilon: float


def start(n_arms: int, kappa: Kappa, *, epsilon: float) -> RbaKlUcbState:
    region = nothing_seen(kappa.size * n_arms, np.ones(1))
    return RbaKlUcbState(region, np.zeros(kappa.size, np.int64), np.full(kappa.size * n_arms, 0.5), n_arms, epsilon)


def choose(state, t, rng, action):
    """Top down, each bandit picks the arm with the largest q such that M_k d(mean_k, q) <= (1 + epsilon) log t.

    Arms that a bandit has seen the same of tie, and the lower number wins. If its pick is shown higher up already, an arm drawn
    uniformly from those not shown takes the place. The largest index is mostly that of the arm whose index was largest when
    it was last found, the last pick's having moved on: its root is found from there, and those of arms that reach it.
    """
    n_arms = state.n_arms
    if t <= n_arms:
        show_in_turn(t, n_arms, action)
        for l in range(action.size):
            state.pick[l] = l * n_arms + action[l]
        return
    delta = (1.0 + state.epsilon) * math.log(t)
    for l in range(action.size):
        indices, clicks, missed = state.indices, state.region.tally.arm_clicks, state.region.tally.missed
        last = state.pick[l]
        indices[last] = closer(state.region, last, delta, indices[last])[0]
        first = l * n_arms
        for row in range(l * n_arms + 1, (l + 1) * n_arms):
            if indices[row] > indices[first]:
                first = row
        indices[first] = upper(state.region, first, delta, indices[first])
        pick = first
        log_best = look_at(state.region, indices[pick])
        for row in range(l * n_arms, (l + 1) * n_arms):
            if row == first or not reaches(state.region, row, log_best, delta + ROUNDING):
                continue
            if clicks[row] == clicks[pick] and missed[row, 0] == missed[pick, 0]:
                indices[row] = indices[pick]
                pick = min(row, pick)
            else:
                indices[row] = upper(state.region, row, delta, indices[row])
                if indices[row] > indices[pick]:
                    pick = row
                log_best = look_at(state.region, indices[pick])
        state.pick[l] = pick
        action[l] = pick - l * n_arms
        shown = False
        for m in range(l):
            shown = shown or action[m] == action[l]
        if shown:
            skip = int(rng.random() * (n_arms - l))
            for k in range(n_arms):
                free = True
                for m in range(l):
                    free = free and action[m] != k
                if free:
                    if skip == 0:
                        action[l] = k
                        break
                    skip -= 1


def observe(state, action, clicked):
    """Each bandit learns about its own pick: a click if that was shown and clicked, 0 if another arm took its place."""
    for l in range(action.size):
        shown = state.pick[l] == l * state.n_arms + action[l]
        learn(state.region, state.pick[l], 0, shown and clicked[l])


register(RbaKlUcbState, choose, observe)
POLICY = Policy("rba-kl-ucb", "ranked bandits, a KL-UCB at every position (Radlinski et al. 2008)", start, {"epsilon": EPSILON})
