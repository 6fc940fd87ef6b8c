"""The confidence region of PBM-PIE (Eq. 7): the q that all positions together do not exclude.

The cost of q for an arm is Phi(q) = sum_l N_l d(S_l / N_l, kappa_l q), positions never shown adding 0. It is convex; its minimum
theta_min is the maximum-likelihood estimate for known kappa. The index is U = sup {q in [theta_min, 1] : Phi(q) <= delta}. Where
even Phi(theta_min) > delta the set is empty, and the index is theta_min: the data exclude every q, and this one least.

Written out, with S = sum_l S_l and F_l = N_l - S_l,

    Phi(q) = C - S log q - sum_l F_l log(1 - kappa_l q),   C = sum_l S_l log(S_l / (N_l kappa_l)) + F_l log(F_l / N_l),
    q Phi'(q) = sum_l F_l o_l - S,   q^2 Phi''(q) = S + sum_l F_l o_l^2,   o_l = kappa_l q / (1 - kappa_l q).

So the logarithms belong to q and are the same for every arm (`look_at`), and C changes only for an arm that was shown: to
hold a bar against all arms takes a few products each. With one position and kappa = 1 the index is that of KL-UCB.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bandits.kernel import kernel
from bandits.tally import Tally, empty, record

BISECTIONS = 100  # at most; 2 steps are the rule
PRECISION = 1e-14  # of the index: to rounding
ROUNDING = 1e-9  # of a cost; what misses delta by less may reach it
CUBIC = 1e-5  # a step this small beside q and 1 - q, where Phi may be infinite, leaves an error of about its third power


class Region(NamedTuple):
    """A tally by row (an arm) and position, with what its costs need."""

    kappa: NDArray[np.float64]  # [L]
    tally: Tally
    saturated: NDArray[np.float64]  # [K, L]: the terms of C; nan where a display came since
    log_missed: NDArray[np.float64]  # [L]: log(1 - kappa_l q) at the q looked at
    odds: NDArray[np.float64]  # [L]: kappa_l q / (1 - kappa_l q) there


def nothing_seen(n_rows: int, kappa: NDArray[np.float64]) -> Region:
    """The region of arms never shown: all of [0, 1]."""
    return Region(kappa, empty(n_rows, kappa.size), np.zeros((n_rows, kappa.size)), np.empty(kappa.size), np.empty(kappa.size))


@kernel
def learn(region, k, l, clicked):
    """Add a display of arm k at position l."""
    record(region.tally, region.kappa, k, l, clicked)
    region.saturated[k, l] = math.nan


@kernel
def look_at(region, q):
    """Take the logarithms of q > 0 that every arm's cost shares, and return log q."""
    for l in range(region.kappa.size):
        p = region.kappa[l] * q
        region.log_missed[l] = math.log1p(-p) if p < 1.0 else -math.inf
        region.odds[l] = p / (1.0 - p) if p < 1.0 else math.inf
    return math.log(q)


@kernel
def slope(region, k):
    """q Phi'(q) of arm k at the q looked at: above 0 where q > theta_min."""
    total = -float(region.tally.arm_clicks[k])
    for l in range(region.kappa.size):
        if region.tally.missed[k, l] > 0:  # 0 times infinity, otherwise
            total += region.tally.missed[k, l] * region.odds[l]
    return total


@kernel
def curvature(region, k):
    """q^2 Phi''(q) of arm k at the q looked at."""
    total = float(region.tally.arm_clicks[k])
    for l in range(region.kappa.size):
        total += region.tally.missed[k, l] * region.odds[l] * region.odds[l]
    return total


@kernel
def cost(region, k, log_q):
    """Phi(q) of arm k at the q looked at."""
    total = -region.tally.arm_clicks[k] * log_q
    for l in range(region.kappa.size):
        missed = region.tally.missed[k, l]
        if math.isnan(region.saturated[k, l]):
            clicks = region.tally.clicks[k, l]
            term = clicks * math.log(clicks / ((clicks + missed) * region.kappa[l])) if clicks > 0 else 0.0
            region.saturated[k, l] = term + (missed * math.log(missed / (clicks + missed)) if missed > 0 else 0.0)
        total += region.saturated[k, l]
        if missed > 0:
            total -= missed * region.log_missed[l]
    return total


@kernel
def reaches(region, k, log_bar, delta):
    """Whether U >= bar, the q looked at: as Phi rises above theta_min, U >= bar <=> bar <= theta_min or Phi(bar) <= delta."""
    return slope(region, k) <= 0.0 or cost(region, k, log_bar) <= delta


@kernel
def first_guess(region, k, delta):
    """Where N~ (q - p)^2 / (2 q (1 - K q)) = delta, with p = S / N~ and K = N~ / N: Phi near its minimum, pooled."""
    seen = region.tally.seen[k]
    if seen == 0.0:
        return 1.0
    p, weight, examined = region.tally.arm_clicks[k] / seen, 2.0 * delta / seen, seen / region.tally.arm_displays[k]
    inside = weight * (weight + 4.0 * p * (1.0 - p * examined))
    return (2.0 * p + weight + math.sqrt(max(inside, 0.0))) / (2.0 + 2.0 * weight * examined)


@kernel
def closer(region, k, delta, q):
    """A step of Newton's method to the second order from q towards Phi = delta; 0 where there is none.

    The step to q (1 + r) solves Phi - delta + q Phi' r + q^2 Phi'' r^2 / 2 = 0. Returned with whether U >= q: where q <=
    theta_min or Phi(q) <= delta, it is; elsewhere it is less.
    """
    log_q = look_at(region, q)
    rise = slope(region, k)
    if rise <= 0.0:
        return 0.0, True
    excess = cost(region, k, log_q) - delta
    inside = rise * rise - 2.0 * excess * curvature(region, k)
    step = q - q * 2.0 * excess / (rise + math.sqrt(inside)) if inside > 0.0 else 0.0
    return step, excess <= 0.0


@kernel
def upper(region, k, delta, guess):
    """The index U of arm k, by steps from a guess, kept within a bracket. 1 for an arm never shown.

    The bracket closes on U, and on theta_min if the set is empty, without looking for theta_min itself.
    """
    if region.tally.arm_displays[k] == 0:
        return 1.0
    low, high = 0.0, 1.0
    q = guess if low < guess < high else 0.5
    for _ in range(BISECTIONS):
        step, reached = closer(region, k, delta, q)
        if reached:
            low = q
        else:
            high = q
        if abs(step - q) <= max(CUBIC * min(q, 1.0 - q), PRECISION * q):
            return min(max(step, low), high)
        if low < step < high:
            q = step
        else:
            if high == 1.0 and reaches(region, k, look_at(region, 1.0), delta):
                return 1.0
            q = 0.5 * (low + high)
            if high - low <= PRECISION * high:
                return q
    return q
