"""What flowed through a window of time: tokens, requests, requests in flight. Pure.

All instants are ns relative to the start of the window, as floats with NaN for "did not happen"; whatever the outcome
of a request, what it did inside the window counts.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from harness.analysis.flat import Floats
from harness.analysis.frame import Frame
from harness.clock import US, S
from harness.metrics import Loop, per_second, share
from harness.model import Outcome, Phase, Stage

PARTS = 10
"""Equal parts of the hold for which the number in flight is looked at, to see whether it grows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Flow through the hold of one level, per second, and mean numbers of requests in it."""

    output_tps: float
    input_tps: float
    achieved_rps: float
    in_flight: float
    running: float
    time_in_system_s: float | None
    """Mean over requests due in the hold, of all that they stayed, beyond its end too."""
    in_flight_parts: Floats


def rates(frame: Frame, stage: Stage, loop: Loop) -> Rates:
    """Of the requests of a level, of all phases, what fell into its hold."""
    part = frame.level(stage.level)
    rows = frame.rows.iloc[part]
    window = float(stage.end_at_ns - stage.hold_at_ns)
    due = (rows["due_ns"] - stage.hold_at_ns).to_numpy(dtype=np.float64)
    first, last, end = (due + rows[name].to_numpy() for name in ("first", "last", "end"))
    begin = due if loop == "open" else due + rows["start"].to_numpy()
    close = np.where(np.isnan(end), float(stage.drained_by_ns - stage.hold_at_ns), end)
    answered = np.where(rows["events"].to_numpy() > 0, first, end)
    ok = (rows["outcome"] == Outcome.OK).to_numpy()
    reported = rows["usage_prompt_tokens"].to_numpy(dtype=np.float64)
    prompt = np.where(np.isnan(reported), rows["prompt_tokens_asked"].to_numpy(), reported)
    arrived = ok | (rows["events"].to_numpy() > 0)
    held = (rows["phase"] == Phase.HOLD).to_numpy()
    edges = np.linspace(0.0, window, PARTS + 1)
    parts = np.array([_mean_within(begin, close, a, b) for a, b in pairwise(edges)])
    return Rates(
        output_tps=per_second(_tokens_within(frame, part, Span(first, last, end), window), window / S),
        input_tps=per_second(float(prompt[arrived & _inside(answered, window)].sum()), window / S),
        achieved_rps=per_second(float((ok & _inside(end, window)).sum()), window / S),
        in_flight=float(parts.mean()),
        running=_mean_within(first, last, 0.0, window),
        time_in_system_s=share(float(np.nansum((close - begin)[held])) / S, float(held.sum())),
        in_flight_parts=parts,
    )


@dataclass(frozen=True, slots=True)
class Span:
    """First token, last token and end of some requests."""

    first: Floats
    last: Floats
    end: Floats


def _inside(at: Floats, window: float) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return (at >= 0) & (at < window)


def _mean_within(begin: Floats, close: Floats, a: float, b: float) -> float:
    """Mean over [a, b) of the number of intervals [begin, close) that are open; NaN ends are never open."""
    return float(np.nansum(np.clip(np.minimum(close, b) - np.maximum(begin, a), 0.0, None)) / (b - a))


def _tokens_within(frame: Frame, part: slice, span: Span, window: float) -> float:
    """Tokens by the stamps of their events; an answer that was not streamed is one event at its end."""
    rows = frame.rows.iloc[part]
    tokens, streamed = rows["tokens"].to_numpy(dtype=np.float64), rows["events"].to_numpy() > 0
    whole = np.where(streamed, _inside(span.first, window) & _inside(span.last, window), _inside(span.end, window))
    cut = np.flatnonzero(streamed & ~whole & (span.first < window) & (span.last >= 0))
    firsts = rows["first_tokens"].to_numpy()
    total = float(tokens[whole].sum())
    for row in cut:
        gaps, weights = frame.gaps_of(part.start + row, part.start + row + 1)
        at = span.first[row] + np.cumsum(gaps, dtype=np.int64) * US
        inside = _inside(at, window)
        total += float(inside.sum() if weights is None else weights[inside].sum(dtype=np.float64))
        total += float(firsts[row]) if 0 <= span.first[row] < window else 0.0
    return total
