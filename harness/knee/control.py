"""The twin as a control variate: how much more load it needs to miss as much as the server did. Pure.

Both meet the same requests at the same times, so that most of the luck of a trace is common to both and cancels.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, isotonic_regression

from harness.knee.plan import values_s
from harness.knee.veto import Correction, rank_correlation
from harness.metrics import Limit
from harness.twin import fast
from harness.twin.gaps import LN, Gaps
from harness.twin.observed import FLOOR_S, Flags, Observation
from harness.twin.scatter import EXACT, Scatter
from harness.twin.server import Server
from harness.twin.trace import Lives, Trace

FARTHEST = 0.5
"""ln of the largest correction looked for; one that lies beyond is a veto anyhow."""
STEP = 0.03
FINE = 4e-3
NARROWEST = 0.01
TOP = 0.75
"""Of the requests, that a width looks at: of a median's, three in four."""
NO_MISS = 1e-9
HALF_A_MISS = 0.5
SAMPLED = np.linspace(-0.06, 0.06, 13)
"""Around the first root, in eta."""

Array = NDArray[np.float64]


def correction(server: Server, observed: Observation, limit: Limit, scatter: Scatter = EXACT) -> Correction | None:
    """eta such that the twin at load · exp(eta) misses as much as was measured at load; None: nothing was measured.

    `scatter`: of what is measured about the twin, where its own value is not all there is to a miss.
    """
    judged = observed.counts & np.isfinite(observed.ttft_s)
    measured = _measured(limit, observed, judged)
    if measured is None:
        return None
    width = softness(measured, limit.quantile)
    counted = limit.metric == "tpot_ms" and scatter.tpot is not None
    goal = soft_misses(measured, width, more=HALF_A_MISS if counted else 0.0)

    def excess(eta: float) -> float:
        lives = fast.run(server, loaded(observed.trace, eta))
        return soft_misses(_simulated(limit, lives, judged, scatter), width) - goal

    return Correction(
        load=observed.load,
        at_s=observed.at_s,
        eta=_user_eta(observed, excess) if observed.loop == "closed" else _root(excess),
        rank=_rank(limit, server, observed, judged),
    )


@dataclass(frozen=True, slots=True)
class Above:
    """ln(value / limit) of what is judged by a clause, and how much each value weighs."""

    ln: Array
    weights: Array

    @property
    def total(self) -> float:
        """Of all weights."""
        return float(self.weights.sum())

    def quantile(self, shares: list[float]) -> Array:
        """Values that these shares of the weight do not pass, a line between neighbours; as numpy's."""
        some = self.weights > 0
        order = np.argsort(self.ln[some], kind="stable")
        weights = self.weights[some][order]
        at = (np.cumsum(weights) - weights) / max(self.total - float(weights[-1]), NO_MISS)
        found: Array = np.interp(shares, at, self.ln[some][order])
        return found


def even(ln: Array) -> Above:
    """These values, each as good as the other."""
    return Above(ln, np.ones(len(ln)))


def _measured(limit: Limit, observed: Observation, judged: Flags) -> Above | None:
    if limit.metric != "itl_ms":
        found = _of_requests(limit, values_s(limit.metric, observed)[judged])
        return found if found.ln.size else None
    return _of_gaps(limit, observed.gaps) if observed.gaps is not None and observed.gaps.total else None


def _simulated(limit: Limit, lives: Lives, judged: Flags, scatter: Scatter) -> Above:
    if limit.metric == "itl_ms":
        gaps = lives.gaps(judged)
        return _of_gaps(limit, scatter.itl.spread(gaps) if scatter.itl else gaps)
    lived = lived_s(limit.metric, lives)[judged]
    if limit.metric == "tpot_ms" and scatter.tpot:
        return even(scatter.tpot.spread_ln(lived, lives.output_tokens[judged]) - math.log(limit.ms / 1e3))
    return _of_requests(limit, lived)


def _of_requests(limit: Limit, values: Array) -> Above:
    return even(np.log(np.maximum(values[np.isfinite(values)], FLOOR_S)) - math.log(limit.ms / 1e3))


def _of_gaps(limit: Limit, gaps: Gaps) -> Above:
    return Above(LN - math.log(limit.ms / 1e3), gaps.tokens)


def _rank(limit: Limit, server: Server, observed: Observation, judged: Flags) -> float:
    """Of the requests, as they were sent. None of gaps: which of them is which step's cannot be told."""
    if limit.metric == "itl_ms":
        return math.nan
    as_sent = lived_s(limit.metric, fast.run(server, observed.trace))
    return rank_correlation(values_s(limit.metric, observed)[judged], as_sent[judged])


def soft_misses(above: Above, width: float, more: float = 0.0) -> float:
    """ln of the mean miss of these values, each by degrees: from 0 at −width to 1 at it.

    Unlike a miss share it says something where nothing missed, and it counts more of those who nearly did; unlike the
    mean of the longest it looks at the limit, and how far beyond it the worst are is nothing to it. `more` misses are
    added where some were counted and are held against a chance: ln of a count is too low in the mean, by about as much.
    """
    missed = float(np.clip(above.ln / (2 * width) + 0.5, 0.0, 1.0) @ above.weights)
    return math.log((missed + more) / max(above.total, NO_MISS) + NO_MISS)


def softness(above: Above, quantile: float) -> float:
    """The width for these: half of what lies between half and one and a half of the allowed share, and so much that
    twice the allowed share counts where the limit is far."""
    allowed = 1 - quantile
    far, low, high = above.quantile([1 - min(2 * allowed, TOP), 1 - min(1.5 * allowed, TOP), 1 - allowed / 2])
    return max(float(high - low) / 2, -float(far), NARROWEST)


def lived_s(metric: str, lives: Lives) -> Array:
    """A metric of every simulated request, in seconds; ITL is none."""
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
