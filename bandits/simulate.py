"""Many runs of policies on worlds, over threads; a run depends on the seed, its number and its policy's name alone."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bandits.play import play
from bandits.policies.policy import Policy
from bandits.world import World


class Player(NamedTuple):
    """A policy with its parameters set."""

    policy: Policy
    parameters: Mapping[str, float]
    label: str  # what results are kept under, e.g. "pbm-pie(epsilon=0.1)"


def generator(seed: int, run: int, label: str) -> np.random.Generator:
    """The generator of a run of a policy. Which other policies there are, and how many, does not move it."""
    name = np.frombuffer(hashlib.sha256(label.encode()).digest(), np.uint32)
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, run, *name])))


def checkpoints(horizon: int, per_decade: int = 20) -> NDArray[np.int64]:
    """Rounds at which regret is kept: 1 to the horizon, evenly on a log scale."""
    count = max(2, round(per_decade * np.log10(max(horizon, 2))) + 1)
    return np.unique(np.round(np.geomspace(1, horizon, count)).astype(np.int64))


def worlds_of_runs(n_worlds: int, n_runs: int, seed: int) -> NDArray[np.int64]:
    """Which world each run plays, drawn uniformly: the same for every policy."""
    return generator(seed, 0, "worlds").integers(n_worlds, size=n_runs)


def regret_of_run(player: Player, world: World, rounds: NDArray[np.int64], seed: int, run: int) -> NDArray[np.float64]:
    """The regret of one run at the checkpoints `rounds`. The arms are shuffled first, so that ties by number favour none."""
    rng = generator(seed, run, player.label)
    theta = rng.permutation(world.theta)
    truth = {"theta": theta} if player.policy.name == "oracle" else {}
    regret = np.empty(rounds.size)
    play(player.policy.start(theta.size, world.kappa, **player.parameters, **truth), theta, world.kappa, rounds, rng, regret)
    return regret


def simulate(
    player: Player,
    worlds: Sequence[World],
    chosen: NDArray[np.int64],
    rounds: NDArray[np.int64],
    seed: int,
    threads: int,
    advance: Callable[[int], None],
) -> NDArray[np.float64]:
    """regret[run, checkpoint] of every run; `advance` is told how many runs are done."""
    regret = np.empty((chosen.size, rounds.size))

    def one(run: int) -> None:
        regret[run] = regret_of_run(player, worlds[chosen[run]], rounds, seed, run)

    with ThreadPoolExecutor(threads) as pool:
        for done, _ in enumerate(_in_order(pool, one, chosen.size), start=1):
            advance(done)
    return regret


def _in_order(pool: ThreadPoolExecutor, task: Callable[[int], None], n: int) -> Iterator[None]:
    """Run a task for 0 to n - 1; what is still waiting is dropped when something goes wrong."""
    futures = [pool.submit(task, number) for number in range(n)]
    try:
        for future in futures:
            yield future.result()
    finally:
        for future in futures:
            future.cancel()
