"""RBA-KL-UCB: ranked bandits (Radlinski et al. 2008), a KL-UCB of its own at every position."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bandits.kernel import kernel
from bandits.play import register
from bandits.policies.policy import EPSILON, Kappa, Policy
from bandits.region import ROUNDING, Region, closer, learn, look_at, nothing_seen, reaches, upper
from bandits.tally import show_in_turn

ASIDE = 0.8  # of the way from the second index to the pick's; the second was found some time ago, and has risen since


class RbaKlUcbState(NamedTuple):
    region: Region  # row l K + k: arm k as the bandit of position l sees it, examined for certain
    pick: NDArray[np.int64]  # [L]: the row that each bandit wants in this round
    indices: NDArray[np.float64]  # [L K]: as last found; where to look for the largest one first
    between: NDArray[np.float64]  # [L, 3]: log q, log(1 - q) and odds of a q between the pick's index and all others
    n_arms: int
    epsilon: float


def start(n_arms: int, kappa: Kappa, *, epsilon: float) -> RbaKlUcbState:
    region = nothing_seen(kappa.size * n_arms, np.ones(1))
    picks, indices = np.zeros(kappa.size, np.int64), np.full(kappa.size * n_arms, 0.5)
    return RbaKlUcbState(region, picks, indices, np.full((kappa.size, 3), np.nan), n_arms, epsilon)


@kernel
def still_best(state, l, delta):
    """Whether the last pick of position l reaches the q that was between it and the others, and no other arm does.

    Then it has the largest index, whatever that is. The logarithms of q were kept: this takes a few products.
    """
    region, pick = state.region, state.pick[l]
    log_q = state.between[l, 0]
    region.log_missed[0], region.odds[0] = state.between[l, 1], state.between[l, 2]
    if not reaches(region, pick, log_q, delta - ROUNDING):
        return False
    for row in range(l * state.n_arms, (l + 1) * state.n_arms):
        if row != pick and reaches(region, row, log_q, delta + ROUNDING):
            return False
    return True


@kernel
def find_best(state, l, delta):
    """The row with the largest index of position l: mostly that whose index was largest when it was last found.

    The last pick's having moved on, a root is found for that one, and for arms that reach it. Rows of equal counts tie, and the
    lower one wins.
    """
    region, indices = state.region, state.indices
    clicks, missed = region.tally.arm_clicks, region.tally.missed
    rows = range(l * state.n_arms, (l + 1) * state.n_arms)
    last = state.pick[l]
    indices[last] = closer(region, last, delta, indices[last])[0]
    first = last
    for row in rows:
        if indices[row] > indices[first]:
            first = row
    indices[first] = upper(region, first, delta, indices[first])
    pick = first
    log_best = look_at(region, indices[pick])
    for row in rows:
        if row == first or not reaches(region, row, log_best, delta + ROUNDING):
            continue
        if clicks[row] == clicks[pick] and missed[row, 0] == missed[pick, 0]:
            indices[row] = indices[pick]
            pick = min(row, pick)
        else:
            indices[row] = upper(region, row, delta, indices[row])
            if indices[row] > indices[pick]:
                pick = row
            log_best = look_at(region, indices[pick])
    second = 0.0
    for row in rows:
        if row != pick:
            second = max(second, indices[row])
    second = min(second, indices[pick])
    state.between[l, 0] = look_at(region, second + ASIDE * (indices[pick] - second))
    state.between[l, 1], state.between[l, 2] = region.log_missed[0], region.odds[0]
    return pick


def choose(state, t, rng, action):
    """Top down, each bandit picks the arm with the largest q such that M_k d(mean_k, q) <= (1 + epsilon) log t.

    If its pick is shown higher up already, an arm drawn uniformly from those not shown takes the place.
    """
    n_arms = state.n_arms
    if t <= n_arms:
        show_in_turn(t, n_arms, action)
        for l in range(action.size):
            state.pick[l] = l * n_arms + action[l]
        return
    delta = (1.0 + state.epsilon) * math.log(t)
    for l in range(action.size):
        if not still_best(state, l, delta):
            state.pick[l] = find_best(state, l, delta)
        action[l] = state.pick[l] - l * n_arms
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
