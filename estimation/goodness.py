"""Does the model fit? Against the saturated one, which has a click rate of its own for every cell."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy
from scipy.stats import chi2

from estimation.fit import Fit
from estimation.parts import active
from estimation.tables import Tables


class Goodness(NamedTuple):
    """Per query. Without degrees of freedom (one ad, or one position) nothing can be tested: p_value and dispersion are NaN."""

    g2: NDArray[np.float64]  # 2 sum [S log(S / (N p)) + F log(F / (N - N p))], the deviance
    x2: NDArray[np.float64]  # sum (S - N p)^2 / (N p (1 - p)), Pearson's
    dof: NDArray[np.int64]
    p_value: NDArray[np.float64]  # of g2 under chi-square
    dispersion: NDArray[np.float64]  # x2 / dof; far above 1: clicks vary more than the model's, e.g. by repeated users


def goodness(tables: Tables, fit: Fit) -> Goodness:
    """The fit of every query; ads and positions without a click, and cells never shown, say nothing and take no degree."""
    p = fitted(tables, fit)
    s, n = tables.clicks, tables.displays
    expected = n * p
    shown = (n > 0) & (p > 0)
    one = np.where(shown, expected, 1.0)  # a divisor where there is none: those cells add 0
    other = np.where(shown & (p < 1), n - expected, 1.0)
    deviance = 2 * np.where(shown, xlogy(s, s / one) + xlogy(n - s, (n - s) / other), 0.0)
    pearson = np.where(shown, (s - expected) ** 2 / (one * np.where(p < 1, 1 - p, 1.0)), 0.0)
    starts = tables.starts[:-1]
    ads, positions = active(tables)
    dof = np.add.reduceat(shown.sum(axis=1), starts) - np.add.reduceat(ads.astype(np.int64), starts) - positions.sum(axis=1) + 1
    g2, x2 = (np.add.reduceat(cells.sum(axis=1), starts) for cells in (deviance, pearson))
    g2 = np.maximum(g2, 0.0)  # rounding may leave a saturated fit just below
    testable = np.where(dof > 0, dof, np.nan)
    return Goodness(g2, x2, dof, chi2.sf(g2, testable), x2 / testable)


def fitted(tables: Tables, fit: Fit) -> NDArray[np.float64]:
    """p[k, l] = kappa_l theta_k of every row."""
    p: NDArray[np.float64] = fit.theta[:, None] * fit.kappa[tables.query_of_row]
    return p
