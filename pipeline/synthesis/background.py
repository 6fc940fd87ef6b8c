"""The background: lines of every query, in runs of users, none of which can pass the paper's filter.

Each (query, ad) is drawn from a long tail of ads of its query. An ad is never shown at position 1 + (its number mod 3):
so no ad of the background has displays at every position, at any size of the log and in any unit, and what passes the filter is
what was planted. Its ids and those of planted ads differ modulo AD_STRIDE, so that it adds to no planted cell.
"""

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from pipeline.log.sketch import GOLDEN, mix
from pipeline.synthesis import shares
from pipeline.synthesis.spelling import AD, CLICK, DEPTH, IMPRESSION, POSITION, QUERY, USER

CHUNK = 1 << 14  # lines that share a random generator
USERS_PER_CHUNK = 2_600  # 9,134 chunks of the real log's size then use its 23.9M user ids; 2,409 are expected in each
FIRST_AD, AD_STRIDE = 1_000_000, 33  # ids 1.0M to 22.2M, sparse
ADS_OF_A_QUERY = 20_000.0  # the tail is log-uniform up to here; no figure is published
POSITIONS = 3

ADS, USERS = np.uint64(shares.ADS), shares.USERS
REPEATED, LINES_PER_USER, LINES_PER_USER_0_RUN = shares.REPEATED, shares.LINES_PER_USER, shares.LINES_PER_USER_0_RUN
EVEN_FROM = shares.EVEN_FROM


class Tables(NamedTuple):
    """The shares of the real log, as the kernel draws from them."""

    query_edges: NDArray[np.int64]
    query_user_0: NDArray[np.float64]  # cumulated shares of the bins
    query_others: NDArray[np.float64]
    layouts: NDArray[np.float64]  # rows: depth, position, cumulated share
    depths: NDArray[np.float64]  # for each position the cumulated shares of the depths
    impression_edges: NDArray[np.int64]
    impressions: NDArray[np.float64]  # cumulated shares for user 0 and the others
    click_rates: NDArray[np.float64]  # by position


def tables() -> Tables:
    """The background's tables. Click rates fall with the position as 1/position and have the real log's mean."""
    examined = {position: 1 / position for position in range(1, POSITIONS + 1)}
    mean = sum(examined[position] * shares.position_share(position) for position in examined)
    return Tables(
        *shares.query_bins(),
        shares.layouts_table(),
        shares.depths_table(),
        *shares.impressions_table(),
        np.array([shares.CLICKS_PER_IMPRESSION * rate / mean for rate in examined.values()]),
    )


def user_0_runs(share: float) -> float:
    """The probability that a run of lines is user 0's, for a share of its lines."""
    runs, others = share / LINES_PER_USER_0_RUN, (1 - share) / LINES_PER_USER
    return runs / (runs + others)


@njit(cache=True, nogil=True)
def draw_bin(rng, cumulated):
    """The index of a bin, drawn by its share."""
    u = rng.random()
    k = 0
    while k < cumulated.size - 1 and u >= cumulated[k]:
        k += 1
    return k


@njit(cache=True, nogil=True)
def draw_between(rng, low, high):
    """An integer from low to below high, with a density that falls like 1/x."""
    return min(high - 1, np.int64(low * (high / low) ** rng.random()))


@njit(cache=True, nogil=True)
def draw_impressions(rng, tables, user_0):
    k = draw_bin(rng, tables.impressions[0 if user_0 else 1])
    return draw_between(rng, tables.impression_edges[k], tables.impression_edges[k + 1])


@njit(cache=True, nogil=True)
def draw_clicks(rng, impressions, rate):
    """Binomial; heavy lines are too rare for anything better than a loop."""
    clicks = 0
    for _ in range(impressions):
        clicks += rng.random() < rate
    return clicks


@njit(cache=True, nogil=True)
def draw_query(rng, tables, user_0):
    k = draw_bin(rng, tables.query_user_0 if user_0 else tables.query_others)
    low, high = tables.query_edges[k], tables.query_edges[k + 1]
    if low == 0:
        return np.int64(0)
    if low >= EVEN_FROM:
        return low + np.int64(rng.random() * (high - low))
    return draw_between(rng, low, high)


@njit(cache=True, nogil=True)
def draw_user(rng, user_0_run, user):
    """The user and the length of the next run of lines; `user` is the last one's number."""
    if rng.random() < user_0_run:
        return True, user, 1 + np.int64(-np.log(1 - rng.random()) * LINES_PER_USER_0_RUN)
    return False, user + 1, 1 + np.int64(np.log(1 - rng.random()) / np.log(1 - 1 / LINES_PER_USER))


@njit(cache=True, nogil=True)
def fill(rng, tables, chunk, user_0_run, columns, variants):
    """Draw a chunk of lines. columns: uint64[12, n], of which the counted ones are filled; variants: uint64[n]."""
    first_user = 1 + chunk * USERS_PER_CHUNK
    user = first_user - 1
    user_0 = False
    left = 0
    for i in range(columns.shape[1]):
        fresh = left == 0
        if fresh:
            user_0, user, left = draw_user(rng, user_0_run, user)
        left -= 1
        columns[USER, i] = 0 if user_0 else 1 + min(user, first_user + USERS_PER_CHUNK - 1) % USERS
        if not fresh and rng.random() < REPEATED:
            variants[i] = variants[i - 1] + np.uint64(1)
            for column in (QUERY, AD, DEPTH, POSITION):
                columns[column, i] = columns[column, i - 1]
        else:
            variants[i] = 0
            query = np.uint64(draw_query(rng, tables, user_0))
            layout = draw_bin(rng, tables.layouts[:, 2])
            position = np.int64(tables.layouts[layout, 1])
            slot = np.uint64(ADS_OF_A_QUERY ** rng.random())
            ad = mix(query * GOLDEN + slot) % ADS
            if ad % np.uint64(POSITIONS) == np.uint64(position - 1):
                ad = (ad + np.uint64(1)) % ADS
            columns[QUERY, i] = query
            columns[DEPTH, i] = np.uint64(tables.layouts[layout, 0])
            columns[POSITION, i] = position
            columns[AD, i] = np.uint64(FIRST_AD) + np.uint64(AD_STRIDE) * ad
        impressions = draw_impressions(rng, tables, user_0)
        columns[IMPRESSION, i] = impressions
        columns[CLICK, i] = draw_clicks(rng, impressions, tables.click_rates[columns[POSITION, i] - np.uint64(1)])
