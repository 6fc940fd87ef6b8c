"""One position-based model per query, for thousands of queries at once: by EM, polished to the maximum, or by Newton alone."""

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from estimation.em import em_step
from estimation.likelihood import log_likelihood
from estimation.newton import FREE, cholesky, climb, newton_step, poisson_start, schur, solve
from estimation.parts import active, connected, parts
from estimation.tables import TableError, Tables, one

EM_START = 0.5  # of every theta and kappa
CONVERGED = 1e-10  # of the Newton decrement: 1e-5 standard errors from the maximum
ALMOST_NO_MISS = 1e-9  # displays
AT_LIMIT = 1 - 1e-6  # a p above this is 1 but for the barrier


class Fit(NamedTuple):
    """Maximum-likelihood models. Ads are rows as in the tables; per query: kappa [Q, L] and the rest [Q].

    The largest kappa is 1: that of position `reference` (from 1), fixed after the fit. That choice is made from the data and
    the errors do not know of it: where two kappas are nearly equal, or the best position is hardly shown, theta is biased up.
    An ad without a click has theta 0 and a position without one kappa 0; where a cell was clicked at every display its
    p may be at the limit 1. There the standard errors are NaN. `theta_log_se` is that of log theta, so that se(theta) =
    theta * theta_log_se, and likewise for kappa; the reference's is 0.
    """

    theta: NDArray[np.float64]
    theta_log_se: NDArray[np.float64]
    kappa: NDArray[np.float64]
    kappa_log_se: NDArray[np.float64]
    reference: NDArray[np.int64]
    log_likelihood: NDArray[np.float64]
    em_iterations: NDArray[np.int64]
    converged: NDArray[np.bool_]


def fit_em(tables: Tables, *, max_iterations: int = 10_000) -> Fit:
    """The paper's estimator: EM from 1/2 until the Newton decrement is below CONVERGED, then Newton to the maximum.

    EM is not stopped on the change of the likelihood: where clicks are rare its steps are a small part of what is missing.
    """
    check_connected(tables)
    result = _allocated(tables)
    _fit_all_em(tables, *active(tables), max_iterations, result)
    return result


def fit_newton(tables: Tables) -> Fit:
    """The same maximum by Newton alone, from the start for rare clicks."""
    check_connected(tables)
    result = _allocated(tables)
    _fit_all_newton(tables, *active(tables), result)
    return result


def check_connected(tables: Tables) -> None:
    """Refuse tables whose parameters the counts cannot tell, and name the parts they fall into."""
    split = np.flatnonzero(~connected(tables))
    if split.size:
        query = int(split[0])
        found = parts(one(tables, query))
        if not found:
            raise TableError(f"query {query} has no click at all: nothing can be estimated")
        named = "; ".join(f"ads {part.ads} with positions {part.positions}" for part in found)
        raise TableError(f"query {query} falls into parts whose scales no count compares: {named}")


def _allocated(tables: Tables) -> Fit:
    rows, (queries, positions) = tables.clicks.shape[0], (tables.n_queries, tables.n_positions)
    return Fit(
        theta=np.zeros(rows),
        theta_log_se=np.full(rows, np.nan),
        kappa=np.zeros((queries, positions)),
        kappa_log_se=np.full((queries, positions), np.nan),
        reference=np.zeros(queries, np.int64),
        log_likelihood=np.zeros(queries),
        em_iterations=np.zeros(queries, np.int64),
        converged=np.zeros(queries, np.bool_),
    )


@njit(cache=True, nogil=True)
def _fit_all_em(tables, active_ads, active_positions, max_iterations, result):
    for query in range(tables.starts.size - 1):
        rows, positions, clicks, missed = cut_out(tables, active_ads, active_positions, query)
        theta, kappa = np.full(rows.size, EM_START), np.full(positions.size, EM_START)
        result.em_iterations[query] = run_em(clicks, missed, theta, kappa, max_iterations)
        if limits(missed).size > 0:  # EM walks into the limit p = 1, from where Newton cannot start
            poisson_start(clicks, missed, theta, kappa)
        _finish(clicks, missed, theta, kappa, rows, positions, query, result)


@njit(cache=True, nogil=True)
def _fit_all_newton(tables, active_ads, active_positions, result):
    for query in range(tables.starts.size - 1):
        rows, positions, clicks, missed = cut_out(tables, active_ads, active_positions, query)
        theta, kappa = np.empty(rows.size), np.empty(positions.size)
        poisson_start(clicks, missed, theta, kappa)
        _finish(clicks, missed, theta, kappa, rows, positions, query, result)


