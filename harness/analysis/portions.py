"""How many requests lie beyond a limit, and how far that share can be trusted. Pure.

A clause `P99 ≤ limit` says: at most 1 % of requests lie beyond the limit. So it is this share that a gate needs an
interval of, at the limit itself, and not the quantile: a P99 that lies far beyond its limit is known to do so long
before anybody can say where it lies.

The interval is that of Clopper and Pearson for as many independent requests as these are worth (Korn and Graubard
1998): n_e = p (1 − p) / V · (z / t)², where V is the variance of the share by blocks of requests in due order, widened
for what correlation is left between them as in `intervals`. A run that saw few misses knows little of how they
cluster: so the clustering is measured at the limit, at the level that the allowed share of values passes and at that
which twice the share passes, and the worst of them is taken. None, "too few to say", is the answer when five
blocks would not each hold ten requests and two that may be expected beyond the limit, or stay correlated.

Found by simulation, 200 runs a cell, P99 clauses over waits for one of 64 seats plus a log-normal time of their own,
Poisson arrivals / arrivals of CV 2. At the load whose long-run share is just what is allowed, where 2.5 % of runs
should pass and 2.5 % fail, pass 10 / 19 % of runs of 1500 requests, 5 / 7 % of 5000, 4 / 7 % of 20,000, and at most
2.5 % fail. At 0.8 of that load pass 97 / 79, 98 / 82 and 100 / 93 %; at 1.1 of it fail 21 / 7, 62 / 19 and 99 / 55 %.
The passes in excess are runs that met none of the episodes in which misses come: no method sees in a run what did not
happen in it. Log-normal values of lag-1 correlation 0 to 0.9, P50 to P99, 200 to 5000 requests: at most 1.8 % pass
and at most 2.8 % fail. More, with a server of a known knee: docs/accuracy-gate.md.
"""

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import betaincinv, stdtrit

from harness.analysis.distributions import Tally, merged
from harness.analysis.intervals import (
    BEYOND_PER_BLOCK,
    BLOCK_COUNTS,
    CLUSTERED,
    FINEST,
    REQUESTS_PER_BLOCK,
    Array,
    inflation,
    lag1,
)
from harness.knee.gate import Portion

BROADER = 2.0
"""How many times the allowed share the broadest of the levels is at which clustering is measured."""
Z = 1.959964
FAR = 1000
"""A run this many times as long as the one at hand is no advice: the load lies at its limit."""


def portion(blocks: Sequence[Tally], limit: float, allowed: float, requests: int) -> Portion:
    """The share of values > limit in the union of FINEST blocks of requests in due order.

    Values known only to be beyond every limit are infinite. Where values are tokens, `requests` are fewer than they.
    """
    whole = merged(blocks)
    if not whole.total:
        return Portion(requests=requests, needed=fewest(allowed))
    beyond = round(1 - whole.share_upto(limit), 12)
    if requests < fewest(allowed):
        return Portion(requests=requests, beyond=beyond, needed=fewest(allowed))
    marks = {limit, *(mark for share in (allowed, BROADER * allowed) if (mark := _mark(whole, share)) is not None)}
    worth = [_worth(blocks, whole, mark, requests) for mark in marks]
    if any(each is None for each in worth):
        return Portion(requests=requests, beyond=beyond, needed=4 * requests)
    return _told(beyond, allowed, requests, min(each for each in worth if each is not None))


def portion_of_failed(blocks: Sequence[Tally], allowed: float, requests: int) -> Portion:
    """The share of requests that failed, from blocks of 0 (ended ok) and 1. How failures cluster is seen in them only;
    of none, each is taken to come alone."""
    beyond = round(1 - merged(blocks).share_upto(0.5), 12)
    if requests < BLOCK_COUNTS[-1] * REQUESTS_PER_BLOCK:
        return Portion(requests=requests, beyond=beyond, needed=BLOCK_COUNTS[-1] * REQUESTS_PER_BLOCK)
    worth = _worth(blocks, merged(blocks), 0.5, requests)
    if worth is None:
        return Portion(requests=requests, beyond=beyond, needed=4 * requests)
    return _told(beyond, allowed, requests, worth)


def fewest(allowed: float) -> int:
    """Requests below which nothing is said: five blocks of ten, with two expected beyond the limit (or within)."""
    rare = min(allowed, 1 - allowed)
    beyond = math.ceil(BEYOND_PER_BLOCK / rare * (1 - 1e-9)) if rare > 0 else REQUESTS_PER_BLOCK
    return BLOCK_COUNTS[-1] * max(REQUESTS_PER_BLOCK, beyond)


def ends(beyond: float, worth: float) -> tuple[float, float]:
    """Clopper and Pearson's 95 % interval of a share seen in `worth` independent requests, not a whole number."""
    count = beyond * worth
    low = float(betaincinv(count, worth - count + 1, 0.025)) if count > 0 else 0.0
    high = float(betaincinv(count + 1, worth - count, 0.975)) if count < worth else 1.0
    return low, high


def _told(beyond: float, allowed: float, requests: int, worth: float) -> Portion:
    low, high = ends(beyond, worth)
    undecided = low <= allowed < high
    needed = _needed(beyond, allowed, requests, worth) if undecided else None
    return Portion(requests=requests, beyond=beyond, low=low, high=high, needed=needed)


def _needed(beyond: float, allowed: float, requests: int, worth: float) -> int | None:
    """About how many requests, each worth as much as these, leave the allowed share outside of the interval."""
    for factor in 1.25 ** np.arange(1, round(math.log(FAR, 1.25)) + 1):
        low, high = ends(beyond, worth * float(factor))
        if not low <= allowed < high:
            return math.ceil(requests * float(factor))
    return None


def _mark(whole: Tally, share: float) -> float | None:
    """The value that about this share of all lies beyond; None for a share that leaves nothing below."""
    return whole.quantile(1 - share) if 0 < share < 1 else None


def _worth(blocks: Sequence[Tally], whole: Tally, mark: float, requests: int) -> float | None:
    """How many independent values the sample is worth, for the share beyond `mark`; None: blocks stay correlated.

    At most their number. Where all or none lie beyond there is no clustering to be seen.
    """
    share = 1 - whole.share_upto(mark)
    weights = np.array([block.total for block in blocks])
    beyond = np.array([block.total * (1 - block.share_upto(mark)) for block in blocks])
    for count in (count for count in BLOCK_COUNTS if requests // count >= REQUESTS_PER_BLOCK):
        off = summed(beyond - share * weights, count) / (whole.total / count)
        if lag1(off) <= CLUSTERED:
            variance = float(np.sum(off**2)) / (count - 1) / count * inflation(off)
            independent = share * (1 - share) / whole.total
            sure = (Z / float(stdtrit(count - 1, 0.975))) ** 2
            return whole.total * sure * (independent / variance if variance > independent > 0 else 1.0)
    return None


def summed(parts: Array, count: int) -> Array:
    """Sums over as many equal groups of neighbours."""
    return np.asarray(parts.reshape(count, FINEST // count).sum(axis=1))
