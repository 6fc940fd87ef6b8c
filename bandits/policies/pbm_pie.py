"""PBM-PIE: parsimonious item exploration. Only the last position explores, and only arms that may belong to the list."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bandits.play import register
from bandits.policies.policy import Kappa, Policy
from bandits.ranking import top
from bandits.region import challenges
from bandits.tally import Tally, empty, record, seen, show_in_turn


class PbmPieState(NamedTuple):
    kappa: NDArray[np.float64]
    tally: Tally
    estimate: NDArray[np.float64]
    explorable: NDArray[np.int64]
    epsilon: float
    horizon: float  # 0: delta follows log t, and no horizon is needed


def start(n_arms: int, kappa: Kappa, *, epsilon: float, horizon: float) -> PbmPieState:
    return PbmPieState(kappa, empty(n_arms, kappa.size), np.empty(n_arms), np.empty(n_arms, np.int64), epsilon, horizon)


def choose(state, t, rng, action):
    """Algorithm 1: the leaders in order; with probability 1/2 an arm drawn from B(t) takes the last place, if there is one.

    B(t) are the arms outside the leaders whose index U_k(t, delta) is at least the last leader's estimate. The box of the
    algorithm has delta = (1 + epsilon) log T, the theorem (1 + epsilon) log t: the default here; `horizon` gives the other.
    The coin is tossed first, as B(t) is needed only on its heads. Ties of estimates: the lower arm number leads.
    """
    tally = state.tally
    n_arms = state.estimate.size
    if t <= n_arms:
        show_in_turn(t, n_arms, action)
        return
    for k in range(n_arms):
        state.estimate[k] = tally.arm_clicks[k] / seen(tally, state.kappa, k)
    top(state.estimate, action)
    if rng.random() >= 0.5:
        return
    last = action.size - 1
    bar = state.estimate[action[last]]
    delta = (1.0 + state.epsilon) * math.log(state.horizon if state.horizon > 0.0 else float(t))
    n = 0
    for k in range(n_arms):
        leads = False
        for l in range(action.size):
            leads = leads or action[l] == k
        if not leads and challenges(tally.clicks[k], tally.displays[k], state.kappa, bar, delta):
            state.explorable[n] = k
            n += 1
    if n > 0:
        action[last] = state.explorable[int(rng.random() * n)]


def observe(state, action, clicked):
    record(state.tally, action, clicked)


register(PbmPieState, choose, observe)
POLICY = Policy(
    "pbm-pie", "explores at the last position, by the paper's region (Eq. 7)", start, {"epsilon": 0.0, "horizon": 0.0}
)
