"""BC-MP-TS (Komiyama, Honda, Nakagawa 2015): Thompson sampling from a Beta in place of the true posterior."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bandits.play import register
from bandits.policies.policy import Kappa, Policy
from bandits.ranking import top
from bandits.tally import Tally, empty, record, seen


class BcMpTsState(NamedTuple):
    kappa: NDArray[np.float64]
    tally: Tally
    draw: NDArray[np.float64]


def start(n_arms: int, kappa: Kappa) -> BcMpTsState:
    return BcMpTsState(kappa, empty(n_arms, kappa.size), np.empty(n_arms))


def choose(state, t, rng, action):
    """The L arms with the largest draws from Beta(S_k + 1, max(N~_k - S_k, 0) + 1), clipped after summing over positions."""
    tally = state.tally
    for k in range(state.draw.size):
        missed = max(seen(tally, state.kappa, k) - tally.arm_clicks[k], 0.0)
        state.draw[k] = rng.beta(tally.arm_clicks[k] + 1.0, missed + 1.0)
    top(state.draw, action)


def observe(state, action, clicked):
    record(state.tally, action, clicked)


register(BcMpTsState, choose, observe)
POLICY = Policy("bc-mp-ts", "Thompson sampling from a bias-corrected Beta (Komiyama et al. 2015)", start, {})
