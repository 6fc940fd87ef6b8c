"""The paper's check of the model: the singular values of the matrix of click-through rates, with what chance alone makes of them.

The paper notes that the first one dominates. So it does with a 10% interaction: the share of sigma_1^2 hardly tells. The ratio
sigma_2 / sigma_1 does, once it is held against its own distribution under the fitted rank-one model: a parametric bootstrap.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from estimation.tables import TableError, Tables

ROUNDING = 1e-12  # of sigma_2 / sigma_1, for matrices of some hundred cells
SURE = 0.95


class Bootstrap(NamedTuple):
    """sigma_2 / sigma_1 under the fitted model: its 95% quantile, and the share of draws at least as large as the real one."""

    q95: float
    p_value: float


def click_rates(tables: Tables) -> NDArray[np.float64]:
    """The matrix of the average click-through rates, S / N, of every row."""
    empty = np.argwhere(tables.displays == 0)
    if empty.size:
        k, l = empty[0]
        raise TableError(f"row {k} was never shown at position {l + 1}: its click-through rate is not defined")
    rates: NDArray[np.float64] = tables.clicks / tables.displays
    return rates


def singular_values(tables: Tables) -> list[NDArray[np.float64]]:
    """The singular values of each query's matrix, falling. Queries with the same number of ads go together."""
    rates = click_rates(tables)
    values: list[NDArray[np.float64]] = [np.empty(0)] * tables.n_queries
    for size in np.unique(tables.sizes):
        queries = np.flatnonzero(tables.sizes == size)
        stacked = rates[tables.starts[queries][:, None] + np.arange(size)]
        for query, found in zip(queries, np.linalg.svd(stacked, compute_uv=False), strict=True):
            values[query] = found
    return values


def first_share(values: NDArray[np.float64]) -> float:
    """The share of sigma_1^2 in the sum of the squares; NaN for a matrix of zeros."""
    total = float((values**2).sum())
    return float(values[0] ** 2) / total if total > 0 else np.nan


def second_ratio(values: NDArray[np.float64]) -> float:
    """sigma_2 / sigma_1; 0 where there is only one, NaN for a matrix of zeros."""
    return float(_ratios(values[None])[0])


def _ratios(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """sigma_2 / sigma_1 of each row of singular values; what is only the rounding of a matrix of rank one is 0."""
    if values.shape[1] < 2:
        return np.where(values[:, 0] > 0, 0.0, np.nan)
    ratios = values[:, 1] / np.where(values[:, 0] > 0, values[:, 0], np.nan)
    return np.where(ratios < ROUNDING, 0.0, ratios)


def bootstrap_second_ratio(
    displays: NDArray[np.int64], p: NDArray[np.float64], observed: float, draws: int, rng: np.random.Generator
) -> Bootstrap:
    """Draw clicks from the fitted rank-one p[k, l] `draws` times, and hold the observed ratio against the draws' ratios."""
    rates = rng.binomial(displays, p, size=(draws, *p.shape)) / displays
    values = np.linalg.svd(rates, compute_uv=False).astype(np.float64)
    ratios = np.nan_to_num(_ratios(values))  # a draw without a click has rank 0
    # One is added above and below: the observed matrix is itself a draw under the model, and no p-value is 0.
    return Bootstrap(float(np.quantile(ratios, SURE)), (1 + int((ratios >= observed).sum())) / (draws + 1))
