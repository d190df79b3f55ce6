"""Durations to histogram buckets, coarse for a database and fine for quantiles. No clock, no I/O.

Coarse: the bounds of `schema.BOUNDS_US`, a bucket holds what is above the bound before its own and not above its own.
Fine: 32 buckets from each power of two of µs to the next, told by the first bits of the number as a 32-bit float; a
value is taken for the middle of its bucket, which is at most 1/64 (1.6 %) off. Below 1 µs all is 0.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.schema import BOUNDS_US

Ints = NDArray[np.int64]

COARSE = len(BOUNDS_US) + 1
FINE_BITS = 11
"""Enough for every fine bucket number."""
_DROPPED_BITS = 18
_ZERO = int(np.float32(1).view(np.int32) >> _DROPPED_BITS) - 1
_LISTED_US = 1 << 20
"""Durations below this are looked up in a list, which is many times faster than a search."""
_BOUNDS = np.array(BOUNDS_US)
_LIST = np.searchsorted(_BOUNDS, np.arange(_LISTED_US), side="left").astype(np.int8)


def coarse(us: NDArray[np.int32] | Ints) -> Ints:
    """Number of the coarse bucket of each duration in whole µs; the last is for what is above every bound."""
    buckets: Ints = _LIST[np.clip(us, 0, _LISTED_US - 1)].astype(np.int64)
    long = np.flatnonzero(us >= _LISTED_US)
    buckets[long] = np.searchsorted(_BOUNDS, us[long], side="left")
    return buckets


def fine(us: NDArray[np.float32]) -> NDArray[np.int32]:
    """Number of the fine bucket of each duration in µs: 0 for less than 1 µs, which a stepping clock makes negative."""
    buckets: NDArray[np.int32] = (np.maximum(us, np.float32(0)).view(np.int32) >> _DROPPED_BITS) - np.int32(_ZERO)
    return np.maximum(buckets, np.int32(0), out=buckets)


def middles(buckets: Ints) -> NDArray[np.float64]:
    """What stands for the durations in these fine buckets, in µs."""
    edges = (np.stack([buckets, buckets + 1]) + _ZERO).astype(np.int32) << _DROPPED_BITS
    values = edges.view(np.float32).astype(np.float64).mean(axis=0)
    return np.where(buckets == 0, 0.0, values)


@dataclass(frozen=True, slots=True)
class Sketch:
    """A distribution: fine buckets, rising, and the whole weight in each, > 0."""

    buckets: Ints
    weights: Ints

    def merged(self, other: "Sketch") -> "Sketch":
        """Both together."""
        buckets, places = np.unique(np.concatenate([self.buckets, other.buckets]), return_inverse=True)
        weights = np.zeros(len(buckets), np.int64)
        np.add.at(weights, places, np.concatenate([self.weights, other.weights]))
        return Sketch(buckets, weights)

    def quantile(self, share: float) -> float:
        """By nearest rank: the least value at or below which at least this share of all weight lies."""
        upto = np.cumsum(self.weights)
        place = int(np.searchsorted(upto, share * float(upto[-1]) * (1 - 1e-9)))
        return float(middles(self.buckets[place : place + 1])[0])
