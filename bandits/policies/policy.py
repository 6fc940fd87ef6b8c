"""What every policy's file declares."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Policy(NamedTuple):
    """A policy by name: `start(n_arms, kappa, **parameters)` gives the state that `play` dispatches on."""

    name: str
    summary: str
    start: Callable[..., Any]
    parameters: Mapping[str, float]  # names and defaults


Kappa = NDArray[np.float64]
