"""The counts of many queries: one table of clicks and displays each, with its own number of ads, below one another."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray


class TableError(ValueError):
    """Counts that are no counts; the message names the row and the rule."""


class Tables(NamedTuple):
    """Rows are ads, columns positions 1..L; the rows of query q are starts[q] to below starts[q + 1]."""

    clicks: NDArray[np.int64]  # S[k, l]
    displays: NDArray[np.int64]  # N[k, l]
    starts: NDArray[np.int64]

    @property
    def n_queries(self) -> int:
        return self.starts.size - 1

    @property
    def n_positions(self) -> int:
        return int(self.clicks.shape[1])

    @property
    def sizes(self) -> NDArray[np.int64]:
        """K of each query."""
        return np.diff(self.starts)

    @property
    def query_of_row(self) -> NDArray[np.int64]:
        return np.repeat(np.arange(self.n_queries), self.sizes)


def one(tables: Tables, query: int) -> Tables:
    """The table of one query."""
    first, last = tables.starts[query], tables.starts[query + 1]
    return Tables(tables.clicks[first:last], tables.displays[first:last], np.array([0, last - first]))


def select(tables: Tables, queries: NDArray[np.bool_]) -> Tables:
    """The tables of some queries."""
    rows = queries[tables.query_of_row]
    starts = np.concatenate([[0], np.cumsum(tables.sizes[queries])])
    return Tables(tables.clicks[rows], tables.displays[rows], starts)


def tables(clicks: ArrayLike, displays: ArrayLike, starts: ArrayLike | None = None) -> Tables:
    """Checked tables; without `starts` the rows are one query's."""
    checked = []
    for name, values in (("clicks", clicks), ("displays", displays)):
        array = np.asarray(values)
        if array.ndim != 2 or array.shape[0] == 0 or array.shape[1] == 0:
            raise TableError(f"{name} has shape {array.shape}, expected (ads, positions) with at least one of each")
        whole = array.astype(np.int64)
        if not np.array_equal(whole, array):
            raise TableError(f"{name} holds {array[whole != array].flat[0]}, expected whole numbers")
        checked.append(np.ascontiguousarray(whole))
    s, n = checked
    if s.shape != n.shape:
        raise TableError(f"clicks has shape {s.shape} and displays {n.shape}, expected the same")
    wrong = np.argwhere((s < 0) | (s > n))
    if wrong.size:
        k, l = wrong[0]
        raise TableError(f"ad {k}, position {l + 1}: {s[k, l]} clicks of {n[k, l]} displays, expected 0 <= clicks <= displays")
    bounds = np.asarray([0, s.shape[0]] if starts is None else starts, np.int64)
    if bounds.ndim != 1 or bounds.size < 2 or bounds[0] != 0 or bounds[-1] != s.shape[0] or (np.diff(bounds) < 1).any():
        raise TableError(f"starts is {bounds}, expected to rise from 0 to the number of rows, {s.shape[0]}")
    return Tables(s, n, bounds)
