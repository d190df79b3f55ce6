"""The twin as a control variate: how much more load it needs to miss as much as the server did. Pure.

Both meet the same requests at the same times, so that most of the luck of a trace is common to both and cancels.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, isotonic_regression

from harness.knee.above import lived_s, measured, simulated, soft_misses, softness
from harness.knee.plan import values_s
from harness.knee.veto import Correction, rank_correlation
from harness.metrics import Limit
from harness.twin import fast
from harness.twin.observed import Flags, Observation
from harness.twin.scatter import EXACT, Scatter
from harness.twin.server import Server
from harness.twin.trace import Trace

FARTHEST = 0.5
"""ln of the largest correction looked for; one that lies beyond is a veto anyhow."""
STEP = 0.03
FINE = 4e-3
HALF_A_MISS = 0.5
SAMPLED = np.linspace(-0.06, 0.06, 13)
"""Around the first root, in eta."""

Array = NDArray[np.float64]


def correction(server: Server, observed: Observation, limit: Limit, scatter: Scatter = EXACT) -> Correction | None:
    """eta such that the twin at load · exp(eta) misses as much as was measured at load; None: nothing was measured.

    `scatter`: of what is measured about the twin, where its own value is not all there is to a miss.
    """
    judged, found = observed.answered, measured(limit, observed)
    if found is None:
        return None
    width = softness(found, limit.quantile)
    counted = limit.metric == "tpot_ms" and scatter.tpot is not None
    goal = soft_misses(found, width, more=HALF_A_MISS if counted else 0.0)

    def excess(eta: float) -> float:
        lives = fast.run(server, loaded(observed.trace, eta))
        return soft_misses(simulated(limit, lives, judged, scatter), width) - goal

    return Correction(
        load=observed.load,
        at_s=observed.at_s,
        eta=_user_eta(observed, excess) if observed.loop == "closed" else _root(excess),
        rank=_rank(limit, server, observed, judged),
    )


def _rank(limit: Limit, server: Server, observed: Observation, judged: Flags) -> float:
    """Of the requests, as they were sent. None of gaps: which of them is which step's cannot be told."""
    if limit.metric == "itl_ms":
        return math.nan
    as_sent = lived_s(limit.metric, fast.run(server, observed.trace))
    return rank_correlation(values_s(limit.metric, observed)[judged], as_sent[judged])


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
    """Where the misses are met. The curve rises, but not smoothly: one request more in a step, and all after it shift.

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
    """The same over whole users: the two neighbours between which the misses are met, and a line between them."""
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
