"""What is planted: the published models with the paper's records, and near misses beside them. It depends on the seed alone."""

from typing import NamedTuple

import numpy as np
import polars as pl
from numba import njit
from numpy.typing import NDArray

from pipeline.filter import Filter
from pipeline.published import MODELS, PublishedModel
from pipeline.synthesis import shares
from pipeline.synthesis.background import (
    AD_STRIDE,
    FIRST_AD,
    Tables,
    draw_bin,
    draw_clicks,
    draw_impressions,
    draw_user,
    user_0_runs,
)
from pipeline.synthesis.spelling import AD, CLICK, COLUMNS, DEPTH, IMPRESSION, POSITION, QUERY, USER

PAPER = Filter()
PLANTED_AD_OFFSET = 7  # of AD_STRIDE: no ad of the background has an id of this remainder
FEW_ADS_QUERIES = (3, 5)  # one good ad too few
IMPRESSION_QUERIES = (6, 11)  # good by impressions and not by lines
SPARE = 200  # displays above the threshold of near misses, where they have enough
HEAVY_LINES, HEAVY_IMPRESSIONS = 150, 12  # lines of a cell that is good by impressions alone, and impressions of each
USERS = shares.USERS


class Cell(NamedTuple):
    """A planted cell; `impressions` is what each of its lines shows, 0 for as many as the real log's lines show."""

    query_id: int
    ad_id: int
    position: int
    displays: int
    theta: float
    kappa: float
    impressions: int = 0
    near_miss: bool = False


def ad_id(query_id: int, rank: int) -> int:
    """The id of a query's planted ad: scattered, like the log's, and none of the background's."""
    scattered = (query_id * 104_729 + rank * 7_919 + 12_345) % shares.ADS  # two primes and a start; any would do
    return FIRST_AD + AD_STRIDE * scattered + PLANTED_AD_OFFSET


def displays(model: PublishedModel) -> NDArray[np.int64]:
    """Displays[k, l] of a model: the paper's records, at least its threshold in each cell, the rest by position and theta."""
    floor = PAPER.min_displays
    weights = np.outer(model.theta, [shares.position_share(l + 1) for l in range(len(model.kappa))])
    rest = model.records - floor * weights.size
    exact = rest * weights / weights.sum()
    table: NDArray[np.int64] = np.floor(exact).astype(np.int64)
    order = np.argsort((table - exact).ravel(), kind="stable")  # largest remainders first
    table.ravel()[order[: rest - table.sum()]] += 1
    table += floor
    return table


def cells() -> list[Cell]:
    """Every planted cell: the models', then the near misses."""
    planted = []
    for model in MODELS:
        table = displays(model)
        for k, theta in enumerate(model.theta):
            for l, kappa in enumerate(model.kappa):
                planted.append(Cell(model.query_id, ad_id(model.query_id, k), l + 1, int(table[k, l]), theta, kappa))
        planted += _one_display_short(model.query_id, len(model.theta), model)
    like = MODELS[0]
    for query_id in FEW_ADS_QUERIES:
        for k in range(PAPER.min_ads - 1):
            for l, kappa in enumerate(like.kappa):
                enough = PAPER.min_displays + k * SPARE // PAPER.min_ads
                planted.append(Cell(query_id, ad_id(query_id, k), l + 1, enough, like.theta[k], kappa, near_miss=True))
        planted += _one_display_short(query_id, PAPER.min_ads - 1, like)
    for query_id in IMPRESSION_QUERIES:
        for k, theta in enumerate(like.theta):
            for l, kappa in enumerate(like.kappa):
                planted.append(
                    Cell(
                        query_id,
                        ad_id(query_id, k),
                        l + 1,
                        HEAVY_LINES,
                        theta,
                        kappa,
                        HEAVY_IMPRESSIONS,
                        near_miss=True,
                    )
                )
    return planted


def _one_display_short(query_id: int, rank: int, like: PublishedModel) -> list[Cell]:
    """An ad with enough displays at every position but the last, where one is missing; each of its lines shows it once."""
    short = [PAPER.min_displays + SPARE] * (PAPER.positions - 1) + [PAPER.min_displays - 1]
    return [
        Cell(query_id, ad_id(query_id, rank), l + 1, n, like.theta[-1], like.kappa[l], impressions=1, near_miss=True)
        for l, n in enumerate(short)
    ]


def lines(seed: np.random.SeedSequence, tables: Tables) -> NDArray[np.uint64]:
    """All planted lines in random order, as columns uint64[12, n] of which the counted ones are filled."""
    rng = np.random.Generator(np.random.PCG64(seed))
    planted = cells()
    order = np.repeat(np.arange(len(planted)), [cell.displays for cell in planted])
    rng.shuffle(order)
    columns = np.zeros((COLUMNS, order.size), np.uint64)
    for column, values in ((QUERY, [cell.query_id for cell in planted]), (AD, [cell.ad_id for cell in planted])):
        columns[column] = np.array(values, np.uint64)[order]
    columns[POSITION] = np.array([cell.position for cell in planted], np.uint64)[order]
    rates = np.array([cell.kappa * cell.theta for cell in planted])[order]
    fixed = np.array([cell.impressions for cell in planted])[order]
    _fill(rng, tables, user_0_runs(shares.HEAD_USER_0), rates, fixed, columns)
    return columns


@njit(cache=True, nogil=True)
def _fill(rng, tables, user_0_run, rates, fixed, columns):
    """Draw user, depth, impressions and clicks of each planted line. A line is clicked with probability rates[i]."""
    user_0 = False
    left = 0
    for i in range(columns.shape[1]):
        if left == 0:
            user_0, _, left = draw_user(rng, user_0_run, 0)
            user = 1 + np.int64(rng.random() * USERS)
        left -= 1
        columns[USER, i] = 0 if user_0 else user
        while True:  # a depth among those that have this position
            layout = draw_bin(rng, tables.layouts[:, 2])
            if np.uint64(tables.layouts[layout, 1]) == columns[POSITION, i]:
                break
        columns[DEPTH, i] = np.uint64(tables.layouts[layout, 0])
        impressions = fixed[i] if fixed[i] > 0 else draw_impressions(rng, tables, user_0)
        columns[IMPRESSION, i] = impressions
        # The published rates are per line, the paper's record: further clicks of a clicked line do not count there.
        clicked = rng.random() < rates[i]
        columns[CLICK, i] = 1 + draw_clicks(rng, impressions - 1, rates[i]) if clicked else 0


def truth(columns: NDArray[np.uint64]) -> pl.DataFrame:
    """What was planted for the published models, cell by cell: the rows of `truth.parquet`."""
    names = {QUERY: "query_id", AD: "ad_id", POSITION: "position", IMPRESSION: "shown", CLICK: "clicked"}
    drawn = pl.DataFrame({name: columns[column].astype(np.int64) for column, name in names.items()})
    counted = drawn.group_by("query_id", "ad_id", "position").agg(
        displays=pl.len().cast(pl.Int64),
        clicks=(pl.col("clicked") > 0).sum().cast(pl.Int64),
        impressions=pl.col("shown").sum(),
        impression_clicks=pl.col("clicked").sum(),
    )
    models = pl.DataFrame([cell for cell in cells() if not cell.near_miss], orient="row", schema=list(Cell._fields))
    return (
        models.select("query_id", "ad_id", "position", "theta", "kappa")
        .join(counted, on=["query_id", "ad_id", "position"])
        .with_columns(pl.col("position").cast(pl.Int8))
    )
