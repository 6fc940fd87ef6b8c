"""What the counts can identify: the parts into which ads and positions fall.

With u = log theta and v = log kappa, moving a set of ads up and its positions down by the same amount changes only the cells
between the set and the rest. A cell with clicks does not let its p go in either direction; a cell shown without a click only
resists that p goes up. So take edges both ways for a cell with clicks, and one from ad to position for a cell without: the
maximum exists and is unique if and only if this graph is strongly connected. Ads and positions without any click have their
maximum at 0 and are left out.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from estimation.tables import Tables


class Part(NamedTuple):
    """Ads (rows of the query's table) and positions (from 1) that are held together."""

    ads: list[int]
    positions: list[int]


def active(tables: Tables) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which ads (rows) and which positions ([Q, L]) have a click."""
    ads = tables.clicks.sum(axis=1) > 0
    positions = np.add.reduceat(tables.clicks, tables.starts[:-1], axis=0) > 0
    return ads, positions


def labels(tables: Tables) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """A label of the part of each ad (rows) and each position ([Q, L]); -1 for those without a click."""
    ads, positions = active(tables)
    n_rows, n_positions = tables.clicks.shape
    row, l = np.nonzero((tables.displays > 0) & ads[:, None] & positions[tables.query_of_row])
    node = n_rows + tables.query_of_row[row] * n_positions + l
    clicked = tables.clicks[row, l] > 0
    source, target = np.concatenate([row, node[clicked]]), np.concatenate([node, row[clicked]])
    n_nodes = n_rows + tables.n_queries * n_positions
    graph = coo_array((np.ones(source.size, np.int8), (source, target)), shape=(n_nodes, n_nodes))
    _, label = connected_components(graph, directed=True, connection="strong")
    of_positions = label[n_rows:].reshape(tables.n_queries, n_positions).astype(np.int64)
    return np.where(ads, label[:n_rows], -1), np.where(positions, of_positions, -1)


def connected(tables: Tables) -> NDArray[np.bool_]:
    """Whether each query's parameters are identified: all in one part, and there is a click at all."""
    of_ads, of_positions = labels(tables)
    largest = np.maximum(np.maximum.reduceat(of_ads, tables.starts[:-1]), of_positions.max(axis=1))
    foreign = (of_ads >= 0) & (of_ads != largest[tables.query_of_row])
    foreign_positions = ((of_positions >= 0) & (of_positions != largest[:, None])).any(axis=1)
    whole: NDArray[np.bool_] = (largest >= 0) & ~np.logical_or.reduceat(foreign, tables.starts[:-1]) & ~foreign_positions
    return whole


def parts(table: Tables) -> list[Part]:
    """The parts of one query's table, largest first."""
    of_ads, of_positions = labels(table)
    found = [
        Part(np.flatnonzero(of_ads == label).tolist(), (np.flatnonzero(of_positions[0] == label) + 1).tolist())
        for label in np.union1d(of_ads, of_positions)
        if label >= 0
    ]
    return sorted(found, key=lambda part: -len(part.ads) - len(part.positions))
