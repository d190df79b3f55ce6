"""One level against its SLO: clauses over the level, and the goodput predicate over its requests. Pure."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from harness import metrics
from harness.analysis.flat import Floats
from harness.analysis.frame import Frame
from harness.analysis.spreads import Sample
from harness.clock import MS
from harness.findings import Clause
from harness.knee import verdict
from harness.metrics import Limit, Loop
from harness.model import Outcome, Slo

UNFINISHED = [
    Outcome.TIMEOUT_CONNECT,
    Outcome.TIMEOUT_FIRST_TOKEN,
    Outcome.TIMEOUT_BETWEEN_TOKENS,
    Outcome.TIMEOUT_TOTAL,
    Outcome.CENSORED,
]
"""Ends that say "it would have taken longer": they count against a latency limit that they outwaited."""

Flags = NDArray[np.bool_]


def clauses(slo: Slo, samples: dict[str, Sample], due: pd.DataFrame, loop: Loop) -> list[Clause]:
    """Every clause of the SLO on one level; `due` are the rows due in its hold."""
    failed = int((due["outcome"] != Outcome.OK).sum())
    judged = []
    for limit in metrics.limits(slo):
        sample = samples[limit.metric]
        evidence = verdict.Evidence(
            spread=sample.spread,
            within=sample.tally.share_upto(limit.ms * sample.per_ms),
            late=int(late(due, limit, loop).sum()),
            failed=failed,
        )
        judged.append(verdict.latency_clause(limit, evidence))
    if slo.error_share is not None:
        judged.append(verdict.error_clause(slo.error_share, metrics.share(failed, len(due))))
    if slo.tps_per_user_min is not None:
        judged.append(verdict.speed_clause(slo.tps_per_user_min, samples["tpot_ms"].spread))
    return judged


def late(due: pd.DataFrame, limit: Limit, loop: Loop) -> Flags:
    """Requests without a latency that are known to have waited longer than a TTFT or E2E limit."""
    if limit.metric not in {"ttft_ms", "e2e_ms"}:
        return np.zeros(len(due), dtype=bool)
    first, end = due["first"].to_numpy(), due["end"].to_numpy()
    until = np.where(np.isnan(first), end, first) if limit.metric == "ttft_ms" else end
    waited = until - (due["start"].to_numpy() if loop == "closed" else 0.0)
    outwaited: Flags = due["outcome"].isin(UNFINISHED).to_numpy() & (waited > limit.ms * MS)
    return outwaited


def good(frame: Frame, level: int, slo: Slo, samples: dict[str, Sample]) -> Flags:
    """Which of the ok requests of a hold met every clause: `metrics.is_good`, for all of them at once."""
    return met(frame, frame.judged(level), slo, {name: sample.each for name, sample in samples.items()})


def met(frame: Frame, rows: slice, slo: Slo, each: Mapping[str, Floats]) -> Flags:
    """Which of these rows met every clause, were they ok; `each` holds their latencies in ms, NaN where absent."""
    within = np.ones(rows.stop - rows.start, dtype=bool)
    for limit in metrics.request_limits(slo):
        if limit.metric == "itl_ms":
            within &= _smooth(frame, rows, limit)
        else:
            values = each[limit.metric]
            within &= (values <= limit.ms) | (np.isnan(values) if limit.metric == "tpot_ms" else False)
    return within


def _smooth(frame: Frame, rows: slice, limit: Limit) -> Flags:
    """Whose own ITL quantile is within the limit: a share q of its later tokens came at gap / k ≤ limit."""
    smooth = np.ones(rows.stop - rows.start, dtype=bool)
    count = np.diff(frame.edges[rows.start : rows.stop + 1])
    some = np.flatnonzero(count > 0)
    if not len(some):
        return smooth
    gaps, weights = frame.gaps_of(rows.start, rows.stop)
    starts = (np.cumsum(count) - count)[some]
    if weights is None:
        within, whole = np.add.reduceat(gaps <= limit.ms * 1e3, starts, dtype=np.int64), count[some]
    else:
        inside = np.where(gaps <= np.float32(limit.ms * 1e3) * weights, weights, np.float32(0))
        within, whole = (np.add.reduceat(part, starts, dtype=np.float64) for part in (inside, weights))
    smooth[some] = within >= limit.quantile * whole * (1 - 1e-6)
    return smooth
