"""Slow and obvious versions of what the package does fast. They share no code with it."""

from collections import Counter, defaultdict
from collections.abc import Iterable

Line = tuple[object, object, int, int, int]  # query, item, position from 1, clicks, impressions
Row = tuple[object, object, int, int, int, int, int]  # of counts.parquet


def count(lines: Iterable[Line], *, by_impressions: bool, min_displays: int, min_ads: int, positions: int) -> list[Row]:
    """The rows of counts.parquet, by a dictionary over all cells."""
    totals: dict[tuple[object, object, int], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for query, item, position, clicks, impressions in lines:
        cell = totals[query, item, position]
        for i, amount in enumerate((1, int(clicks > 0), impressions, clicks)):
            cell[i] += amount
    good = Counter(
        (query, item)
        for (query, item, position), cell in totals.items()
        if position <= positions and cell[2 if by_impressions else 0] >= min_displays
    )
    ads = {ad for ad, shown in good.items() if shown == positions}
    per_query = Counter(query for query, _ in ads)
    return sorted(
        (query, item, position, cell[0], cell[1], cell[2], cell[3])
        for (query, item, position), cell in totals.items()
        if position <= positions and (query, item) in ads and per_query[query] >= min_ads
    )
