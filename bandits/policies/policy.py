"""What every policy's file declares."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Kappa = NDArray[np.float64]


class Parameter(NamedTuple):
    """A choice that the paper leaves open."""

    default: float
    meaning: str
    least: float = 0.0


class Policy(NamedTuple):
    """A policy by name: `start(n_arms, kappa, **parameters)` gives the state that `play` dispatches on."""

    name: str
    summary: str
    start: Callable[..., Any]
    parameters: Mapping[str, Parameter] = {}


EPSILON = Parameter(0.0, "how much wider the confidence: delta = (1 + epsilon) log t")
ALPHA = Parameter(1.0, "of the prior Beta(alpha, beta) of theta; uniform by default", least=1.0)
BETA = Parameter(1.0, "of the same prior", least=1.0)
