"""Pieces of HTML. What comes from the data is escaped here and nowhere else."""

from html import escape
from typing import Any

import numpy as np

from pipeline.listing import cell
from pipeline.report.ink import Picture
from pipeline.report.reading import Findings

MOST_ROWS = 200  # of a table
HASH, FINGERPRINT = 40, 12  # letters of a digest (cells are cut there), and those that are shown


def text(value: Any) -> str:
    """A value from the data, harmless: letters that do not print are spelled out, its direction is its own."""
    return f"<bdi>{escape(cell(value))}</bdi>"


def table(heads: list[tuple[str, str]], rows: list[list[str]]) -> str:
    """Heads with a class each ("" for numbers), and cells that are HTML already."""
    head = "".join(f'<th class="{kind}" scope="col">{escape(name)}</th>' for name, kind in heads)
    lines = "".join(
        "<tr>" + "".join(f'<td class="{kind}">{value}</td>' for value, (_, kind) in zip(row, heads, strict=True)) + "</tr>"
        for row in rows[:MOST_ROWS]
    )
    more = f"<p>{len(rows) - MOST_ROWS:,} more rows are in the artefact.</p>" if len(rows) > MOST_ROWS else ""
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>{more}'


def shown(picture: Picture, caption: str, kind: str = "chart") -> str:
    saved = f'<a href="{picture.name}.svg">SVG</a>, <a href="{picture.name}.png">PNG</a>'
    return f'<figure><div class="{kind}">{picture.inline}</div><figcaption>{caption} ({saved})</figcaption></figure>'


def absent(found: Findings, *names: str) -> str:
    """What of these is missing, why, and the command that makes it."""
    notes = [found.missing[name] for name in names if name in found.missing]
    return "".join(
        f'<div class="note"><p>Not shown: {escape(note.reason.split(";")[0])}. '
        f"Make it with <code>{escape(note.made_by)}</code>.</p></div>"
        for note in notes
    )


def number(value: float, digits: int = 4) -> str:
    """So many digits of a number; in full from ten thousand on."""
    if value is None or np.isnan(value):
        return "&ndash;"
    return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.{digits}g}"


def beside(ours: float, paper: float | None, form: str) -> str:
    """Our figure, and the paper's where they print differently."""
    mine = format(ours, form)
    theirs = "" if paper is None else format(paper, form)
    return mine if not theirs or mine == theirs else f'{mine} <span class="off">[{theirs}]</span>'


def positions(explored: list[int]) -> str:
    """Which positions, and for how many ads each."""
    counted = sorted((l, explored.count(l)) for l in set(explored))
    return ", ".join(f"{l}" if len(counted) == 1 else f"{l} ({n} ads)" for l, n in counted) or "&ndash;"


def listed(values: dict[str, Any]) -> str:
    """Names and values; of a fingerprint the first letters."""
    lines = []
    for name, value in values.items():
        inner = ", ".join(f"{key} {plain(each)}" for key, each in value.items()) if isinstance(value, dict) else plain(value)
        lines.append(f"{text(name)}: <bdi>{escape(inner)}</bdi>")
    return "<br>".join(lines)


def plain(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(plain, value))
    letters = cell(value)
    return letters[:FINGERPRINT] if len(letters) >= HASH else letters
