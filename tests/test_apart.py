"""What a thread writes to shares no cache line with what another one writes to."""

from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from numpy.typing import NDArray

from bandits.apart import LINE, apart
from bandits.policies import POLICIES
from bandits.simulate import play_run, player
from bandits.world import world


class Inner(NamedTuple):
    counts: NDArray[np.int64]


class Outer(NamedTuple):
    inner: Inner
    kappa: NDArray[np.float64]
    again: NDArray[np.float64]
    epsilon: float


def lines(array: NDArray[np.float64]) -> set[int]:
    """The cache lines that an array touches."""
    return {byte // LINE for byte in range(array.ctypes.data, array.ctypes.data + max(array.nbytes, 1))}


def test_copies_hold_the_same_and_share_no_line_with_anything_else() -> None:
    kappa = np.array([0.9, 0.6, 0.3])
    state = Outer(Inner(np.arange(6).reshape(2, 3)), kappa, kappa, 0.5)
    moved = [apart((state,))[0] for _ in range(50)]
    for each in moved:
        assert isinstance(each, Outer)
        assert isinstance(each.inner, Inner)
        assert_array_equal(each.inner.counts, state.inner.counts)
        assert_array_equal(each.kappa, kappa)
        assert each.kappa is each.again  # what was one array stays one
        assert each.epsilon == 0.5
    touched = [lines(array) for each in moved for array in (each.inner.counts, each.kappa)]
    assert sum(map(len, touched)) == len(set.union(*touched))


def test_a_state_whose_arrays_overlap_is_left_alone() -> None:
    whole = np.zeros(4)
    state = (whole, whole[1:])
    assert apart(state) is state


def test_what_a_run_of_any_policy_writes_to_is_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays of a policy that overlapped would stay where they are, and nobody would notice."""
    moved: list[bool] = []

    def watched(before: tuple[Any, ...]) -> Any:
        after = apart(before)
        moved.append(after is not before)
        return after

    monkeypatch.setattr("bandits.simulate.apart", watched)
    for policy in POLICIES.values():
        play_run(player(policy), world([0.5, 0.4, 0.3], [0.9, 0.6]), np.array([5]), 0, 0)
    assert moved == [True] * len(POLICIES)