@njit(cache=True, nogil=True)
def cut_out(tables, active_ads, active_positions, query):
    """The rows and positions of a query that have clicks, and its clicks and misses there."""
    first, last = tables.starts[query], tables.starts[query + 1]
    rows = first + np.flatnonzero(active_ads[first:last])
    positions = np.flatnonzero(active_positions[query])
    clicks, missed = np.empty((rows.size, positions.size), np.int64), np.empty((rows.size, positions.size))
    for k in range(rows.size):
        for l in range(positions.size):
            clicks[k, l] = tables.clicks[rows[k], positions[l]]
            missed[k, l] = tables.displays[rows[k], positions[l]] - clicks[k, l]
    return rows, positions, clicks, missed


@njit(cache=True, nogil=True)
def limits(missed):
    """The cells without a miss: always clicked, or never shown. Nothing in the likelihood keeps their p from reaching 1."""
    return np.flatnonzero(missed.ravel() == 0.0)


@njit(cache=True, nogil=True)
def run_em(clicks, missed, theta, kappa, max_iterations):
    """EM steps, in place, until the Newton decrement is below CONVERGED. Returns how many.

    Where some p may go to 1 there is no Newton step at the maximum: there EM ends when the likelihood stands still.
    """
    new_theta, new_kappa = np.empty(theta.size), np.empty(kappa.size)
    step_u, step_v = np.empty(theta.size), np.empty(kappa.size)
    bounded = limits(missed).size > 0
    value = -math.inf
    for iteration in range(max_iterations):
        if bounded:
            before, value = value, log_likelihood(clicks, missed, theta, kappa)
            if value - before < CONVERGED:
                return iteration
        elif newton_step(clicks, missed, theta, kappa, 0, FREE, step_u, step_v) < CONVERGED:
            return iteration
        em_step(clicks, missed, theta, kappa, new_theta, new_kappa)
        theta[:] = new_theta
        kappa[:] = new_kappa
    return max_iterations


@njit(cache=True, nogil=True)
def climb_within_limits(clicks, missed, theta, kappa):
    """Newton to the maximum under p <= 1, in place. Returns the decrement.

    Cells without a miss are given a part of one, which keeps their p below 1, and less and less of it: a barrier. What is
    left of it in the end, ALMOST_NO_MISS, stays in `missed`; it moves no parameter by more than 1e-9 of a click.
    """
    cells = limits(missed)
    decrement = math.inf
    part = 1.0
    while part >= ALMOST_NO_MISS:
        for cell in cells:
            missed[cell // kappa.size, cell % kappa.size] = part
        decrement = climb(clicks, missed, theta, kappa, 0, FREE)
        if cells.size == 0:
            break
        part /= 10.0
    return decrement


@njit(cache=True, nogil=True)
def _finish(clicks, missed, theta, kappa, rows, positions, query, result):
    """Climb to the maximum, normalise, and write the model with its standard errors."""
    decrement = climb_within_limits(clicks, missed, theta, kappa)
    result.converged[query] = decrement < CONVERGED
    reference = np.argmax(kappa)
    scale = kappa[reference]
    kappa /= scale
    theta *= scale
    result.reference[query] = positions[reference] + 1
    result.log_likelihood[query] = log_likelihood(clicks, missed, theta, kappa)
    for l in range(positions.size):
        result.kappa[query, positions[l]] = kappa[l]
    for k in range(rows.size):
        result.theta[rows[k]] = theta[k]
    _standard_errors(clicks, missed, theta, kappa, reference, rows, positions, query, result)


@njit(cache=True, nogil=True)
def _standard_errors(clicks, missed, theta, kappa, reference, rows, positions, query, result):
    """Cov(v) = (C - B' D^-1 B)^-1 and Var(u_k) = 1 / D_k + B_k Cov(v) B_k' / D_k^2, the inverse of the observed information."""
    n_ads, n_positions = theta.size, kappa.size
    gradient_u, ads, gradient_v = np.empty(n_ads), np.empty(n_ads), np.empty(n_positions)
    weights, complement = np.empty((n_ads, n_positions)), np.empty((n_positions, n_positions))
    sound = schur(clicks, missed, theta, kappa, reference, FREE, gradient_u, gradient_v, ads, weights, complement)
    if not sound or not cholesky(complement):
        result.converged[query] = False
        return
    covariance = np.eye(n_positions)
    for l in range(n_positions):
        solve(complement, covariance[l])
    covariance[reference, :] = 0.0  # it does not move
    covariance[:, reference] = 0.0
    at_limit = np.outer(theta, kappa) > AT_LIMIT
    for l in range(n_positions):
        if l == reference or not at_limit[:, l].any():
            result.kappa_log_se[query, positions[l]] = math.sqrt(covariance[l, l])
    for k in range(n_ads):
        if at_limit[k].any():
            continue
        variance = 1.0 / ads[k]
        for l in range(n_positions):
            for m in range(n_positions):
                variance += weights[k, l] * covariance[l, m] * weights[k, m] / ads[k] ** 2
        result.theta_log_se[rows[k]] = math.sqrt(variance)
