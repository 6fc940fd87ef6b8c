"""PBM-UCB: optimism with Hoeffding's bound on the pooled estimator."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bandits.play import register
from bandits.policies.policy import EPSILON, Kappa, Policy
from bandits.ranking import top
from bandits.tally import Tally, empty, record, show_in_turn


class PbmUcbState(NamedTuple):
    kappa: NDArray[np.float64]
    tally: Tally
    estimate: NDArray[np.float64]  # S_k / N~_k
    width: NDArray[np.float64]  # sqrt(N_k) / N~_k
    indices: NDArray[np.float64]
    epsilon: float


def start(n_arms: int, kappa: Kappa, *, epsilon: float) -> PbmUcbState:
    return PbmUcbState(kappa, empty(n_arms, kappa.size), np.empty(n_arms), np.empty(n_arms), np.empty(n_arms), epsilon)


def choose(state, t, rng, action):
    """The L arms with the largest U_k = S_k / N~_k + sqrt(N_k / N~_k) sqrt(delta / (2 N~_k)), delta = (1 + epsilon) log t.

    After K rounds in turn. Of equal indices the lower arm number comes first.
    """
    n_arms = state.indices.size
    if t <= n_arms:
        show_in_turn(t, n_arms, action)
        return
    spread = math.sqrt(0.5 * (1.0 + state.epsilon) * math.log(t))
    for k in range(n_arms):
        state.indices[k] = state.estimate[k] + spread * state.width[k]
    top(state.indices, action)


def observe(state, action, clicked):
    tally = state.tally
    for l in range(action.size):
        k = action[l]
        record(tally, state.kappa, k, l, clicked[l])
        inverse = 1.0 / tally.seen[k]
        state.estimate[k] = tally.arm_clicks[k] * inverse
        state.width[k] = math.sqrt(tally.arm_displays[k]) * inverse


register(PbmUcbState, choose, observe)
POLICY = Policy("pbm-ucb", "optimism with a Hoeffding bound on the pooled estimate", start, {"epsilon": EPSILON})
