"""The paper's experiments, as data: which worlds, which policies, how many runs of how many rounds."""

from typing import NamedTuple


class Experiment(NamedTuple):
    """An experiment by name. Without theta and kappa, each run draws a query of `models.parquet`."""

    name: str
    summary: str
    policies: tuple[str, ...]
    runs: int
    horizon: int
    theta: tuple[float, ...] = ()
    kappa: tuple[float, ...] = ()


EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        Experiment(
            "kdd",
            "the paper's real-data experiment: each run draws a query of the fitted models",
            ("pbm-ucb", "pbm-pie", "pbm-ts", "bc-mp-ts", "rba-kl-ucb", "pbm-kl-ucb"),
            runs=2_000,
            horizon=10_000,
        ),
        Experiment(
            "synthetic",
            "the paper's simulation: 5 arms, 3 positions",
            ("pbm-ucb", "pbm-pie", "pbm-ts", "rba-kl-ucb"),
            runs=10_000,
            horizon=10_000,
            theta=(0.45, 0.35, 0.25, 0.15, 0.05),
            kappa=(0.9, 0.6, 0.3),
        ),
        Experiment(
            "high-theta",
            "the paper's comparison of the two Thompson samplers for parameters close to one",
            ("pbm-ts", "bc-mp-ts"),
            runs=10_000,
            horizon=10_000,
            theta=(0.95, 0.85, 0.75, 0.65, 0.55),
            kappa=(0.9, 0.6, 0.3),
        ),
    )
}
