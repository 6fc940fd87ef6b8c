"""Worlds, and how low their regret can be: known constants, and the bounds against each other."""

import math

import numpy as np
import pytest

from bandits import bounds
from bandits.world import World, WorldError, world
from pipeline.published import MODELS
from tests.naive_policies import slow_kl

SYNTHETIC = world([0.45, 0.35, 0.25, 0.15, 0.05], [0.9, 0.6, 0.3])
HIGH = world([0.95, 0.85, 0.75, 0.65, 0.55], [0.9, 0.6, 0.3])


def test_known_constants_of_the_lower_bound() -> None:
    assert bounds.lower_bound(SYNTHETIC) == pytest.approx(5.592, abs=5e-4)
    assert bounds.exploring_positions(SYNTHETIC).tolist() == [3, 3]
    assert bounds.lower_bound(HIGH) == pytest.approx(14.06, abs=5e-3)
    assert bounds.exploring_positions(HIGH).tolist() == [1, 1]
    known = {1: 41.90, 4: 38.05, 7: 12.84, 8: 92.75, 10: 6.231, 19: 42.24}  # theta to full precision; ours has four digits
    for model in MODELS:
        modelled = world(model.theta, model.kappa)
        assert set(bounds.exploring_positions(modelled).tolist()) == {3}
        if model.query_id in known:
            assert bounds.lower_bound(modelled) == pytest.approx(known[model.query_id], rel=0.005)


def test_the_bounds_against_each_other() -> None:
    for modelled in (SYNTHETIC, HIGH, *(world(model.theta, model.kappa) for model in MODELS)):
        last = modelled.kappa[-1]
        theta = np.sort(modelled.theta)[::-1]
        worst = theta[modelled.kappa.size - 1]
        relaxed = last * sum((worst - t) / slow_kl(last * t, last * worst) for t in theta[modelled.kappa.size :])
        assert bounds.pie_upper_bound(modelled) == pytest.approx(relaxed)
        assert bounds.lower_bound(modelled) >= relaxed - 1e-9 or bounds.exploring_positions(modelled)[0] != modelled.kappa.size
        assert bounds.lower_bound(modelled) <= relaxed + 1e-9  # PIE explores at L, which is one of the positions
        assert bounds.weighted_cascade_bound(modelled) == pytest.approx(last * bounds.multiple_play_bound(modelled))
        assert bounds.ucb_upper_bound(modelled) > bounds.pie_upper_bound(modelled)
    assert bounds.lower_bound(world([0.3, 0.2], [1.0, 0.5])) == 0  # every arm is shown


@pytest.mark.parametrize(
    ("theta", "kappa", "message"),
    [
        ([0.5, 1.1], [1.0], "theta of arm 2 is 1.1, expected 0 to 1"),
        ([0.5, math.nan], [1.0], "theta of arm 2 is nan, expected 0 to 1"),
        ([0.5], [0.0], "kappa of position 1 is 0.0, expected above 0 and up to 1"),
        ([0.5], [1.0, 0.5], "1 arms for 2 positions, expected at least as many arms as positions"),
        ([], [1.0], "theta has shape (0,), expected a list of at least one number"),
    ],
)
def test_worlds_that_are_none_are_refused(theta: list[float], kappa: list[float], message: str) -> None:
    with pytest.raises(WorldError) as refused:
        world(theta, kappa)
    assert str(refused.value) == message


def test_positions_are_ranked_by_kappa() -> None:
    assert world([0.5] * 3, [0.8, 1.0, 0.4]).kappa.tolist() == [1.0, 0.8, 0.4]
    assert isinstance(SYNTHETIC, World)
