"""Exact draws from the posterior of theta for known kappa, under a uniform prior.

The posterior is theta^S prod_l (1 - kappa_l theta)^F_l on (0, 1). Its logarithm is concave, so tangents at a few points lie
above it: a hull of exponentials, from which we draw, accepting with probability posterior / hull. The draws are exact wherever
the points are; that they sit at the mode and about a standard deviation to both sides only makes most of them acceptable.
The paper proposes from a scaled Beta of the most shown position instead, which accepts ever less as positions are mixed; a test
holds the two together.
"""

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

POINTS = 3
SPREAD = 1.3  # standard deviations between the points: accepts most for a normal posterior
MODE_STEPS = 50  # of a bracketed Newton; 3 to 6 are the rule
EDGE = 1e-12  # points keep this far from 0 and 1, where tangents may be vertical


@njit(cache=True, nogil=True)
def log_posterior(clicks, missed, kappa, x):
    """S log x + sum_l F_l log(1 - kappa_l x), up to a constant. clicks: S; missed: F[L]."""
    value = clicks * math.log(x) if clicks > 0 else 0.0
    for l in range(kappa.size):
        if missed[l] > 0:
            value += missed[l] * math.log1p(-kappa[l] * x)
    return value


@njit(cache=True, nogil=True)
def slope(clicks, missed, kappa, x):
    """Its derivative, S / x - sum_l F_l kappa_l / (1 - kappa_l x)."""
    value = clicks / x
    for l in range(kappa.size):
        if missed[l] > 0:
            value -= missed[l] * kappa[l] / (1.0 - kappa[l] * x)
    return value


@njit(cache=True, nogil=True)
def curvature(clicks, missed, kappa, x):
    """Minus its second derivative, S / x^2 + sum_l F_l (kappa_l / (1 - kappa_l x))^2."""
    value = clicks / (x * x)
    for l in range(kappa.size):
        if missed[l] > 0:
            value += missed[l] * (kappa[l] / (1.0 - kappa[l] * x)) ** 2
    return value


@njit(cache=True, nogil=True)
def mode(clicks, missed, kappa, near):
    """Where the posterior is largest on (0, 1), to a hundredth of its width; `near` is a guess."""
    low, high = EDGE, 1.0 - EDGE
    if slope(clicks, missed, kappa, high) >= 0.0:
        return high
    if slope(clicks, missed, kappa, low) <= 0.0:
        return low
    x = min(max(near, low), high)
    for _ in range(MODE_STEPS):
        g, c = slope(clicks, missed, kappa, x), curvature(clicks, missed, kappa, x)
        if g > 0.0:
            low = x
        else:
            high = x
        if g * g <= 1e-4 * c:  # within a hundredth of a standard deviation
            return x
        step = x + g / c
        x = step if low < step < high else 0.5 * (low + high)
    return x


@njit(cache=True, nogil=True)
def build_hull(clicks, missed, kappa, hull):
    """Write the hull of one arm. hull: float[6, POINTS], rows: points, heights, slopes, ends and cumulated masses of the pieces.

    hull[0, 1] is taken as a guess of the mode. Heights are relative to the middle point's, which hull[5, 0] keeps.
    """
    middle = mode(clicks, missed, kappa, hull[0, 1])
    c = curvature(clicks, missed, kappa, middle)
    reach = SPREAD / math.sqrt(c) if c > 0.0 else 1.0
    g = abs(slope(clicks, missed, kappa, middle))
    if g > 0.0:  # at an edge the posterior falls off like an exponential
        reach = min(reach, 1.0 / g)
    hull[0, 0] = max(middle - reach, 0.5 * middle)
    hull[0, 1] = middle
    hull[0, 2] = min(middle + reach, 0.5 * (middle + 1.0))
    top = log_posterior(clicks, missed, kappa, middle)
    hull[5, 0] = top
    for i in range(POINTS):
        hull[1, i] = log_posterior(clicks, missed, kappa, hull[0, i]) - top
        hull[2, i] = slope(clicks, missed, kappa, hull[0, i])
    start = 0.0
    total = 0.0
    for i in range(POINTS):
        end = 1.0
        if i + 1 < POINTS:
            # Where the tangents meet; two that hardly differ meet half way, up to rounding.
            bend = hull[2, i] - hull[2, i + 1]
            end = 0.5 * (hull[0, i] + hull[0, i + 1])
            if bend > 1e-12 * (abs(hull[2, i]) + abs(hull[2, i + 1])):
                meet = (hull[1, i + 1] - hull[1, i] + hull[2, i] * hull[0, i] - hull[2, i + 1] * hull[0, i + 1]) / bend
                end = min(max(meet, hull[0, i]), hull[0, i + 1])
        left = hull[1, i] + hull[2, i] * (start - hull[0, i])
        width = hull[2, i] * (end - start)
        # The integral of exp(left + slope (x - start)) over the piece.
        mass = math.exp(left) * (end - start) * (math.expm1(width) / width if abs(width) > 1e-9 else 1.0 + 0.5 * width)
        total += mass
        hull[3, i] = end
        hull[4, i] = total
        start = end


@njit(cache=True, nogil=True)
def draw(clicks, missed, kappa, hull, rng):
    """One draw from the posterior whose hull this is.

    Between the points the posterior is above its chords, too: what a chord accepts needs no logarithm of the posterior.
    """
    while True:
        u = rng.random() * hull[4, POINTS - 1]
        i = 0
        while i < POINTS - 1 and u >= hull[4, i]:
            i += 1
        before = hull[4, i - 1] if i > 0 else 0.0
        start = hull[3, i - 1] if i > 0 else 0.0
        share = (u - before) / (hull[4, i] - before)
        width = hull[2, i] * (hull[3, i] - start)
        # The inverse of the piece's distribution, from its left end.
        along = math.log1p(share * math.expm1(width)) / width if abs(width) > 1e-9 else share
        x = start + (hull[3, i] - start) * along
        if x <= 0.0 or x >= 1.0:
            continue
        above = hull[1, i] + hull[2, i] * (x - hull[0, i])
        toss = rng.random()
        if hull[0, 0] < x < hull[0, 2]:
            j = 0 if x < hull[0, 1] else 1
            rise = (hull[1, j + 1] - hull[1, j]) / (hull[0, j + 1] - hull[0, j])
            if toss < math.exp(hull[1, j] + rise * (x - hull[0, j]) - above):
                return x
        if toss < math.exp(log_posterior(clicks, missed, kappa, x) - hull[5, 0] - above):
            return x


def empty_hulls(n_arms: int) -> NDArray[np.float64]:
    """Hulls to be built, with 1/2 as the guess of every mode."""
    hulls = np.zeros((n_arms, 6, POINTS))
    hulls[:, 0, 1] = 0.5
    return hulls
