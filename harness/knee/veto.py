"""Checks that can take the twin's word away: may its control variate be believed? No clock, no I/O.

Each check returns None, or a Veto that says what was found and what would have passed.
"""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray
from scipy.special import chdtrc, stdtr

MEAN_ETA, MOST_ETA = 0.10, 0.30
TREND_CHANCE = 0.02
TREND_CHANGE = 0.04
"""A trend is one that chance shows in 2 % of searches and that moved the correction by 4 % or more."""
RANK = 0.5
UNFIT = 0.25
"""RMS of ln(measured / simulated) over all figures of the fit."""
MISCOUNT_CHANCE = 0.005
"""Of such a difference between counts. Of the 198 searches of bench/accuracy.py four fall below it: their twins were
35, 8, 0.4 and 0.4 % off."""
ERRORS = 0.001
DRIFT = 0.03

Array = NDArray[np.float64]
Check = Literal[
    "fit", "misses", "mean eta", "trend with load", "trend with time", "rank", "preemptions", "errors", "drift"
]
MOVING: frozenset[Check] = frozenset({"trend with time", "drift"})
OTHER: frozenset[Check] = frozenset({"mean eta", "misses"})
"""The twin is another server: what it says of time is worth no more than what it says of load."""


class Veto(Struct, frozen=True):
    """A check that failed."""

    check: Check
    text: str


class Correction(Struct, frozen=True, kw_only=True):
    """One verification probe, as the twin explains it."""

    load: float
    at_s: float
    """When in the run it was measured."""
    eta: float
    """ln(load the twin needs / load): above 0 the server is slower than its twin."""
    rank: float
    """Rank correlation of the binding metric, request by request; NaN where it says nothing."""


class Counted(Struct, frozen=True, kw_only=True):
    """Requests of a level that missed a clause, and how many the twin expects there."""

    load: float
    missed: float
    expected: float

    @property
    def squared(self) -> float:
        """Of the difference of logarithms, in variances of counts. One is added to each, for none is a count too."""
        missed, expected = self.missed + 1, self.expected + 1
        return math.log(missed / expected) ** 2 / (1 / missed + 1 / expected)


def moved(found: Sequence[Veto]) -> bool:
    """The server itself changed: no other estimator would do better on the same probes, so the answer is a band."""
    checks = {veto.check for veto in found}
    return not checks.isdisjoint(MOVING) and checks.isdisjoint(OTHER)


def vetoes(corrections: Sequence[Correction], slope: float) -> list[Veto]:
    """What the corrections of a search speak against, in the order of severity. `slope`: as in `most_eta`."""
    eta = np.array([correction.eta for correction in corrections])
    found = [
        far(eta, slope),
        trend(eta, np.array([correction.at_s for correction in corrections]), "time"),
        trend(eta, np.log([correction.load for correction in corrections]), "load"),
        unlike(np.array([correction.rank for correction in corrections])),
    ]
    return [veto for veto in found if veto is not None]


def far(eta: Array, slope: float) -> Veto | None:
    """The mean correction is within `most_eta`, or the twin is another engine."""
    most = most_eta(slope)
    if not eta.size or abs(mean := float(eta.mean())) <= most:
        return None
    pace = "slower" if mean > 0 else "faster"
    return Veto("mean eta", f"the server is {abs(mean):.0%} {pace} than its twin; expected within {most:.0%}")


def most_eta(slope: float) -> float:
    """10 %; more, up to 30 %, where misses hardly grow with the load: what multiplies their odds by e.

    `slope`: d logit(miss share) / d ln(load) at the knee.
    """
    return min(max(MEAN_ETA, 1 / slope), MOST_ETA) if slope > 0 else MEAN_ETA


def trend(eta: Array, along: Array, name: Literal["load", "time"]) -> Veto | None:
    """A straight line through eta is steeper than chance explains, and matters over the range measured."""
    spread = along - along.mean() if along.size else along
    if eta.size < 4 or not np.any(spread):
        return None
    slope = float(spread @ eta / (spread @ spread))
    left = eta - eta.mean() - slope * spread
    error = math.sqrt(float(left @ left) / (eta.size - 2) / float(spread @ spread))
    chance = 2 * float(stdtr(eta.size - 2, -abs(slope) / error)) if error > 0 else float(slope == 0)
    change = slope * float(np.ptp(along))
    if chance >= TREND_CHANCE or abs(change) < TREND_CHANGE:
        return None
    where = "from the first probe to the last" if name == "time" else "from the lowest load to the highest"
    check: Check = "trend with time" if name == "time" else "trend with load"
    return Veto(check, f"the correction moved by {change:+.1%} {where}; expected less than {TREND_CHANGE:.0%}")


def unlike(ranks: Array) -> Veto | None:
    """The median probe's requests wait in about the order the twin says."""
    told = ranks[np.isfinite(ranks)]
    if not told.size or (median := float(np.median(told))) >= RANK:
        return None
    return Veto("rank", f"rank correlation of measured and simulated is {median:.2f}; expected at least {RANK:g}")


def preempted(count: int | None) -> Veto | None:
    """No sequence lost its context: the twin has memory without end."""
    return Veto("preemptions", f"the server preempted {count} times; expected none") if count else None


def failing(failed: int, due: int) -> Veto | None:
    """At most one request in a thousand went wrong: a failed one freed its seat early."""
    if not due or failed <= ERRORS * due:
        return None
    return Veto("errors", f"{failed / due:.2%} of {due} requests failed; expected at most {ERRORS:.1%}")


def unfit(goodness: float) -> Veto | None:
    """The twin reproduces what it was fitted to: corrections that agree say nothing of a server it is not."""
    if goodness <= UNFIT:
        return None
    return Veto("fit", f"the twin is {goodness:.0%} off at the levels it was fitted to; expected within {UNFIT:.0%}")


def miscounted(levels: Sequence[Counted]) -> Veto | None:
    """The levels it was fitted to missed as often as the twin says: χ² of the counts.

    Its figures may all be near and its tail another: then it puts the knee elsewhere, and corrections far from the
    levels it was fitted to agree with one another.
    """
    if not levels or chdtrc(len(levels), sum(level.squared for level in levels)) >= MISCOUNT_CHANCE:
        return None
    worst = max(levels, key=lambda level: level.squared)
    return Veto(
        "misses",
        f"at {worst.load:.3g}, which it was fitted to, {worst.missed:.0f} requests missed and the twin expects "
        f"{worst.expected:.0f}",
    )


def drifted(change: float | None) -> Veto | None:
    """The anchor level, measured again at the end, took as long as at the start. `change` is relative."""
    if change is None or abs(change) <= DRIFT:
        return None
    return Veto("drift", f"at the anchor level the time per token moved by {change:+.1%}; expected within {DRIFT:.0%}")


def rank_correlation(measured: Array, simulated: Array) -> float:
    """Spearman's ρ over the pairs that exist; NaN with fewer than ten, or where one side does not vary."""
    both = np.isfinite(measured) & np.isfinite(simulated)
    if both.sum() < 10:
        return math.nan
    x, y = (_ranks(values[both]) - (both.sum() + 1) / 2 for values in (measured, simulated))
    size = math.sqrt(float(x @ x) * float(y @ y))
    return float(x @ y) / size if size else math.nan


def _ranks(values: Array) -> Array:
    """From 1; equal values share their mean rank. As scipy.stats.rankdata, whose import every start would wait for."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    ranks: Array = (np.cumsum(count) - (count - 1) / 2)[place]
    return ranks
