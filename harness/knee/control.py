"""The twin as a control variate: how much more load it needs to wait as long as the server did. Pure.

Both meet the same requests at the same times, so that most of the luck of a trace is common to both and cancels.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, isotonic_regression

from harness.knee.plan import values_s
from harness.knee.veto import Correction, rank_correlation
from harness.metrics import Limit
from harness.twin import fast
from harness.twin.observed import Observation
from harness.twin.server import Server
from harness.twin.trace import Lives, Trace

FARTHEST = 0.5
"""ln of the largest correction looked for; one that lies beyond is a veto anyhow."""
STEP = 0.03
FINE = 4e-3
SAMPLED = np.linspace(-0.06, 0.06, 13)
"""Around the first root, in eta."""

Array = NDArray[np.float64]


def tail(values: Array, quantile: float) -> float:
    """ln of the mean of the top 2 · (1 − quantile) of the values: the top 2 % for a P99.

    Unlike a miss share it says something where nothing missed, and unlike the quantile it moves with every value.
    """
    told = np.sort(values[np.isfinite(values)])
    top = max(1, round(min(1.0, 2 * (1 - quantile)) * len(told)))
    return math.log(max(float(told[-top:].mean()), 1e-9)) if len(told) else math.nan


def correction(server: Server, observed: Observation, limit: Limit) -> Correction | None:
    """eta such that the twin at load · exp(eta) reproduces the tail measured at load; None: nothing was measured."""
    judged = observed.counts & np.isfinite(observed.ttft_s)
    measured = values_s(limit.metric, observed)
    goal = tail(measured[judged], limit.quantile)
    if math.isnan(goal):
        return None

    def excess(eta: float) -> float:
        lives = fast.run(server, loaded(observed.trace, eta))
        return tail(lived_s(limit.metric, lives)[judged], limit.quantile) - goal

    as_sent = lived_s(limit.metric, fast.run(server, observed.trace))
    return Correction(
        load=observed.load,
        at_s=observed.at_s,
        eta=_user_eta(observed, excess) if observed.loop == "closed" else _root(excess),
        rank=rank_correlation(measured[judged], as_sent[judged]),
    )


def lived_s(metric: str, lives: Lives) -> Array:
    """A metric of every simulated request, in seconds."""
    return {"ttft_ms": lives.ttft_s, "tpot_ms": lives.tpot_s, "e2e_ms": lives.e2e_s}[metric]


def loaded(trace: Trace, eta: float) -> Trace:
    """The same requests at exp(eta) times the load: arrivals closer together, or more users (whole ones)."""
    if trace.arrival_s is not None:
        return replace(trace, arrival_s=trace.arrival_s * math.exp(-eta))
    users = max(1, round(trace.users * math.exp(eta)))
    if trace.starts_s is None or users == trace.users:
        return replace(trace, users=users, starts_s=trace.starts_s)
    places = np.linspace(0, 1, users), np.linspace(0, 1, trace.users)
    return replace(trace, users=users, starts_s=np.interp(places[0], places[1], np.sort(trace.starts_s)))


def _root(excess: Callable[[float], float]) -> float:
    """Where the tail is met. The curve rises, but not smoothly: one request more in a step, and all after it shift.

    So a first root is only where to look: the curve is sampled around it, made monotone, and crossed there.
    """
    near = _first_root(excess)
    if abs(near) >= FARTHEST:
        return near
    etas = near + SAMPLED
    curve = isotonic_regression([excess(eta) for eta in etas]).x
    under, over = etas[curve <= 0], etas[curve > 0]
    if not under.size or not over.size:
        return near
    left, right = curve[curve <= 0][-1], curve[curve > 0][0]
    level = under[curve[curve <= 0] == left]
    return float((level.mean() * right - over[curve[curve > 0] == right].mean() * left) / (right - left))


def _first_root(excess: Callable[[float], float]) -> float:
    """Walk away from 0 in growing steps until the tail is passed, then close in."""
    at, value = 0.0, excess(0.0)
    way = -1.0 if value > 0 else 1.0
    step = STEP
    while abs(at) < FARTHEST:
        beyond = way * min(abs(at) + step, FARTHEST)
        if (found := excess(beyond)) * value <= 0:
            return float(brentq(excess, min(at, beyond), max(at, beyond), xtol=FINE))
        at, value, step = beyond, found, 2 * step
    return at


def _user_eta(observed: Observation, excess: Callable[[float], float]) -> float:
    """The same over whole users: the two neighbours between which the tail is met, and a line between them."""
    users = observed.trace.users

    def at(count: int) -> float:
        return excess(math.log(count / users))

    low, high = max(1, math.floor(users * math.exp(-FARTHEST))), math.ceil(users * math.exp(FARTHEST))
    if at(low) >= 0 or at(high) <= 0:
        return math.log((low if at(low) >= 0 else high) / users)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if at(middle) <= 0 else (low, middle)
    under, over = at(low), at(high)
    share = -under / (over - under) if over > under else 0.5
    return math.log((low + share) / users)
