"""What a learner has seen: clicks S[k, l] and displays N[k, l], with the sums that the paper's statistics need."""

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray


class Tally(NamedTuple):
    """Counts by arm and position, and by arm: S_k and N_k."""

    clicks: NDArray[np.int64]
    displays: NDArray[np.int64]
    arm_clicks: NDArray[np.int64]
    arm_displays: NDArray[np.int64]


def empty(n_arms: int, n_positions: int) -> Tally:
    """Nothing seen yet."""
    grid = (n_arms, n_positions)
    return Tally(
        clicks=np.zeros(grid, np.int64),
        displays=np.zeros(grid, np.int64),
        arm_clicks=np.zeros(n_arms, np.int64),
        arm_displays=np.zeros(n_arms, np.int64),
    )


@njit(cache=True, nogil=True)
def record(tally, action, clicked):
    """Add a round: `action` is the list shown, `clicked` what happened at each position."""
    for l in range(action.size):
        k = action[l]
        tally.displays[k, l] += 1
        tally.arm_displays[k] += 1
        if clicked[l]:
            tally.clicks[k, l] += 1
            tally.arm_clicks[k] += 1


@njit(cache=True, nogil=True)
def seen(tally, kappa, k):
    """The bias-corrected count N~_k = sum_l kappa_l N[k, l]. From the counts, not kept: arms with equal counts tie exactly."""
    total = 0.0
    for l in range(kappa.size):
        total += kappa[l] * tally.displays[k, l]
    return total


@njit(cache=True, nogil=True)
def show_in_turn(t, n_arms, action):
    """The paper's initialisation, for rounds t = 1..K: arm (t - 1 + l) mod K at position l, so that each arm is seen at each."""
    for l in range(action.size):
        action[l] = (t - 1 + l) % n_arms
