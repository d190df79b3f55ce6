"""Values to exact quantiles: a Tally is a sorted, weighted sample. Pure.

Quantile method, everywhere: nearest rank. The q-quantile is the smallest value v for which values ≤ v carry at least a
share q of all weight. It is always a value that was measured, and it is exact over the records.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.findings import Curve

Whole = NDArray[np.int32] | NDArray[np.int64]
Values = NDArray[np.float64] | Whole
COUNTABLE = 1 << 20
"""Whole numbers below this are counted in one array: a second in µs."""
ROUNDING = 1e-9
"""Ranks are products of a share and a weight; this keeps 0.07 · 100 from being rank 8."""
CURVE_SHARES = np.concatenate([np.linspace(0.005, 0.98, 170), 1 - np.geomspace(0.02, 0.0005, 29), [1.0]])


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Ascending values and the weight at or below each; `upto` None: every value weighs 1."""

    values: Values
    upto: NDArray[np.float64] | None = None

    @property
    def total(self) -> float:
        """Weight of all values."""
        if self.upto is None:
            return float(len(self.values))
        return float(self.upto[-1]) if len(self.upto) else 0.0

    @property
    def mean(self) -> float | None:
        """Weighted mean; None of nothing."""
        if not self.total:
            return None
        if self.upto is None:
            return float(self.values.mean())
        return float(np.dot(self.values, self.weights)) / self.total

    @property
    def weights(self) -> NDArray[np.float64]:
        """Weight of each value."""
        return np.ones(len(self.values)) if self.upto is None else np.diff(self.upto, prepend=0.0)

    @property
    def max(self) -> float | None:
        """Largest value; None of nothing."""
        return float(self.values[-1]) if len(self.values) else None

    def quantile(self, q: float) -> float | None:
        """The q-quantile by nearest rank; None of nothing."""
        if not self.total:
            return None
        return float(self.values[self._position(q)])

    def share_upto(self, value: float) -> float:
        """Share of weight on values ≤ value; 0 of nothing."""
        below = int(np.searchsorted(self.values, value, side="right"))
        if not below:
            return 0.0
        return (below if self.upto is None else float(self.upto[below - 1])) / self.total

    def _position(self, q: float) -> int:
        rank = q * self.total * (1 - ROUNDING)
        last = len(self.values) - 1
        if self.upto is None:
            return min(max(math.ceil(rank) - 1, 0), last)
        return min(int(np.searchsorted(self.upto, rank, side="left")), last)


def tally(values: NDArray[np.float64]) -> Tally:
    """Equal weights; NaN is left out."""
    return Tally(values=np.sort(values[~np.isnan(values)]))


def tally_whole(values: Whole, weights: NDArray[np.float64] | NDArray[np.float32] | None = None) -> Tally:
    """Whole numbers with their weights (> 0; None: 1 each): each distinct value once, with what it weighs in all.

    Small ones are counted, which is many times faster than a sort; the few beyond COUNTABLE are sorted.
    """
    low = (values >= 0) & (values < COUNTABLE)
    if low.all():
        return _counted(values, weights)
    rest = np.ones(int((~low).sum())) if weights is None else weights[~low].astype(np.float64)
    return merged(
        [_counted(values[low], None if weights is None else weights[low]), tally_weighted(values[~low], rest)]
    )


def _counted(values: Whole, weights: NDArray[np.float64] | NDArray[np.float32] | None) -> Tally:
    counts = np.bincount(values, weights)
    found = np.flatnonzero(counts)
    return Tally(values=found, upto=np.cumsum(counts[found], dtype=np.float64))


def tally_weighted(values: Values, weights: NDArray[np.float64]) -> Tally:
    """Each value with its own weight (> 0)."""
    order = np.argsort(values)
    return Tally(values=values[order], upto=np.cumsum(weights[order], dtype=np.float64))


def merged(tallies: Sequence[Tally]) -> Tally:
    """All of them as one sample."""
    if not tallies:
        return Tally(values=np.empty(0))
    values = np.concatenate([each.values for each in tallies])
    if all(each.upto is None for each in tallies):
        return Tally(values=np.sort(values))
    return tally_weighted(values, np.concatenate([each.weights for each in tallies]))


def curve(metric: str, level: int, sample: Tally, scale: float = 1.0) -> Curve:
    """The distribution at up to 200 shares, finer in the tail; `scale` turns values into ms."""
    if not sample.total:
        return Curve(metric=metric, level=level, x=[], share=[])
    places = sorted({sample._position(float(share)) for share in CURVE_SHARES})
    upto = np.arange(1, len(sample.values) + 1) if sample.upto is None else sample.upto
    return Curve(
        metric=metric,
        level=level,
        x=[round(float(sample.values[place]) * scale, 6) for place in places],
        share=[round(float(upto[place]) / sample.total, 6) for place in places],
    )
