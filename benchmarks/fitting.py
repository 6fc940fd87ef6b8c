"""10,000 queries of 5 to 11 ads fitted at once, against a plain numpy loop over queries that does the same EM.

    python -m benchmarks.fitting

The numpy loop is timed on SAMPLE of the queries and scaled up; it would take minutes on all of them.
"""

import resource
import time

import numpy as np
from numpy.typing import NDArray

from benchmarks.process import verdict
from estimation.fit import CONVERGED, fit_em, fit_newton
from estimation.tables import Tables, select, tables
from pipeline.published import MODELS

QUERIES, SAMPLE = 10_000, 100


def drawn() -> Tables:
    """Queries with the parameters of the published models, of any number of ads, and a thousand displays and more a cell."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(5, 12, QUERIES)
    thetas = np.concatenate([model.theta for model in MODELS])
    kappas = np.array([model.kappa for model in MODELS])[rng.integers(0, len(MODELS), QUERIES)]
    theta = rng.choice(thetas, sizes.sum())
    displays = rng.integers(1_000, 20_000, (sizes.sum(), 3))
    p = theta[:, None] * np.repeat(kappas, sizes, axis=0)
    return tables(rng.binomial(displays, p), displays, np.concatenate([[0], np.cumsum(sizes)]))


def plain_em(s: NDArray[np.int64], n: NDArray[np.int64]) -> tuple[NDArray[np.float64], int]:
    """The same EM with numpy arrays: theta, and the iterations until the Newton decrement is below CONVERGED."""
    theta, kappa = np.full(s.shape[0], 0.5), np.full(s.shape[1], 0.5)
    f = n - s
    iterations = 0
    while True:
        p = theta[:, None] * kappa
        g, w = s - f * p / (1 - p), f * p / (1 - p) ** 2
        d, b, c = w.sum(axis=1), w[:, 1:], np.diag(w.sum(axis=0)[1:])
        reduced = g.sum(axis=0)[1:] - b.T @ (g.sum(axis=1) / d)
        step = np.linalg.solve(c - b.T @ (b / d[:, None]), reduced)
        if reduced @ step + (g.sum(axis=1) ** 2 / d).sum() < CONVERGED:
            return theta * kappa.max(), iterations
        attractive = s + f * theta[:, None] * (1 - kappa) / (1 - p)
        examined = s + f * kappa * (1 - theta[:, None]) / (1 - p)
        theta, kappa = attractive.sum(axis=1) / n.sum(axis=1), examined.sum(axis=0) / n.sum(axis=0)
        iterations += 1


def main() -> None:
    counted = drawn()
    fit_em(select(counted, np.arange(QUERIES) < 2))  # compile
    fit_newton(select(counted, np.arange(QUERIES) < 2))

    start = time.perf_counter()
    for query in range(SAMPLE):
        rows = slice(counted.starts[query], counted.starts[query + 1])
        plain_em(counted.clicks[rows], counted.displays[rows])
    plain = (time.perf_counter() - start) * QUERIES / SAMPLE

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    result = fit_em(counted)
    em = time.perf_counter() - start
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    start = time.perf_counter()
    fit_newton(counted)
    newton = time.perf_counter() - start

    theta, iterations = plain_em(counted.clicks[: counted.starts[1]], counted.displays[: counted.starts[1]])
    assert iterations == result.em_iterations[0]
    assert np.allclose(theta, result.theta[: counted.starts[1]], rtol=1e-4)
    print(f"{QUERIES:,} queries, about {np.median(result.em_iterations):.0f} EM iterations each")
    print(f"numpy {plain:.1f} s  EM {em:.2f} s  Newton {newton:.3f} s")
    holds = [
        verdict("EM and polish, time over the numpy loop", em / plain, 0.05),
        verdict("Newton, seconds on one core", newton, 0.5),
        verdict("EM and polish, MiB of memory added", grown, 32),
    ]
    raise SystemExit(not all(holds))


if __name__ == "__main__":
    main()
