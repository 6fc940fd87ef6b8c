"""PBM-TS: Thompson sampling from the exact posterior."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bandits.play import register
from bandits.policies.policy import ALPHA, BETA, Kappa, Policy
from bandits.ranking import top
from bandits.thompson import Sampler, draw, learn, sampler


class PbmTsState(NamedTuple):
    sampler: Sampler
    drawn: NDArray[np.float64]


def start(n_arms: int, kappa: Kappa, *, alpha: float, beta: float) -> PbmTsState:
    return PbmTsState(sampler(n_arms, kappa, alpha, beta), np.empty(n_arms))


def choose(state, t, rng, action):
    """The L arms with the largest draws from pi_t(theta_k) = prior(theta_k) prod_l theta_k^S_kl (1 - kappa_l theta_k)^F_kl."""
    for k in range(state.drawn.size):
        state.drawn[k] = draw(state.sampler, k, rng)
    top(state.drawn, action)


def observe(state, action, clicked):
    """An arm that was not shown keeps its posterior."""
    for l in range(action.size):
        learn(state.sampler, action[l], l, clicked[l])


register(PbmTsState, choose, observe)
POLICY = Policy("pbm-ts", "Thompson sampling from the exact posterior", start, {"alpha": ALPHA, "beta": BETA})
