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


class Lines(NamedTuple):
    """The planted lines in random order: which cell each is of, and what was drawn for it."""

    cell: NDArray[np.int32]
    user: NDArray[np.int32]
    depth: NDArray[np.int32]
    impressions: NDArray[np.int32]
    clicks: NDArray[np.int32]


def draw(seed: np.random.SeedSequence, tables: Tables) -> Lines:
    """All planted lines."""
    rng = np.random.Generator(np.random.PCG64(seed))
    planted = cells()
    order = np.repeat(np.arange(len(planted), dtype=np.int32), [cell.displays for cell in planted])
    rng.shuffle(order)
    lines = Lines(order, *(np.empty_like(order) for _ in range(4)))
    position = np.array([cell.position for cell in planted])
    rate = np.array([cell.kappa * cell.theta for cell in planted])
    fixed = np.array([cell.impressions for cell in planted])
    _draw(rng, tables, user_0_runs(shares.USER_0_OF_HEAD_QUERIES), position, rate, fixed, lines)
    return lines


@njit(cache=True, nogil=True)
def _draw(rng, tables, user_0_run, position, rate, fixed, lines):
    """Draw user, depth, impressions and clicks of each line. position, rate, fixed: by cell."""
    user_0 = False
    left = 0
    for i in range(lines.cell.size):
        cell = lines.cell[i]
        if left == 0:
            user_0, _, left = draw_user(rng, user_0_run, 0)
            user = 1 + np.int64(rng.random() * USERS)
        left -= 1
        lines.user[i] = 0 if user_0 else user
        lines.depth[i] = 1 + draw_bin(rng, tables.depths[position[cell] - 1])
        impressions = fixed[cell] if fixed[cell] > 0 else draw_impressions(rng, tables, user_0)
        lines.impressions[i] = impressions
        # The published rates are per line, the paper's record: further clicks of a clicked line do not count there.
        clicked = rng.random() < rate[cell]
        lines.clicks[i] = 1 + draw_clicks(rng, impressions - 1, rate[cell]) if clicked else 0


def keys() -> NDArray[np.uint64]:
    """Query, ad and position of every cell."""
    return np.array([(cell.query_id, cell.ad_id, cell.position) for cell in cells()], np.uint64)


def columns(lines: Lines, keys: NDArray[np.uint64], start: int, stop: int) -> NDArray[np.uint64]:
    """The lines from start to stop as columns uint64[12, n] of which the counted ones are filled."""
    part = Lines(*(values[start:stop] for values in lines))
    filled = np.zeros((COLUMNS, part.cell.size), np.uint64)
    filled[[QUERY, AD, POSITION]] = keys[part.cell].T
    filled[[USER, DEPTH, IMPRESSION, CLICK]] = part[1:]
    return filled


def truth(lines: Lines) -> pl.DataFrame:
    """What was planted for the published models, cell by cell: the rows of `truth.parquet`."""
    planted = cells()

    def total(values: NDArray[np.int32] | NDArray[np.bool_] | None) -> NDArray[np.int64]:
        return np.bincount(lines.cell, values, len(planted)).astype(np.int64)  # exact: far below 2^53

    counted = {
        "displays": total(None),
        "clicks": total(lines.clicks > 0),
        "impressions": total(lines.impressions),
        "impression_clicks": total(lines.clicks),
    }
    drawn = pl.DataFrame(planted, orient="row", schema=list(Cell._fields)).drop("displays", "impressions")
    return drawn.with_columns(pl.col("position").cast(pl.Int8), **counted).filter(~pl.col("near_miss"))
