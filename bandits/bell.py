r"""Exact draws from a posterior by rejection from a normal density, for all but a few states; `bandits.hull` has those.

The paper proposes from a Beta scaled by the kappa of the most shown position, which says nothing of the others. We take the cube
root instead, which makes a posterior of few clicks nearly normal (Wilson and Hilferty 1931). With x = m (1 + y)^3 for some m in
(0, 1), y has a density h, and with rho_l = kappa_l m / (1 - kappa_l m),

    log h(y) - log h(0) = (3 S + 2) log(1 + y) + sum_l F_l log(1 - rho_l ((1 + y)^3 - 1)) = g y - c y^2 / 2 - e y^3 / 6 - rest,
    g = (3 S + 2) - sum_l F_l 3 rho_l,   c = (3 S + 2) + sum_l F_l (6 rho_l + 9 rho_l^2),
    e = -2 (3 S + 2) + sum_l F_l (6 rho_l + 54 rho_l^2 + 54 rho_l^3).

At the mode e vanishes with kappa m. The rest is positive: the series of -log(1 - a u^3) has positive terms, so that all its
derivatives are positive for u > 0, and the fourth derivative of log(1 + y) is negative. Hence, for |y| <= w,

    g y - c y^2 / 2 - e y^3 / 6 - q y^4 / 24  <=  log h(y) - log h(0)  <=  g y - c' y^2 / 2,   c' = c - |e| w / 3,

where q is (3 S + 2) 6 / (1 - w), as a geometric series bounds that of the logarithm, and for each miss its fourth derivative
(180 rho^2 + 648 rho^3 + 486 rho^4) / (1 + w)^4 at the right end, where it is largest. The upper bound is the bell to propose
from; nearly all draws are accepted by the lower one, without a logarithm. Beyond w, log h is concave and falls at least as
steeply as at w: exponential tails. Each has TAIL times the mass of the whole bell: enough, where bell and posterior fall as
`fit` asks.

All sums are linear in the counts, so that a display adds a few numbers. m is the mode of some time ago.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bandits.kernel import kernel
from bandits.posterior import Posteriors, derivatives, mode

REACH = 4.0  # standard deviations from m to the ends of a bell when it is put there
INSIDE = 0.9  # of the way from m to 0, and in y to where log h is infinite, that a bell may cover
RECENTRE = 4  # m and w follow when the displays have grown by one in so many
NEAREST_END = 2.5  # standard deviations of the bell from its middle to an end, at least
LEAST_FALL = 2.0  # of log h at the ends, per standard deviation of the bell, at least
# At an end the bell is at most exp(-NEAREST_END^2 / 2) of its height, and a tail from there 1 / LEAST_FALL deviations long.
TAIL = math.exp(-0.5 * NEAREST_END * NEAREST_END) / (LEAST_FALL * math.sqrt(2.0 * math.pi))
IN_A_TAIL = TAIL / (1.0 + 2.0 * TAIL)  # so often a proposal comes from the left tail, and so often from the right one
BELOW_ONE = 1.0  # standard deviations of the bell between m and x = 1, at least
JACOBIAN = 2.0 / 3.0  # dx = 3 m (1 + y)^2 dy: 3 S + 2 are three times so many clicks more than S
# What is kept of a bell: whether it is used, m, w, the displays at which both follow, the y where x = 1, the middle g / c' and
# the standard deviation, and the factors of the lower bound.
USED, CENTRE, WIDTH, DUE, ONE, MIDDLE, DEVIATION, SQUARE, CUBE, FOURTH, NUMBERS = range(11)
# What is linear in the counts: displays, g, c, e, q, and how steeply log h falls at the two ends.
N, G, C, E, Q, LEFT, RIGHT, SUMS = range(8)


class Bells(NamedTuple):
    """The bells of K arms."""

    numbers: NDArray[np.float64]  # [K, NUMBERS]
    weights: NDArray[np.float64]  # [K, 1 + M, SUMS]: what one more of a count adds to each sum
    sums: NDArray[np.float64]  # [K, SUMS]


def no_bells(posteriors: Posteriors) -> Bells:
    """Bells yet to be put anywhere."""
    n_arms, n_counts = posteriors.counts.shape
    numbers = np.zeros((n_arms, NUMBERS))
    numbers[:, CENTRE] = 0.5  # a first guess of the mode
    return Bells(numbers, np.zeros((n_arms, n_counts, SUMS)), np.zeros((n_arms, SUMS)))


@kernel
def adapt(posteriors, bells, k):
    """Adjust arm k's bell to its sums, and move it if need be. Whether it may be used."""
    numbers = bells.numbers
    used = bells.sums[k, N] < numbers[k, DUE] and fit(bells, k)
    if not used:
        recentre(posteriors, bells, k)
        used = fit(bells, k)
    numbers[k, USED] = 1.0 if used else 0.0
    return used


