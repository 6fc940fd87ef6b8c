"""What the policies achieve: the paper's order on the published models, yardsticks, and runs that depend on nothing else."""

import numpy as np
import pytest
from numpy.typing import NDArray

from bandits.policies import POLICIES
from bandits.simulate import checkpoints, generator, play_run, player, simulate, worlds_of_runs
from bandits.world import world
from pipeline.published import MODELS

pytestmark = pytest.mark.long

SYNTHETIC = world([0.45, 0.35, 0.25, 0.15, 0.05], [0.9, 0.6, 0.3])
TS = player(POLICIES["pbm-ts"])


@pytest.fixture(scope="module")
def published_regret() -> dict[str, NDArray[np.float64]]:
    """Final regrets at T = 10^4, 40 runs on the published models."""
    worlds = [world(model.theta, model.kappa) for model in MODELS]
    chosen = worlds_of_runs(len(worlds), 40, 0)
    names = ("oracle", "uniform", "pbm-ucb", "pbm-pie", "pbm-ts", "rba-kl-ucb")
    return {
        name: simulate(player(POLICIES[name]), worlds, chosen, np.array([10_000]), 0, threads=2).regret[:, 0] for name in names
    }


def test_the_yardsticks_are_what_they_say(published_regret: dict[str, NDArray[np.float64]]) -> None:
    assert np.abs(published_regret["oracle"]).max() < 1e-8  # rounding of 10^4 sums
    regret = simulate(player(POLICIES["uniform"]), [SYNTHETIC], np.zeros(50, np.int64), np.array([1000]), 0, threads=2).regret[
        :, 0
    ]
    expected = 1000 * (0.9 * 0.45 + 0.6 * 0.35 + 0.3 * 0.25 - 0.25 * 1.8)  # every arm equally often everywhere
    assert abs(regret.mean() - expected) < 4.5 * regret.std() / np.sqrt(50)


def test_the_order_is_the_papers(published_regret: dict[str, NDArray[np.float64]]) -> None:
    """Differences of means on the same worlds, each more than three standard errors from 0."""

    def above(worse: str, better: str) -> float:
        difference = published_regret[worse] - published_regret[better]
        return float(difference.mean() / (difference.std() / np.sqrt(difference.size)))

    for better in ("pbm-ts", "pbm-pie"):
        assert above("rba-kl-ucb", better) > 3
        assert above("pbm-ucb", better) > 3
    assert above("pbm-ucb", "rba-kl-ucb") > 3
    assert above("uniform", "pbm-ucb") > 3


def test_runs_do_not_depend_on_threads_or_on_other_runs() -> None:
    chosen = np.zeros(6, np.int64)
    rounds = checkpoints(500)
    one, two = (simulate(TS, [SYNTHETIC], chosen, rounds, 3, threads=threads).regret for threads in (1, 2))
    np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(one[4], play_run(TS, SYNTHETIC, rounds, 3, 4)[0])
    assert not np.array_equal(one[4], one[3])
    assert generator(0, 1, "a").random() != generator(0, 1, "b").random()


def test_checkpoints_run_from_1_to_the_horizon() -> None:
    for horizon in (1, 2, 10, 12_345):
        rounds = checkpoints(horizon)
        assert (rounds[0], rounds[-1]) == (1, horizon)
        assert (np.diff(rounds) > 0).all()
