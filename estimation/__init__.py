"""Estimating position-based models from counts: from displays and clicks to parameters, and how far to trust them.

In reading order: `tables` (the counts), `likelihood` (the model), `em` (the paper's estimator), `newton` (the exact maximum),
`fit` (both, over thousands of queries at once), `intervals`, `goodness` (does the model fit), `rank` (the paper's SVD check,
with its null distribution), `pooled` (the paper's closed-form estimator and its efficiency), `parts` (what can be identified).

Throughout: S clicks, N displays, F = N - S, p[k, l] = kappa_l theta_k.
"""