@kernel
def fit(bells, k):
    """Set arm k's bell to its sums. Whether it may be used: 1 and its ends are far out, and log h falls there as tails need."""
    numbers, sums = bells.numbers, bells.sums
    w = numbers[k, WIDTH]
    bent = abs(sums[k, E]) * w / 3.0
    narrow = sums[k, C] - bent  # c'
    if not narrow > 0.0:
        return False
    deviation = 1.0 / math.sqrt(narrow)
    middle = sums[k, G] * deviation * deviation
    numbers[k, MIDDLE] = middle
    numbers[k, DEVIATION] = deviation
    numbers[k, SQUARE] = 0.5 * bent
    numbers[k, CUBE] = sums[k, E] / 6.0
    numbers[k, FOURTH] = sums[k, Q] / 24.0
    far = w - abs(middle) >= NEAREST_END * deviation and numbers[k, ONE] >= BELOW_ONE * deviation
    return far and min(sums[k, LEFT], sums[k, RIGHT]) * deviation >= LEAST_FALL


@kernel
def recentre(posteriors, bells, k):
    """Put the bell of arm k where its posterior is."""
    kappa, counts, numbers = posteriors.kappa, posteriors.counts, bells.numbers
    clicks = counts[k, 0] + JACOBIAN
    m = mode(posteriors, k, clicks, numbers[k, CENTRE])
    deviation = 1.0 / (3.0 * m * math.sqrt(derivatives(posteriors, k, clicks, m)[1]))
    largest = 0.0
    for l in range(kappa.size):
        largest = max(largest, kappa[l])
    w = min(REACH * deviation, INSIDE * min(1.0, (largest * m) ** (-1.0 / 3.0) - 1.0))
    numbers[k, CENTRE] = m
    numbers[k, WIDTH] = w
    numbers[k, ONE] = m ** (-1.0 / 3.0) - 1.0
    weigh(kappa, m, w, bells.weights[k])
    for j in range(SUMS):
        total = (counts[k, 0] if j == N else clicks) * bells.weights[k, 0, j]
        for l in range(kappa.size):
            total += counts[k, 1 + l] * bells.weights[k, 1 + l, j]
        bells.sums[k, j] = total
    numbers[k, DUE] = bells.sums[k, N] + 1.0 + bells.sums[k, N] // RECENTRE


@kernel
def weigh(kappa, m, w, weights):
    """What a click (row 0) and a miss at each position (rows 1 to M) add to the sums."""
    left, right = 1.0 - w, 1.0 + w
    weights[0, N] = 1.0
    weights[0, G] = 3.0
    weights[0, C] = 3.0
    weights[0, E] = -6.0
    weights[0, Q] = 18.0 / left
    weights[0, LEFT] = 3.0 / left
    weights[0, RIGHT] = -3.0 / right
    for l in range(kappa.size):
        row = 1 + l
        rho = kappa[l] * m / (1.0 - kappa[l] * m)
        weights[row, N] = 1.0
        weights[row, G] = -3.0 * rho
        weights[row, C] = rho * (6.0 + 9.0 * rho)
        weights[row, E] = rho * (6.0 + rho * (54.0 + 54.0 * rho))
        p = kappa[l] * m * left * left * left
        weights[row, LEFT] = -3.0 * p / ((1.0 - p) * left)
        p = kappa[l] * m * right * right * right
        rho = p / (1.0 - p)
        weights[row, RIGHT] = 3.0 * rho / right
        weights[row, Q] = rho * rho * (180.0 + rho * (648.0 + 486.0 * rho)) / (right * right * right * right)


@kernel
def log_ratio(posteriors, bells, k, y):
    """log h(y) - log h(0)."""
    counts = posteriors.counts
    total = 3.0 * (counts[k, 0] + JACOBIAN) * math.log1p(y)
    third = y * (1.0 + y * (1.0 + y / 3.0))  # of (1 + y)^3 - 1; its weight in g is -3 rho
    for l in range(posteriors.kappa.size):
        total += counts[k, 1 + l] * math.log1p(bells.weights[k, 1 + l, G] * third)
    return total


@kernel
def draw_from_bell(posteriors, bells, k, rng):
    """One draw from the posterior of arm k. The first toss chooses between bell and tails, and what is left of it accepts."""
    numbers, sums = bells.numbers, bells.sums
    w, one, middle, deviation = numbers[k, WIDTH], numbers[k, ONE], numbers[k, MIDDLE], numbers[k, DEVIATION]
    while True:
        toss = rng.random()
        if toss >= 2.0 * IN_A_TAIL:
            y = middle + deviation * rng.standard_normal()
            if abs(y) > w or y >= one:
                continue
            toss = (toss - 2.0 * IN_A_TAIL) / (1.0 - 2.0 * IN_A_TAIL)
            square = y * y
            if toss <= 1.0 - square * (numbers[k, SQUARE] + numbers[k, CUBE] * y + numbers[k, FOURTH] * square):
                break
            if toss < math.exp(log_ratio(posteriors, bells, k, y) - sums[k, G] * y + 0.5 * square / (deviation * deviation)):
                break
        else:
            left = toss < IN_A_TAIL
            fall = sums[k, LEFT] if left else sums[k, RIGHT]
            beyond = rng.standard_exponential()
            y = -w - beyond / fall if left else w + beyond / fall
            if y <= -1.0 or y >= one:
                continue
            # The bell is exp(g middle / 2) high, and the tail starts at TAIL sqrt(2 pi) fall deviation of that.
            start = 0.5 * sums[k, G] * middle + math.log(TAIL * math.sqrt(2.0 * math.pi) * fall * deviation)
            if rng.random() < math.exp(log_ratio(posteriors, bells, k, y) - start + beyond):
                break
    return numbers[k, CENTRE] * (1.0 + y) * (1.0 + y) * (1.0 + y)
