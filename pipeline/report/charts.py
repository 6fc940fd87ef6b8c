"""The pictures of the report, from rows of artefacts."""

from typing import Any

import matplotlib as mpl
import numpy as np
import polars as pl
from matplotlib.colors import Normalize, TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from numpy.typing import NDArray

from pipeline.listing import cell
from pipeline.report.ink import BAND, INK, LINE, PAPER, SOFT, STYLE, Picture, colour, picture

ID_LETTERS = 18  # of an id that is drawn
WIDE = 8.6  # inches of a figure as wide as the page
SHOWN_ROUNDS = 1000  # the last three decades; before them hardly anything is lost


def short(value: Any) -> str:
    """An id, printable and short."""
    text = cell(value)
    return text if len(text) <= ID_LETTERS else text[: ID_LETTERS - 1] + "…"


def _figure(width: float, height: float) -> Figure:
    return Figure(figsize=(width, height))


@mpl.rc_context(STYLE)
def regret(name: str, rows: pl.DataFrame) -> Picture:
    """Mean regret of each policy over rounds on a log axis, first to last decile, and the lower bound."""
    figure = _figure(WIDE, 4.3)
    axes = figure.subplots()
    last = rows.filter(pl.col("round") == rows["round"].max()).sort("mean")
    for policy in last["policy"]:
        curve = rows.filter(pl.col("policy") == policy).sort("round")
        axes.fill_between(curve["round"], curve["p10"], curve["p90"], color=colour(policy), alpha=0.08, linewidth=0)
        for decile in ("p10", "p90"):
            axes.plot(curve["round"], curve[decile], color=colour(policy), linewidth=0.6, linestyle=(0, (1, 2)))
        axes.plot(curve["round"], curve["mean"], color=colour(policy), linewidth=2, zorder=3)
    bound = rows.filter(pl.col("policy") == last["policy"][0]).sort("round")
    axes.plot(bound["round"], bound["lower_bound"], color=INK, linewidth=1.2, linestyle=(0, (4, 3)))
    axes.set_xscale("log")
    highest = float(last["p90"].to_numpy().max())
    if bound["lower_bound"][-1] < 1.5 * highest:
        highest = max(highest, bound["lower_bound"][-1])
    horizon = float(bound["round"][-1])
    axes.set_ylim(0, highest * 1.04)
    axes.set_xlim(max(1.0, horizon / SHOWN_ROUNDS), horizon)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.grid(axis="y")
    axes.set_xlabel("round")
    axes.set_ylabel("regret")
    ends = [*zip(last["policy"], last["mean"], strict=True)]
    labels = [(policy, min(mean, highest), colour(policy)) for policy, mean in ends]
    if bound["lower_bound"][-1] <= highest:
        labels.append(("lower bound", bound["lower_bound"][-1], INK))
    _label_ends(axes, labels, highest)
    order = ", ".join(f"{policy} {mean:.3g}" for policy, mean in ends)
    return picture(f"regret-{name}", f"Mean regret over rounds in the experiment {name}, at the end: {order}", figure)


def _label_ends(axes: Any, labels: list[tuple[str, float, str]], highest: float) -> None:
    """Names beside the curves' ends, moved apart where they would overlap."""
    apart = highest * 0.055
    placed = -np.inf
    for text, y, ink in sorted(labels, key=lambda label: label[1]):
        placed = max(y, placed + apart)
        axes.annotate(
            text,
            (1, placed),
            xycoords=("axes fraction", "data"),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            color=ink,
        )


