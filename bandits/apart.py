"""Memory of its own for what a thread writes to.

Runs are small: their arrays, made one after the other by several threads, would share cache lines, and every count that one core
writes would take the line away from the other. On two threads a round of PBM-UCB took a third more core time without this, and
one of PBM-TS an eighth; `python -m benchmarks.playing` prints what two threads lose now.
"""

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

LINE = 128  # bytes; cores fetch lines of 64 in pairs


def apart(state: tuple[Any, ...]) -> Any:
    """The same tuple of arrays, scalars and tuples, its arrays copied into one block that shares no line with anything else.

    What was one array stays one. Where two arrays overlap the state is returned as it is, since copies would part them.
    """
    arrays = {id(array): array for array in arrays_of(state)}
    if any(np.may_share_memory(*two) for two in combinations(arrays.values(), 2)):
        return state
    starts = np.cumsum([0, *(-(-array.nbytes // LINE) * LINE for array in arrays.values())])
    block = np.empty(starts[-1] + 2 * LINE, np.uint8)
    first = -block.ctypes.data % LINE
    copies: dict[int, NDArray[Any]] = {}
    for (key, array), start in zip(arrays.items(), starts, strict=False):
        copies[key] = block[first + start :][: array.nbytes].view(array.dtype).reshape(array.shape)
        copies[key][...] = array
    return moved(state, copies)


def arrays_of(value: Any) -> Iterator[NDArray[Any]]:
    """Every array in a tuple of tuples."""
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, tuple):
        for part in value:
            yield from arrays_of(part)


def moved(value: Any, copies: dict[int, NDArray[Any]]) -> Any:
    """A value with the copies in place of its arrays."""
    if isinstance(value, tuple):
        parts = [moved(part, copies) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return copies.get(id(value), value)
