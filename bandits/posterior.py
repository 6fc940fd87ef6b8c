"""The posterior of theta for known kappa, by arm.

Under a uniform prior it is pi(x) = x^S prod_l (1 - kappa_l x)^F_l on (0, 1). A prior Beta(alpha, beta) is alpha - 1 clicks and
beta - 1 misses at a position that is always examined. log pi is concave.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bandits.kernel import kernel

MODE_STEPS = 50  # of a bracketed Newton; 3 to 6 are the rule
EDGE = 1e-12  # a mode keeps this far from 0 and 1, where log pi may be infinite


class Posteriors(NamedTuple):
    """What is known of K arms."""

    kappa: NDArray[np.float64]  # [M], of the positions in the counts
    counts: NDArray[np.float64]  # [K, 1 + M]: S, F_1, ..., F_M, prior included


def prior(n_arms: int, kappa: NDArray[np.float64], alpha: float, beta: float) -> Posteriors:
    """Nothing seen yet: the prior Beta(alpha, beta), alpha and beta at least 1, for every arm."""
    if beta > 1.0:
        kappa = np.append(kappa, 1.0)
    counts = np.zeros((n_arms, 1 + kappa.size))
    counts[:, 0] = alpha - 1.0
    counts[:, -1] += beta - 1.0
    return Posteriors(kappa, counts)


@kernel
def log_posterior(posteriors, k, x):
    """S log x + sum_l F_l log(1 - kappa_l x)."""
    total = posteriors.counts[k, 0] * math.log(x)
    for l in range(posteriors.kappa.size):
        total += posteriors.counts[k, 1 + l] * math.log1p(-posteriors.kappa[l] * x)
    return total


@kernel
def derivatives(posteriors, k, clicks, x):
    """Its first derivative with so many clicks, S / x - sum_l F_l kappa_l / (1 - kappa_l x), and minus the second."""
    counts, kappa = posteriors.counts, posteriors.kappa
    first = clicks / x
    second = first / x
    for l in range(kappa.size):
        ratio = kappa[l] / (1.0 - kappa[l] * x)
        first -= counts[k, 1 + l] * ratio
        second += counts[k, 1 + l] * ratio * ratio
    return first, second


@kernel
def mode(posteriors, k, clicks, near):
    """Where the posterior with so many clicks is largest on (0, 1), to a hundredth of its width; `near` is a guess."""
    low, high = EDGE, 1.0 - EDGE
    if derivatives(posteriors, k, clicks, high)[0] >= 0.0:
        return high
    if derivatives(posteriors, k, clicks, low)[0] <= 0.0:
        return low
    x = min(max(near, low), high)
    for _ in range(MODE_STEPS):
        first, second = derivatives(posteriors, k, clicks, x)
        if first > 0.0:
            low = x
        else:
            high = x
        if first * first <= 1e-4 * second:  # within a hundredth of a standard deviation
            return x
        step = x + first / second
        x = step if low < step < high else 0.5 * (low + high)
    return x
