"""Colours by their role, and pictures that follow the reader's light or dark theme.

A picture is drawn once, in the light theme. In its SVG each colour of the palette becomes a CSS variable with that colour as its
default: inside the page they are the page's variables; in a file of its own they follow the reader's setting.
"""

import io
import re
import warnings
from typing import Any, NamedTuple

import matplotlib as mpl

mpl.use("Agg")  # no screen is needed

from matplotlib.figure import Figure

# Light and dark of each role. The colours of policies are Okabe and Ito's, told apart by colour-blind readers, and lightened or
# darkened until each has a contrast of 3 to its background.
PALETTE = {
    "paper": ("#ffffff", "#12161f"),
    "ink": ("#1d2330", "#e8eaf0"),
    "soft": ("#5d6678", "#a3abbd"),
    "line": ("#d5d9e2", "#3a4152"),
    "band": ("#e9ecf3", "#262c3a"),
    "blue": ("#0072b2", "#56b4e9"),
    "orange": ("#b86e00", "#f0a830"),
    "green": ("#00805d", "#2fc79b"),
    "red": ("#c8491a", "#ff7f4d"),
    "pink": ("#a8508a", "#e59acb"),
    "violet": ("#6a51a3", "#b3a2f0"),
    "brown": ("#7a5c2e", "#c9a66b"),
    "grey": ("#6b7280", "#9aa3b5"),
}
INK, SOFT, LINE, BAND, PAPER = (PALETTE[name][0] for name in ("ink", "soft", "line", "band", "paper"))
POLICY_INK = {
    "pbm-ts": "blue",
    "pbm-pie": "red",
    "pbm-ucb": "green",
    "rba-kl-ucb": "pink",
    "bc-mp-ts": "orange",
    "pbm-kl-ucb": "violet",
    "oracle": "brown",
    "uniform": "grey",
}
STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 9,
    "svg.fonttype": "none",  # text stays text: found, selected, read aloud
    "text.parse_math": False,  # ids may hold dollar signs
    "text.color": INK,
    "axes.edgecolor": LINE,
    "axes.labelcolor": SOFT,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "figure.constrained_layout.use": True,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "xtick.color": LINE,
    "ytick.color": LINE,
    "xtick.labelcolor": SOFT,
    "ytick.labelcolor": SOFT,
}


class Picture(NamedTuple):
    """A figure under its file's stem: standing alone, for the page, and as pixels."""

    name: str
    alt: str
    svg: str
    inline: str
    png: bytes


def colour(policy: str) -> str:
    """Of a policy, by its name without parameters; one of somebody's own gets a colour by its letters."""
    name = policy.split("(")[0]
    role = POLICY_INK.get(name) or list(POLICY_INK.values())[sum(map(ord, name)) % len(POLICY_INK)]
    return PALETTE[role][0]


def picture(name: str, alt: str, figure: Figure) -> Picture:
    """Render a figure, drawn within `mpl.rc_context(STYLE)`."""
    with mpl.rc_context({**STYLE, "svg.hashsalt": name}), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # letters that the font lacks: boxes in the PNG, right in the SVG
        text, pixels = io.StringIO(), io.BytesIO()
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # what it arranged stays; it need not be done again for each format
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
        figure.savefig(pixels, format="png", dpi=160, facecolor="white", metadata={"Software": None})
    drawn = _themed(text.getvalue()[text.getvalue().index("<svg") :], name)
    inline = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", drawn, count=1), count=1)
    inline = inline.replace("<svg", f'<svg role="img" aria-label="{_attribute(alt)}"', 1)
    return Picture(name, alt, _alone(drawn, alt), inline, pixels.getvalue())


def variables(theme: int) -> str:
    """The palette as CSS: 0 light, 1 dark."""
    return " ".join(f"--{name}: {colours[theme]};" for name, colours in PALETTE.items())


def _themed(svg: str, name: str) -> str:
    """Colours as variables, the reader's own font, and ids that no other picture on the page has."""
    for role, (light, _) in PALETTE.items():
        svg = re.sub(rf"(fill|stroke): {light}\b", rf"\1: var(--{role}, {light})", svg)
    svg = re.sub(r"font: ([^;']*?)'DejaVu Sans'[^;\"]*", r"font: \1system-ui, sans-serif", svg)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'href="#', f'href="#{name}-', svg)
    return re.sub(r"url\(#", f"url(#{name}-", svg)


def _alone(svg: str, alt: str) -> str:
    style = f"<style>@media (prefers-color-scheme: dark) {{ svg {{ {variables(1)} }} }}</style>"
    head, _, rest = svg.partition(">")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{head} role="img">\n<title>{_text(alt)}</title>{style}{rest}'


def _text(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")


def _attribute(text: str) -> str:
    return _text(text).replace('"', "&quot;")
