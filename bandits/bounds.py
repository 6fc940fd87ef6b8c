"""How low regret can be: constants c such that it grows at least (or at most) like c log T."""

import numpy as np
from numpy.typing import NDArray

from bandits.kl import kl
from bandits.world import World, best_reward


def exploring_costs(world: World) -> NDArray[np.float64]:
    """Delta(v_kl) / d(kappa_l theta_k, kappa_l theta_L) for each arm k > L (rows) and position l.

    v_kl = (1, ..., l - 1, k, l, ..., L - 1) shows arm k at position l and moves the arms from there on down by one; the last
    falls out. Infinite for an arm as good as the L-th: no number of displays tells them apart.
    """
    theta, kappa = np.sort(world.theta)[::-1], world.kappa
    n_positions = kappa.size
    costs = np.empty((theta.size - n_positions, n_positions))
    for row, k in enumerate(range(n_positions, theta.size)):
        for l in range(n_positions):
            shown = np.concatenate([theta[:l], [theta[k]], theta[l : n_positions - 1]])
            gap = best_reward(world) - float(shown @ kappa)
            information = kl(kappa[l] * theta[k], kappa[l] * theta[n_positions - 1])
            costs[row, l] = gap / information if information > 0 else np.inf
    return costs


def lower_bound(world: World) -> float:
    """The paper's theorem for the position-based model: sum over k > L of the least exploring cost. 0 where every arm is shown.

    Arms as good as the L-th cost nothing and are left out.
    """
    costs = exploring_costs(world)
    finite = costs[np.isfinite(costs).all(axis=1)]
    return float(finite.min(axis=1).sum()) if finite.size else 0.0


def exploring_positions(world: World) -> NDArray[np.int64]:
    """The position (from 1) at which each arm k > L is explored best."""
    costs = exploring_costs(world)
    return costs.argmin(axis=1) + 1 if costs.size else np.empty(0, np.int64)


def multiple_play_bound(world: World) -> float:
    """Anantharam et al. (1987): sum over k > L of (theta_L - theta_k) / d(theta_k, theta_L); every position fully examined."""
    theta = np.sort(world.theta)[::-1]
    worst = theta[world.kappa.size - 1]
    return float(sum((worst - t) / kl(t, worst) for t in theta[world.kappa.size :] if t < worst))


def weighted_cascade_bound(world: World) -> float:
    """Combes et al. (2015): w_L times the multiple-play bound, with the weights w = kappa."""
    return float(world.kappa[-1]) * multiple_play_bound(world)


def pie_upper_bound(world: World) -> float:
    """The leading constant of PBM-PIE's regret as epsilon, eta -> 0: sum_k kappa_L (theta_L - theta_k) / d at position L."""
    theta, last = np.sort(world.theta)[::-1], float(world.kappa[-1])
    worst = theta[world.kappa.size - 1]
    return float(sum(last * (worst - t) / kl(last * t, last * worst) for t in theta[world.kappa.size :] if t < worst))


def ucb_upper_bound(world: World) -> float:
    """The leading constant of PBM-UCB's regret as epsilon -> 0: 16 C (L / Delta + sum_k 1 / (kappa_L (theta_L - theta_k)))

    C = min_l [(sum_j kappa_j)^2 / l + (sum_{j <= l} kappa_j)^2] / kappa_L^2; Delta is the least gap of a permutation of
    the optimal list: that of two neighbours exchanged.
    """
    theta, kappa = np.sort(world.theta)[::-1], world.kappa
    n_positions = kappa.size
    sums = np.cumsum(kappa)
    c = float(np.min(sums[-1] ** 2 / np.arange(1, n_positions + 1) + sums**2)) / float(kappa[-1]) ** 2
    gaps = (kappa[:-1] - kappa[1:]) * (theta[: n_positions - 1] - theta[1:n_positions])
    ranking = n_positions / float(gaps.min()) if gaps.size and gaps.min() > 0 else 0.0 if not gaps.size else np.inf
    worst = theta[n_positions - 1]
    rest = sum(1 / (float(kappa[-1]) * (worst - t)) for t in theta[n_positions:] if t < worst)
    return float(16 * c * (ranking + rest))
