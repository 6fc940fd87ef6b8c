"""Many runs of policies on worlds, over threads; a run depends on the seed, its number and its policy's name alone."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bandits.apart import apart
from bandits.plain import PlainState
from bandits.play import loop_of, play_interpreted
from bandits.policies.policy import Policy
from bandits.world import World, best_reward


class Player(NamedTuple):
    """A policy with its parameters set."""

    policy: Policy
    parameters: Mapping[str, float]
    label: str  # what results are kept under, e.g. "pbm-pie(epsilon=0.1)"


def player(policy: Policy, **parameters: float) -> Player:
    """A policy as it plays: its defaults, but for these parameters."""
    values = {name: parameter.default for name, parameter in policy.parameters.items()}
    given = ", ".join(f"{name}={shortest(parameters[name])}" for name in sorted(parameters))
    return Player(policy, {**values, **parameters}, f"{policy.name}({given})" if given else policy.name)


def shortest(value: float) -> str:
    """A number in the fewest letters that give it back."""
    return f"{value:g}" if float(f"{value:g}") == value else repr(value)


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


class Played(NamedTuple):
    """What runs leave: their regret at the checkpoints, and how often each arm was shown at each position."""

    regret: NDArray[np.float64]  # [runs, checkpoints]
    displays: list[NDArray[np.int64]]  # of each world, [K, L], arms by falling theta, summed over its runs


def play_run(
    player: Player, world: World, rounds: NDArray[np.int64], seed: int, run: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Regret [checkpoints] and displays [K, L] of one run. The arms are shuffled first, so that ties by number favour none."""
    rng = generator(seed, run, player.label)
    theta, kappa = rng.permutation(world.theta), world.kappa
    truth = {"theta": theta} if player.policy.name == "oracle" else {}
    state = player.policy.start(theta.size, kappa, **player.parameters, **truth)
    loop = play_interpreted if isinstance(state, PlainState) else loop_of(state)
    action, clicked = np.arange(kappa.size), np.zeros(kappa.size, np.bool_)
    regret, displays = np.empty(rounds.size), np.zeros((theta.size, kappa.size), np.int64)
    state, theta, kappa, action, clicked, regret, displays = apart((state, theta, kappa, action, clicked, regret, displays))
    loop(state, theta, kappa, best_reward(world), rounds, rng, action, clicked, regret, displays)
    return regret, displays[np.argsort(-theta, kind="stable")]


def simulate(
    player: Player,
    worlds: Sequence[World],
    chosen: NDArray[np.int64],
    rounds: NDArray[np.int64],
    seed: int,
    *,
    threads: int = 1,
    advance: Callable[[int], None] = lambda done: None,
) -> Played:
    """Play run after run: run i on worlds[chosen[i]], to the last of `rounds`. `advance` is told how many rounds are done."""
    regret = np.empty((chosen.size, rounds.size))
    displays = [np.zeros((world.theta.size, world.kappa.size), np.int64) for world in worlds]

    def one(run: int) -> NDArray[np.int64]:
        regret[run], shown = play_run(player, worlds[chosen[run]], rounds, seed, run)
        return shown

    with ThreadPoolExecutor(threads) as pool:
        for run, shown in enumerate(_in_order(pool, one, chosen.size)):
            displays[chosen[run]] += shown
            advance((run + 1) * int(rounds[-1]))
    return Played(regret, displays)


def _in_order(pool: ThreadPoolExecutor, task: Callable[[int], NDArray[np.int64]], n: int) -> Iterator[NDArray[np.int64]]:
    """The results of a task for 0 to n - 1; what is still waiting is dropped when something goes wrong."""
    futures = [pool.submit(task, number) for number in range(n)]
    try:
        for number in range(n):
            yield futures[number].result()
    finally:
        for future in futures:
            future.cancel()
