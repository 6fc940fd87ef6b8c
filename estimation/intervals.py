"""How sure the parameters are: 95% intervals on the log scale, and by the profile likelihood where clicks are few."""

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.stats import norm

from estimation.fit import Fit, cut_out
from estimation.likelihood import log_likelihood
from estimation.newton import climb
from estimation.parts import active
from estimation.tables import Tables

Z = float(norm.ppf(0.975))
DROP = Z**2 / 2  # of the log-likelihood, at the ends of a 95% interval: half the 95% quantile of chi-square with one degree
FEW_CLICKS = 20  # below, the log-likelihood is too skew for a normal interval
BISECTIONS = 50  # a bracket of e^8 shrinks to below 1e-11


class Intervals(NamedTuple):
    """95% limits: of theta by row, of kappa [Q, L]. The reference's kappa is 1 by definition and has no width."""

    theta_low: NDArray[np.float64]
    theta_high: NDArray[np.float64]
    kappa_low: NDArray[np.float64]
    kappa_high: NDArray[np.float64]


def intervals(tables: Tables, fit: Fit) -> Intervals:
    """theta exp(+-Z se(log theta)); the set {x : 2 (l_max - l_profile(x)) <= Z^2} for ads with fewer than FEW_CLICKS clicks.

    An ad without a click has theta = 0, and its upper limit x solves -sum_l N log(1 - kappa_l x) = Z^2 / 2. A position without a
    click has kappa 0 and the limits NaN: no ad of the query says how attractive it would have been there.
    """
    low, high = _log_limits(fit.theta, fit.theta_log_se)
    few = np.flatnonzero(tables.clicks.sum(axis=1) < FEW_CLICKS)
    _profile_limits(tables, *active(tables), fit, few, low, high)
    return Intervals(low, np.minimum(high, 1.0), *_log_limits(fit.kappa, fit.kappa_log_se))


def _log_limits(estimate: NDArray[np.float64], log_se: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return estimate * np.exp(-Z * log_se), estimate * np.exp(Z * log_se)


@njit(cache=True, nogil=True)
def _profile_limits(tables, active_ads, active_positions, fit, few, low, high):
    """Write the limits of the rows `few`."""
    query = 0
    for row in few:
        while tables.starts[query + 1] <= row:
            query += 1
        if not active_ads[row]:
            low[row] = 0.0
            high[row] = limit_without_click(tables.displays[row], fit.kappa[query])
            continue
        rows, positions, clicks, displays = cut_out(tables, active_ads, active_positions, query)
        k = np.searchsorted(rows, row)
        theta, kappa = fit.theta[rows], fit.kappa[query][positions]
        low[row] = profile_limit(clicks, displays, theta, kappa, k, -1.0)
        high[row] = profile_limit(clicks, displays, theta, kappa, k, 1.0)


@njit(cache=True, nogil=True)
def limit_without_click(displays, kappa):
    """The x in (0, 1] with -sum_l N log(1 - kappa_l x) = DROP, by bisection; 1 if there is none."""
    low, high = 0.0, 1.0
    for _ in range(BISECTIONS):
        x = 0.5 * (low + high)
        loss = 0.0
        for l in range(kappa.size):
            if displays[l] > 0:
                loss -= displays[l] * math.log1p(-kappa[l] * x)
        if loss < DROP:
            low = x
        else:
            high = x
    return high


@njit(cache=True, nogil=True)
def profile(clicks, displays, theta, kappa, k, value):
    """The largest log-likelihood with theta_k held at `value`, all other parameters free (but the reference's kappa = 1)."""
    theta, kappa = theta.copy(), kappa.copy()
    theta[k] = value
    largest = theta.max() * kappa.max()
    if largest >= 1.0:
        return -math.inf
    climb(clicks, displays, theta, kappa, np.argmax(kappa), k)
    return log_likelihood(clicks, displays, theta, kappa)


@njit(cache=True, nogil=True)
def profile_limit(clicks, displays, theta, kappa, k, direction):
    """Where the profile of theta_k has fallen by DROP, below (direction -1) or above (+1) its maximum."""
    top = log_likelihood(clicks, displays, theta, kappa)
    inside, reach = math.log(theta[k]), 0.5
    outside = inside + direction * reach
    while outside < 0.0 and top - profile(clicks, displays, theta, kappa, k, math.exp(outside)) < DROP:
        reach *= 2.0
        outside = inside + direction * reach
    outside = min(outside, 0.0)
    for _ in range(BISECTIONS):
        middle = 0.5 * (inside + outside)
        if top - profile(clicks, displays, theta, kappa, k, math.exp(middle)) < DROP:
            inside = middle
        else:
            outside = middle
    return math.exp(outside)
