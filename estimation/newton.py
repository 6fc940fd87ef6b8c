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
QUADRATIC = 1e-12  # of the decrement: here it falls quadratically, until rounding holds it
ROUNDING = 1e-12  # of the log-likelihood: what is below only shows rounding
MOST_STEPS = 100  # 3 to 5 are the rule
MOST_HALVINGS = 60  # a step of 2^-60 moves nothing
POISSON_ROUNDS = 5  # of the alternation that starts Newton; it need not converge


@njit(cache=True, nogil=True)
def schur(clicks, missed, theta, kappa, reference, held, gradient_u, gradient_v, ads, weights, complement):
    """Fill gradients, W, D and C - B' D^-1 B. gradient_u, ads: [K]; gradient_v: [L]; weights: [K, L]; complement: [L, L].

    The ad `held` (or FREE) does not move. Rows and columns of the reference are those of the identity, so that it does not
    either. gradient_v becomes g_v - B' D^-1 g_u. Returns whether every free ad has weight.
    """
    n_ads, n_positions = theta.size, kappa.size
    gradient_v[:] = 0.0
    complement[:] = 0.0
    sound = True
    for k in range(n_ads):
        gradient_u[k] = ads[k] = 0.0
        for l in range(n_positions):
            p = kappa[l] * theta[k]
            odds = p / (1.0 - p) if missed[k, l] > 0 else 0.0
            weights[k, l] = missed[k, l] * odds / (1.0 - p) if missed[k, l] > 0 else 0.0
            gradient_u[k] += clicks[k, l] - missed[k, l] * odds
            gradient_v[l] += clicks[k, l] - missed[k, l] * odds
            ads[k] += weights[k, l]
            complement[l, l] += weights[k, l]
        if k == held:
            gradient_u[k] = 0.0
            continue
        if ads[k] <= 0.0:
            sound = False
            continue
        for l in range(n_positions):
            gradient_v[l] -= weights[k, l] * gradient_u[k] / ads[k]
            for m in range(n_positions):
                complement[l, m] -= weights[k, l] * weights[k, m] / ads[k]
    gradient_v[reference] = 0.0
    complement[:, reference] = 0.0
    complement[reference, :] = 0.0
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
def newton_step(clicks, missed, theta, kappa, reference, held, step_u, step_v):
    """Write the Newton step in u (step_u: [K]) and v (step_v: [L]); return the decrement g' H^-1 g.

    Half the decrement is what the step promises to add to the log-likelihood. It is infinite where there is no step.
    """
    n_ads, n_positions = theta.size, kappa.size
    gradient, ads, weights = np.empty(n_ads), np.empty(n_ads), np.empty((n_ads, n_positions))
    complement = np.empty((n_positions, n_positions))
    sound = schur(clicks, missed, theta, kappa, reference, held, gradient, step_v, ads, weights, complement)
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
            step -= weights[k, l] * step_v[l]
        step_u[k] = step / ads[k]
        decrement += gradient[k] * gradient[k] / ads[k]
    return decrement


@njit(cache=True, nogil=True)
def climb(clicks, missed, theta, kappa, reference, held):
    """Newton steps from (theta, kappa) to the maximum, in place, halved where they leave p < 1 or do not climb.

    Returns the last decrement.
    """
    step_u, step_v = np.empty(theta.size), np.empty(kappa.size)
    new_theta, new_kappa = np.empty(theta.size), np.empty(kappa.size)
    value = log_likelihood(clicks, missed, theta, kappa)
    decrement = math.inf
    for _ in range(MOST_STEPS):
        before = decrement
        decrement = newton_step(clicks, missed, theta, kappa, reference, held, step_u, step_v)
        if decrement <= CLOSE_ENOUGH or (decrement < QUADRATIC and decrement >= before) or decrement == math.inf:
            return decrement
        scale = 1.0
        for _ in range(MOST_HALVINGS):
            for k in range(theta.size):
                new_theta[k] = theta[k] * math.exp(scale * step_u[k])
            for l in range(kappa.size):
                new_kappa[l] = kappa[l] * math.exp(scale * step_v[l])
            new_value = log_likelihood(clicks, missed, new_theta, new_kappa)
            if new_value >= value - ROUNDING * abs(value):
                break
            scale *= 0.5
        else:
            return decrement
        theta[:] = new_theta
        kappa[:] = new_kappa
        value = new_value
    return decrement


@njit(cache=True, nogil=True)
def poisson_start(clicks, missed, theta, kappa):
    """Where Newton starts: theta_k = S_k / sum_l N kappa_l and kappa_l = S_l / sum_k N theta_k, a few times in turn.

    That is the maximum for rare clicks. Then theta is scaled down, if need be, until every p is below 1/2.
    """
    kappa[:] = 1.0
    for _ in range(POISSON_ROUNDS):
        for k in range(theta.size):
            clicked = seen = 0.0
            for l in range(kappa.size):
                clicked += clicks[k, l]
                seen += (clicks[k, l] + missed[k, l]) * kappa[l]
            theta[k] = clicked / seen
        for l in range(kappa.size):
            clicked = attracted = 0.0
            for k in range(theta.size):
                clicked += clicks[k, l]
                attracted += (clicks[k, l] + missed[k, l]) * theta[k]
            kappa[l] = clicked / attracted
    largest = 2.0 * theta.max() * kappa.max()
    if largest > 1.0:
        theta /= largest
