"""The sections of the report. Each shows what there is of its subject, and says what would make the rest."""

from html import escape
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from pipeline import published
from pipeline.experiments import EXPERIMENTS
from pipeline.report import charts
from pipeline.report.claims import Claim, Verdict
from pipeline.report.ink import Picture
from pipeline.report.pieces import MOST_ROWS, absent, beside, listed, number, positions, shown, table, text
from pipeline.report.reading import Findings

MOST_QUERIES = 12  # shown one by one, those with most records; all are in the table
DIGITS = 3  # decimals of theta in the paper's table
SEEN = {Verdict.holds: "holds", Verdict.fails: "fails"}


class Section(NamedTuple):
    key: str
    short: str  # for the list of sections
    title: str
    body: str
    pictures: list[Picture]


def claimed(claims: list[Claim]) -> Section:
    rows = []
    for claim in claims:
        verdict = f'<span class="verdict {SEEN.get(claim.verdict, "open")}">{escape(claim.verdict.value)}</span>'
        if claim.missing:
            verdict += f"<br><code>{escape(claim.missing)}</code>"
        wanted = (
            f"{number(claim.low, 3)} to {number(claim.high, 3)}" if np.isfinite(claim.high) else f"above {number(claim.low, 3)}"
        )
        ours = f"{number(claim.estimate)} &plusmn; {number(claim.std_error, 2)}" if not claim.missing else "&ndash;"
        statement = f"<b>{escape(claim.name)}</b><br>{escape(claim.figure)}"
        rows.append([statement, verdict, ours, wanted, escape(claim.experiment)])
    body = (
        "<p>Each claim of the paper's experiments as a number that should lie in an interval. It holds if the whole 95% interval "
        "of our figure (&plusmn; is one standard error) lies inside, does not hold if all of it lies outside, and is not decided "
        "otherwise. The intervals are our reading of the paper's words, which give no figures; the reasons for them are in "
        "<code>pipeline/report/claims.py</code>. What the paper says of slopes is said of long horizons.</p>"
        + table([("claim", "text"), ("verdict", "id"), ("is", ""), ("should be", ""), ("from", "id")], rows)
    )
    return Section("claims", "Claims", "The paper's claims", body, [])


def data(found: Findings) -> Section:
    body = absent(found, "counts", "rejects")
    if "counts" in found.rows:
        counts, origin = found.rows["counts"], found.provenance["counts"]
        lines, kept = origin["inputs"]["log"]["lines"], int(counts["lines"].sum())
        rejects = found.rows.get("rejects")
        bad = 0 if rejects is None else rejects.height
        parameters = origin["parameters"]
        rows = [["lines read", f"{lines:,}"], ["rejected", f"{bad:,}"]]
        if rejects is not None and bad:
            reasons = rejects.group_by("reason").len().sort("len", "reason", descending=[True, False])
            rows += [[f"&emsp;{text(reason)}", f"{n:,}"] for reason, n in reasons.iter_rows()]
        rows += [["dropped by the filter", f"{lines - bad - kept:,}"], ["<b>kept</b>", f"<b>{kept:,}</b>"]]
        units = (("lines", "lines", "clicked_lines"), ("impressions", "impressions", "clicks"))
        totals = [(unit, int(counts[displays].sum()), int(counts[clicks].sum())) for unit, displays, clicks in units]
        body += (
            f"<p>From {text(origin['inputs']['log']['name'])}, format {text(parameters['format']['name'])}. Kept are ads with "
            f"at least {parameters['min_displays']:,} {escape(parameters['unit'])} at each of {parameters['positions']} "
            f"positions, in queries with at least {parameters['min_ads']} such ads.</p>"
            + table([("", "id"), ("lines", "")], rows)
            + "<p>What was kept, in both units; * marks the one that the models follow.</p>"
            + table(
                [("unit", "id"), ("displays", ""), ("clicks", ""), ("click-through rate", "")],
                [
                    [unit + (" *" if unit == parameters["unit"] else ""), f"{n:,}", f"{s:,}", f"{s / n:.3%}" if n else "&ndash;"]
                    for unit, n, s in totals
                ],
            )
        )
    return Section("data", "Data", "The data", body, [])


