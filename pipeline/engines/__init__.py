"""Engines: each one function that counts the lines that may pass and applies the paper's filter to the exact counts.

An engine is given the lines as a stream of Arrow batches (see `Lines`), and returns rows with the columns of
`counts.parquet`, in any order.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import polars as pl
import pyarrow as pa

from pipeline.filter import Filter


class Lines(NamedTuple):
    """Lines of the log: query_id, ad_id, position, clicks, impressions; read as they are asked for, once."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]


Engine = Callable[[Lines, Filter], pl.DataFrame]
