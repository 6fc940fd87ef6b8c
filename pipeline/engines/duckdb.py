"""The same count in SQL, by duckdb."""

import duckdb
import polars as pl
import pyarrow as pa

from pipeline.engines import Lines
from pipeline.filter import Filter

QUERY = """
    WITH cells AS (
        SELECT query_id, ad_id, position,
               count(*) AS lines,
               count(*) FILTER (clicks > 0) AS clicked_lines,
               sum(impressions)::BIGINT AS impressions,
               sum(clicks)::BIGINT AS clicks
        FROM log
        GROUP BY query_id, ad_id, position
    ),
    ads AS (
        FROM cells
        WHERE {unit} >= $min_displays
        QUALIFY count(*) OVER (PARTITION BY query_id, ad_id) = $positions
    )
    FROM ads
    QUALIFY count(*) OVER (PARTITION BY query_id) // $positions >= $min_ads
"""


def count(lines: Lines, wanted: Filter) -> pl.DataFrame:
    """Count every cell, then keep ads with enough displays at every position and queries with enough such ads."""
    with duckdb.connect() as connection:
        connection.execute("SET enable_progress_bar = false")  # we show our own, and only on a terminal
        connection.register("log", pa.RecordBatchReader.from_batches(lines.schema, lines.batches))
        limits = {name: value for name, value in wanted._asdict().items() if name != "unit"}
        rows: pl.DataFrame = connection.sql(QUERY.format(unit=wanted.unit.value), params=limits).pl()
        return rows
