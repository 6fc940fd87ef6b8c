"""The default engine: polars, streaming."""

from collections.abc import Iterator

import polars as pl
from polars.io.plugins import register_io_source

from pipeline.engines import Lines
from pipeline.filter import Filter


def count(lines: Lines, wanted: Filter) -> pl.DataFrame:
    """Count every cell, then keep ads with enough displays at every position and queries with enough such ads."""
    return (
        scan(lines)
        .group_by("query_id", "ad_id", "position")
        .agg(
            lines=pl.len().cast(pl.Int64),
            clicked_lines=(pl.col("clicks") > 0).sum().cast(pl.Int64),
            impressions=pl.col("impressions").sum(),
            clicks=pl.col("clicks").sum(),
        )
        .filter(pl.col(wanted.unit.value) >= wanted.min_displays)
        .filter(pl.len().over("query_id", "ad_id") == wanted.positions)
        .filter(pl.col("ad_id").n_unique().over("query_id") >= wanted.min_ads)
        .collect(engine="streaming")
    )


def scan(lines: Lines) -> pl.LazyFrame:
    """The stream of lines as a lazy frame."""

    def source(
        columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        for batch in lines.batches:
            frame = pl.DataFrame(batch) if columns is None else pl.DataFrame(batch).select(columns)
            yield frame if predicate is None else frame.filter(predicate)

    return register_io_source(source, schema=pl.DataFrame(lines.schema.empty_table()).schema)
