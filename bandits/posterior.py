"""Exact draws from the posterior of theta for known kappa.

Under a uniform prior it is pi(x) = x^S prod_l (1 - kappa_l x)^F_l on (0, 1). A prior Beta(alpha, beta) is alpha - 1 clicks and
beta - 1 misses at a position that is always examined. Two samplers share the work; both are exact by rejection.

**Scaled Beta.** The paper proposes from a Beta scaled by the kappa of the most shown position, which says nothing of the others.
Take the least kappa* among the positions with misses instead, any m in (0, 1), and

    Beta(S + 1, b + 1) / kappa*,   b = sum_l F_l t_l(m),   t_l(x) = (1 / kappa* - x) / (1 / kappa_l - x) >= 1.

With r = pi / proposal, (1 / kappa* - x) (log r)' = b - sum_l F_l t_l(x), which falls in x and is 0 at m: so r is largest at m,
and a draw x < 1 is accepted with probability r(x) / r(m). And -(log r)'' = (sum_l F_l t_l(x)^2 - b) / (1 / kappa* - x)^2 rises in
x wherever it is positive. So up to some `far`, r(x) / r(m) >= 1 - rho (x - m)^2 / 2 with rho its value there: nearly all draws
are accepted by that, without a logarithm. A miss at position l adds t_l(m) to b, a click 1 to S. m is the mode of some time ago.

**Tangents.** Where much of that Beta lies above 1 (few displays, theta near 1): log pi is concave, so tangents at three points
lie above it, a hull of exponentials to draw from.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bandits.kernel import kernel

DRIFT = 0.5  # standard deviations that the mode may be away from m
RECENTRE = 8  # m and far follow when the displays have grown by one in so many
REACH = 6.0  # standard deviations from m to `far`
HIGHEST = 0.99  # m and the reach stay below 1
BELOW_ONE = 1.0  # standard deviations between the mean of the scaled Beta and 1 where it is used
PATIENCE = 50  # refused draws of a scaled Beta until tangents take over; a handful are the rule
POINTS = 3
SPREAD = 1.3  # standard deviations between the points of a hull: accepts most for a normal posterior
MODE_STEPS = 50  # of a bracketed Newton; 3 to 6 are the rule
EDGE = 1e-12  # points keep this far from 0 and 1, where tangents may be vertical
FLAT = 1e-9  # a piece that rises by less is drawn from as if it were level
STEEP = 40.0  # exp(-STEEP) is nothing beside 1
# What is kept of a scaled Beta: whether it is used, kappa*, m, 1 / m, 1 / (1 / kappa* - m), b + 1, rho, far, and the
# displays at which m follows.
USED, FLOOR, CENTRE, INVERSE, BELOW, SHAPE, RHO, FAR, DUE, NUMBERS = range(10)
# The rows of a hull, a column for each tangent: where it touches, its height there (the middle one's is 0) and slope; of its
# piece of the hull, the mass up to its end, the higher end, and two factors to draw with; the slope of the chord to the next.
POINT, HEIGHT, SLOPE, MASS, HIGHER, SHARE, SCALE, CHORD, ROWS = range(9)


class Posteriors(NamedTuple):
    """The posteriors of K arms, each with what its sampler needs."""

    kappa: NDArray[np.float64]  # [M], of the positions in the counts
    counts: NDArray[np.float64]  # [K, 1 + M]: S, F_1, ..., F_M, prior included
    beta: NDArray[np.float64]  # [K, NUMBERS]
    ratios: NDArray[np.float64]  # [K, 2, M]: t_l(m), and what a miss at l adds to rho
    hull: NDArray[np.float64]  # [K, ROWS, POINTS]


def prior(n_arms: int, kappa: NDArray[np.float64], alpha: float, beta: float) -> Posteriors:
    """Nothing seen yet: the prior Beta(alpha, beta), alpha and beta at least 1, for every arm."""
    if beta > 1.0:
        kappa = np.append(kappa, 1.0)
    counts = np.zeros((n_arms, 1 + kappa.size))
    counts[:, 0] = alpha - 1.0
    counts[:, -1] += beta - 1.0
    numbers, hull = np.zeros((n_arms, NUMBERS)), np.zeros((n_arms, ROWS, POINTS))
    numbers[:, FLOOR], numbers[:, CENTRE] = 1.0, 0.5
    hull[:, POINT] = 0.5  # a first guess of the mode
    posteriors = Posteriors(kappa, counts, numbers, np.zeros((n_arms, 2, kappa.size)), hull)
    for k in range(n_arms):
        prepare(posteriors, k)
    return posteriors


@kernel
def learn(posteriors, k, clicked, l):
    """Add a click, or a miss at position l, of arm k."""
    posteriors.counts[k, 0 if clicked else 1 + l] += 1.0
    prepare(posteriors, k)


@kernel
def draw(posteriors, k, rng):
    """One draw from the posterior of arm k."""
    return draw_beta(posteriors, k, rng) if posteriors.beta[k, USED] > 0.0 else draw_hull(posteriors, k, rng)


@kernel
def prepare(posteriors, k):
    """Adjust arm k's sampler to its counts."""
    counts, beta = posteriors.counts, posteriors.beta
    if weigh(posteriors, k):
        recentre(posteriors, k)
        weigh(posteriors, k)
    a = counts[k, 0] + 1.0
    beta[k, USED] = 1.0 if a + BELOW_ONE * math.sqrt(a) < beta[k, FLOOR] * (a + beta[k, SHAPE]) else 0.0
    if beta[k, USED] == 0.0:
        place(posteriors, k)
        cover(posteriors, k)


