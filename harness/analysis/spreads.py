"""The distributions of one level, with their intervals. Pure.

Only requests due in the hold that ended ok are in them; the lateness of the client (`lag_ms`) is that of every request
sent.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd

from harness import metrics
from harness.analysis.distributions import Tally, merged, tally, tally_whole
from harness.analysis.flat import Floats
from harness.analysis.frame import Frame
from harness.analysis.intervals import Interval, bounds, interval
from harness.clock import MS
from harness.findings import Spread
from harness.metrics import QUANTILES, Loop
from harness.model import Outcome

US_PER_MS = 1e3
TENTHS_PER_MS = 1e4
_TIMES = ("start", "first_byte", "end", "first", "answer", "last", "worst_gap", "connect")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One metric over one level: its exact distribution, its summary, and (per request metrics) each value in ms."""

    tally: Tally
    spread: Spread
    per_ms: float = 1.0
    """What 1 ms is in the tally."""
    each: Floats


def latencies(frame: Frame, level: int, loop: Loop) -> dict[str, Sample]:
    """The metrics that are one value a request."""
    each = latencies_ms(frame.rows.iloc[frame.judged(level)], loop)
    return {name: untimed(values) for name, values in each.items()}


def latencies_ms(rows: pd.DataFrame, loop: Loop) -> dict[str, Floats]:
    """The same of any rows of a Frame, one value a row whatever its outcome, NaN where absent: `metrics.measures`."""
    column = {name: rows[name].to_numpy(dtype=np.float64) for name in _TIMES}
    origin = column["start"] if loop == "closed" else np.zeros(len(rows))
    whole = np.where((rows["outcome"] == Outcome.OK) & rows["start"].notna(), column["end"], np.nan)
    last = np.where(rows["events"].to_numpy() > 0, column["last"], whole)
    tokens = rows["tokens"].to_numpy(dtype=np.float64)
    found_ns = {
        "ttft_ms": metrics.ttft_ns(column["first"], origin),
        "ttfat_ms": metrics.ttfat_ns(column["answer"], origin),
        "ttfb_ms": metrics.ttfb_ns(column["first_byte"], column["start"]),
        "tpot_ms": metrics.tpot_ns(column["last"] - column["first"], tokens, rows["first_tokens"].to_numpy()),
        "e2e_ms": metrics.e2e_ns(last, origin),
        "worst_gap_ms": column["worst_gap"],
        "connect_ms": column["connect"],
    }
    return {name: values_ns / MS for name, values_ns in found_ns.items()}


def untimed(values: Floats) -> Sample:
    """A sample of values in ms, one a request in due order, NaN where absent."""
    present = values[~np.isnan(values)]
    blocks = [tally(present[a:b]) for a, b in pairwise(bounds(len(present)))]
    whole = tally(present)
    spread = _spread(blocks, whole, len(present), absent=len(values) - len(present))
    return Sample(tally=whole, spread=spread, each=values)


def tokens(frame: Frame, level: int) -> dict[str, Sample]:
    """`gap_ms` and `itl_ms`: one value a gap or token; blocks are of requests, with all their tokens.

    Where an event may carry several tokens, ITL is rounded to 0.1 µs: stamps are to the µs.
    """
    rows = frame.judged(level)
    streamed = int((np.diff(frame.edges[rows.start : rows.stop + 1]) > 0).sum())
    absent = rows.stop - rows.start - streamed
    parts = [(rows.start + a, rows.start + b) for a, b in pairwise(bounds(rows.stop - rows.start))]
    gap = _token_sample([tally_whole(frame.gaps_of(a, b)[0]) for a, b in parts], streamed, absent, US_PER_MS)
    weights = frame.gaps_of(rows.start, rows.stop)[1]
    if weights is None or not (weights != 1).any():
        return {"gap_ms": gap, "itl_ms": gap}
    itls = [itl_tally(frame, a, b) for a, b in parts]
    return {"gap_ms": gap, "itl_ms": _token_sample(itls, streamed, absent, TENTHS_PER_MS)}


def itl_tally(frame: Frame, first: int, end: int) -> Tally:
    """ITL of rows first … end − 1 in tenths of a µs, each as often as its event has tokens."""
    gaps, weights = frame.gaps_of(first, end)
    each = np.ones(len(gaps)) if weights is None else weights.astype(np.float64)
    some = each > 0
    tenths = gaps[some].astype(np.float64) * (TENTHS_PER_MS / US_PER_MS)
    return tally_whole(np.rint(metrics.itl(tenths, each[some])).astype(np.int64), each[some])


def _token_sample(blocks: Sequence[Tally], requests: int, absent: int, per_ms: float) -> Sample:
    whole = merged(blocks)
    spread = _spread(blocks, whole, requests, absent=absent, per_ms=per_ms)
    return Sample(tally=whole, spread=spread, per_ms=per_ms, each=np.empty(0))


def _spread(blocks: Sequence[Tally], whole: Tally, requests: int, *, absent: int, per_ms: float = 1.0) -> Spread:
    def ms(value: float | None) -> float | None:
        return None if value is None else value / per_ms

    def between(ends: Interval | None) -> Interval | None:
        return None if ends is None else (ends[0] / per_ms, ends[1] / per_ms)

    p50, p90, p95, p99 = (ms(whole.quantile(q)) for q in QUANTILES)
    intervals = {f"p{round(q * 100)}": between(interval(blocks, whole, requests, q)) for q in QUANTILES}
    return Spread(
        n=round(whole.total),
        absent=absent,
        mean=ms(whole.mean),
        p50=p50,
        p90=p90,
        p95=p95,
        p99=p99,
        max=ms(whole.max),
        interval=intervals,
    )
