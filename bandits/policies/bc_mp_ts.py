"""BC-MP-TS (Komiyama, Honda, Nakagawa 2015): Thompson sampling from a Beta in place of the true posterior."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bandits.play import register
from bandits.policies.policy import ALPHA, BETA, Kappa, Policy
from bandits.ranking import top
from bandits.tally import Tally, empty, record


class BcMpTsState(NamedTuple):
    kappa: NDArray[np.float64]
    tally: Tally
    drawn: NDArray[np.float64]
    alpha: float
    beta: float


def start(n_arms: int, kappa: Kappa, *, alpha: float, beta: float) -> BcMpTsState:
    return BcMpTsState(kappa, empty(n_arms, kappa.size), np.empty(n_arms), alpha, beta)


def choose(state, t, rng, action):
    """The L arms with the largest draws from Beta(S_k + alpha, max(N~_k - S_k, 0) + beta), clipped after summing positions."""
    tally = state.tally
    for k in range(state.drawn.size):
        missed = max(tally.seen[k] - tally.arm_clicks[k], 0.0)
        state.drawn[k] = rng.beta(tally.arm_clicks[k] + state.alpha, missed + state.beta)
    top(state.drawn, action)


def observe(state, action, clicked):
    for l in range(action.size):
        record(state.tally, state.kappa, action[l], l, clicked[l])


register(BcMpTsState, choose, observe)
POLICY = Policy(
    "bc-mp-ts", "Thompson sampling from a bias-corrected Beta (Komiyama et al. 2015)", start, {"alpha": ALPHA, "beta": BETA}
)
