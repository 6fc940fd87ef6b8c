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

from bandits.kernel import OPTIONS, kernel

_CHOOSE: dict[type, Callable[..., None]] = {}
_OBSERVE: dict[type, Callable[..., None]] = {}


def register(state: type, choose: Callable[..., None], observe: Callable[..., None]) -> None:
    """Tell the loop what a policy does. Both functions are plain Python that numba can compile."""
    _CHOOSE[state], _OBSERVE[state] = choose, observe


def choose(state: Any, t: int, rng: np.random.Generator, action: Any) -> None:
    """Write the list to show in round t (from 1): arms by position, the most examined position first.

    `action` comes as the last round left it, and at first as the arms 0 to L - 1.
    """
    _CHOOSE[type(state)](state, t, rng, action)  # interpreted; compiled code goes by the overload below


def observe(state: Any, action: Any, clicked: Any) -> None:
    """Learn what was clicked."""
    _OBSERVE[type(state)](state, action, clicked)


@overload(choose, jit_options=OPTIONS)  # type: ignore[arg-type] # numba's stub does not know _nrt
def _choose(state, t, rng, action):
    return _CHOOSE.get(getattr(state, "instance_class", None))


@overload(observe, jit_options=OPTIONS)  # type: ignore[arg-type]
def _observe(state, action, clicked):
    return _OBSERVE.get(getattr(state, "instance_class", None))


def play_interpreted(state, theta, kappa, best, checkpoints, rng, action, clicked, regret, displays):
    """Play to the last checkpoint; regret[i] is the expected regret of the lists shown in rounds 1..checkpoints[i] (Eq. 1).

    Regret is summed from expected rewards kappa theta, not from the clicks drawn: the same mean, and far less noise. best: mu*;
    action: int[L] and clicked: bool[L] hold the round; displays: int[K, L] counts what was shown where.
    """
    total = 0.0
    t = 0
    for i in range(checkpoints.size):
        while t < checkpoints[i]:
            t += 1
            choose(state, t, rng, action)
            reward = 0.0
            for l in range(kappa.size):
                p = kappa[l] * theta[action[l]]
                clicked[l] = rng.random() < p
                reward += p
                displays[action[l], l] += 1
            observe(state, action, clicked)
            total += best - reward
        regret[i] = total


play = kernel(play_interpreted)
_play_uncached = njit(nogil=True, **OPTIONS)(play_interpreted)


def loop_of(state: Any) -> Any:
    """The loop that plays this state: the cached one, or one compiled anew for a state that is defined outside this package.

    numba's cache would want to import that module whenever it is read, by whatever program.
    """
    return play if type(state).__module__.startswith("bandits.") else _play_uncached
