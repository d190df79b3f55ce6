"""By what factor does one run differ from another, and how sure is that? Pure.

Quantiles: the 95 % interval of new / old is made from each run's own interval (`intervals`), which knows how slow
requests cluster, on the log scale by MOVER (Zou and Donner 2008): the distances of both points from the ends that
count are added as the sides of a right angle. Where both runs met the same arrivals, as an open loop with the same seed
does, what they met alike cancels: the angle is narrowed by the correlation of the blocks' own quantiles, taken one
standard error lower (Fisher's z) than it was seen.

Rates: a t-interval about the ratio of two means over equal parts of the hold, part against part, linearised, widened
for what correlation is left between parts as in `intervals`; of 20, 10 and 5 parts the widest is taken.

None, "too few", where one of the runs has no interval of its own.

Coverage found by simulation, where at least half of the runs were given an interval; 150 to 1000 runs a cell:

- log-normal values, P50 to P99, 400 to 5000 requests a run: 95–100 % up to a lag-1 correlation of 0.9, 91–98 % at 0.98;
- waits for one of 64 seats, Poisson arrivals or arrivals of CV 2, other arrivals in the other run: P50 95–100 %; P99
  96–100 % up to 0.8 of the load at which P99 breaks, 91–98 % at 0.9 of it;
- the same arrivals and a server slower by 3 %: 97–100 % up to 0.8 of that load, at about half the width for P50 and 0.6
  of it for P99;
- rates of lag-1 correlation up to 0.5 from part to part: 95–98 %, 0.7: 89–95 %.

Closer to the knee a P99 lies in episodes of which a run sees few or none. Most runs are given no interval there; of
those that are, with the same arrivals, only 67–89 % hold the ratio that very long runs would find.
"""

import math
from collections.abc import Sequence

import numpy as np
from msgspec import Struct, structs
from scipy.special import stdtrit

from harness.analysis.distributions import Tally, merged
from harness.analysis.intervals import (
    BLOCK_COUNTS,
    CLUSTERED,
    FINEST,
    REQUESTS_PER_BLOCK,
    Array,
    inflation,
    interval,
    lag1,
)
from harness.analysis.portions import fewest, summed
from harness.knee.changes import Ratio

LEAST = 1e-12
"""Stands for an end at or below 0 on the log scale."""


class Sampled(Struct, frozen=True, kw_only=True):
    """One metric of one run: FINEST blocks of requests in due order, and how many requests these are."""

    blocks: list[Tally]
    requests: int
    per_ms: float = 1.0
    """What 1 ms is in the blocks."""


def quantile_ratio(new: Sampled, old: Sampled, q: float, *, same_arrivals: bool) -> Ratio:
    """Of the q-quantiles. Values > 0; without a value on one side, or 0 there, no ratio."""
    above, below = _quantile(new, q), _quantile(old, q)
    told = Ratio(old=below.ms, new=above.ms)
    if not above.ms or not below.ms:
        return told
    point = above.ms / below.ms
    if above.reach is None or below.reach is None:
        return structs.replace(told, point=point)
    shared = _shared(new, old, q) if same_arrivals else 0.0
    low = math.exp(-_third_side(above.reach[0], below.reach[1], shared))
    high = math.exp(_third_side(above.reach[1], below.reach[0], shared))
    return structs.replace(told, point=point, ends=(point * low, point * high))


def rate_ratio(new: Array, old: Array, requests: int) -> Ratio:
    """Of the means of two rates over FINEST equal parts of a hold; `requests`: of the run that has fewer."""
    above, below = float(new.mean()), float(old.mean())
    if above <= 0 or below <= 0:
        return Ratio(old=below, new=above)
    told = Ratio(old=below, new=above, point=above / below)
    counts = [count for count in BLOCK_COUNTS if requests // count >= REQUESTS_PER_BLOCK]
    apart = [(summed(new, count) / above - summed(old, count) / below) / (FINEST // count) for count in counts]
    widths = [_half_width(off) for off in apart if lag1(off) <= CLUSTERED]
    if not widths:
        return told
    factor = math.exp(max(widths))
    return structs.replace(told, ends=(above / below / factor, above / below * factor))


def _half_width(off: Array) -> float:
    """t · S / √b of deviations that sum to 0, widened for the correlation left between neighbours."""
    error = math.sqrt(float(np.sum(off**2)) / (len(off) - 1) / len(off) * inflation(off))
    return float(stdtrit(len(off) - 1, 0.975)) * error


class _Quantile(Struct, frozen=True):
    """A quantile in ms, and how far the ends of its interval lie below and above it, as logarithms."""

    ms: float | None
    reach: tuple[float, float] | None = None


def _quantile(of: Sampled, q: float) -> _Quantile:
    whole = merged(of.blocks)
    point = whole.quantile(q)
    ends = interval(of.blocks, whole, of.requests, q)
    if point is None or point <= 0 or ends is None:
        return _Quantile(None if point is None else point / of.per_ms)
    return _Quantile(point / of.per_ms, (math.log(point / max(ends[0], LEAST)), math.log(max(ends[1], point) / point)))


def _third_side(one: float, other: float, shared: float) -> float:
    """√(a² + b² − 2 r a b)."""
    return math.sqrt(max(one**2 + other**2 - 2 * shared * one * other, 0.0))


def _shared(new: Sampled, old: Sampled, q: float) -> float:
    """Correlation of the blocks' own quantiles, one standard error less than was seen; never below 0."""
    requests = min(new.requests, old.requests)
    counts = [count for count in BLOCK_COUNTS if requests // count * BLOCK_COUNTS[-1] >= fewest(1 - q)]
    if not counts:
        return 0.0
    one, other = (_logs(each.blocks, counts[0], q) for each in (new, old))
    if one is None or other is None or not one.std() or not other.std():
        return 0.0
    seen = min(float(np.corrcoef(one, other)[0, 1]), 0.9999)
    return max(math.tanh(math.atanh(seen) - 1 / math.sqrt(counts[0] - 3)), 0.0)


def _logs(blocks: Sequence[Tally], count: int, q: float) -> Array | None:
    step = FINEST // count
    own = np.array([merged(blocks[at : at + step]).quantile(q) or 0.0 for at in range(0, FINEST, step)])
    return np.log(own) if own.min() > 0 else None
