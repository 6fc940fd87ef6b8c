"""PBM-TS: Thompson sampling from the exact posterior."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bandits.play import register
from bandits.policies.policy import Kappa, Policy
from bandits.posterior import build_hull, draw, empty_hulls
from bandits.ranking import top


class PbmTsState(NamedTuple):
    kappa: NDArray[np.float64]
    clicks: NDArray[np.int64]  # S_k
    missed: NDArray[np.int64]  # F[k, l] = N - S
    hulls: NDArray[np.float64]
    drawn: NDArray[np.float64]


def start(n_arms: int, kappa: Kappa) -> PbmTsState:
    clicks, missed, hulls = np.zeros(n_arms, np.int64), np.zeros((n_arms, kappa.size), np.int64), empty_hulls(n_arms)
    for k in range(n_arms):
        build_hull(clicks[k], missed[k], kappa, hulls[k])
    return PbmTsState(kappa, clicks, missed, hulls, np.empty(n_arms))


def choose(state, t, rng, action):
    """The L arms with the largest draws from pi_t(theta_k) = theta^S_k prod_l (1 - kappa_l theta)^F_kl, the prior being uniform.

    An arm that was not shown keeps its posterior, and so its hull.
    """
    for k in range(state.drawn.size):
        state.drawn[k] = draw(state.clicks[k], state.missed[k], state.kappa, state.hulls[k], rng)
    top(state.drawn, action)


def observe(state, action, clicked):
    for l in range(action.size):
        k = action[l]
        if clicked[l]:
            state.clicks[k] += 1
        else:
            state.missed[k, l] += 1
        build_hull(state.clicks[k], state.missed[k], state.kappa, state.hulls[k])


register(PbmTsState, choose, observe)
POLICY = Policy("pbm-ts", "Thompson sampling from the exact posterior", start, {})
