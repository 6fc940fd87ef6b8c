"""How sure the parameters are: 95% intervals on the log scale, and by the profile likelihood where clicks are few."""

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.stats import norm

from estimation.fit import ALMOST_NO_MISS, Fit, cut_out, limits
from estimation.likelihood import log_likelihood
from estimation.newton import climb
from estimation.parts import active
from estimation.tables import Tables

Z = float(norm.ppf(0.975))
DROP = Z**2 / 2  # of the log-likelihood, at the ends of a 95% interval: half the 95% quantile of chi-square with one degree
FEW_CLICKS = 20  # below, the log-likelihood is too skew for a normal interval
BISECTIONS = 60  # 2^-60 of any bracket is rounding
CLOSE = 1e-9  # of a limit on the log scale, and of the fall of the likelihood there


class Intervals(NamedTuple):
    """95% limits: of theta by row, of kappa [Q, L]. The reference's kappa is 1 by definition and has no width."""

    theta_low: NDArray[np.float64]
    theta_high: NDArray[np.float64]
    kappa_low: NDArray[np.float64]
    kappa_high: NDArray[np.float64]


def intervals(tables: Tables, fit: Fit) -> Intervals:
    """theta exp(+-Z se(log theta)); the set {x : 2 (l_max - l_profile(x)) <= Z^2} for ads with fewer than FEW_CLICKS clicks.

    The same for kappa, always on the log scale: its upper end may be above 1, where another position may be the best. An ad
    without a click has theta = 0, and its upper limit x solves -sum_l N log(1 - kappa_l x) = Z^2 / 2; a position without one
    has kappa = 0 and solves -sum_k N log(1 - theta_k x) = Z^2 / 2. An ad at the limit p = 1 has no standard error: its
    interval is by the profile, too.
    """
    low, high = _log_limits(fit.theta, fit.theta_log_se)
    kappa_low, kappa_high = _log_limits(fit.kappa, fit.kappa_log_se)
    few = np.flatnonzero((tables.clicks.sum(axis=1) < FEW_CLICKS) | np.isnan(fit.theta_log_se))
    of_ads, of_positions = active(tables)
    _profile_limits(tables, of_ads, of_positions, fit, few, low, high)
    for query, l in np.argwhere(~of_positions):
        rows = slice(tables.starts[query], tables.starts[query + 1])
        kappa_low[query, l] = 0.0
        kappa_high[query, l] = limit_without_click(np.ascontiguousarray(tables.displays[rows, l]), fit.theta[rows])
    return Intervals(low, np.minimum(high, 1.0), kappa_low, kappa_high)


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
        rows, positions, clicks, missed = cut_out(tables, active_ads, active_positions, query)
        for cell in limits(missed):
            missed[cell // positions.size, cell % positions.size] = ALMOST_NO_MISS
        k = np.searchsorted(rows, row)
        theta, kappa = fit.theta[rows], fit.kappa[query][positions]
        low[row] = profile_limit(clicks, missed, theta, kappa, k, -1.0)
        high[row] = profile_limit(clicks, missed, theta, kappa, k, 1.0)


@njit(cache=True, nogil=True)
def limit_without_click(displays, factor):
    """The x in (0, 1] with -sum N log(1 - factor x) = DROP, by bisection; 1 if there is none. factor: the other parameters."""
    low, high = 0.0, 1.0
    for _ in range(BISECTIONS):
        x = 0.5 * (low + high)
        loss = 0.0
        for i in range(factor.size):
            if displays[i] > 0:
                loss -= displays[i] * math.log1p(-factor[i] * x)
        if loss < DROP:
            low = x
        else:
            high = x
    return high


@njit(cache=True, nogil=True)
def profile(clicks, missed, theta, kappa, k, value):
    """The largest log-likelihood with theta_k held at `value`, all other parameters free (but the reference's kappa = 1)."""
    theta, kappa = theta.copy(), kappa.copy()
    theta[k] = value
    if value >= 1.0:
        return -math.inf
    climb(clicks, missed, theta, kappa, np.argmax(kappa), k)
    return log_likelihood(clicks, missed, theta, kappa)


@njit(cache=True, nogil=True)
def profile_limit(clicks, missed, theta, kappa, k, direction):
    """Where the profile of theta_k has fallen by DROP, below (direction -1) or above (+1) its maximum; at most 1.

    On log theta, by false position that halves the weight of an end that stays (Illinois): the profile is nearly a parabola.
    """
    top = log_likelihood(clicks, missed, theta, kappa)
    inside, reach = math.log(theta[k]), 0.5
    at_inside = -DROP
    outside = inside + direction * reach
    while True:
        if outside >= 0.0:
            outside, at_outside = 0.0, math.inf
            break
        at_outside = top - profile(clicks, missed, theta, kappa, k, math.exp(outside)) - DROP
        if at_outside >= 0.0:
            break
        inside, at_inside = outside, at_outside
        reach *= 2.0
        outside = outside + direction * reach
    stayed = 0
    for _ in range(BISECTIONS):
        if abs(outside - inside) < CLOSE:
            break
        share = at_inside / (at_inside - at_outside) if at_outside < math.inf else 0.5
        middle = inside + min(max(share, 0.01), 0.99) * (outside - inside)
        found = top - profile(clicks, missed, theta, kappa, k, math.exp(middle)) - DROP
        if found < 0.0:
            inside, at_inside = middle, found
            if stayed == 1:
                at_outside *= 0.5
            stayed = 1
        else:
            outside, at_outside = middle, found
            if stayed == -1:
                at_inside *= 0.5
            stayed = -1
        if abs(found) < CLOSE:
            return math.exp(middle)
    return math.exp(outside)
