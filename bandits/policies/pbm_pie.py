"""PBM-PIE: parsimonious item exploration. Only the last position explores, and only arms that may belong to the list."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bandits.play import register
from bandits.policies.policy import EPSILON, Kappa, Parameter, Policy
from bandits.ranking import top
from bandits.region import Region, learn, look_at, nothing_seen, reaches
from bandits.tally import show_in_turn


class PbmPieState(NamedTuple):
    region: Region
    estimate: NDArray[np.float64]  # S_k / N~_k
    explorable: NDArray[np.int64]
    epsilon: float
    horizon: float  # 0: delta follows log t


def start(n_arms: int, kappa: Kappa, *, epsilon: float, horizon: float) -> PbmPieState:
    return PbmPieState(nothing_seen(n_arms, kappa), np.empty(n_arms), np.empty(n_arms, np.int64), epsilon, horizon)


def choose(state, t, rng, action):
    """Algorithm 1: the leaders in order; with probability 1/2 an arm drawn from B(t) takes the last place, if there is one.

    B(t) are the arms outside the leaders whose index U_k(t, delta) is at least the last leader's estimate. The box of the
    algorithm has delta = (1 + epsilon) log T, the theorem (1 + epsilon) log t: the default here; `horizon` gives the other.
    The coin is tossed first, as B(t) is needed only on its heads. Ties of estimates: the lower arm number leads.
    """
    n_arms = state.estimate.size
    if t <= n_arms:
        show_in_turn(t, n_arms, action)
        return
    top(state.estimate, action)
    if rng.random() >= 0.5:
        return
    last = action.size - 1
    bar = state.estimate[action[last]]
    log_bar = look_at(state.region, bar) if bar > 0.0 else 0.0
    delta = (1.0 + state.epsilon) * math.log(state.horizon if state.horizon > 0.0 else t)
    n = 0
    for k in range(n_arms):
        leads = False
        for l in range(action.size):
            leads = leads or action[l] == k
        if not leads and (bar <= 0.0 or reaches(state.region, k, log_bar, delta)):
            state.explorable[n] = k
            n += 1
    if n > 0:
        action[last] = state.explorable[int(rng.random() * n)]


def observe(state, action, clicked):
    tally = state.region.tally
    for l in range(action.size):
        k = action[l]
        learn(state.region, k, l, clicked[l])
        state.estimate[k] = tally.arm_clicks[k] / tally.seen[k]


HORIZON = Parameter(0.0, "T of delta = (1 + epsilon) log T, as in the algorithm's box; 0 for log t, as in the theorem")
register(PbmPieState, choose, observe)
POLICY = Policy(
    "pbm-pie", "explores at the last position, by the paper's region (Eq. 7)", start, {"epsilon": EPSILON, "horizon": HORIZON}
)
