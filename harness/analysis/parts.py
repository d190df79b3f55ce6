"""What came out in each of equal parts of a hold: tokens by their stamps, good requests by their due times. Pure."""

import numpy as np

from harness.analysis.flat import Floats, Ints
from harness.analysis.frame import Frame
from harness.analysis.intervals import FINEST
from harness.analysis.judging import met
from harness.analysis.spreads import latencies_ms
from harness.clock import US
from harness.metrics import Loop
from harness.model import Slo, Stage

PIECE_ROWS = 20_000
"""Requests handled at a time: temporary arrays stay at some tens of MB."""


def output_parts(frame: Frame, stage: Stage) -> Floats:
    """Tokens a part, FINEST parts of the hold; `metrics` of all phases count by the stamps of their events."""
    rows, found = frame.level(stage.level), np.zeros(FINEST)
    for first in range(rows.start, rows.stop, PIECE_ROWS):
        found += _tokens(frame, stage, slice(first, min(first + PIECE_ROWS, rows.stop)))
    return found


def good_parts(frame: Frame, stage: Stage, slo: Slo, loop: Loop) -> Floats:
    """Requests due in each part that ended ok and met every clause."""
    judged = frame.judged(stage.level)
    rows = frame.rows.iloc[judged]
    good = met(frame, judged, slo, latencies_ms(rows, loop))
    since = (rows["due_ns"] - stage.hold_at_ns).to_numpy(dtype=np.float64)
    return _counted(stage, since, good.astype(np.float64))


def _tokens(frame: Frame, stage: Stage, part: slice) -> Floats:
    """First events, later events, and answers that were not streamed, which are one event at their end."""
    rows = frame.rows.iloc[part]
    due = (rows["due_ns"] - stage.hold_at_ns).to_numpy(dtype=np.float64)
    streamed = rows["events"].to_numpy() > 0
    begin = due + np.where(streamed, rows["first"].to_numpy(), rows["end"].to_numpy())
    weight = np.where(streamed, rows["first_tokens"].to_numpy(), rows["tokens"].to_numpy())
    gaps, weights = frame.gaps_of(part.start, part.stop)
    count = np.diff(frame.edges[part.start : part.stop + 1])
    later = np.repeat(begin, count) + _within(gaps.astype(np.int64), count) * float(US)
    tokens = np.ones(len(later)) if weights is None else weights.astype(np.float64)
    return _counted(stage, begin, weight) + _counted(stage, later, tokens)


def _within(gaps: Ints, count: Ints) -> Ints:
    """Sums of gaps that begin anew with every row of `count` gaps."""
    upto = np.cumsum(gaps)
    before = np.concatenate([[0], upto])[np.cumsum(count) - count]
    return np.asarray(upto - np.repeat(before, count), dtype=np.int64)


def _counted(stage: Stage, since_ns: Floats, weights: Floats) -> Floats:
    """Weights summed by part of the hold; what lies outside of it, or is NaN, is left out."""
    place = since_ns / (stage.end_at_ns - stage.hold_at_ns) * FINEST
    inside = (place >= 0) & (place < FINEST) & ~np.isnan(weights)
    return np.bincount(place[inside].astype(np.int64), weights[inside], FINEST).astype(np.float64)
