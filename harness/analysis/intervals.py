"""How far a quantile can be trusted: 95 % intervals from blocks of requests in due order. Pure.

Near the knee slow requests come in clusters, so formulas for independent samples claim far too much. Requests are cut
into blocks in the order in which they were due; blocks are long where slow requests cluster. Two intervals are made,
and the wider end of either is taken:

- sectioning (Nakayama 2014): t-interval about the full-sample quantile from the spread of the blocks' own quantiles,
  on the log scale where values are positive, because tails are skewed;
- the same t-interval about the share of requests above the quantile, turned back into two quantiles of the sample.

Both are widened by √((1 + r) / (1 − r)) for the lag-1 correlation r > 0 that is left between blocks (as Sequest does).
None, "too few to say", is the answer when

- a block would hold fewer than two values that are expected beyond the quantile (its quantile would be its maximum),
  or fewer than ten requests, even with only five blocks: P99 needs 1000 requests, P95 200, P90 100, P50 50;
- blocks stay correlated however long they are made, or the second interval reaches beyond the sample: the slow
  requests came in too few separate clusters.

Coverage found by simulation (P50 to P99, 400 to 20,000 requests, log-normal values) where at least half of the runs
were given an interval: independent values 95–100 %; lag-1 correlation 0.5: 96–99 %, 0.9: 93–97 %, 0.98 from 1000
requests on: 92–99 %. What no method can see in one run are episodes about as long as the run: of M/M/1 queues at 90 %
load, up to 5000 requests, 17 % of runs are given an interval that misses for P50, 11 % for P90, 8 % for P95, 1 % for
P99; in the tails most runs are given none.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from harness.analysis.distributions import Tally, merged
from harness.metrics import FEW_FOR_P99

FINEST = 20
BLOCK_COUNTS = (20, 10, 5)
"""Most blocks first; each divides FINEST. Fewer than five leave t with too few degrees of freedom to be of use."""
BEYOND_PER_BLOCK = 2
REQUESTS_PER_BLOCK = 10
CLUSTERED = 0.4
"""Lag-1 correlation between blocks above which blocks are too short; chance alone passes it in 4 % of cases at 20."""
CORRELATION_CAP = 0.8

Interval = tuple[float, float]
Array = NDArray[np.float64]


def bounds(requests: int) -> list[int]:
    """Edges of FINEST blocks of as equal a number of requests as can be, in due order."""
    return [requests * block // FINEST for block in range(FINEST + 1)]


def interval(blocks: Sequence[Tally], whole: Tally, requests: int, q: float) -> Interval | None:
    """95 % interval of the q-quantile of `whole`, which is the union of its FINEST blocks; None: too few to say."""
    point = whole.quantile(q)
    if point is None or (q >= 0.99 and requests < FEW_FOR_P99):
        return None
    for count in (count for count in BLOCK_COUNTS if _is_enough(requests // count, q)):
        coarse = _coarse(blocks, count)
        above = whole.share_upto(point) - np.array([block.share_upto(point) for block in coarse])
        if lag1(above - above.mean()) <= CLUSTERED:
            return _hull(coarse, whole, q, above)
    return None


def _is_enough(requests: int, q: float) -> bool:
    return requests >= REQUESTS_PER_BLOCK and requests * min(q, 1 - q) >= BEYOND_PER_BLOCK * (1 - 1e-9)


def _coarse(blocks: Sequence[Tally], count: int) -> list[Tally]:
    step = len(blocks) // count
    return [merged(blocks[first : first + step]) if step > 1 else blocks[first] for first in range(0, FINEST, step)]


def _hull(blocks: Sequence[Tally], whole: Tally, q: float, above: Array) -> Interval | None:
    margin = _half_width(above)
    if margin >= min(q, 1 - q) or any(not block.total for block in blocks):
        return None
    low, high = _sectioning(np.array([block.quantile(q) for block in blocks]), whole.quantile(q) or 0.0)
    return min(low, whole.quantile(q - margin) or low), max(high, whole.quantile(q + margin) or high)


def _sectioning(own: Array, point: float) -> Interval:
    if point > 0 and own.min() > 0:
        half = _half_width(np.log(own / point))
        return point * math.exp(-half), point * math.exp(half)
    half = _half_width(own - point)
    return point - half, point + half


def _half_width(deviations: Array) -> float:
    """t · S / √b, where S² = Σ d² / (b − 1) is taken about the full-sample value and not about the blocks' mean."""
    count = len(deviations)
    spread = float(np.sqrt(np.sum(deviations**2) / (count - 1) / count))
    return float(stdtrit(count - 1, 0.975)) * spread * math.sqrt(inflation(deviations))


def inflation(deviations: Array) -> float:
    """(1 + r) / (1 − r): how much the variance of a mean of blocks grows if neighbours are correlated with r > 0."""
    left = min(max(lag1(deviations), 0.0), CORRELATION_CAP)
    return (1 + left) / (1 - left)


def lag1(deviations: Array) -> float:
    """Lag-1 correlation of deviations from a centre; 0 if there are none."""
    energy = float(np.sum(deviations**2))
    return float(np.sum(deviations[1:] * deviations[:-1])) / energy if energy > 0 else 0.0