@kernel
def weigh(posteriors, k):
    """Set b and rho of arm k to its counts. Whether m should move: kappa* is another, displays have grown, or the mode is away.

    The mode is (log pi)'(m) / sqrt(-(log pi)''(m)) standard deviations away, where (log pi)' = S / m - b / (1 / kappa* - m) and
    -(log pi)'' = S / m^2 + sum_l F_l t_l(m)^2 / (1 / kappa* - m)^2. Without clicks it is 0, where m was put.
    """
    kappa, counts, beta, ratios = posteriors.kappa, posteriors.counts, posteriors.beta, posteriors.ratios
    clicks = counts[k, 0]
    displays = clicks
    lower = False
    b = 0.0
    rho = 0.0
    squares = 0.0
    for l in range(kappa.size):
        missed, ratio = counts[k, 1 + l], ratios[k, 0, l]
        displays += missed
        lower = lower or (missed > 0.0 and kappa[l] < beta[k, FLOOR])
        b += missed * ratio
        rho += missed * ratios[k, 1, l]
        squares += missed * ratio * ratio
    beta[k, SHAPE] = b + 1.0
    beta[k, RHO] = rho
    inverse, below = beta[k, INVERSE], beta[k, BELOW]
    slope = clicks * inverse - b * below
    away = clicks > 0.0 and slope * slope > DRIFT * DRIFT * (clicks * inverse * inverse + squares * below * below)
    return lower or away or displays >= beta[k, DUE]


@kernel
def recentre(posteriors, k):
    """Move m of arm k to the mode, and find kappa*, t_l(m) and what rho is made of."""
    kappa, counts, beta, ratios = posteriors.kappa, posteriors.counts, posteriors.beta, posteriors.ratios
    floor = 1.0
    for l in range(kappa.size):
        if counts[k, 1 + l] > 0.0:
            floor = min(floor, kappa[l])
    m = min(mode(posteriors, k, beta[k, CENTRE]), HIGHEST)
    a, b = counts[k, 0] + 1.0, 0.0
    for l in range(kappa.size):
        ratios[k, 0, l] = (1.0 / floor - m) / (1.0 / kappa[l] - m)
        b += counts[k, 1 + l] * ratios[k, 0, l]
    far = min(m + REACH * math.sqrt(a) / (floor * (a + b + 1.0)), HIGHEST)
    for l in range(kappa.size):
        at_far = (1.0 / floor - far) / (1.0 / kappa[l] - far)
        ratios[k, 1, l] = (at_far * at_far - ratios[k, 0, l]) / ((1.0 / floor - far) * (1.0 / floor - far))
    displays = counts[k, 0]
    for l in range(kappa.size):
        displays += counts[k, 1 + l]
    beta[k, FLOOR] = floor
    beta[k, CENTRE] = m
    beta[k, INVERSE] = 1.0 / m
    beta[k, BELOW] = 1.0 / (1.0 / floor - m)
    beta[k, FAR] = far
    beta[k, DUE] = displays + 1.0 + displays // RECENTRE


