"""The runs of a policy over the executors of a Spark cluster, in shards.

A run's generator depends on the seed, its number and its policy's label alone, so it does not matter where it is played, nor
in which shard: the rows are those of one machine.
"""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from bandits.simulate import Played, Player, play_run
from bandits.world import World
from pipeline import __version__
from pipeline.cluster import same_version, watched

SHARDS_PER_CORE = 8  # small enough to be played again when a worker is lost, and to end at about the same time
RUN = pa.schema([("run", pa.int64()), ("regret", pa.binary()), ("displays", pa.binary())])


class Hand(NamedTuple):
    """What an executor needs to play any run."""

    version: str
    player: Player
    worlds: list[World]
    chosen: NDArray[np.int64]
    rounds: NDArray[np.int64]
    seed: int


def simulate(
    spark: SparkSession, player: Player, worlds: list[World], chosen: NDArray[np.int64], rounds: NDArray[np.int64], seed: int
) -> Played:
    """`bandits.simulate.simulate` on a cluster."""
    shards = min(chosen.size, SHARDS_PER_CORE * spark.sparkContext.defaultParallelism)
    hand = Hand(__version__, player, worlds, chosen, rounds, seed)
    with watched(spark, player.label, shards):
        frame = spark.range(0, chosen.size, 1, shards).mapInArrow(partial(play, hand), from_arrow_schema(RUN))
        found = frame.toArrow()
    regret = np.empty((chosen.size, rounds.size))
    displays = [np.zeros((world.theta.size, world.kappa.size), np.int64) for world in worlds]
    for row in found.to_pylist():
        regret[row["run"]] = np.frombuffer(row["regret"])
        shown = displays[chosen[row["run"]]]
        shown += np.frombuffer(row["displays"], np.int64).reshape(shown.shape)
    return Played(regret, displays)


def play(hand: Hand, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """On an executor: some runs."""
    same_version(hand.version)
    for batch in batches:
        runs = batch.column(0).to_pylist()
        played = [play_run(hand.player, hand.worlds[hand.chosen[run]], hand.rounds, hand.seed, run) for run in runs]
        regret, displays = ([values.tobytes() for values in column] for column in zip(*played, strict=True))
        yield pa.RecordBatch.from_arrays(
            [pa.array(runs), pa.array(regret, pa.binary()), pa.array(displays, pa.binary())], schema=RUN
        )
