"""The policies in plain Python, by their definitions; they toss the same coins in the same order as the compiled ones."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize_scalar

from bandits.bell import BELOW_ONE, INSIDE, LEAST_FALL, NEAREST_END, REACH, RECENTRE, TAIL
from bandits.hull import POINT, no_hulls, place
from bandits.posterior import mode, prior


def slow_kl(p: float, q: float) -> float:
    first = 0.0 if p == 0 else math.inf if q == 0 else p * math.log(p / q)
    second = 0.0 if p == 1 else math.inf if q == 1 else (1 - p) * math.log((1 - p) / (1 - q))
    return first + second


def slow_cost(clicks: Sequence[int], displays: Sequence[int], kappa: Sequence[float], q: float) -> float:
    return float(sum(n * slow_kl(s / n, k * q) for s, n, k in zip(clicks, displays, kappa, strict=True) if n))


def slow_upper(clicks: Sequence[int], displays: Sequence[int], kappa: Sequence[float], delta: float) -> tuple[float, float]:
    """theta_min and the index of Eq. 7, by scipy."""
    if not sum(displays):
        return 1.0, 1.0
    smallest = minimize_scalar(
        lambda q: slow_cost(clicks, displays, kappa, q), bounds=(0, 1), method="bounded", options={"xatol": 1e-12}
    )
    least, theta_min = min((slow_cost(clicks, displays, kappa, q), q) for q in (0.0, 1.0, float(smallest.x)))
    if least > delta:
        return theta_min, theta_min
    if slow_cost(clicks, displays, kappa, 1.0) <= delta:
        return theta_min, 1.0
    high = 1.0
    while math.isinf(slow_cost(clicks, displays, kappa, high)):
        high = theta_min + (high - theta_min) * (1 - 1e-9) if high == 1.0 else high - 1e-12
    return theta_min, float(brentq(lambda q: slow_cost(clicks, displays, kappa, q) - delta, theta_min, high, xtol=1e-14))


def slow_kl_ucb(rewards: int, pulls: int, budget: float) -> float:
    """The largest q with pulls d(rewards / pulls, q) <= budget, by bisection."""
    low, high = rewards / pulls, 1.0
    for _ in range(60):  # to rounding
        middle = (low + high) / 2
        low, high = (middle, high) if pulls * slow_kl(rewards / pulls, middle) <= budget else (low, middle)
    return low


def slow_derivatives(clicks: float, missed: Sequence[float], kappa: Sequence[float], x: float) -> list[float]:
    """The first four derivatives in s at 0 of (3 S + 2) log(1 + s) + sum_l F_l log(1 - kappa_l x (1 + s)^3), by power series.

    With rho = kappa x / (1 - kappa x) the second logarithm is that of 1 - rho ((1 + s)^3 - 1), and -log(1 - z) = sum_n z^n / n.
    """
    coefficients = (3 * clicks + 2) * np.array([0, 1, -1 / 2, 1 / 3, -1 / 4])
    for f, k in zip(missed, kappa, strict=True):
        z = k * x / (1 - k * x) * np.array([0.0, 3, 3, 1, 0])
        power = np.array([1.0, 0, 0, 0, 0])
        for n in range(1, 5):
            power = np.convolve(power, z)[:5]
            coefficients = coefficients - f * power / n
    return [float(c * math.factorial(n)) for n, c in enumerate(coefficients)][1:]


class SlowPosterior:
    """One arm's posterior, both samplers from their definitions at every draw, no squeeze.

    The mode and the points of the hull are found by `bandits`, as draws are exact wherever they are.
    """

    def __init__(self, kappa: Sequence[float]) -> None:
        self.kappa = [float(k) for k in kappa]
        self.clicks, self.missed = 0.0, [0.0] * len(self.kappa)
        self.compiled = prior(1, np.array(kappa), 1.0, 1.0)  # for its mode alone
        self.hull = no_hulls(self.compiled)  # for its points alone
        self.m, self.due = 0.5, 0.0
        self.recentre()

    def learn(self, clicked: bool, l: int) -> None:
        self.clicks += clicked
        self.missed[l] += not clicked
        self.compiled.counts[0] = [self.clicks, *self.missed]
        if self.clicks + sum(self.missed) >= self.due or not self.bell():
            self.recentre()

    def recentre(self) -> None:
        """As the text of `bandits.bell` says."""
        displays = self.clicks + sum(self.missed)
        self.m = mode(self.compiled, 0, self.clicks + 2 / 3, self.m)
        end = (max(self.kappa) * self.m) ** (-1 / 3) - 1  # where log h is infinite
        deviation = 1 / (3 * self.m * math.sqrt(self.curvature(self.m)))
        self.w = min(REACH * deviation, INSIDE * min(1, end))
        self.due = displays + 1 + displays // RECENTRE

    def curvature(self, x: float) -> float:
        """Minus the second derivative of log pi with two thirds of a click more."""
        return (self.clicks + 2 / 3) / x**2 + sum(
            f * (k / (1 - k * x)) ** 2 for f, k in zip(self.missed, self.kappa, strict=True)
        )

    def bell(self) -> tuple[float, float, float, float] | None:
        """Middle and deviation of the bell, and how log h falls at its ends; nothing where it may not be used."""
        g, second, third, _ = slow_derivatives(self.clicks, self.missed, self.kappa, self.m)
        narrow = -second - abs(third) * self.w / 3
        if narrow <= 0:
            return None
        middle, deviation = g / narrow, 1 / math.sqrt(narrow)
        left, right = (
            slow_derivatives(self.clicks, self.missed, self.kappa, self.m * u**3)[0] / u for u in (1 - self.w, 1 + self.w)
        )
        far = self.w - abs(middle) >= NEAREST_END * deviation and self.m ** (-1 / 3) - 1 >= BELOW_ONE * deviation
        return (middle, deviation, left, -right) if far and min(left, -right) * deviation >= LEAST_FALL else None

    def log_density(self, x: float) -> float:
        return self.clicks * math.log(x) + sum(f * math.log(1 - k * x) for f, k in zip(self.missed, self.kappa, strict=True))

    def slope(self, x: float) -> float:
        return self.clicks / x - sum(f * k / (1 - k * x) for f, k in zip(self.missed, self.kappa, strict=True))

    def log_h(self, y: float) -> float:
        return self.log_density(self.m * (1 + y) ** 3) + 2 * math.log(1 + y)

    def draw(self, rng: np.random.Generator) -> float:
        bell = self.bell()
        if bell is None:
            return self.draw_hull(rng)
        middle, deviation, *falls = bell
        height = self.log_h(0) + middle**2 / (2 * deviation**2)
        bell_mass = math.sqrt(2 * math.pi) * deviation  # of a bell of height 1
        in_tails = 2 * TAIL / (1 + 2 * TAIL)  # of the mass under the envelope
        while True:
            toss = rng.random()
            if toss >= in_tails:
                y = middle + deviation * rng.standard_normal()
                if abs(y) > self.w or self.m * (1 + y) ** 3 >= 1:
                    continue
                envelope = math.exp(-((y - middle) ** 2) / (2 * deviation**2))
                toss = (toss - in_tails) / (1 - in_tails)
            else:
                side, fall = (-1, falls[0]) if toss < in_tails / 2 else (1, falls[1])
                beyond = rng.exponential() / fall
                y = side * (self.w + beyond)
                if y <= -1 or self.m * (1 + y) ** 3 >= 1:
                    continue
                envelope = TAIL * bell_mass * fall * math.exp(-fall * beyond)
                toss = rng.random()
            if toss < math.exp(self.log_h(y) - height) / envelope:
                return float(self.m * (1 + y) ** 3)

    def tangent(self, i: int, x: float) -> float:
        top = self.log_density(self.points[1])
        return self.log_density(self.points[i]) - top + self.slope(self.points[i]) * (x - self.points[i])

    def draw_hull(self, rng: np.random.Generator) -> float:
        place(self.compiled, self.hull, 0)
        self.points: list[float] = self.hull[0, POINT].tolist()
        slopes = [self.slope(x) for x in self.points]
        ends = [0.0]
        for i in (0, 1):
            apart = slopes[i] - slopes[i + 1]
            meet = (self.tangent(i + 1, 0.0) - self.tangent(i, 0.0)) / apart if apart > 0 else 0.0
            ends.append(min(max(meet, self.points[i]), self.points[i + 1]) if apart > 0 else sum(self.points[i : i + 2]) / 2)
        ends.append(1.0)
        masses = []
        for i in range(3):
            width = ends[i + 1] - ends[i]
            lower, upper = self.tangent(i, ends[i]), self.tangent(i, ends[i + 1])
            masses.append(
                (math.exp(upper) - math.exp(lower)) / slopes[i] if abs(upper - lower) > 1e-6 else math.exp(lower) * width
            )
        while True:
            u = rng.random() * sum(masses)
            i = 0
            while i < 2 and u >= masses[i]:
                u -= masses[i]
                i += 1
            share = u / masses[i]
            # the mass counted from the higher end of the piece
            start = ends[i + 1] if slopes[i] > 0 else ends[i]
            rise = abs(slopes[i]) * (ends[i + 1] - ends[i])
            along = (
                -math.log(1 - share * (1 - math.exp(-rise))) / abs(slopes[i]) if rise > 1e-6 else share * (ends[i + 1] - ends[i])
            )
            x = start - along if slopes[i] > 0 else start + along
            if not 0 < x < 1:
                continue
            if rng.random() < math.exp(self.log_density(x) - self.log_density(self.points[1]) - self.tangent(i, x)):
                return x


class Naive:
    """A policy by name."""

    def __init__(self, name: str, n_arms: int, kappa: list[float]) -> None:
        self.name, self.kappa, self.arms, self.positions = name, kappa, range(n_arms), range(len(kappa))
        self.s = [[0] * len(kappa) for _ in self.arms]
        self.n = [[0] * len(kappa) for _ in self.arms]
        self.rewards = [[0] * n_arms for _ in self.positions]
        self.pulls = [[0] * n_arms for _ in self.positions]
        self.picks = [0] * len(kappa)
        self.posteriors = [SlowPosterior(kappa) for _ in self.arms]

    def best(self, index: list[float]) -> list[int]:
        return sorted(self.arms, key=lambda k: (-index[k], k))[: len(self.kappa)]

    def seen(self, k: int) -> float:
        return sum(kappa * n for kappa, n in zip(self.kappa, self.n[k], strict=True))

    def choose(self, t: int, rng: np.random.Generator) -> list[int]:
        n_arms = len(self.arms)
        if self.name == "pbm-ts":
            return self.best([posterior.draw(rng) for posterior in self.posteriors])
        if self.name == "bc-mp-ts":
            clicks = [sum(self.s[k]) for k in self.arms]
            return self.best([rng.beta(clicks[k] + 1.0, max(self.seen(k) - clicks[k], 0.0) + 1.0) for k in self.arms])
        if t <= n_arms:
            self.picks = [(t - 1 + l) % n_arms for l in self.positions]
            return list(self.picks)
        if self.name == "pbm-ucb":
            return self.best([self.hoeffding(k, math.log(t)) for k in self.arms])
        if self.name == "pbm-kl-ucb":
            return self.best([slow_upper(self.s[k], self.n[k], self.kappa, math.log(t))[1] for k in self.arms])
        return self.pie(t, rng) if self.name == "pbm-pie" else self.ranked(t, rng)

    def hoeffding(self, k: int, delta: float) -> float:
        seen, n = self.seen(k), sum(self.n[k])
        return sum(self.s[k]) / seen + math.sqrt(n / seen) * math.sqrt(delta / (2 * seen))

    def pie(self, t: int, rng: np.random.Generator) -> list[int]:
        estimate = [sum(self.s[k]) / self.seen(k) for k in self.arms]
        leaders = self.best(estimate)
        if rng.random() < 0.5:
            index = {k: slow_upper(self.s[k], self.n[k], self.kappa, math.log(t))[1] for k in self.arms if k not in leaders}
            explorable = [k for k in index if index[k] >= estimate[leaders[-1]]]
            if explorable:
                leaders[-1] = explorable[int(rng.random() * len(explorable))]
        return leaders

    def ranked(self, t: int, rng: np.random.Generator) -> list[int]:
        action: list[int] = []
        for l in self.positions:
            index = [slow_kl_ucb(r, m, math.log(t)) for r, m in zip(self.rewards[l], self.pulls[l], strict=True)]
            self.picks[l] = max(self.arms, key=lambda k: (index[k], -k))  # used at once
            free = [k for k in self.arms if k not in action]
            action.append(free[int(rng.random() * len(free))] if self.picks[l] in action else self.picks[l])
        return action

    def observe(self, action: list[int], clicked: list[bool]) -> None:
        for l, k in enumerate(action):
            self.n[k][l] += 1
            self.s[k][l] += clicked[l]
            self.pulls[l][self.picks[l]] += 1
            self.rewards[l][self.picks[l]] += k == self.picks[l] and clicked[l]
            if self.name == "pbm-ts":
                self.posteriors[k].learn(clicked[l], l)


def naive_regret(
    name: str, theta: list[float], kappa: list[float], horizon: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """The regret after each round."""
    policy: Any = Naive(name, len(theta), kappa)
    best = sum(k * t for k, t in zip(kappa, sorted(theta, reverse=True), strict=False))
    total, regret = 0.0, []
    for t in range(1, horizon + 1):
        action = policy.choose(t, rng)
        p = [k * theta[a] for k, a in zip(kappa, action, strict=True)]
        clicked = [bool(rng.random() < q) for q in p]
        policy.observe(action, clicked)
        total += best - sum(p)
        regret.append(total)
    return np.array(regret)
