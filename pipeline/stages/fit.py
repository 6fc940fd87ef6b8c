"""`pbm fit`: one position-based model per query, with standard errors, intervals and a test of fit."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from estimation import pooled
from estimation.fit import Fit, fit_em, fit_newton
from estimation.goodness import Goodness, goodness
from estimation.intervals import Intervals, intervals
from estimation.parts import active, connected, parts
from estimation.tables import Tables, one, select
from pipeline import artefacts, saving
from pipeline.artefacts import DIAGNOSTICS, MATRICES, MODELS, Provenance
from pipeline.errors import ArtefactError
from pipeline.progress import progress
from pipeline.stages.matrices import tables_of, unit_of

AT_A_TIME = 500  # queries, between two looks at the clock
QUOTED = 5  # reasons in an error
REJECTED = 0.001  # a p-value below this is worth a warning
FAR_ABOVE = 4.0  # standard deviations of X2 / dof above its mean of 1, under the model


class Fitted(NamedTuple):
    """The models as a table (a row per query: the paper's columns, then how far to trust them), and what to be warned of."""

    table: pl.DataFrame
    warnings: list[str]


def fit_by_em(workspace: Path) -> Fitted:
    """Write `models.parquet`, by the paper's estimator."""
    return _fit(workspace, "em", fit_em)


def fit_by_newton(workspace: Path) -> Fitted:
    """Write `models.parquet`, by Newton alone."""
    return _fit(workspace, "newton", fit_newton)


def _fit(workspace: Path, method: str, estimator: Callable[[Tables], Fit]) -> Fitted:
    matrices = artefacts.read(MATRICES, workspace)
    diagnostics = artefacts.read(DIAGNOSTICS, workspace)
    unit = unit_of(MATRICES, workspace)
    source = MATRICES.path(workspace)
    if matrices.is_empty():
        raise ArtefactError(f"{source} has no rows; make it again with `{MATRICES.made_by}`")
    everything = tables_of(matrices, f"{source}: {{}}; make it again with `{MATRICES.made_by}`")
    whole = connected(everything)
    warnings = [
        _left_out(one(everything, query), matrices[int(everything.starts[query]) :]) for query in np.flatnonzero(~whole).tolist()
    ]
    if not whole.any():
        raise ArtefactError(f"{source}: no query has a model: {'; '.join(warnings[:QUOTED])}")
    counted = select(everything, whole)
    ads = matrices.filter(whole[everything.query_of_row])
    result, limits = _estimated(counted, estimator)
    fits = goodness(counted, result)
    warnings += _warnings(counted, ads, result, limits, fits)
    models = _models(counted, ads, result, limits, fits)
    saving.write(MODELS, models, Provenance({"unit": unit.value, "method": method}, {}), workspace)
    table = models.join(diagnostics.select("query_id", "sigma2_ratio", "sigma2_p_value"), on="query_id").sort("n_ads", "query_id")
    return Fitted(table, warnings)


def _models(counted: Tables, ads: pl.DataFrame, result: Fit, limits: Intervals, fits: Goodness) -> pl.DataFrame:
    """The rows of `models.parquet`: ads by falling theta, lists by ad or by position."""
    kappa = result.kappa[counted.query_of_row]
    with np.errstate(divide="ignore", invalid="ignore"):  # NaN where a kappa or a theta is 0
        per_ad = {
            "theta": result.theta,
            "theta_se": result.theta * result.theta_log_se,
            "theta_low": limits.theta_low,
            "theta_high": limits.theta_high,
            "theta_pooled": pooled.pooled(counted.clicks, counted.displays, kappa),
            "theta_debiased": pooled.position_debiased(counted.clicks, counted.displays, kappa),
            "pooled_variance_ratio": pooled.variance_ratio(counted.displays, kappa, result.theta),
        }
    by_ad = (
        ads.select("query_id", ad_ids="ad_id")
        .with_columns(records=counted.displays.sum(axis=1), **per_ad)
        .sort("query_id", "theta", "ad_ids", descending=[False, True, False])
        .group_by("query_id", maintain_order=True)
        .agg(pl.sum("records"), pl.col("ad_ids", *per_ad))
    )
    per_query: dict[str, Any] = {
        "n_ads": counted.sizes,
        "n_positions": np.full(counted.n_queries, counted.n_positions),
        "kappa": result.kappa.tolist(),
        "kappa_se": (result.kappa * result.kappa_log_se).tolist(),
        "kappa_low": limits.kappa_low.tolist(),
        "kappa_high": limits.kappa_high.tolist(),
        "kappa_ref": result.reference,
        "log_likelihood": result.log_likelihood,
        "em_iterations": result.em_iterations,
        "converged": result.converged,
        "g2": fits.g2,
        "dof": fits.dof,
        "p_value": fits.p_value,
        "dispersion": fits.dispersion,
    }
    return by_ad.with_columns(
        **{name: pl.Series(values) for name, values in per_query.items()},
        theta_min=pl.col("theta").list.min(),
        theta_max=pl.col("theta").list.max(),
    )


def _estimated(counted: Tables, estimator: Callable[[Tables], Fit]) -> tuple[Fit, Intervals]:
    """All queries, some at a time: so that there is progress to show and Ctrl-C is heard."""
    found = []
    with progress("fitting", counted.n_queries, unit="queries") as advance:
        for first in range(0, counted.n_queries, AT_A_TIME):
            numbers = np.arange(counted.n_queries)
            part = select(counted, (numbers >= first) & (numbers < first + AT_A_TIME))
            result = estimator(part)
            found.append((result, intervals(part, result)))
            advance(first + part.n_queries)
    return (
        Fit(*(np.concatenate(values) for values in zip(*(result for result, _ in found), strict=True))),
        Intervals(*(np.concatenate(values) for values in zip(*(limits for _, limits in found), strict=True))),
    )


def _left_out(table: Tables, ads: pl.DataFrame) -> str:
    """Why a query has no model, its parts named. ads: its rows of the matrices, and what follows them."""
    query_id, found = ads["query_id"][0], parts(table)
    if not found:
        return f"query {query_id!r} has no click: it is left out"
    named = "; ".join(f"ads {[ads['ad_id'][k] for k in part.ads]} with positions {part.positions}" for part in found)
    return f"query {query_id!r} is not connected: no count compares the scales of its parts, {named}; it is left out"


def _warnings(counted: Tables, ads: pl.DataFrame, result: Fit, limits: Intervals, fits: Goodness) -> list[str]:
    """What an analyst should know before using the models, naming query and ad."""
    ids = [ads["query_id"][int(first)] for first in counted.starts[:-1]]
    of_ads, of_positions = active(counted)
    found = [
        f"query {ads['query_id'][row]!r}, ad {ads['ad_id'][row]!r}: no click in {counted.displays[row].sum():,} displays; "
        f"theta is 0, and at most {limits.theta_high[row]:.2g} (95%)"
        for row in np.flatnonzero(~of_ads).tolist()
    ]
    for q, l in np.argwhere(~of_positions):
        displays = counted.displays[counted.starts[q] : counted.starts[q + 1], l].sum()
        found.append(
            f"query {ids[q]!r}, position {l + 1}: no click in {displays:,} displays; "
            f"kappa is 0, and at most {limits.kappa_high[q, l]:.2g} (95%)"
        )
    found += [
        f"query {ads['query_id'][row]!r}, ad {ads['ad_id'][row]!r}: clicked at every display at some position; "
        f"kappa theta is at its limit 1 there, and theta has no standard error"
        for row in np.flatnonzero(of_ads & np.isnan(result.theta_log_se) & result.converged[counted.query_of_row]).tolist()
    ]
    found += [f"query {ids[q]!r}: not converged; do not use its model" for q in np.flatnonzero(~result.converged)]
    for q in np.flatnonzero((np.diff(result.kappa, axis=1) > 0).any(axis=1)):
        kappa = ", ".join(f"{value:.3f}" for value in result.kappa[q])
        found.append(
            f"query {ids[q]!r}: kappa does not fall with the position ({kappa}); is the position column what it should be?"
        )
    for q in np.flatnonzero(fits.p_value < REJECTED):
        found.append(
            f"query {ids[q]!r}: the model is rejected (G2 = {fits.g2[q]:.1f} on {fits.dof[q]} degrees of freedom, "
            f"p = {fits.p_value[q]:.2g}); its clicks are no product of kappa and theta"
        )
    with np.errstate(divide="ignore"):
        limit = 1 + FAR_ABOVE * np.sqrt(2 / np.where(fits.dof > 0, fits.dof, np.nan))
    for q in np.flatnonzero(fits.dispersion > limit):
        found.append(
            f"query {ids[q]!r}: dispersion {fits.dispersion[q]:.2f}, far above 1: clicks vary more than the model's; "
            f"multiply its standard errors by {np.sqrt(fits.dispersion[q]):.2f}"
        )
    return found
