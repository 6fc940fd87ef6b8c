"""PBM-KL-UCB: the paper's closing suggestion, optimism with the confidence region of PBM-PIE."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bandits.play import register
from bandits.policies.policy import Kappa, Policy
from bandits.ranking import top
from bandits.region import challenges, upper
from bandits.tally import Tally, empty, record, show_in_turn


class PbmKlUcbState(NamedTuple):
    kappa: NDArray[np.float64]
    tally: Tally
    indices: NDArray[np.float64]
    guesses: NDArray[np.float64]  # the last index of each arm, where Newton starts
    epsilon: float


def start(n_arms: int, kappa: Kappa, *, epsilon: float) -> PbmKlUcbState:
    return PbmKlUcbState(kappa, empty(n_arms, kappa.size), np.empty(n_arms), np.full(n_arms, 0.5), epsilon)


def choose(state, t, rng, action):
    """The L arms with the largest U_k(t, (1 + epsilon) log t) of Eq. 7. Of equal indices the lower arm number comes first.

    The last list's arms are looked at first: then most others are seen not to reach the last of them, by one evaluation of the
    cost instead of a root, and their index is set to minus infinity.
    """
    tally = state.tally
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
        state.indices[k] = upper(tally.clicks[k], tally.displays[k], state.kappa, delta, state.guesses[k])
        state.guesses[k] = state.indices[k]
        bar = min(bar, state.indices[k])
    for k in range(n_arms):
        if state.indices[k] == -math.inf and challenges(tally.clicks[k], tally.displays[k], state.kappa, bar, delta):
            state.indices[k] = upper(tally.clicks[k], tally.displays[k], state.kappa, delta, state.guesses[k])
            state.guesses[k] = state.indices[k]
    top(state.indices, action)


def observe(state, action, clicked):
    record(state.tally, action, clicked)


register(PbmKlUcbState, choose, observe)
POLICY = Policy("pbm-kl-ucb", "optimism with PBM-PIE's confidence region (the paper's conclusion)", start, {"epsilon": 0.0})
