"""Engines: each one function that counts the lines that may pass and applies the paper's filter to the exact counts.

An engine on this machine is given the lines as a stream of Arrow batches (see `Lines`), and returns rows with the columns of
`counts.parquet`, in any order. The Spark engine reads the log itself, where its executors are.
"""

from collections import Counter
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
Reject = Callable[[pa.Table], None]  # told of bad lines: rows of `rejects.parquet`


class Census(NamedTuple):
    """What a pass over all lines found."""

    lines: int
    good: int
    fingerprint: int  # of the good lines, whatever their order and packing
    rejected: Counter[str]  # by reason
    unterminated: bool
    above: int  # good lines at positions that the filter does not look at


class Counted(NamedTuple):
    """A log counted: the census of its lines, and the rows of `counts.parquet`."""

    census: Census
    counts: pl.DataFrame
