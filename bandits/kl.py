"""The Kullback-Leibler divergence of Bernoulli distributions, and the bounds that it gives."""

import math

from numba import njit

BISECTIONS = 50  # 2**-50 < 1e-15: to rounding


@njit(cache=True, nogil=True)
def kl(p, q):
    """d(p, q) = p log(p / q) + (1 - p) log((1 - p) / (1 - q)), with 0 log 0 = 0; infinite where q excludes what p allows."""
    total = 0.0
    if p > 0.0:
        if q <= 0.0:
            return math.inf
        total += p * math.log(p / q)
    if p < 1.0:
        if q >= 1.0:
            return math.inf
        total += (1.0 - p) * math.log((1.0 - p) / (1.0 - q))
    return total


@njit(cache=True, nogil=True)
def kl_upper(mean, budget):
    """The largest q in [mean, 1] with d(mean, q) <= budget (KL-UCB), by Newton kept within a bracket.

    Above the mean the divergence is convex and increases. Pinsker bounds the root by mean + sqrt(budget / 2); from there, on its
    right, Newton comes down monotonically; a step out of the bracket is replaced by its middle.
    """
    if budget <= 0.0 or mean >= 1.0:
        return mean
    low, high = mean, min(1.0, mean + math.sqrt(0.5 * budget))
    q = high if high < 1.0 else 0.5 * (mean + 1.0)
    if q >= 1.0:  # no number lies between the mean and 1
        return mean
    for _ in range(BISECTIONS):
        excess = kl(mean, q) - budget
        if excess > 0.0:
            high = q
        else:
            low = q
        slope = (q - mean) / (q * (1.0 - q))
        step = q - excess / slope if slope > 0.0 else 0.5 * (low + high)
        if not low < step < high:
            step = 0.5 * (low + high)
        if abs(step - q) <= 1e-14 * q:
            return step
        q = step
    return q
