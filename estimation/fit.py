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
from estimation.tables import TableError, Tables

EM_START = 0.5  # of every theta and kappa
CONVERGED = 1e-10  # of the Newton decrement: 1e-5 standard errors from the maximum


class Fit(NamedTuple):
    """Maximum-likelihood models. Ads are rows as in the tables; per query: kappa [Q, L] and the rest [Q].

    The largest kappa is 1: that of position `reference` (from 1), fixed after the fit. An ad without a click has theta 0 and
    a position without one kappa 0; their standard errors are NaN. `theta_log_se` is that of log theta, so that
    se(theta) = theta * theta_log_se, and likewise for kappa; the reference's is 0.
    """

    theta: NDArray[np.float64]
    theta_log_se: NDArray[np.float64]
    kappa: NDArray[np.float64]
    kappa_log_se: NDArray[np.float64]
    reference: NDArray[np.int64]
    log_likelihood: NDArray[np.float64]
    em_iterations: NDArray[np.int64]
    newton_steps: NDArray[np.int64]
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
    for query in np.flatnonzero(~connected(tables)):
        found = parts(tables, int(query))
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
        newton_steps=np.zeros(queries, np.int64),
        converged=np.zeros(queries, np.bool_),
    )


@njit(cache=True, nogil=True)
def _fit_all_em(tables, active_ads, active_positions, max_iterations, result):
    for query in range(tables.starts.size - 1):
        rows, positions, clicks, displays = cut_out(tables, active_ads, active_positions, query)
        theta, kappa = np.full(rows.size, EM_START), np.full(positions.size, EM_START)
        result.em_iterations[query] = run_em(clicks, displays, theta, kappa, max_iterations)
        _finish(clicks, displays, theta, kappa, rows, positions, query, result)


@njit(cache=True, nogil=True)
def _fit_all_newton(tables, active_ads, active_positions, result):
    for query in range(tables.starts.size - 1):
        rows, positions, clicks, displays = cut_out(tables, active_ads, active_positions, query)
        theta, kappa = np.empty(rows.size), np.empty(positions.size)
        poisson_start(clicks, displays, theta, kappa)
        _finish(clicks, displays, theta, kappa, rows, positions, query, result)


@njit(cache=True, nogil=True)
def cut_out(tables, active_ads, active_positions, query):
    """The rows and positions of a query that have clicks, and its counts there."""
    first, last = tables.starts[query], tables.starts[query + 1]
    rows = first + np.flatnonzero(active_ads[first:last])
    positions = np.flatnonzero(active_positions[query])
    clicks, displays = np.empty((rows.size, positions.size), np.int64), np.empty((rows.size, positions.size), np.int64)
    for k in range(rows.size):
        for l in range(positions.size):
            clicks[k, l] = tables.clicks[rows[k], positions[l]]
            displays[k, l] = tables.displays[rows[k], positions[l]]
    return rows, positions, clicks, displays


@njit(cache=True, nogil=True)
def run_em(clicks, displays, theta, kappa, max_iterations):
    """EM steps, in place, until the Newton decrement is below CONVERGED. Returns how many."""
    new_theta, new_kappa = np.empty(theta.size), np.empty(kappa.size)
    step_u, step_v = np.empty(theta.size), np.empty(kappa.size)
    for iteration in range(max_iterations):
        if newton_step(clicks, displays, theta, kappa, 0, FREE, step_u, step_v) < CONVERGED:
            return iteration
        em_step(clicks, displays, theta, kappa, new_theta, new_kappa)
        theta[:] = new_theta
        kappa[:] = new_kappa
    return max_iterations


@njit(cache=True, nogil=True)
def _finish(clicks, displays, theta, kappa, rows, positions, query, result):
    """Climb to the maximum, normalise, and write the model with its standard errors."""
    decrement, result.newton_steps[query] = climb(clicks, displays, theta, kappa, 0, FREE)
    result.converged[query] = decrement < CONVERGED
    reference = np.argmax(kappa)
    scale = kappa[reference]
    kappa /= scale
    theta *= scale
    result.reference[query] = positions[reference] + 1
    result.log_likelihood[query] = log_likelihood(clicks, displays, theta, kappa)
    for l in range(positions.size):
        result.kappa[query, positions[l]] = kappa[l]
    for k in range(rows.size):
        result.theta[rows[k]] = theta[k]
    _standard_errors(clicks, displays, theta, kappa, reference, rows, positions, query, result)


@njit(cache=True, nogil=True)
def _standard_errors(clicks, displays, theta, kappa, reference, rows, positions, query, result):
    """Cov(v) = (C - B' D^-1 B)^-1 and Var(u_k) = 1 / D_k + B_k Cov(v) B_k' / D_k^2, the inverse of the observed information."""
    n_positions = kappa.size
    gradient_u, ads, gradient_v = np.empty(theta.size), np.empty(theta.size), np.empty(n_positions)
    complement = np.empty((n_positions, n_positions))
    sound = schur(clicks, displays, theta, kappa, reference, FREE, gradient_u, gradient_v, ads, complement)
    if not sound or not cholesky(complement):
        result.converged[query] = False
        return
    covariance = np.eye(n_positions)
    for l in range(n_positions):
        solve(complement, covariance[l])
    for l in range(n_positions):  # the reference does not move
        covariance[l, reference] = covariance[reference, l] = 0.0
        result.kappa_log_se[query, positions[l]] = math.sqrt(covariance[l, l])
    weights = np.empty(n_positions)
    for k in range(theta.size):
        for l in range(n_positions):
            p = kappa[l] * theta[k]
            missed = displays[k, l] - clicks[k, l]
            weights[l] = missed * p / (1.0 - p) ** 2 if missed > 0 else 0.0
        variance = 1.0 / ads[k]
        for l in range(n_positions):
            for m in range(n_positions):
                variance += weights[l] * covariance[l, m] * weights[m] / ads[k] ** 2
        result.theta_log_se[rows[k]] = math.sqrt(variance)
