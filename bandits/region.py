"""The confidence region of PBM-PIE (Eq. 7): the q that all positions together do not exclude.

The cost of q for arm k is Phi(q) = sum_l N_l d(S_l / N_l, kappa_l q), positions never shown adding 0. It is convex; its minimum
theta_min is the maximum-likelihood estimate for known kappa. The index is U = sup {q in [theta_min, 1] : Phi(q) <= delta}. Where
even Phi(theta_min) > delta the set is empty, and the index is theta_min: the data exclude every q, and this one least.
"""

import math

from numba import njit

from bandits.kl import BISECTIONS, kl

PRECISION = 1e-14  # of the index: to rounding


@njit(cache=True, nogil=True)
def cost(clicks, displays, kappa, q):
    """Phi(q) of one arm. clicks, displays: [L]."""
    total = 0.0
    for l in range(kappa.size):
        if displays[l] > 0:
            total += displays[l] * kl(clicks[l] / displays[l], kappa[l] * q)
    return total


@njit(cache=True, nogil=True)
def rising(clicks, displays, kappa, q):
    """The sign of Phi'(q), as q Phi'(q) = sum_l (N kappa q - S) / (1 - kappa q): above 0 where q > theta_min."""
    slope = 0.0
    for l in range(kappa.size):
        if kappa[l] * q < 1.0:
            slope += (displays[l] * kappa[l] * q - clicks[l]) / (1.0 - kappa[l] * q)
        elif clicks[l] < displays[l]:
            return math.inf
        # every display clicked: (N kappa q - S) / (1 - kappa q) -> -N
        else:
            slope -= displays[l]
    return slope


@njit(cache=True, nogil=True)
def challenges(clicks, displays, kappa, bar, delta):
    """Whether U >= bar, without finding U: as Phi rises above theta_min, U >= bar <=> bar <= theta_min or Phi(bar) <= delta."""
    if bar <= 0.0 or rising(clicks, displays, kappa, bar) <= 0.0:
        return True
    return cost(clicks, displays, kappa, bar) <= delta


@njit(cache=True, nogil=True)
def upper(clicks, displays, kappa, delta, guess):
    """The index U, by Newton from a guess, kept within a bracket. 1 for an arm never shown.

    Where q <= theta_min or Phi(q) <= delta, U is at least q; elsewhere it is less. So [low, high] below closes on U, and on
    theta_min if the set is empty, without looking for theta_min itself. On the right of the root Newton comes down
    monotonically, as Phi is convex.
    """
    if rising(clicks, displays, kappa, 1.0) <= 0.0 or cost(clicks, displays, kappa, 1.0) <= delta:
        return 1.0
    low, high = 0.0, 1.0
    q = guess if 0.0 < guess < 1.0 else 0.5
    for _ in range(2 * BISECTIONS):
        slope = rising(clicks, displays, kappa, q) / q
        step = -1.0
        if slope <= 0.0:
            low = q
        else:
            excess = cost(clicks, displays, kappa, q) - delta
            if excess > 0.0:
                high = q
            else:
                low = q
            step = q - excess / slope
        if not low < step < high:
            step = 0.5 * (low + high)
        if abs(step - q) <= PRECISION * q:
            return step
        q = step
    return q
