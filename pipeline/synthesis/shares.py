"""What is known of the real log, as shares of its lines.

Totals: the data set's description and counts on the full file. Shares: the published 0.1% sample (OpenML 1220), weighted back
to the full file (1,000 for a line with a click, 4,302 for one without).
"""

import numpy as np
from numpy.typing import NDArray

from pipeline.published import MODELS

LINES = 149_639_105
USERS = 23_907_634  # the largest UserID
ADS = 641_706  # 641,707 in the real log; here a multiple of 3, see `background`
ADVERTISERS, KEYWORDS, TITLES, DESCRIPTIONS = 39_074, 1_243_163, 4_050_208, 3_171_504  # the largest ids of the sample
CLICKS_PER_IMPRESSION = 8_217_633 / 235_582_879
BEYOND_INT64 = 0.5535  # of the DisplayURLs

# (depth, position): share
LAYOUTS = {(1, 1): 0.2744, (2, 1): 0.2362, (2, 2): 0.2423, (3, 1): 0.0814, (3, 2): 0.0840, (3, 3): 0.0817}

# Queries below this id: share of all lines, and share of user 0 in the lines of this bin (measured in four wider ones).
QUERIES = (
    (1, 0.0164, 0.002),
    (10, 0.0575, 0.002),
    (100, 0.1146, 0.002),
    (1_000, 0.1980, 0.047),
    (10_000, 0.3240, 0.047),
    (100_000, 0.4731, 0.295),
    (1_000_000, 0.6356, 0.295),
    (3_000_000, 0.7340, 0.410),
    (10_000_000, 0.8653, 0.410),
    (20_000_000, 0.9629, 0.410),
    (26_243_607, 1.0, 0.410),
)
USER_0_OF_HEAD_QUERIES = QUERIES[0][2]
EVEN_FROM = 1_000_000  # below, ids within a bin fall off like 1/id; above they are about equally frequent

# Impressions of a line from a to below b: share of user 0's lines, share of the others'.
IMPRESSIONS = (
    (1, 2, 0.78886, 0.87916),
    (2, 3, 0.10791, 0.08259),
    (3, 4, 0.03860, 0.02048),
    (4, 5, 0.01676, 0.00812),
    (5, 10, 0.02774, 0.00827),
    (10, 20, 0.01177, 0.00103),
    (20, 100, 0.00687, 0.00030),
    (100, 1_000, 0.00141, 0.00005),
    (1_000, 12_000, 0.00008, 0.0),
)

LINES_PER_USER = 5.1  # 112M lines of 22,023,546 identified users
LINES_PER_USER_0_RUN = 200.0  # user 0's lines come in long runs; no figure is published
WITHOUT_USER_0_AT_FIRST = 0.1  # of the log; its head has few lines of user 0
REPEATED = 0.02  # of 3,634 exact lines, repeat the (user, ad, query, depth, position) of another with another title


def query_bins() -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """The background's queries: bin edges, and for user 0 and for the others the cumulated shares of the bins.

    The background is the real log less the planted queries, so that the whole has the real shares at the real size.
    """
    edges = np.array([0] + [edge for edge, _, _ in QUERIES], np.int64)
    lines = np.diff([0.0] + [share for _, share, _ in QUERIES]) * LINES
    for model in MODELS:
        lines[np.searchsorted(edges, model.query_id, "right") - 1] -= model.records
    user_0 = lines * [share for _, _, share in QUERIES]
    return edges, np.cumsum(user_0) / user_0.sum(), np.cumsum(lines - user_0) / (lines - user_0).sum()


def user_0_share() -> float:
    """The share of user 0 in all lines, by the bins."""
    lines = np.diff([0.0] + [share for _, share, _ in QUERIES])
    return float(lines @ [share for _, _, share in QUERIES])


def impressions_table() -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Edges of the impression ranges, and the cumulated shares for user 0 (row 0) and the others (row 1)."""
    edges = np.array([low for low, _, _, _ in IMPRESSIONS] + [IMPRESSIONS[-1][1]], np.int64)
    shares = np.array([[user_0, others] for _, _, user_0, others in IMPRESSIONS]).T
    return edges, np.cumsum(shares, axis=1) / shares.sum(axis=1, keepdims=True)


def layouts_table() -> NDArray[np.float64]:
    """Rows depth, position, cumulated share."""
    shares = np.cumsum(list(LAYOUTS.values())) / sum(LAYOUTS.values())
    return np.array([[depth, position, share] for (depth, position), share in zip(LAYOUTS, shares, strict=True)])


def depths_table() -> NDArray[np.float64]:
    """For each position (rows) the cumulated shares of the depths."""
    depths = sorted({depth for depth, _ in LAYOUTS})
    shares = np.array([[LAYOUTS.get((depth, position), 0.0) for depth in depths] for position in depths])
    cumulated: NDArray[np.float64] = np.cumsum(shares, axis=1)
    return cumulated / cumulated[:, -1:]


def position_share(position: int) -> float:
    return sum(share for (_, at), share in LAYOUTS.items() if at == position)
