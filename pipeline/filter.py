"""The paper's filter: which ads and queries of a log have enough displays to be estimated."""

from enum import StrEnum
from typing import NamedTuple


class Unit(StrEnum):
    """What counts as one display. The paper calls a line a record with a binary reward: `lines` is its reading."""

    lines = "lines"  # a line is one display, clicked if Click > 0
    impressions = "impressions"  # a line is Impression displays and Click clicks


class Filter(NamedTuple):
    """Keep the ads with `min_displays` at each of the positions 1..positions, then the queries with `min_ads` such ads.

    The defaults are the paper's (section "Real data experiments").
    """

    unit: Unit = Unit.lines
    min_displays: int = 1000
    min_ads: int = 5
    positions: int = 3
