"""The position-based model's log-likelihood (the paper's appendix A)."""

import math

from numba import njit


@njit(cache=True, nogil=True)
def log_likelihood(clicks, missed, theta, kappa):
    """sum over k, l of S log(kappa_l theta_k) + F log(1 - kappa_l theta_k), with 0 log 0 = 0.

    clicks: S[k, l]; missed: F[k, l] = N - S, floats; theta: [K]; kappa: [L]. Depends on the products alone: (c kappa, theta / c)
    is the same model. Minus infinity where a product is no probability.
    """
    total = 0.0
    for k in range(theta.size):
        for l in range(kappa.size):
            p = kappa[l] * theta[k]
            if p > 1.0 or (p == 1.0 and missed[k, l] > 0):
                return -math.inf
            if clicks[k, l] > 0:
                total += clicks[k, l] * math.log(p)
            if missed[k, l] > 0:
                total += missed[k, l] * math.log1p(-p)
    return total
