"""Exact draws from a posterior by rejection from its tangents, where no bell fits: hardly any displays, theta near 1.

log pi is concave, so tangents at three points lie above it: a hull of exponentials to draw from.
"""

import math

import numpy as np
from numpy.typing import NDArray

from bandits.kernel import kernel
from bandits.posterior import Posteriors, derivatives, log_posterior, mode

POINTS = 3
SPREAD = 1.3  # standard deviations between the points of a hull: accepts most for a normal posterior
FLAT = 1e-9  # a piece that rises by less is drawn from as if it were level
STEEP = 40.0  # exp(-STEEP) is nothing beside 1
# The rows of a hull, a column for each tangent: where it touches, its height there (the middle one's is 0) and slope; of its
# piece of the hull, the mass up to its end, the higher end, and two factors to draw with; the slope of the chord to the next.
POINT, HEIGHT, SLOPE, MASS, HIGHER, SHARE, SCALE, CHORD, ROWS = range(9)


def no_hulls(posteriors: Posteriors) -> NDArray[np.float64]:
    """The hulls [K, ROWS, POINTS] of K arms, yet to be put anywhere."""
    hull = np.zeros((len(posteriors.counts), ROWS, POINTS))
    hull[:, POINT] = 0.5  # a first guess of the mode
    return hull


@kernel
def place(posteriors, hull, k):
    """Put the points of arm k's hull at the mode and SPREAD standard deviations to both sides, with the tangents there."""
    clicks = posteriors.counts[k, 0]
    centre = mode(posteriors, k, clicks, hull[k, POINT, 1])
    first, second = derivatives(posteriors, k, clicks, centre)
    reach = SPREAD / math.sqrt(second) if second > 0.0 else 1.0
    if abs(first) > 0.0:  # at an edge the posterior falls off like an exponential
        reach = min(reach, 1.0 / abs(first))
    hull[k, POINT, 0] = max(centre - reach, 0.5 * centre)
    hull[k, POINT, 1] = centre
    hull[k, POINT, 2] = min(centre + reach, 0.5 * (centre + 1.0))
    top = log_posterior(posteriors, k, centre)
    for i in range(POINTS):
        hull[k, HEIGHT, i] = log_posterior(posteriors, k, hull[k, POINT, i]) - top
        hull[k, SLOPE, i] = derivatives(posteriors, k, clicks, hull[k, POINT, i])[0]


@kernel
def cover(hull, k):
    """Cut arm k's tangents where they meet, and find the mass under each piece: exp(its higher end) (1 - exp(-rise)) / slope."""
    start = 0.0
    total = 0.0
    for i in range(POINTS):
        point, height, slope = hull[k, POINT, i], hull[k, HEIGHT, i], hull[k, SLOPE, i]
        end = 1.0
        if i + 1 < POINTS:
            after, above, next_slope = hull[k, POINT, i + 1], hull[k, HEIGHT, i + 1], hull[k, SLOPE, i + 1]
            # Where the tangents meet; two that hardly differ meet half way, up to rounding.
            bend = slope - next_slope
            end = 0.5 * (point + after)
            if bend > 1e-12 * (abs(slope) + abs(next_slope)):
                end = min(max(point + (above - height - next_slope * (after - point)) / bend, point), after)
            hull[k, CHORD, i] = (above - height) / (after - point)
        rise = abs(slope) * (end - start)
        higher = end if slope > 0.0 else start
        fall = 1.0 if rise > STEEP else -math.expm1(-rise)
        mass = math.exp(height + slope * (higher - point))
        mass *= fall / abs(slope) if rise > FLAT else end - start
        # A share of the mass, counted from the higher end, lies within log(1 - share fall) / slope of it.
        hull[k, HIGHER, i] = higher
        hull[k, SHARE, i] = (fall if rise > FLAT else end - start) / mass
        hull[k, SCALE, i] = 1.0 / slope if rise > FLAT else 0.0
        total += mass
        hull[k, MASS, i] = total
        start = end


@kernel
def draw_from_hull(posteriors, hull, k, rng):
    """One draw from the posterior of arm k.

    Between the points the posterior is above its chords, and exp(y) above 1 + y: most draws are accepted by these, and need
    neither the posterior nor an exponential.
    """
    while True:
        u = rng.random() * hull[k, MASS, POINTS - 1]
        i = 0
        while i < POINTS - 1 and u >= hull[k, MASS, i]:
            i += 1
        if i > 0:
            u -= hull[k, MASS, i - 1]
        u *= hull[k, SHARE, i]
        x = hull[k, HIGHER, i]
        if hull[k, SCALE, i] == 0.0:
            x += u if hull[k, SLOPE, i] <= 0.0 else -u
        else:
            x += math.log1p(-u) * hull[k, SCALE, i]
        if x <= 0.0 or x >= 1.0:
            continue
        excess = hull[k, HEIGHT, i] + hull[k, SLOPE, i] * (x - hull[k, POINT, i])
        toss = rng.random()
        if hull[k, POINT, 0] < x < hull[k, POINT, 2]:
            j = 0 if x < hull[k, POINT, 1] else 1
            gap = hull[k, HEIGHT, j] + hull[k, CHORD, j] * (x - hull[k, POINT, j]) - excess
            if toss <= 1.0 + gap or toss < math.exp(gap):
                return x
        if toss < math.exp(log_posterior(posteriors, k, x) - log_posterior(posteriors, k, hull[k, POINT, 1]) - excess):
            return x
