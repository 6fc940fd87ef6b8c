"""The report as one HTML page that needs nothing else."""

from importlib.resources import files
from typing import NamedTuple

from pipeline import __version__
from pipeline.experiments import EXPERIMENTS
from pipeline.report import sections
from pipeline.report.claims import Claim, Verdict
from pipeline.report.ink import Picture, variables
from pipeline.report.reading import Findings


class Page(NamedTuple):
    """The page, and the pictures on it."""

    html: str
    pictures: list[Picture]


def page(found: Findings, claims: list[Claim]) -> Page:
    """Every section for which there is something, and for the others what would make them."""
    made = [
        sections.claimed(claims),
        sections.data(found),
        sections.queries(found),
        sections.matrices(found),
        sections.models(found),
        *(sections.experiment(name, found) for name in EXPERIMENTS),
        sections.origins(found),
    ]
    links = "".join(f'<li><a href="#{each.key}">{each.short}</a></li>' for each in made)
    style = (files("pipeline.report") / "page.css").read_text().replace("LIGHT", variables(0)).replace("DARK", variables(1))
    body = "".join(f'<section id="{each.key}"><h2>{each.title}</h2>{each.body}</section>' for each in made)
    html = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<link rel="icon" href="data:,">
<title>Position-based models and bandits: report</title>
<style>{style}</style>
</head>
<body>
<header><h1>Position-based models and bandits</h1>
<p class="lead">Click probability = kappa of the position &times; theta of the item: what the log says of it, and what
policies that learn it lose on the way. After Lagrée, Vernade and Cappé, <i>Multiple-Play Bandits in the Position-Based Model</i>
(NIPS 2016).</p>
{tiles(found, claims)}</header>
<nav aria-label="Sections"><ul>{links}</ul></nav>
<main>{body}</main>
<footer>pbm {__version__}. Every figure is beside this page as SVG and PNG.</footer>
</body>
</html>
"""
    return Page(html, [each for section in made for each in section.pictures])


def tiles(found: Findings, claims: list[Claim]) -> str:
    """The figures one asks for first."""
    shown: list[tuple[str, str]] = []
    if "counts" in found.rows:
        shown.append(("lines of the log", f"{found.provenance['counts']['inputs']['log']['lines']:,}"))
    if "models" in found.rows:
        shown.append(("models", f"{found.rows['models'].height:,}"))
    played = [found.provenance[name]["parameters"] for name in found.rows if name.startswith("simulations/")]
    if played:
        rounds = sum(each["runs"] * each["horizon"] * len(each["policies"]) for each in played)
        shown.append(("rounds played", f"{rounds / 1e6:,.0f} million" if rounds >= 1e6 else f"{rounds:,}"))
    decided = [claim for claim in claims if claim.verdict in (Verdict.holds, Verdict.fails)]
    shown.append(("claims that hold", f"{sum(claim.verdict is Verdict.holds for claim in claims)} of {len(decided)} decided"))
    return '<dl class="tiles">' + "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in shown) + "</dl>"
