"""RBA-KL-UCB: ranked bandits (Radlinski et al. 2008), a KL-UCB of its own at every position."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bandits.kl import kl, kl_upper
from bandits.play import register
from bandits.policies.policy import Kappa, Policy
from bandits.tally import show_in_turn


class RbaKlUcbState(NamedTuple):
    rewards: NDArray[np.int64]  # [L, K]: of each position's bandit
    pulls: NDArray[np.int64]  # [L, K]
    picks: NDArray[np.int64]  # [L]: what each bandit wanted in this round, and, before that, in the last one
    epsilon: float


def start(n_arms: int, kappa: Kappa, *, epsilon: float) -> RbaKlUcbState:
    grid = (kappa.size, n_arms)
    return RbaKlUcbState(np.zeros(grid, np.int64), np.zeros(grid, np.int64), np.zeros(kappa.size, np.int64), epsilon)


def choose(state, t, rng, action):
    """Top down, each bandit picks the arm with the largest q such that M_k d(mean_k, q) <= (1 + epsilon) log t.

    If its pick is shown higher up already, an arm drawn uniformly from those not shown takes the place. An arm beats the best
    index so far if and only if its mean is above it or M_k d(mean_k, best) <= budget: a root is found only then. The last
    winner goes first, as it mostly wins again. Of equal indices the one found earlier stays.
    """
    n_arms = state.pulls.shape[1]
    if t <= n_arms:
        show_in_turn(t, n_arms, action)
        for l in range(action.size):
            state.picks[l] = action[l]
        return
    budget = (1.0 + state.epsilon) * math.log(t)
    for l in range(action.size):
        winner = state.picks[l]
        pulls = state.pulls[l, winner]
        best = kl_upper(state.rewards[l, winner] / pulls, budget / pulls)
        for k in range(n_arms):
            if k == winner:
                continue
            pulls = state.pulls[l, k]
            mean = state.rewards[l, k] / pulls
            if mean > best or pulls * kl(mean, best) <= budget:
                index = kl_upper(mean, budget / pulls)
                if index > best:  # and not only by the rounding of the test
                    winner, best = k, index
        state.picks[l] = winner
        shown = False
        for m in range(l):
            shown = shown or action[m] == winner
        action[l] = winner
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
        k = state.picks[l]
        state.pulls[l, k] += 1
        if action[l] == k and clicked[l]:
            state.rewards[l, k] += 1


register(RbaKlUcbState, choose, observe)
POLICY = Policy("rba-kl-ucb", "ranked bandits, a KL-UCB at every position (Radlinski et al. 2008)", start, {"epsilon": 0.0})