@kernel
def draw_beta(posteriors, k, rng):
    """One draw from the posterior of arm k, from its scaled Beta."""
    kappa, counts, beta = posteriors.kappa, posteriors.counts, posteriors.beta
    floor, m, shape = beta[k, FLOOR], beta[k, CENTRE], beta[k, SHAPE]
    for _ in range(PATIENCE):
        x = rng.beta(counts[k, 0] + 1.0, shape) / floor
        if x <= 0.0 or x >= 1.0:
            continue
        toss = rng.random()
        if x <= beta[k, FAR] and toss <= 1.0 - 0.5 * beta[k, RHO] * (x - m) * (x - m):
            return x
        log_ratio = -(shape - 1.0) * math.log((1.0 - floor * x) / (1.0 - floor * m))
        for l in range(kappa.size):
            if counts[k, 1 + l] > 0.0:
                log_ratio += counts[k, 1 + l] * math.log((1.0 - kappa[l] * x) / (1.0 - kappa[l] * m))
        if toss < math.exp(log_ratio):
            return x
    place(posteriors, k)  # what was refused says nothing of what comes: the draw stays exact
    cover(posteriors, k)
    return draw_hull(posteriors, k, rng)


@kernel
def log_posterior(posteriors, k, x):
    """S log x + sum_l F_l log(1 - kappa_l x)."""
    total = posteriors.counts[k, 0] * math.log(x)
    for l in range(posteriors.kappa.size):
        total += posteriors.counts[k, 1 + l] * math.log1p(-posteriors.kappa[l] * x)
    return total


@kernel
def derivatives(posteriors, k, x):
    """Its first derivative, S / x - sum_l F_l kappa_l / (1 - kappa_l x), and minus the second."""
    counts, kappa = posteriors.counts, posteriors.kappa
    first = counts[k, 0] / x
    second = first / x
    for l in range(kappa.size):
        ratio = kappa[l] / (1.0 - kappa[l] * x)
        first -= counts[k, 1 + l] * ratio
        second += counts[k, 1 + l] * ratio * ratio
    return first, second


@kernel
def mode(posteriors, k, near):
    """Where the posterior is largest on (0, 1), to a hundredth of its width; `near` is a guess."""
    low, high = EDGE, 1.0 - EDGE
    if derivatives(posteriors, k, high)[0] >= 0.0:
        return high
    if derivatives(posteriors, k, low)[0] <= 0.0:
        return low
    x = min(max(near, low), high)
    for _ in range(MODE_STEPS):
        first, second = derivatives(posteriors, k, x)
        if first > 0.0:
            low = x
        else:
            high = x
        if first * first <= 1e-4 * second:  # within a hundredth of a standard deviation
            return x
        step = x + first / second
        x = step if low < step < high else 0.5 * (low + high)
    return x


@kernel
def place(posteriors, k):
    """Put the points of arm k's hull at the mode and SPREAD standard deviations to both sides, with the tangents there."""
    hull = posteriors.hull
    centre = mode(posteriors, k, hull[k, POINT, 1])
    first, second = derivatives(posteriors, k, centre)
    reach = SPREAD / math.sqrt(second) if second > 0.0 else 1.0
    if abs(first) > 0.0:  # at an edge the posterior falls off like an exponential
        reach = min(reach, 1.0 / abs(first))
    hull[k, POINT, 0] = max(centre - reach, 0.5 * centre)
    hull[k, POINT, 1] = centre
    hull[k, POINT, 2] = min(centre + reach, 0.5 * (centre + 1.0))
    top = log_posterior(posteriors, k, centre)
    for i in range(POINTS):
        hull[k, HEIGHT, i] = log_posterior(posteriors, k, hull[k, POINT, i]) - top
        hull[k, SLOPE, i] = derivatives(posteriors, k, hull[k, POINT, i])[0]


@kernel
def cover(posteriors, k):
    """Cut arm k's tangents where they meet, and find the mass under each piece: exp(its higher end) (1 - exp(-rise)) / slope."""
    hull = posteriors.hull
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
def draw_hull(posteriors, k, rng):
    """One draw from the posterior of arm k, from its hull.

    Between the points the posterior is above its chords, and exp(y) above 1 + y: most draws are accepted by these, and need
    neither the posterior nor an exponential.
    """
    hull = posteriors.hull
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