def queries(found: Findings) -> Section:
    """The paper's table, our figures beside its own."""
    body = absent(found, "models")
    if "models" in found.rows:
        known = {model.query_id: model for model in published.MODELS}
        rows = []
        for row in found.rows["models"].sort("n_ads", "theta_max").to_dicts():
            paper = known.get(row["query_id"]) if isinstance(row["query_id"], int) else None
            rows.append(
                [
                    text(row["query_id"]),
                    beside(row["n_ads"], paper and len(paper.theta), "d"),
                    beside(row["records"], paper and paper.records, ",d"),
                    beside(row["theta_min"], paper and paper.theta_min, f".{DIGITS}f"),
                    beside(row["theta_max"], paper and paper.theta_max, f".{DIGITS}f"),
                    number(row["p_value"], 2),
                    number(row["dispersion"], 3),
                ]
            )
        body += (
            "<p>The paper's table of queries"
            + (
                ". In brackets what the paper says, where it is another figure. A synthetic log has the published models "
                "planted: what differs then is the noise of one log, and query 9's smallest theta, of which publications disagree"
                if known.keys() & set(found.rows["models"]["query_id"].to_list())
                else ", for this log"
            )
            + ". p: of the test whether the model fits.</p>"
            + table(
                [
                    ("query", "id"),
                    ("ads", ""),
                    ("records", ""),
                    ("min theta", ""),
                    ("max theta", ""),
                    ("p", ""),
                    ("dispersion", ""),
                ],
                rows,
            )
        )
    return Section("queries", "Queries", "The queries", body, [])


def matrices(found: Findings) -> Section:
    body = absent(found, "matrices", "diagnostics")
    pictures = []
    if "diagnostics" in found.rows:
        picture = charts.rank(found.rows["diagnostics"].head(MOST_ROWS))
        pictures.append(picture)
        body += (
            "<p>If the model holds, a query's matrix of click-through rates has rank one but for noise. The first singular value "
            "dominates even where it does not hold, so the second is held against what noise alone makes of it.</p>"
            + shown(picture, "Second over first singular value. A dot beyond its bar speaks against the model.")
        )
    if "matrices" in found.rows and "models" in found.rows:
        body += '<div class="queries">'
        for place, row in enumerate(largest(found.rows["models"])):
            mine = found.rows["matrices"].filter(pl.col("query_id") == row["query_id"])
            ads = dict(zip(row["ad_ids"], row["theta"], strict=True))
            mine = mine.filter(pl.col("ad_id").is_in(row["ad_ids"]))
            order = sorted(mine.to_dicts(), key=lambda each: -ads[each["ad_id"]])
            fitted = np.outer([ads[each["ad_id"]] for each in order], row["kappa"])
            picture = charts.heat_maps(
                *(place + 1, row["query_id"], [each["ad_id"] for each in order]),
                *([each["displays"] for each in order], [each["clicks"] for each in order], fitted),
            )
            pictures.append(picture)
            body += of_query(row, shown(picture, "By ad and position.", "small"))
        body += "</div>"
    return Section("matrices", "Rates", "Click-through rates", body + only(found), pictures)


def models(found: Findings) -> Section:
    body = absent(found, "models")
    pictures = []
    if "models" in found.rows:
        picture = charts.kappa(found.rows["models"].head(MOST_ROWS))
        pictures.append(picture)
        body += (
            "<p>The largest kappa is 1 by convention and has no error; the others are relative to it. Intervals are 95%.</p>"
            + shown(picture, "How often each position is examined.")
            + '<div class="queries">'
        )
        for place, row in enumerate(largest(found.rows["models"])):
            picture = charts.theta(place + 1, row)
            pictures.append(picture)
            body += of_query(row, shown(picture, "Ads by falling theta.", "small"))
        body += "</div>"
    return Section("models", "Models", "The models", body + only(found), pictures)


