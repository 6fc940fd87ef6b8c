"""Exact draws from the posteriors of arms, each by the sampler that fits its counts."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bandits.bell import SUMS, USED, Bells, adapt, draw_from_bell, no_bells
from bandits.hull import cover, draw_from_hull, no_hulls, place
from bandits.kernel import kernel
from bandits.posterior import Posteriors, prior


class Sampler(NamedTuple):
    """The posteriors of K arms, with what it takes to draw from each."""

    posteriors: Posteriors
    bells: Bells
    hulls: NDArray[np.float64]  # [K, ROWS, POINTS]


def sampler(n_arms: int, kappa: NDArray[np.float64], alpha: float, beta: float) -> Sampler:
    """For arms of which nothing was seen yet, with the prior Beta(alpha, beta)."""
    posteriors = prior(n_arms, kappa, alpha, beta)
    found = Sampler(posteriors, no_bells(posteriors), no_hulls(posteriors))
    for k in range(n_arms):
        prepare(found, k)
    return found


@kernel
def learn(sampler, k, l, clicked):
    """Add a display of arm k at position l."""
    i = 0 if clicked else 1 + l
    sampler.posteriors.counts[k, i] += 1.0
    for j in range(SUMS):
        sampler.bells.sums[k, j] += sampler.bells.weights[k, i, j]
    prepare(sampler, k)


@kernel
def prepare(sampler, k):
    """Make arm k ready to be drawn from, after its counts have changed."""
    if not adapt(sampler.posteriors, sampler.bells, k):
        place(sampler.posteriors, sampler.hulls, k)
        cover(sampler.hulls, k)


@kernel
def draw(sampler, k, rng):
    """One draw from the posterior of arm k."""
    if sampler.bells.numbers[k, USED] > 0.0:
        return draw_from_bell(sampler.posteriors, sampler.bells, k, rng)
    return draw_from_hull(sampler.posteriors, sampler.hulls, k, rng)
