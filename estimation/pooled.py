"""The paper's closed-form estimators of theta for known kappa, and how efficient they are (section "Setting").

Rows are ads: clicks, displays and kappa are [rows, L] (kappa may be [L]); theta is [rows].
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


def pooled(clicks: Counts, displays: Counts, kappa: Floats) -> Floats:
    """theta-hat of Eq. (2): S_k / N~_k, with N~_k = sum_l kappa_l N_kl. Unbiased."""
    estimate: Floats = clicks.sum(axis=1) / (displays * kappa).sum(axis=1)
    return estimate


def pooled_variance(displays: Counts, kappa: Floats, theta: Floats) -> Floats:
    """upsilon(theta_k) = sum_l N kappa theta (1 - kappa theta) / (sum_l N kappa)^2."""
    p = kappa * theta[:, None]
    variance: Floats = (displays * p * (1 - p)).sum(axis=1) / (displays * kappa).sum(axis=1) ** 2
    return variance


def fisher_information(displays: Counts, kappa: Floats, theta: Floats) -> Floats:
    """I(theta_k) = sum_l N kappa / (theta (1 - kappa theta))."""
    information: Floats = (displays * kappa / (theta[:, None] * (1 - kappa * theta[:, None]))).sum(axis=1)
    return information


def variance_ratio(displays: Counts, kappa: Floats, theta: Floats) -> Floats:
    """upsilon(theta) I(theta): how much more the pooled estimator varies than an unbiased one must; 1 to 1 / (1 - theta)."""
    return pooled_variance(displays, kappa, theta) * fisher_information(displays, kappa, theta)


def position_debiased(clicks: Counts, displays: Counts, kappa: Floats) -> Floats:
    """(sum_l S_kl / kappa_l) / N_k: unbiased too, but unreliable as soon as one kappa is small; the paper warns of it."""
    estimate: Floats = (clicks / kappa).sum(axis=1) / displays.sum(axis=1)
    return estimate


def position_debiased_variance(displays: Counts, kappa: Floats, theta: Floats) -> Floats:
    """sum_l N theta (1 - kappa theta) / kappa / N_k^2, which grows without bound as a kappa falls to 0."""
    p = kappa * theta[:, None]
    variance: Floats = (displays * p * (1 - p) / kappa**2).sum(axis=1) / displays.sum(axis=1) ** 2
    return variance