@mpl.rc_context(STYLE)
def heat_maps(number: int, query: Any, ads: list[Any], displays: Any, clicks: Any, fitted: NDArray[np.float64]) -> Picture:
    """Click-through rates by ad and position: counted, fitted, and their difference in standard errors."""
    n, s = np.array(displays, float), np.array(clicks, float)
    rates = np.divide(s, n, out=np.full(n.shape, np.nan), where=n > 0)
    error = np.sqrt(np.divide(fitted * (1 - fitted), n, out=np.full(n.shape, np.nan), where=n > 0))
    residual = np.divide(rates - fitted, error, out=np.zeros(n.shape), where=error > 0)
    top = float(np.nanmax([np.nanmax(rates), fitted.max()])) or 1.0
    most = max(3.0, float(np.nanmax(np.abs(residual))))
    figure = _figure(4.6, 0.75 + 0.21 * len(ads))
    panels: Any = figure.subplots(1, 3, sharey=True)
    for axes, title, values, norm, colours, form in (
        (panels[0], "counted, %", 100 * rates, Normalize(0, 100 * top), "cividis", "{:.2f}"),
        (panels[1], "fitted, %", 100 * fitted, Normalize(0, 100 * top), "cividis", "{:.2f}"),
        (panels[2], "residual, s.e.", residual, TwoSlopeNorm(0, -most, most), "PuOr_r", "{:+.1f}"),
    ):
        _cells(axes, values, norm, colours, form)
        axes.set_title(title, color=SOFT)
        axes.set_xticks(range(n.shape[1]), [f"{l + 1}" for l in range(n.shape[1])])
        axes.tick_params(length=0)
    panels[0].set_yticks(range(len(ads)), [short(ad) for ad in ads])
    worst = f"largest residual {np.nanmax(np.abs(residual)):.1f} standard errors"
    return picture(
        f"ctr-{number}", f"Click-through rates of query {short(query)} by ad and position, counted and fitted; {worst}", figure
    )


def _cells(axes: Any, values: NDArray[np.float64], norm: Any, colours: str, form: str) -> None:
    """A heat map with its numbers, dark on light cells and light on dark ones."""
    scale = mpl.colormaps[colours]
    for (k, l), value in np.ndenumerate(values):
        shade = scale(norm(value)) if np.isfinite(value) else (0.5, 0.5, 0.5, 0.2)
        light = np.dot(shade[:3], (0.299, 0.587, 0.114)) > 0.52
        axes.add_patch(mpl.patches.Rectangle((l - 0.5, k - 0.5), 1, 1, facecolor=shade, edgecolor="none"))
        text = form.format(value) if np.isfinite(value) else "-"
        label = axes.text(l, k, text, ha="center", va="center", fontsize=7, color="#111111" if light else "#fafafa")
        label.set_in_layout(False)  # it stays in its cell; asking so many takes seconds
    axes.set_xlim(-0.5, values.shape[1] - 0.5)
    axes.set_ylim(values.shape[0] - 0.5, -0.5)
    for side in axes.spines.values():
        side.set_visible(False)


@mpl.rc_context(STYLE)
def theta(number: int, row: dict[str, Any]) -> Picture:
    """theta of a query's ads with 95% intervals, largest first."""
    ads = [short(ad) for ad in row["ad_ids"]]
    figure = _figure(4.6, 0.7 + 0.21 * len(ads))
    axes = figure.subplots()
    y = np.arange(len(ads))
    axes.hlines(y, row["theta_low"], row["theta_high"], color=colour("pbm-ts"), linewidth=2)
    axes.plot(row["theta"], y, "o", color=colour("pbm-ts"), markersize=4.5)
    axes.set_yticks(y, ads)
    axes.set_ylim(len(ads) - 0.4, -0.6)
    axes.set_xlim(left=0)
    axes.grid(axis="x")
    axes.set_xlabel("theta, with 95% interval")
    axes.tick_params(length=0)
    ends = f"from {row['theta_min']:.3g} to {row['theta_max']:.3g}"
    return picture(f"theta-{number}", f"theta of the {len(ads)} ads of query {short(row['query_id'])}, {ends}", figure)


@mpl.rc_context(STYLE)
def kappa(models: pl.DataFrame) -> Picture:
    """kappa of each query by position, with intervals."""
    rows = models.to_dicts()
    n_positions = max(len(row["kappa"]) for row in rows)
    figure = _figure(WIDE, 0.8 + 0.26 * len(rows))
    panels: Any = figure.subplots(1, n_positions, sharey=True, squeeze=False)[0]
    y = np.arange(len(rows))
    for l, axes in enumerate(panels):
        values, low, high = (
            np.array([row[name][l] if l < len(row[name]) else np.nan for row in rows], float)
            for name in ("kappa", "kappa_low", "kappa_high")
        )
        axes.hlines(y, low, high, color=colour("pbm-pie"), linewidth=2)
        axes.plot(values, y, "o", color=colour("pbm-pie"), markersize=4.5)
        axes.set_title(f"position {l + 1}", color=SOFT)
        axes.set_xlim(0, 1.05)
        axes.set_xticks([0, 0.5, 1])
        axes.grid(axis="x")
        axes.tick_params(length=0)
    panels[0].set_yticks(y, [short(row["query_id"]) for row in rows])
    panels[0].set_ylim(len(rows) - 0.4, -0.6)
    panels[0].set_ylabel("query")
    return picture("kappa", "kappa of each query by position, with 95% intervals", figure)


