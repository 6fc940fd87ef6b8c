"""The cell sketch: which (query, item, position) cells can have enough displays, in 64 MiB whatever the log.

A first pass adds the displays of each line to one of 2^24 counters, chosen by a hash of its cell. A counter is at least the
sum of each of its cells, so a cell with `enough` displays sits in a counter of at least `enough`: no cell is missed. The second
pass hands on only the lines of ads whose counters are hot at every position, and the engines count those exactly. Of the
62 million cells of the real log a few thousand are left.

The mean counter is the log's displays / 2^24: 9 for the KDD log. Where it nears `enough` (10^10 displays, for the paper's 1,000),
more and more cold cells get through: the result stays exact, but memory then grows with them.
"""

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from pipeline.log.parser import CLICKS, IMPRESSIONS, ITEM, POSITION, QUERY

BITS = 24
SHIFT = np.uint64(64 - BITS)
FULL = np.uint32(2**32 - 1)  # counters stop here instead of wrapping around, so `enough` may be up to this

# Odd constants of splitmix64 (Steele, Lea, Flood 2014): the increment, and the two multipliers of its finalizer.
GOLDEN, MIX_1, MIX_2 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
SHIFT_1, SHIFT_2, SHIFT_3 = np.uint64(30), np.uint64(27), np.uint64(31)


class Demand(NamedTuple):
    """What the filter asks of a cell: `enough` displays at each of the positions 1..n_positions."""

    enough: int
    n_positions: int
    by_impressions: bool  # a line counts its impressions; otherwise each line counts 1


def empty() -> NDArray[np.uint32]:
    """Counters at zero."""
    return np.zeros(1 << BITS, np.uint32)


@njit(cache=True, nogil=True)
def mix(bits):
    """splitmix64's finalizer: every bit of the result depends on every bit of the argument."""
    bits = (bits ^ (bits >> SHIFT_1)) * MIX_1
    bits = (bits ^ (bits >> SHIFT_2)) * MIX_2
    return bits ^ (bits >> SHIFT_3)


@njit(cache=True, nogil=True)
def pair(query, item):
    """A hash of (query, item)."""
    return mix(mix(np.uint64(query) + GOLDEN) + np.uint64(item))


@njit(cache=True, nogil=True)
def cell(pair_hash, position):
    """A hash of (query, item, position); its high bits choose the counter."""
    return mix(pair_hash + np.uint64(position) * GOLDEN)


@njit(cache=True, nogil=True)
def tally(columns, demand, buckets, weights):
    """The counter and the displays of each line at a position the filter looks at.

    columns: int64[ROWS, n]; buckets, weights: uint32[n], written. Returns how many were written, and a fingerprint of all
    lines: a sum of hashes of what is counted, so that it does not depend on the order or the packing of the log.
    """
    n = 0
    fingerprint = np.uint64(0)
    for i in range(columns.shape[1]):
        position = columns[POSITION, i]
        hashed = cell(pair(columns[QUERY, i], columns[ITEM, i]), position)
        counted = np.uint64(columns[IMPRESSIONS, i] << 32) + np.uint64(columns[CLICKS, i])
        fingerprint += mix(hashed ^ (counted * GOLDEN))
        if position <= demand.n_positions:
            buckets[n] = hashed >> SHIFT
            weights[n] = columns[IMPRESSIONS, i] if demand.by_impressions else 1
            n += 1
    return n, fingerprint


@njit(cache=True, nogil=True)
def add(counters, buckets, weights):
    """Add the displays of a batch to their counters."""
    for i in range(buckets.size):
        before = counters[buckets[i]]
        after = np.uint32(before + weights[i])
        counters[buckets[i]] = after if after >= before else FULL


@njit(cache=True, nogil=True)
def hot(columns, counters, demand, kept):
    """The lines whose ad may have enough displays at every position. kept: int64[n], their indices. Returns how many."""
    n = 0
    for i in range(columns.shape[1]):
        position = columns[POSITION, i]
        if position > demand.n_positions:
            continue
        hashed = pair(columns[QUERY, i], columns[ITEM, i])
        if counters[cell(hashed, position) >> SHIFT] < demand.enough:
            continue
        everywhere = True
        for l in range(1, demand.n_positions + 1):
            everywhere = everywhere and counters[cell(hashed, l) >> SHIFT] >= demand.enough
        if everywhere:
            kept[n] = i
            n += 1
    return n


@njit(cache=True, nogil=True)
def query_buckets(columns, demand, bits, buckets):
    """The counter, of 2^bits by query alone, of each line at a position the filter looks at. buckets: uint32[n]. How many.

    Coarser than cells, and enough where the second pass can count all cells of a query that may pass: a query needs as many
    displays as all its cells together, so as many counters go further.
    """
    shift = np.uint64(64 - bits)
    n = 0
    for i in range(columns.shape[1]):
        if columns[POSITION, i] <= demand.n_positions:
            buckets[n] = mix(np.uint64(columns[QUERY, i]) + GOLDEN) >> shift
            n += 1
    return n


@njit(cache=True, nogil=True)
def hot_queries(columns, hot, demand, bits, kept):
    """The lines, at positions the filter looks at, of queries in hot counters. hot: bool[2^bits]; kept as in `hot`."""
    shift = np.uint64(64 - bits)
    n = 0
    for i in range(columns.shape[1]):
        if columns[POSITION, i] <= demand.n_positions and hot[mix(np.uint64(columns[QUERY, i]) + GOLDEN) >> shift]:
            kept[n] = i
            n += 1
    return n
