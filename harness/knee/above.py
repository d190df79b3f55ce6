"""How far beyond its limit what a clause judges is, measured or simulated, and how much of that is a miss. Pure."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.knee.plan import values_s
from harness.metrics import Limit
from harness.twin.gaps import LN, Gaps
from harness.twin.observed import FLOOR_S, Flags, Observation
from harness.twin.scatter import Scatter
from harness.twin.trace import Lives

NARROWEST = 0.01
TOP = 0.75
"""Of the requests, that a width looks at: of a median's, three in four."""
NO_MISS = 1e-9

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Above:
    """ln(value / limit) of what is judged by a clause, and how much each value weighs."""

    ln: Array
    weights: Array

    @property
    def total(self) -> float:
        """Of all weights."""
        return float(self.weights.sum())

    @property
    def missed(self) -> float:
        """Share of the weight that is beyond the limit."""
        return float(self.weights[self.ln > 0].sum()) / max(self.total, NO_MISS)

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


def measured(limit: Limit, observed: Observation) -> Above | None:
    """What was; None: nothing."""
    if limit.metric != "itl_ms":
        found = _of_requests(limit, values_s(limit.metric, observed)[observed.answered])
        return found if found.ln.size else None
    return _of_gaps(limit, observed.gaps) if observed.gaps is not None and observed.gaps.total else None


def simulated(limit: Limit, lives: Lives, judged: Flags, scatter: Scatter) -> Above:
    """What would be, if it scatters about the twin like this."""
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


def lived_s(metric: str, lives: Lives) -> Array:
    """A metric of every simulated request, in seconds; ITL is none."""
    return {"ttft_ms": lives.ttft_s, "tpot_ms": lives.tpot_s, "e2e_ms": lives.e2e_s}[metric]


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
