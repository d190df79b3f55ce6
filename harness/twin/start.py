"""Where a fit begins: a server read off the levels themselves, without simulating any. Pure.

Two things are linear enough to be regressed on. The time a token took is a step: τ(batch) plus what prompts of others
cost in it, and the mean batch follows from Little's law. And where few are running, the time to first token grows with
the prompt by what a token of prefill costs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from harness.twin.observed import Observation
from harness.twin.server import Server
from harness.twin.trace import Floats

LONELY_S = 1.5
"""Steps a lonely request spends before its first token: half of one under way, and its own."""
LEAST_CONSTANT = 0.05
LEAST_MS = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """One level in a few numbers, as a sequence that decodes sees it: itself, and the others."""

    batch: float
    """1 + mean number of others in its steps."""
    step_s: float
    """Mean step as a decoding token sees it: decode time / tokens after the first, over all requests."""
    prefill_tokens: float
    """Prompt tokens of others computed in a mean step: their rate · mean prompt · step."""
    context: float
    """Mean tokens of context of a decoding sequence."""
    tokens_per_s: float
    """Prompt and output tokens a second: how hard the server works."""


def means(observation: Observation) -> Means | None:
    """None: nobody judged had a second token, all requests came at once, or all tokens of an answer did.

    Others are there by Little's law, with one step of prefill each: all of them in the open loop (Poisson arrivals see
    time averages), one in so many users fewer in the closed loop.
    """
    judged = observation.counts & np.isfinite(observation.tpot_s) & (observation.trace.output_tokens > 1)
    rate = _rate(observation, judged)
    if rate is None:
        return None
    prompts, later = observation.trace.prompt_tokens[judged], observation.trace.output_tokens[judged] - 1
    decode_s = observation.tpot_s[judged] * later
    step_s = float(decode_s.sum() / later.sum())
    if not step_s > 0:
        return None
    users = observation.trace.users
    others = rate * (1 - 1 / users if users else 1.0)
    return Means(
        batch=1 + others * (float(decode_s.mean()) + step_s),
        step_s=step_s,
        prefill_tokens=others * float(prompts.mean()) * step_s,
        context=float(((prompts + later / 2) * later).sum() / later.sum()),
        tokens_per_s=rate * float((prompts + later).mean()),
    )


def _rate(observation: Observation, judged: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> float | None:
    """Requests a second: as they arrived, or users / (mean answer + think) where arrivals follow answers."""
    trace = observation.trace
    if judged.sum() < 2:
        return None
    if trace.arrival_s is not None:
        span_s = float(np.ptp(trace.arrival_s[observation.counts]))
        return (int(observation.counts.sum()) - 1) / span_s if span_s > 0 else None
    e2e_s = observation.ttft_s + observation.tpot_s * (trace.output_tokens - 1)
    return trace.users / (float(np.nanmean(e2e_s[judged])) + trace.think_s)


def starts(observations: Sequence[Observation], *, max_num_seqs: int, max_num_batched_tokens: int) -> list[Server]:
    """A few linear servers to begin with, with a constant and without; which is best is for a simulation to say.

    Raises ValueError when no level has anything to read them off.
    """
    pairs = [(one, level) for one in observations if (level := means(one)) is not None]
    if not pairs:
        raise ValueError("fit: no level with judged requests of two tokens or more: expected one or more such levels")
    levels = [level for _, level in pairs]
    lonely, quiet = min(pairs, key=lambda pair: pair[1].batch)
    per_token_s, floor_s = _first_token(lonely)
    shared_s = _step(levels, None)[2]
    lines = [_step(levels, prefill_s) for prefill_s in sorted({per_token_s, shared_s, (per_token_s + shared_s) / 2})]
    found: list[Server] = []
    for base_s, slope_s, prefill_s in [*lines, _halved(lines[0], quiet.batch)]:
        waits_s = LONELY_S * (base_s + slope_s * quiet.batch)
        found += [
            Server(
                knots=_line(base_s, slope_s, max_num_seqs),
                per_prefill_token_ms=1e3 * prefill_s,
                constant_ms=1e3 * constant_s,
                max_num_seqs=max_num_seqs,
                max_num_batched_tokens=max_num_batched_tokens,
            )
            for constant_s in (0.0, max(floor_s - waits_s, LEAST_CONSTANT * waits_s))
        ]
    return found


def _halved(line: tuple[float, float, float], batch: float) -> tuple[float, float, float]:
    """Half of a step of that batch charged to its sequences: where levels are too alike to tell, that is a start."""
    base_s, slope_s, prefill_s = line
    step_s = base_s + slope_s * batch
    return step_s / 2, step_s / 2 / batch, prefill_s


def _line(base_s: float, slope_s: float, max_num_seqs: int) -> tuple[tuple[int, float], ...]:
    ends = (1, max(2, max_num_seqs))
    first, last = (max(LEAST_MS, 1e3 * (base_s + slope_s * batch)) for batch in ends)
    return ((ends[0], first), (ends[1], last))


def _step(levels: Sequence[Means], prefill_s: float | None) -> tuple[float, float, float]:
    """(base, per sequence, per prefill token) of a step in seconds, relative least squares, none below 0."""
    step_s, batch, prefill = (np.array([getattr(level, name) for level in levels]) for name in _COLUMNS)
    columns = [np.ones_like(batch), batch] + ([prefill] if prefill_s is None else [])
    known_s = 0.0 if prefill_s is None else prefill_s * prefill
    found, _ = nnls(np.stack(columns, axis=1) / step_s[:, None], np.maximum(step_s - known_s, step_s / 10) / step_s)
    return float(found[0]), float(found[1]), float(found[2]) if prefill_s is None else prefill_s


_COLUMNS = ("step_s", "batch", "prefill_tokens")


def _first_token(lonely: Observation) -> tuple[float, float]:
    """(seconds a prompt token, seconds without any) of the lower half of times to first token at a given prompt."""
    judged = lonely.counts & np.isfinite(lonely.ttft_s)
    prompts, ttft_s = lonely.trace.prompt_tokens[judged].astype(np.float64), lonely.ttft_s[judged]
    slope_s, floor_s = _fitted(prompts, ttft_s)
    for _ in range(3):
        low = ttft_s <= floor_s + slope_s * prompts
        if low.sum() < max(10, len(prompts) // 4):
            break
        slope_s, floor_s = _fitted(prompts[low], ttft_s[low])
    return slope_s, floor_s


def _fitted(x: Floats, y: Floats) -> tuple[float, float]:
    found, _ = nnls(np.stack([x, np.ones_like(x)], axis=1) / y[:, None], np.ones_like(y))
    return float(found[0]), float(found[1])
