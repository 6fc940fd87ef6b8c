"""Microseconds per round (choose, draw, update) of every policy, over a bare loop that draws L clicks and updates counts.

    python -m benchmarks.playing [RUNS]

One thread, published query 1 (K = 11, L = 3), 10,000 rounds a run. Bare loop and policies take turns, run by run, and medians
are compared: so all see the same machine, whatever else it is doing. A second yardstick is BC-MP-TS in plain code with numpy's
own Beta draws, which tells how this machine compares with others on which that was timed. Then what two threads lose to each
other, and the whole main job.
"""

import statistics
import sys
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import polars as pl

from bandits.kernel import kernel
from bandits.play import play
from bandits.policies import POLICIES
from bandits.ranking import top
from bandits.simulate import generator, play_run, player, simulate
from bandits.tally import empty, record
from bandits.world import World, world
from benchmarks.process import PBM, SCRATCH, run, verdict
from pipeline.published import MODELS

HORIZON = 10_000
LIMITS = {"pbm-ucb": 5.0, "pbm-pie": 6.0, "pbm-ts": 20.0, "bc-mp-ts": 14.0, "rba-kl-ucb": 36.0, "pbm-kl-ucb": 36.0}


@kernel
def bare(tally, theta, kappa, horizon, rng, action, clicked):
    """What no policy can do without: L clicks drawn, counts updated. It always shows the first L arms."""
    for _ in range(horizon):
        for l in range(kappa.size):
            clicked[l] = rng.random() < kappa[l] * theta[action[l]]
        for l in range(kappa.size):
            record(tally, kappa, action[l], l, clicked[l])


@kernel
def plain_beta(tally, theta, kappa, horizon, rng, action, clicked, drawn):
    """BC-MP-TS with a Beta drawn by numpy's generator for every arm."""
    for _ in range(horizon):
        for k in range(theta.size):
            clicks = tally.arm_clicks[k]
            drawn[k] = rng.beta(clicks + 1.0, max(tally.seen[k] - clicks, 0.0) + 1.0)
        top(drawn, action)
        for l in range(kappa.size):
            clicked[l] = rng.random() < kappa[l] * theta[action[l]]
        for l in range(kappa.size):
            record(tally, kappa, action[l], l, clicked[l])


def tasks(played: World) -> dict[str, Callable[[int], object]]:
    """What is timed, each called with the number of a run."""
    n_arms, n_positions = played.theta.size, played.kappa.size
    rounds = np.array([HORIZON])

    def buffers(number: int, name: str) -> tuple[object, ...]:
        rng, action = generator(0, number, name), np.arange(n_positions)
        return empty(n_arms, n_positions), played.theta, played.kappa, HORIZON, rng, action, np.zeros(n_positions, np.bool_)

    found: dict[str, Callable[[int], object]] = {
        "bare": lambda number: bare(*buffers(number, "bare")),
        "plain BC-MP-TS": lambda number: plain_beta(*buffers(number, "plain"), np.empty(n_arms)),
    }
    for policy in POLICIES.values():
        found[policy.name] = partial(play_run, player(policy), played, rounds, 0)
    return found


def lost_to_threads(played: World, repeats: int = 7, runs: int = 60) -> float:
    """Core time of PBM-UCB, the policy that does least but write its counts, on two threads over one."""
    ratios = []
    for seed in range(repeats):
        seconds = []
        for threads in (1, 2):
            start = time.perf_counter()
            simulate(player(POLICIES["pbm-ucb"]), [played], np.zeros(runs, np.int64), np.array([HORIZON]), seed, threads=threads)
            seconds.append((time.perf_counter() - start) * threads)
        ratios.append(seconds[1] / seconds[0])
    return statistics.median(ratios)


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    query_1 = next(model for model in MODELS if model.query_id == 1)
    played = world(query_1.theta, query_1.kappa)
    timed = tasks(played)
    seconds: dict[str, list[float]] = {name: [] for name in timed}
    for task in timed.values():
        task(0)  # compiled, or taken from the cache
    for number in range(runs):
        for name, task in timed.items():
            start = time.perf_counter()
            task(number)
            seconds[name].append(time.perf_counter() - start)
    median = {name: statistics.median(values) for name, values in seconds.items()}
    print(f"{'':<16}microseconds a round   over bare   over plain BC-MP-TS")
    for name, value in median.items():
        print(f"{name:<16}{value * 1e6 / HORIZON:>20.3f}{value / median['bare']:>12.1f}{value / median['plain BC-MP-TS']:>22.2f}")
    holds = [verdict(f"{name}, a round over a bare one", median[name] / median["bare"], LIMITS[name]) for name in LIMITS]
    holds.append(verdict("core time of PBM-UCB on two threads over one", lost_to_threads(played), 1.25))

    models = SCRATCH / "published.parquet"
    SCRATCH.mkdir(exist_ok=True)
    columns = ("query_id", "theta", "kappa")
    pl.DataFrame([{name: getattr(model, name) for name in columns} for model in MODELS], strict=False).write_parquet(models)
    job = (PBM, "simulate", "--workspace", str(SCRATCH), "--models", str(models), "--threads", "2")
    holds.append(verdict("a second start, one round each, seconds", run(*job, "--runs", "1", "--horizon", "1").seconds, 4))
    misses = sum(play.stats.cache_misses.values())
    print(f"kernels of the loop taken from the cache: {sum(play.stats.cache_hits.values())}, compiled: {misses}")
    whole = run(*job)
    print(f"2,000 runs x 6 policies x 10,000 rounds on two threads: {whole.seconds:.0f} s, {whole.peak_mib:.0f} MiB")
    holds.append(verdict("the whole main job, seconds", whole.seconds, 90))
    raise SystemExit(not all(holds))


if __name__ == "__main__":
    main()