@mpl.rc_context(STYLE)
def rank(diagnostics: pl.DataFrame) -> Picture:
    """sigma_2 / sigma_1 of each query, and what is usual under the fitted rank-one model."""
    rows = diagnostics.sort("sigma2_ratio", descending=True).to_dicts()
    figure = _figure(WIDE, 0.8 + 0.27 * len(rows))
    axes = figure.subplots()
    y = np.arange(len(rows))
    band = np.nan_to_num([row["sigma2_ratio_q95"] for row in rows])
    axes.barh(y, band, height=0.62, color=BAND, edgecolor=LINE, linewidth=0.8)
    axes.plot([row["sigma2_ratio"] for row in rows], y, "o", color=colour("pbm-ts"), markersize=5.5)
    for at, row in zip(y, rows, strict=True):
        right = max(row["sigma2_ratio"], np.nan_to_num(row["sigma2_ratio_q95"]))
        text = f"p = {row['sigma2_p_value']:.2f}   share of sigma_1² {row['sigma1_share']:.4f}"
        axes.annotate(text, (right, at), xytext=(7, 0), textcoords="offset points", va="center", color=SOFT, fontsize=8)
    axes.set_yticks(y, [short(row["query_id"]) for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(0, 1.6 * max(*band, *(row["sigma2_ratio"] for row in rows), 1e-6))
    axes.set_xlabel("sigma_2 / sigma_1; bars: up to the 95% quantile under the fitted model")
    axes.set_ylabel("query")
    axes.tick_params(length=0)
    outside = sum(row["sigma2_ratio"] > row["sigma2_ratio_q95"] for row in rows)
    return picture(
        "rank", f"Second over first singular value of {len(rows)} queries; {outside} beyond the model's 95% band", figure
    )


SHARES = ("the right ad", "another of the best", "an ad that should not be there")


@mpl.rc_context(STYLE)
def displays(name: str, rows: pl.DataFrame) -> Picture:
    """What each policy showed at each position: the ad that belongs there, another of the L best, or none of these."""
    n_positions = int(rows["position"].to_numpy().max())
    kind = (
        pl.when(pl.col("rank") == pl.col("position"))
        .then(pl.lit(SHARES[0]))
        .when(pl.col("rank") <= pl.col("position").max().over("query_id"))
        .then(pl.lit(SHARES[1]))
        .otherwise(pl.lit(SHARES[2]))
    )
    counted = rows.group_by("policy", "position", kind=kind).agg(pl.col("displays").sum())
    counted = counted.with_columns(share=pl.col("displays") / pl.col("displays").sum().over("policy", "position"))
    share = {(policy, position, what): value for policy, position, what, _, value in counted.iter_rows()}
    right = {
        policy: sum(share.get((policy, l + 1, SHARES[0]), 0) for l in range(n_positions)) for policy in rows["policy"].unique()
    }
    policies = sorted(right, key=lambda policy: (-right[policy], policy))
    figure = _figure(WIDE, 1.1 + 0.27 * len(policies))
    panels: Any = figure.subplots(1, n_positions, sharey=True, squeeze=False)[0]
    inks = (colour("pbm-ts"), colour("uniform"), colour("pbm-pie"))
    for l, axes in enumerate(panels):
        left = np.zeros(len(policies))
        for what, ink in zip(SHARES, inks, strict=True):
            values = np.array([share.get((policy, l + 1, what), 0.0) for policy in policies])
            axes.barh(range(len(policies)), values, left=left, height=0.66, color=ink, label=what, linewidth=0)
            left += values
        for at, policy in enumerate(policies):
            axes.text(0.015, at, f"{share.get((policy, l + 1, SHARES[0]), 0):.0%}", va="center", fontsize=7.5, color=PAPER)
        axes.set_xlim(0, 1)
        axes.set_xticks([])
        axes.set_title(f"position {l + 1}", color=SOFT)
        axes.tick_params(length=0)
        for side in axes.spines.values():
            side.set_visible(False)
    panels[0].set_yticks(range(len(policies)), policies)
    panels[0].set_ylim(len(policies) - 0.5, -0.5)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False, handlelength=1)
    best = f"{policies[0]} shows the right ad most often" if policies else ""
    return picture(f"displays-{name}", f"What each policy showed at each position in {name}; {best}", figure)