def of_query(row: dict[str, Any], body: str) -> str:
    return f'<div class="query"><h3>Query {text(row["query_id"])}</h3>{body}</div>'


def largest(rows: pl.DataFrame) -> list[dict[str, Any]]:
    return rows.sort("records", descending=True).head(MOST_QUERIES).to_dicts()


def only(found: Findings) -> str:
    n = found.rows["models"].height if "models" in found.rows else 0
    return f"<p>Shown one by one: the {MOST_QUERIES} of {n:,} queries with most records.</p>" if n > MOST_QUERIES else ""


def experiment(name: str, found: Findings) -> Section:
    title = {"kdd": "Regret on the models", "synthetic": "Regret, synthetic", "high-theta": "Regret, high theta"}.get(name, name)
    body = f"<p>{escape(EXPERIMENTS[name].summary[0].upper() + EXPERIMENTS[name].summary[1:])}.</p>"
    key, pictures = f"regret/{name}", []
    if f"simulations/{name}" in found.missing:
        return Section(name, f"Regret: {name}", title, body + absent(found, f"simulations/{name}"), [])
    body += absent(found, key, f"displays/{name}", f"bounds/{name}")
    if key in found.rows:
        rows, origin = found.rows[key], found.provenance[key]["parameters"]
        picture = charts.regret(name, rows)
        pictures.append(picture)
        body += f"<p>{origin['runs']:,} runs of {origin['horizon']:,} rounds, seed {origin['seed']}.</p>" + shown(
            picture,
            "Mean regret; bands from the first to the last decile of the runs. Dashed: the lower bound, which is asymptotic; "
            "early on, policies may well be below it.",
        )
        final = rows.filter(pl.col("round") == rows["round"].max()).sort("mean")
        body += table(
            [
                ("policy", "id"),
                ("mean regret", ""),
                ("std. error", ""),
                ("first decile", ""),
                ("last decile", ""),
                ("over the bound", ""),
            ],
            [
                [
                    text(row["policy"]),
                    *(number(row[column]) for column in ("mean", "std_error", "p10", "p90")),
                    number(row["mean"] / row["lower_bound"], 3) if row["lower_bound"] > 0 else "&ndash;",
                ]
                for row in final.to_dicts()
            ],
        )
    if f"displays/{name}" in found.rows:
        picture = charts.displays(name, found.rows[f"displays/{name}"])
        pictures.append(picture)
        body += shown(picture, "Where the displays went, over all rounds. The number is the share of the ad that belongs there.")
    if f"bounds/{name}" in found.rows:
        body += _bounds(found.rows[f"bounds/{name}"])
    return Section(name, f"Regret: {name}", title, body, pictures)


def _bounds(rows: pl.DataFrame) -> str:
    names = {
        "lower_bound": "lower bound",
        "multiple_play": "multiple play",
        "weighted_cascade": "weighted cascade",
        "pie_upper": "PBM-PIE at most",
        "ucb_upper": "PBM-UCB at most",
    }
    lines = [
        [text(row["query_id"]), *(number(row[column]) for column in names), positions(row["exploring_positions"])]
        for row in rows.to_dicts()
    ]
    return (
        "<h3>What bounds the regret</h3><p>Constants c of c log T: the paper's lower bound, for comparison those of Anantharam "
        "et al. for multiple plays and of Combes et al. for the weighted cascade, and the leading constants of the paper's two "
        "upper bounds; last, the position at which each ad beyond the best is explored at the least cost.</p>"
        + table([("query", "id"), *((each, "") for each in names.values()), ("explore at", "id")], lines)
    )


def origins(found: Findings) -> Section:
    rows = [
        [
            text(name),
            text(origin["package"]),
            listed(origin["parameters"]),
            listed(origin["inputs"]),
        ]
        for name, origin in found.provenance.items()
    ]
    body = (
        "<p>What each artefact was made from, with which parameters. The same inputs, parameters and seed give the same rows.</p>"
        + table([("artefact", "id"), ("pbm", "id"), ("parameters", "text"), ("made from", "text")], rows)
    )
    return Section("origins", "Provenance", "Provenance", body, [])
