"""Slow and obvious versions of what the package does fast. They share no code with it."""

import math
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


Table = list[list[int]]


def log_likelihood(clicks: Table, displays: Table, theta: list[float], kappa: list[float]) -> float:
    """Term by term."""
    total = 0.0
    for s_row, n_row, attraction in zip(clicks, displays, theta, strict=True):
        for s, n, examination in zip(s_row, n_row, kappa, strict=True):
            p = examination * attraction
            total += (s * math.log(p) if s else 0.0) + ((n - s) * math.log(1 - p) if n > s else 0.0)
    return total


def em_step(clicks: Table, displays: Table, theta: list[float], kappa: list[float]) -> tuple[list[float], list[float]]:
    """Display by display: the posterior of (examined, attractive) is enumerated, and its means are averaged."""
    attractive = [[0.0, 0.0] for _ in theta]  # expected, shown
    examined = [[0.0, 0.0] for _ in kappa]
    for k, (s_row, n_row) in enumerate(zip(clicks, displays, strict=True)):
        for l, (s, n) in enumerate(zip(s_row, n_row, strict=True)):
            for display in range(n):
                clicked = display < s
                weights = {
                    (e, a): (kappa[l] if e else 1 - kappa[l]) * (theta[k] if a else 1 - theta[k])
                    for e in (False, True)
                    for a in (False, True)
                    if (e and a) == clicked
                }
                total = sum(weights.values())
                attractive[k][0] += sum(w for (_, a), w in weights.items() if a) / total
                examined[l][0] += sum(w for (e, _), w in weights.items() if e) / total
                attractive[k][1] += 1
                examined[l][1] += 1
    return [a / n for a, n in attractive], [e / n for e, n in examined]
