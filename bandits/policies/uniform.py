"""A list drawn uniformly in every round: the yardstick of no learning."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bandits.play import register
from bandits.policies.policy import Kappa, Policy


class UniformState(NamedTuple):
    arms: NDArray[np.int64]  # all of them, in the order the last draw left


def start(n_arms: int, kappa: Kappa) -> UniformState:
    return UniformState(np.arange(n_arms))


def choose(state, t, rng, action):
    """The first L steps of a Fisher-Yates shuffle."""
    for l in range(action.size):
        j = l + int(rng.random() * (state.arms.size - l))
        state.arms[l], state.arms[j] = state.arms[j], state.arms[l]
        action[l] = state.arms[l]


def observe(state, action, clicked):
    pass


register(UniformState, choose, observe)
POLICY = Policy("uniform", "a random list: the yardstick of no learning", start)
