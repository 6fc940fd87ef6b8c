"""Two yardsticks: who knows theta, and who does not care."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bandits.play import register
from bandits.policies.policy import Kappa, Policy


class OracleState(NamedTuple):
    best: NDArray[np.int64]  # the L best arms, best first


def start(n_arms: int, kappa: Kappa, *, theta: NDArray[np.float64]) -> OracleState:
    """The simulator gives this policy the truth."""
    return OracleState(np.argsort(-theta, kind="stable")[: kappa.size])


def choose(state, t, rng, action):
    """a*, the best arms in order."""
    for l in range(action.size):
        action[l] = state.best[l]


def observe(state, action, clicked):
    pass


register(OracleState, choose, observe)
POLICY = Policy("oracle", "knows theta: the yardstick of no regret", start)
