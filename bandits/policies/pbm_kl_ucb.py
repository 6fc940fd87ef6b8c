"""PBM-KL-UCB: the paper's closing suggestion, optimism with the confidence region of PBM-PIE."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bandits.play import register
from bandits.policies.policy import EPSILON, Kappa, Policy
from bandits.ranking import top
from bandits.region import ROUNDING, Region, first_guess, learn, look_at, nothing_seen, reaches, upper
from bandits.tally import show_in_turn


class PbmKlUcbState(NamedTuple):
    region: Region
    indices: NDArray[np.float64]
    epsilon: float


def start(n_arms: int, kappa: Kappa, *, epsilon: float) -> PbmKlUcbState:
    return PbmKlUcbState(nothing_seen(n_arms, kappa), np.empty(n_arms), epsilon)


def choose(state, t, rng, action):
    """The L arms with the largest U_k(t, (1 + epsilon) log t) of Eq. 7. Of equal indices the lower arm number comes first.

    Roots start from a guess that depends on the counts alone, so that equal counts tie to the last bit. The last list's arms
    are looked at first: then most others are seen not to reach the last of them, which takes no root, and their index is set
    to minus infinity.
    """
    n_arms = state.indices.size
    if t <= n_arms:
        show_in_turn(t, n_arms, action)
        return
    delta = (1.0 + state.epsilon) * math.log(t)
    bar = math.inf
    for k in range(n_arms):
        state.indices[k] = -math.inf
    for l in range(action.size):
        k = action[l]
        state.indices[k] = upper(state.region, k, delta, first_guess(state.region, k, delta))
        bar = min(bar, state.indices[k])
    log_bar = look_at(state.region, bar)
    for k in range(n_arms):
        if state.indices[k] == -math.inf and reaches(state.region, k, log_bar, delta + ROUNDING):
            state.indices[k] = upper(state.region, k, delta, first_guess(state.region, k, delta))
            look_at(state.region, bar)
    top(state.indices, action)


def observe(state, action, clicked):
    for l in range(action.size):
        learn(state.region, action[l], l, clicked[l])


register(PbmKlUcbState, choose, observe)
POLICY = Policy("pbm-kl-ucb", "optimism with PBM-PIE's confidence region (the paper's conclusion)", start, {"epsilon": EPSILON})
