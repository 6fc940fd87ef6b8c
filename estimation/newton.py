"""Newton's method on log theta and log kappa, where the model is a binomial GLM with log link.

The log-likelihood is concave there, and its maximum unique up to the scale, which is fixed by holding one kappa: the reference.
With u = log theta, v = log kappa, gradient g = S - F p / (1 - p) and weights W = F p / (1 - p)^2 per cell, minus the Hessian is
[[D, B], [B', C]] with D = diag(sum_l W), C = diag(sum_k W) and B = W, without the reference's row and column. Positions are few
and ads many, so D is eliminated: (C - B' D^-1 B) dv = g_v - B' D^-1 g_u, then du = D^-1 (g_u - B dv).
"""

import math

import numpy as np
from numba import njit

from estimation.likelihood import log_likelihood

FREE = -1  # no ad is held
CLOSE_ENOUGH = 1e-22  # of the decrement: 1e-11 standard errors from the maximum, about what doubles can tell
MOST_STEPS = 100
MOST_HALVINGS = 60


@njit(cache=True, nogil=True)
def schur(clicks, displays, theta, kappa, reference, held, gradient_u, gradient_v, ads, complement):
    """Fill gradients, D and C - B' D^-1 B. gradient_u, ads: [K]; gradient_v: [L]; complement: [L, L].

    The ad `held` (or FREE) does not move. Rows and columns of the reference are those of the identity, so that it does not
    either. gradient_v becomes g_v - B' D^-1 g_u. Returns whether every free ad has weight.
    """
    n_ads, n_positions = theta.size, kappa.size
    for l in range(n_positions):
        gradient_v[l] = 0.0
        for m in range(n_positions):
            complement[l, m] = 0.0
    sound = True
    weights = np.empty(n_positions)
    for k in range(n_ads):
        gradient_u[k] = ads[k] = 0.0
        for l in range(n_positions):
            p = kappa[l] * theta[k]
            missed = displays[k, l] - clicks[k, l]
            odds = p / (1.0 - p) if missed > 0 else 0.0
            weights[l] = missed * odds / (1.0 - p) if missed > 0 else 0.0
            gradient_u[k] += clicks[k, l] - missed * odds
            gradient_v[l] += clicks[k, l] - missed * odds
            ads[k] += weights[l]
            complement[l, l] += weights[l]
        if k == held:
            gradient_u[k] = 0.0
            continue
        if ads[k] <= 0.0:
            sound = False
            continue
        for l in range(n_positions):
            gradient_v[l] -= weights[l] * gradient_u[k] / ads[k]
            for m in range(n_positions):
                complement[l, m] -= weights[l] * weights[m] / ads[k]
    gradient_v[reference] = 0.0
    for l in range(n_positions):
        complement[l, reference] = complement[reference, l] = 0.0
    complement[reference, reference] = 1.0
    return sound


@njit(cache=True, nogil=True)
def cholesky(matrix):
    """Overwrite the lower triangle with the Cholesky factor; whether the matrix is positive definite."""
    for i in range(matrix.shape[0]):
        for j in range(i + 1):
            total = matrix[i, j]
            for m in range(j):
                total -= matrix[i, m] * matrix[j, m]
            if i == j:
                if not total > 0.0:
                    return False
                matrix[i, i] = math.sqrt(total)
            else:
                matrix[i, j] = total / matrix[j, j]
    return True


@njit(cache=True, nogil=True)
def solve(factor, vector):
    """Overwrite the vector with the solution of (factor factor') x = vector."""
    n = vector.size
    for i in range(n):
        for m in range(i):
            vector[i] -= factor[i, m] * vector[m]
        vector[i] /= factor[i, i]
    for i in range(n - 1, -1, -1):
        for m in range(i + 1, n):
            vector[i] -= factor[m, i] * vector[m]
        vector[i] /= factor[i, i]


@njit(cache=True, nogil=True)
def newton_step(clicks, displays, theta, kappa, reference, held, step_u, step_v):
    """Write the Newton step in u (step_u: [K]) and v (step_v: [L]); return the decrement g' H^-1 g.

    Half the decrement is what the step promises to add to the log-likelihood. It is infinite where there is no step.
    """
    n_ads, n_positions = theta.size, kappa.size
    gradient, ads = np.empty(n_ads), np.empty(n_ads)
    complement = np.empty((n_positions, n_positions))
    sound = schur(clicks, displays, theta, kappa, reference, held, gradient, step_v, ads, complement)
    if not sound or not cholesky(complement):
        return math.inf
    reduced = step_v.copy()
    solve(complement, step_v)
    decrement = 0.0
    for l in range(n_positions):
        decrement += reduced[l] * step_v[l]
    for k in range(n_ads):
        step_u[k] = 0.0
        if k == held:
            continue
        step = gradient[k]
        for l in range(n_positions):
            p = kappa[l] * theta[k]
            missed = displays[k, l] - clicks[k, l]
            if missed > 0:
                step -= missed * p / (1.0 - p) ** 2 * step_v[l]
        step_u[k] = step / ads[k]
        decrement += gradient[k] * gradient[k] / ads[k]
    return decrement


@njit(cache=True, nogil=True)
def climb(clicks, displays, theta, kappa, reference, held):
    """Newton steps from (theta, kappa) to the maximum, in place, halved where they leave p < 1 or do not climb.

    Returns the last decrement and the number of steps.
    """
    step_u, step_v = np.empty(theta.size), np.empty(kappa.size)
    new_theta, new_kappa = np.empty(theta.size), np.empty(kappa.size)
    value = log_likelihood(clicks, displays, theta, kappa)
    decrement = math.inf
    for step in range(MOST_STEPS):
        before = decrement
        decrement = newton_step(clicks, displays, theta, kappa, reference, held, step_u, step_v)
        # Near the maximum the decrement falls quadratically until rounding holds it: then there is nothing left to gain.
        if decrement <= CLOSE_ENOUGH or (decrement < 1e-12 and decrement >= before) or decrement == math.inf:
            return decrement, step
        scale = 1.0
        for _ in range(MOST_HALVINGS):
            for k in range(theta.size):
                new_theta[k] = theta[k] * math.exp(scale * step_u[k])
            for l in range(kappa.size):
                new_kappa[l] = kappa[l] * math.exp(scale * step_v[l])
            new_value = log_likelihood(clicks, displays, new_theta, new_kappa)
            # Below 1e-12 of it the likelihood only shows rounding.
            if new_value >= value - 1e-12 * abs(value):
                break
            scale *= 0.5
        else:  # the maximum is on the boundary: some cell was always clicked
            return decrement, step
        theta[:] = new_theta
        kappa[:] = new_kappa
        value = new_value
    return decrement, MOST_STEPS


@njit(cache=True, nogil=True)
def poisson_start(clicks, displays, theta, kappa):
    """Where Newton starts: theta_k = S_k / sum_l N kappa_l and kappa_l = S_l / sum_k N theta_k, a few times in turn.

    That is the maximum for rare clicks. Then theta is scaled down, if need be, until every p is below 1/2.
    """
    kappa[:] = 1.0
    for _ in range(5):
        for k in range(theta.size):
            clicked = seen = 0.0
            for l in range(kappa.size):
                clicked += clicks[k, l]
                seen += displays[k, l] * kappa[l]
            theta[k] = clicked / seen
        for l in range(kappa.size):
            clicked = attracted = 0.0
            for k in range(theta.size):
                clicked += clicks[k, l]
                attracted += displays[k, l] * theta[k]
            kappa[l] = clicked / attracted
    largest = 2.0 * theta.max() * kappa.max()
    if largest > 1.0:
        theta /= largest
