"""The paper's estimator: expectation-maximisation over what was examined and what attracted."""

from numba import njit


@njit(cache=True, nogil=True)
def em_step(clicks, missed, theta, kappa, new_theta, new_kappa):
    """One step, both halves from the old values. clicks: S[k, l]; missed: F[k, l].

    A click was examined and attractive. Of a display without one, given p = kappa_l theta_k, the item was attractive with
    probability theta_k (1 - kappa_l) / (1 - p) and the position examined with probability kappa_l (1 - theta_k) / (1 - p). The
    new theta_k and kappa_l are the expected shares of attractive and examined displays. No pseudo-counts: they would inflate
    a theta of 0.0044 by 16%. 0 and 1 are absorbing, so never start there.
    """
    for l in range(kappa.size):
        new_kappa[l] = 0.0
    for k in range(theta.size):
        attractive = 0.0
        shown = 0.0
        for l in range(kappa.size):
            unseen = missed[k, l] / (1.0 - kappa[l] * theta[k]) if missed[k, l] > 0 else 0.0
            attractive += clicks[k, l] + unseen * theta[k] * (1.0 - kappa[l])
            shown += clicks[k, l] + missed[k, l]
            new_kappa[l] += clicks[k, l] + unseen * kappa[l] * (1.0 - theta[k])
        new_theta[k] = attractive / shown
    for l in range(kappa.size):
        shown = 0.0
        for k in range(theta.size):
            shown += clicks[k, l] + missed[k, l]
        new_kappa[l] /= shown
