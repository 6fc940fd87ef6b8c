"""A position-based world: what users click, and what a list is worth."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray


class WorldError(ValueError):
    """Parameters that are no position-based model; the message names the value and the rule."""


class World(NamedTuple):
    """P(click on arm k at position l) = kappa_l theta_k, independently. Positions are ranked: kappa does not rise."""

    theta: NDArray[np.float64]  # [K]
    kappa: NDArray[np.float64]  # [L]


def world(theta: ArrayLike, kappa: ArrayLike) -> World:
    """A checked world. Positions are put in the order of falling kappa: the best arm goes to the largest, whatever its place."""
    arrays = {"theta": np.array(theta, np.float64), "kappa": np.array(kappa, np.float64)}
    for name, values in arrays.items():
        if values.ndim != 1 or values.size == 0:
            raise WorldError(f"{name} has shape {values.shape}, expected a list of at least one number")
    theta, kappa = arrays.values()
    outside = np.flatnonzero(~((theta >= 0) & (theta <= 1)))
    if outside.size:
        raise WorldError(f"theta of arm {outside[0] + 1} is {theta[outside[0]]}, expected 0 to 1")
    outside = np.flatnonzero(~((kappa > 0) & (kappa <= 1)))
    if outside.size:
        raise WorldError(f"kappa of position {outside[0] + 1} is {kappa[outside[0]]}, expected above 0 and up to 1")
    if theta.size < kappa.size:
        raise WorldError(f"{theta.size} arms for {kappa.size} positions, expected at least as many arms as positions")
    return World(theta, np.sort(kappa)[::-1].copy())


def best_reward(world: World) -> float:
    """mu* = sum_l kappa_l theta_(l), the expected clicks on the L best arms in order."""
    return float(np.sort(world.theta)[::-1][: world.kappa.size] @ world.kappa)
