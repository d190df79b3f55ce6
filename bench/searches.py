"""Knee searches as others do them, over a case of unlike.py: bisection on a sample P99, isotonic with bootstrap."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.interpolate import PchipInterpolator
from scipy.optimize import brentq
from scipy.special import logit

WIDTH = 0.025
MOST_PROBES = 14
INTERIOR = 3
BOOTSTRAPS = 200
BUDGET = 14_000
NEAR, LONG = 0.1, 300_000
"""ln(load) on either side of the knee, and requests there, for the slope of the misses."""
WARMUP = 0.1
"""Share of requests sent before the judged ones, for every search alike."""


@dataclass(frozen=True)
class Found:
    """What a search said and spent. Without an interval of its own low and high are None."""

    load: float
    low: float | None
    high: float | None
    requests: int
    minutes: float
    note: str = ""


class Probes:
    """The server as a search meets it: fresh requests at every probe, and a bill."""

    def __init__(self, case, stream):
        self.case, self.stream = case, stream
        self.requests, self.minutes, self.count = 0, 0.0, 0

    def values_s(self, load, n):
        """The bound metric of n judged requests."""
        self.count += 1
        sent, seed = n + round(n * WARMUP), [self.case.seed, self.stream, self.count]
        trace = self.case.traffic.trace(load, sent, seed)
        self.requests, self.minutes = self.requests + sent, self.minutes + trace.arrival_s[-1] / 60
        values = self.case.values_s(self.case.served(trace, seed))[sent - n :]
        return values[np.isfinite(values)]

    def margin(self, values):
        """ln(P99 / limit): above 0 it is broken."""
        return float(np.log(np.quantile(values, 0.99) / (self.case.limit_ms / 1e3)))


def counted(case, knee, runs):
    """Errors, in ln(load), of one who knows the knee, spends a whole budget there, and counts misses: as many runs.

    The slope of the misses is given too, from long runs on either side.
    """
    probes = Probes(case, 300)
    below, above = (logit(case.missed(probes.values_s(knee * math.exp(off), LONG))) for off in (-NEAR, NEAR))
    slope = (above - below) / (2 * NEAR)
    return [(logit(case.missed(probes.values_s(knee, BUDGET))) - logit(0.01)) / slope for _ in range(runs)]


def bracket(probes, foot, n):
    """[(load, values)] of a climb by doubling to the first that breaks; down, if the foot does."""
    seen = [(foot, probes.values_s(foot, n))]
    broken = probes.margin(seen[0][1]) > 0
    while (probes.margin(seen[-1][1]) > 0) == broken and len(seen) < MOST_PROBES:
        load = seen[-1][0] * (0.5 if broken else 2)
        seen.append((load, probes.values_s(load, n)))
    return seen


def bisection(case, foot, n):
    """Double, then halve the bracket on a log scale until it is 2.5 % wide; its middle."""
    probes = Probes(case, 100 + n)
    low, high = sorted(load for load, _ in bracket(probes, foot, n)[-2:])
    while high / low > 1 + WIDTH:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if probes.margin(probes.values_s(middle, n)) > 0 else (middle, high)
    return Found((low * high) ** 0.5, None, None, probes.requests, probes.minutes)


def isotonic(case, foot, n):
    """Bracket, three probes inside, margins made monotone and joined smoothly; then probe the root until two roots
    agree within 2.5 %. Interval: requests drawn again, as if they were independent."""
    probes = Probes(case, 200 + n)
    seen = bracket(probes, foot, n)[-2:]
    low, high = sorted(load for load, _ in seen)
    seen += [(load, probes.values_s(load, n)) for load in np.geomspace(low, high, INTERIOR + 2)[1:-1]]
    at = root(probes, seen, low, high)
    while len(seen) < MOST_PROBES:
        seen.append((at, probes.values_s(at, n)))
        before, at = at, root(probes, seen, low, high)
        if abs(np.log(at / before)) < WIDTH / 2:
            break
    rng = np.random.default_rng([case.seed, 9])
    again = [
        root(probes, [(load, rng.choice(values, len(values))) for load, values in seen], low, high)
        for _ in range(BOOTSTRAPS)
    ]
    interval = np.quantile(again, (0.025, 0.975))
    return Found(at, float(interval[0]), float(interval[1]), probes.requests, probes.minutes)


def root(probes, seen, low, high):
    """Where the monotone curve through the margins passes 0."""
    x, order = np.unique([np.log(load) for load, _ in seen], return_inverse=True)
    margins = np.array([probes.margin(values) for _, values in seen])
    y = rising(np.array([margins[order == place].mean() for place in range(len(x))]))
    curve = PchipInterpolator(x, y + 1e-9 * np.arange(len(y)))
    if y[0] > 0 or y[-1] < 0:
        return low if y[0] > 0 else high
    return float(np.exp(brentq(curve, x[0], x[-1])))


def rising(values):
    """Pool adjacent violators: the closest sequence that never falls."""
    pools = []
    for value in values:
        pools.append([value, 1])
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (a, m), (b, n) = pools[-2], pools.pop()
            pools[-1] = [(a * m + b * n) / (m + n), m + n]
    return np.repeat([value for value, _ in pools], [count for _, count in pools])
