"""The Kullback-Leibler divergence of Bernoulli distributions."""

import math


def kl(p: float, q: float) -> float:
    """d(p, q) = p log(p / q) + (1 - p) log((1 - p) / (1 - q)), with 0 log 0 = 0; infinite where q excludes what p allows."""
    if (p > 0 and q <= 0) or (p < 1 and q >= 1):
        return math.inf
    total = p * math.log(p / q) if p > 0 else 0.0
    return total + ((1 - p) * math.log((1 - p) / (1 - q)) if p < 1 else 0.0)
