"""Columns to text: the 12 integers of each line as digits between tabs."""

import numpy as np
from numba import njit

from pipeline.log.sketch import mix
from pipeline.synthesis import shares

(CLICK, IMPRESSION, DISPLAY_URL, AD, ADVERTISER, DEPTH, POSITION, QUERY, KEYWORD, TITLE, DESCRIPTION, USER) = range(12)
COLUMNS = 12
LONGEST_LINE = COLUMNS * 21  # 20 digits and a separator each

TAB, NEWLINE = 9, 10
TEN, HUNDRED = np.uint64(10), np.uint64(100)
TENS, UNITS = (np.array([ord(f"{n:02}"[place]) for n in range(100)], np.uint8) for place in (0, 1))
TOP_BIT = np.uint64(63)
TO_UNIT = 2.0**-64
BEYOND_INT64 = shares.BEYOND_INT64
ADVERTISERS = np.uint64(shares.ADVERTISERS)
LOG_KEYWORDS, LOG_TITLES, LOG_DESCRIPTIONS = (float(np.log(n)) for n in (shares.KEYWORDS, shares.TITLES, shares.DESCRIPTIONS))
SALT_URL, SALT_BIT, SALT_KEYWORD, SALT_TITLE, SALT_DESCRIPTION = (np.uint64(n) for n in range(1, 6))


@njit(cache=True, nogil=True)
def skewed(hashed, log_most):
    """An id that is the smaller the more frequent, as the log numbers its tokens: log-uniform below exp(log_most)."""
    return np.uint64(np.exp(float(hashed) * TO_UNIT * log_most)) - np.uint64(1)


@njit(cache=True, nogil=True)
def dress(columns, variants):
    """Fill the columns that nothing here counts, as functions of the ad, the query and the line's variant of its texts.

    columns: uint64[12, n]; variants: uint64[n].
    """
    for i in range(columns.shape[1]):
        ad, query = columns[AD, i], columns[QUERY, i]
        advertiser = mix(ad) % ADVERTISERS + np.uint64(1)
        url = mix(advertiser + (SALT_URL << TOP_BIT)) >> np.uint64(1)
        if float(mix(ad ^ (SALT_BIT << np.uint64(32)))) * TO_UNIT < BEYOND_INT64:
            url |= np.uint64(1) << TOP_BIT
        columns[ADVERTISER, i] = advertiser
        columns[DISPLAY_URL, i] = url
        columns[KEYWORD, i] = skewed(mix(query + (SALT_KEYWORD << np.uint64(40))), LOG_KEYWORDS)
        text = mix(ad + (variants[i] << np.uint64(40)))
        columns[TITLE, i] = skewed(mix(text + SALT_TITLE), LOG_TITLES)
        columns[DESCRIPTION, i] = skewed(mix(text + SALT_DESCRIPTION), LOG_DESCRIPTIONS)


@njit(cache=True, nogil=True)
def spell(columns, text):
    """Write the lines, from the last digit of the last line backwards: so no number's length is needed before its digits.

    columns: uint64[12, n]; text: uint8, LONGEST_LINE for each. Returns where the lines start; they end with `text`.
    """
    at = text.size
    for i in range(columns.shape[1] - 1, -1, -1):
        for column in range(COLUMNS - 1, -1, -1):
            at -= 1
            text[at] = NEWLINE if column == COLUMNS - 1 else TAB
            value = columns[column, i]
            while value >= HUNDRED:
                rest = value // HUNDRED
                pair = value - rest * HUNDRED
                value = rest
                at -= 2
                text[at], text[at + 1] = TENS[pair], UNITS[pair]
            if value >= TEN:
                at -= 1
                text[at] = UNITS[value]
                value = value // TEN
            at -= 1
            text[at] = UNITS[value]
    return at
