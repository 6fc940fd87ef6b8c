"""The loop of a run, compiled once for each policy and kept on disk.

A policy is a state (a NamedTuple class of its own) and two functions, `choose(state, t, rng, action)` and
`observe(state, action, clicked)`. The loop calls them by the type of the state: numba sees that type when it compiles, so the
result is cached, which a kernel that takes functions as arguments never is.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from numba.extending import overload

_CHOOSE: dict[type, Callable[..., None]] = {}
_OBSERVE: dict[type, Callable[..., None]] = {}


def register(state: type, choose: Callable[..., None], observe: Callable[..., None]) -> None:
    """Tell the loop what a policy does. Both functions are plain Python that numba can compile."""
    _CHOOSE[state], _OBSERVE[state] = choose, observe


def choose(state: Any, t: int, rng: np.random.Generator, action: Any) -> None:
    """Write the list to show in round t (from 1): arms by position, the most examined position first."""
    _CHOOSE[type(state)](state, t, rng, action)  # interpreted; compiled code goes by the overload below


def observe(state: Any, action: Any, clicked: Any) -> None:
    """Learn what was clicked."""
    _OBSERVE[type(state)](state, action, clicked)


@overload(choose)
def _choose(state, t, rng, action):
    return _CHOOSE.get(getattr(state, "instance_class", None))


@overload(observe)
def _observe(state, action, clicked):
    return _OBSERVE.get(getattr(state, "instance_class", None))


@njit(cache=True, nogil=True)
def play(state, theta, kappa, checkpoints, rng, regret):
    """Play to the last checkpoint; regret[i] is the expected regret of the lists shown in rounds 1..checkpoints[i] (Eq. 1).

    Regret is summed from expected rewards kappa theta, not from the clicks drawn: the same mean, and far less noise.
    """
    n_positions = kappa.size
    action, clicked = np.zeros(n_positions, np.int64), np.zeros(n_positions, np.bool_)
    ranked = np.sort(theta)[::-1]
    best = 0.0
    for l in range(n_positions):
        best += kappa[l] * ranked[l]
    total = 0.0
    t = 0
    for i in range(checkpoints.size):
        while t < checkpoints[i]:
            t += 1
            choose(state, t, rng, action)
            reward = 0.0
            for l in range(n_positions):
                p = kappa[l] * theta[action[l]]
                clicked[l] = rng.random() < p
                reward += p
            observe(state, action, clicked)
            total += best - reward
        regret[i] = total
