"""Rows as text: a table that a person can read, as wide as the terminal."""

import math
from typing import Any

import polars as pl

SHOWN_IN_LIST = 12  # elements of a list that are shown
LONGEST = 40  # letters of a text that are shown


def cell(value: Any) -> str:
    """A value, short: four digits of a float, lists by their elements, letters that do not print spelled out."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return "-" if math.isnan(value) else f"{value:.4g}"
    if isinstance(value, int):
        return f"{value}"
    if isinstance(value, list | pl.Series):
        elements = list(value)
        texts = [repr(text) if " " in (text := cell(element)) else text for element in elements[:SHOWN_IN_LIST]]
        return " ".join(texts) + " ..." * (len(elements) > SHOWN_IN_LIST)
    text = "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in str(value))
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def listing(rows: pl.DataFrame, width: int | None) -> tuple[str, list[str]]:
    """The table, and the columns that were left out because they do not fit into `width` letters (None: all do)."""
    shown: list[list[str]] = []
    hidden = []
    left = math.inf if width is None else width
    for name in rows.columns:
        texts = [name, *map(cell, rows[name])]
        size = max(map(len, texts))
        if size > left and shown:
            hidden.append(name)
            continue
        left -= size + 2
        right = rows[name].dtype.is_numeric()
        shown.append([text.rjust(size) if right else text.ljust(size) for text in texts])
    return "\n".join("  ".join(row).rstrip() for row in zip(*shown, strict=True)), hidden
