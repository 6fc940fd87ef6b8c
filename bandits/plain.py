"""A policy in plain Python, for trying an idea out: a function, or a class with a memory of its own.

It plays in the same loop with the same draws, interpreted: some 10 to 100 microseconds a round. What proves good is then
written like the files of `policies/`.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from bandits.play import register
from bandits.policies.policy import Policy


class Learner(Protocol):
    """What a class of a plain policy has; it is made anew for each run, with (n_arms, kappa)."""

    def choose(self, t: int, rng: np.random.Generator) -> Sequence[int]:
        """The list to show in round t (from 1): L arms, the one for the most examined position first."""

    def observe(self, action: NDArray[np.int64], clicked: NDArray[np.bool_]) -> None:
        """What was shown, and what was clicked, by position."""


class PlainState(NamedTuple):
    name: str
    n_arms: int
    learner: Learner


class PlainPolicyError(ValueError):
    """A plain policy that does not choose a list; the message names it, the round and the list."""


class _Function:
    """A function choose(t, clicks, displays, kappa, rng) with the counts S[k, l] and N[k, l] kept for it."""

    def __init__(self, function: Callable[..., Sequence[int]], n_arms: int, kappa: NDArray[np.float64]) -> None:
        self.function, self.kappa = function, kappa
        self.clicks = np.zeros((n_arms, kappa.size), np.int64)
        self.displays = np.zeros((n_arms, kappa.size), np.int64)

    def choose(self, t: int, rng: np.random.Generator) -> Sequence[int]:
        return self.function(t, self.clicks, self.displays, self.kappa, rng)

    def observe(self, action: NDArray[np.int64], clicked: NDArray[np.bool_]) -> None:
        positions = np.arange(action.size)
        self.displays[action, positions] += 1
        self.clicks[action, positions] += clicked


def plain(name: str, idea: type[Any] | Callable[..., Sequence[int]]) -> Policy:
    """The policy of a class (see `Learner`), or of a function choose(t, clicks, displays, kappa, rng) of the counts so far."""

    def start(n_arms: int, kappa: NDArray[np.float64]) -> PlainState:
        learner = idea(n_arms, kappa) if isinstance(idea, type) else _Function(idea, n_arms, kappa)
        return PlainState(name, n_arms, learner)

    return Policy(name, (idea.__doc__ or name).strip().splitlines()[0], start)


def choose(state: PlainState, t: int, rng: np.random.Generator, action: NDArray[np.int64]) -> None:
    """Ask the learner, and check what it says."""
    chosen = list(state.learner.choose(t, rng))
    arms = {int(k) for k in chosen if 0 <= k < state.n_arms and k == int(k)}
    if len(chosen) != action.size or len(arms) != action.size:
        raise PlainPolicyError(
            f"{state.name} chose {chosen} in round {t}, expected {action.size} different arms of 0 to {state.n_arms - 1}"
        )
    action[:] = chosen


def observe(state: PlainState, action: NDArray[np.int64], clicked: NDArray[np.bool_]) -> None:
    """Pass copies on: the loop uses its arrays again."""
    state.learner.observe(action.copy(), clicked.copy())


register(PlainState, choose, observe)
