"""Slow and obvious versions of what the package does fast."""

from collections import Counter, defaultdict
from collections.abc import Iterable

from pipeline.filter import Filter, Unit
from pipeline.formats import LogFormat
from pipeline.log import rules

Row = tuple[object, object, int, int, int, int, int]


def count(lines: Iterable[bytes], fmt: LogFormat, wanted: Filter) -> list[Row]:
    """The rows of counts.parquet, by a dictionary over all cells."""
    names = [column.name for column in fmt.columns]
    totals: dict[tuple[object, object, int], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for line in lines:
        if rules.broken(line, fmt) is not None:
            continue
        fields = rules.split(line.removesuffix(b"\r"), fmt)
        assert not isinstance(fields, str)
        value = dict(zip(names, fields, strict=True))
        roles = fmt.roles
        clicks = int(value[roles.clicks])
        impressions = int(value[roles.impressions]) if roles.impressions else 1
        position = int(value[roles.position]) - fmt.column(roles.position).low + 1
        query, item = (
            value[name].decode() if fmt.column(name).kind.name == "TEXT" else int(value[name])
            for name in (roles.query, roles.item)
        )
        cell = totals[query, item, position]
        for i, amount in enumerate((1, int(clicks > 0), impressions, clicks)):
            cell[i] += amount
    unit = 2 if wanted.unit is Unit.impressions else 0
    good = Counter(
        (query, item)
        for (query, item, position), cell in totals.items()
        if position <= wanted.positions and cell[unit] >= wanted.min_displays
    )
    ads = {ad for ad, positions in good.items() if positions == wanted.positions}
    per_query = Counter(query for query, _ in ads)
    return sorted(
        (query, item, position, cell[0], cell[1], cell[2], cell[3])
        for (query, item, position), cell in totals.items()
        if position <= wanted.positions and (query, item) in ads and per_query[query] >= wanted.min_ads
    )
