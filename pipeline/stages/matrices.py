"""`pbm matrices`: from counts to one matrix of click-through rates per query, with its rank diagnostics."""

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from estimation.fit import fit_newton
from estimation.goodness import fitted
from estimation.parts import connected
from estimation.rank import bootstrap_second_ratio, click_rates, first_share, second_ratio, singular_values
from estimation.tables import Tables, select, tables
from pipeline import artefacts, saving
from pipeline.artefacts import COUNTS, DIAGNOSTICS, MATRICES, Artefact, Provenance
from pipeline.errors import ArtefactError
from pipeline.filter import Unit
from pipeline.progress import progress

LEVEL = 0.05
COLUMNS = {Unit.lines: ("lines", "clicked_lines"), Unit.impressions: ("impressions", "clicks")}  # displays, clicks


class Summary(NamedTuple):
    queries: int
    ads: int
    positions: int
    unit: str
    sigma1_share_min: float | None  # None if no query has a click
    rank_one_rejected: int  # queries whose sigma_2 / sigma_1 is too large for the model, at LEVEL


def matrices(workspace: Path, draws: int, seed: int) -> Summary:
    """Write `matrices.parquet` and `diagnostics.parquet`."""
    counts = artefacts.read(COUNTS, workspace)
    unit = unit_of(COUNTS, workspace)
    if counts.is_empty():
        raise ArtefactError(
            f"{COUNTS.path(workspace)} has no rows: no query passed the filter; count with a lower --min-displays"
        )
    ads, of_queries = tabulated(counts, unit, str(COUNTS.path(workspace)))
    queries = ads["query_id"].unique(maintain_order=True)
    n_positions = of_queries.n_positions

    fits = np.flatnonzero(whole := connected(of_queries))
    p = np.zeros(of_queries.clicks.shape)
    if fits.size:
        subset = select(of_queries, whole)
        p[whole[of_queries.query_of_row]] = fitted(subset, fit_newton(subset))
    rows = []
    with progress("bootstrap", of_queries.n_queries, unit="queries") as advance:
        for query, values in enumerate(singular_values(of_queries)):
            part = slice(of_queries.starts[query], of_queries.starts[query + 1])
            observed = second_ratio(values)
            q95 = p_value = np.nan  # where no model can be fitted there is nothing to draw from
            if whole[query]:
                rng = generator(seed, queries[query])
                q95, p_value = bootstrap_second_ratio(of_queries.displays[part], p[part], observed, draws, rng)
            rows.append(
                (
                    queries[query],
                    int(of_queries.sizes[query]),
                    n_positions,
                    values.tolist(),
                    first_share(values),
                    observed,
                    q95,
                    p_value,
                )
            )
            advance(query + 1)
    diagnostics = pl.DataFrame(rows, orient="row", schema=list(DIAGNOSTICS.columns))
    origin = Provenance({"unit": unit.value}, {})
    with saving.saving(workspace) as save:
        save.write(MATRICES, ads, origin)
        save.write(DIAGNOSTICS, diagnostics, origin._replace(parameters={"unit": unit.value, "bootstrap": draws, "seed": seed}))
    return Summary(
        queries=diagnostics.height,
        ads=ads.height,
        positions=n_positions,
        unit=unit.value,
        sigma1_share_min=diagnostics["sigma1_share"].fill_nan(None).min(),  # type: ignore[arg-type]
        rank_one_rejected=int((diagnostics["sigma2_p_value"] <= LEVEL).sum()),
    )


def tabulated(counts: pl.DataFrame, unit: Unit, source: str) -> tuple[pl.DataFrame, Tables]:
    """A row per ad with its displays, clicks and rates by position, and the same as tables."""
    displays, clicks = COLUMNS[unit]
    ads = counts.group_by("query_id", "ad_id", maintain_order=True).agg(
        position="position", displays=pl.col(displays), clicks=pl.col(clicks)
    )
    n_positions = int(counts["position"].max())  # type: ignore[arg-type]
    odd = ads.filter(pl.col("position") != pl.lit(list(range(1, n_positions + 1)), pl.List(pl.Int8)))
    if odd.height:
        first = odd.row(0, named=True)
        raise ArtefactError(
            f"{source}: ad {first['ad_id']!r} of query {first['query_id']!r} has positions {first['position']}, "
            f"expected 1 to {n_positions}; make it again with `{COUNTS.made_by}`"
        )
    of_queries = tables_of(ads, f"{source}: {{}}; make it again with `{COUNTS.made_by}`")
    return ads.with_columns(ctr=pl.Series(click_rates(of_queries).tolist())).drop("position"), of_queries


def tables_of(ads: pl.DataFrame, complaint: str) -> Tables:
    """The clicks and displays of rows of `matrices.parquet` as tables; `complaint` says where they are from, if they are none."""
    pair = ("clicks", "displays")
    n_positions = ads["displays"].list.len().max()
    whole = pl.all_horizontal(*(pl.col(name).list.drop_nulls().list.len() == n_positions for name in pair))
    good = ads.select(whole).to_series().to_numpy()
    if n_positions and good.all():
        clicks, displays = (np.array(ads[name].to_list()) for name in pair)
        good = np.logical_and.reduce((clicks >= 0) & (clicks <= displays) & (displays > 0), axis=1)
    if not n_positions or not good.all():
        ad = ads.row(int(np.argmin(good)), named=True)
        what = f"ad {ad['ad_id']!r} of query {ad['query_id']!r} has {ad['clicks']} clicks of {ad['displays']} displays"
        raise ArtefactError(complaint.format(f"{what}, expected 0 <= clicks <= displays, and displays, at each position"))
    sizes = ads.group_by("query_id", maintain_order=True).len()["len"].to_numpy()
    return tables(clicks, displays, np.concatenate([[0], np.cumsum(sizes)]))


def unit_of(artefact: Artefact, workspace: Path) -> Unit:
    """The unit that an artefact was counted in."""
    found = artefacts.provenance(artefact, workspace).get("parameters") or {}
    if found.get("unit") not in set(Unit):
        raise ArtefactError(
            f"{artefact.path(workspace)} says that it was counted in {found.get('unit')!r}, expected one of {', '.join(Unit)}; "
            f"make it again with `{artefact.made_by}`"
        )
    return Unit(found["unit"])


def generator(seed: int, query_id: Any) -> np.random.Generator:
    """A generator of a query's own, so that no other query moves its draws."""
    digest = hashlib.sha256(str(query_id).encode()).digest()
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, *np.frombuffer(digest, np.uint32)])))
