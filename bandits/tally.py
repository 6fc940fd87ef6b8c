"""What a learner has seen: clicks and displays by arm and position, with the sums that the paper's statistics need."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bandits.kernel import kernel


class Tally(NamedTuple):
    """S[k, l], F[k, l] = N - S, and by arm: S_k, N_k and the bias-corrected N~_k."""

    clicks: NDArray[np.int64]
    missed: NDArray[np.int64]
    arm_clicks: NDArray[np.int64]
    arm_displays: NDArray[np.int64]
    seen: NDArray[np.float64]


def empty(n_arms: int, n_positions: int) -> Tally:
    """Nothing seen yet."""
    grid = (n_arms, n_positions)
    return Tally(
        clicks=np.zeros(grid, np.int64),
        missed=np.zeros(grid, np.int64),
        arm_clicks=np.zeros(n_arms, np.int64),
        arm_displays=np.zeros(n_arms, np.int64),
        seen=np.zeros(n_arms),
    )


@kernel
def record(tally, kappa, k, l, clicked):
    """Add a display of arm k at position l.

    N~_k = sum_l kappa_l N[k, l] is summed anew from the counts, not added up: arms with equal counts tie exactly.
    """
    tally.arm_displays[k] += 1
    if clicked:
        tally.clicks[k, l] += 1
        tally.arm_clicks[k] += 1
    else:
        tally.missed[k, l] += 1
    seen = 0.0
    for m in range(kappa.size):
        seen += kappa[m] * (tally.clicks[k, m] + tally.missed[k, m])
    tally.seen[k] = seen


@kernel
def show_in_turn(t, n_arms, action):
    """The paper's initialisation, for rounds t = 1..K: arm (t - 1 + l) mod K at position l, so that each arm is seen at each."""
    for l in range(action.size):
        action[l] = (t - 1 + l) % n_arms
