"""Stamps to numbers: one formula per metric, written once. Pure: no clock, no I/O.

Per request: `due` the planned start, `start` the first byte handed to the kernel, `c_j` the arrival of token event j,
which carries `k_j` tokens, `n` the number of tokens, `end` the end of the stream, `origin` what a user's wait is
counted from. Every formula takes plain numbers or numpy arrays alike; what did not happen is None in the first case
and NaN in the second. Times are ns unless a name says otherwise.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar, overload

import numpy as np
from msgspec import Struct, structs
from numpy.typing import NDArray

from harness.model import Outcome, Record, Slo

Array = NDArray[np.float64]
Number = TypeVar("Number", float, NDArray[np.float64])
Loop = Literal["closed", "open"]

QUANTILES = (0.5, 0.9, 0.95, 0.99)
FEW_FOR_P99 = 368
"""Least n for which a two-sided 95 % order-statistic interval of a P99 exists: 0.99^n < 0.025."""


def origin_ns(due_ns: int, start_ns: int | None, loop: Loop) -> int | None:
    """What latencies count from: due in the open loop, start in the closed loop (None: never started)."""
    return due_ns if loop == "open" else start_ns


def lag_ns(start_ns: Number, due_ns: Number) -> Number:
    """start − due: how late the load generator itself was."""
    return start_ns - due_ns


def ttft_ns(first_ns: Number, origin_ns: Number) -> Number:
    """c_1 − origin: time to first token, reasoning and tool arguments included."""
    return first_ns - origin_ns


def ttfat_ns(answer_ns: Number, origin_ns: Number) -> Number:
    """First answer event − origin: equals ttft when nothing but the answer is streamed."""
    return answer_ns - origin_ns


def ttfb_ns(first_byte_ns: Number, start_ns: Number) -> Number:
    """First response byte − start."""
    return first_byte_ns - start_ns


def e2e_ns(last_ns: Number, origin_ns: Number) -> Number:
    """c_last − origin; for an answer that is not streamed, end − origin."""
    return last_ns - origin_ns


def gaps_ns(at_ns: Sequence[int]) -> NDArray[np.int64]:
    """c_j − c_{j−1} for j ≥ 2: the raw frame gaps."""
    at = np.asarray(at_ns, dtype=np.int64)
    return at[1:] - at[:-1]


def itl(gap: Number, tokens: Number) -> Number:
    """gap / k_j, in the unit of the gap. Such a value counts k_j times in every mean and quantile."""
    return gap / tokens


@overload
def tpot_ns(span_ns: float, tokens: float, first_tokens: float) -> float | None: ...
@overload
def tpot_ns(span_ns: Array, tokens: Array, first_tokens: Array) -> Array: ...
def tpot_ns(span_ns: Any, tokens: Any, first_tokens: Any) -> Any:
    """(c_last − c_1) / (n − k_1), where span = c_last − c_1; None (NaN) unless n > k_1."""
    later = tokens - first_tokens
    if isinstance(later, np.ndarray):
        return np.divide(span_ns, later, out=np.full(later.shape, np.nan), where=later > 0)
    return span_ns / later if later > 0 else None


def tokens_of(events: int, k: Sequence[int] | None, reported: int | None) -> int:
    """n: the server's count where it reported at least one token, else Σ k_j (one a frame where frames do not say)."""
    if reported:
        return reported
    return sum(k) if k is not None else events


def tokens_per_event(events: int, k: Sequence[int] | None, reported: int | None) -> Array:
    """k_j of every token event, real-valued where it has to be inferred.

    Frames that state it are believed. Else, if the server reported n ≠ m events: k_1 = 1 and k̄ = (n − 1) / (m − 1) for
    each later event; a single event carries all n. Else, and where n = 1 contradicts m > 1, one token an event.
    """
    if k is not None:
        return np.asarray(k, dtype=np.float64)
    weights = np.ones(events)
    if reported and events == 1:
        weights[0] = reported
    elif reported and reported > 1 and events > 1:
        weights[1:] = (reported - 1) / (events - 1)
    return weights


def first_tokens(events: int, k: Sequence[int] | None, tokens: float) -> float:
    """k_1: as the frame states it, else 1; a single event carries all n, whatever it states."""
    if events == 1:
        return tokens
    return k[0] if k else 1


def stall_free(waits: Sequence[float], first_limit: float, later_limit: float) -> float | None:
    """Share of token deadlines met, slack carried (Etalon's fluidity index); None without a token.

    `waits` are c_1 − origin and then the gaps, all in the unit of the limits. A token early by s leaves the next one s
    more; one late by x misses its own deadline and one more per `later_limit` begun after the first, and slack is 0.
    """
    met = missed = 0
    slack = 0.0
    for index, wait in enumerate(waits):
        slack += (later_limit if index else first_limit) - wait
        if slack >= 0:
            met += 1
        else:
            missed += math.ceil(-slack / later_limit)
            slack = 0.0
    return met / (met + missed) if waits else None


def per_second(count: float, window_s: float) -> float:
    """count / window: request rate, goodput, input and output tokens per second are all this."""
    return count / window_s


def share(count: float, of: float) -> float | None:
    """count / of: attainment = good / all due, error share = not ok / all due. None of nothing."""
    return count / of if of else None


def tps_per_user(tpot_ms: float | None) -> float | None:
    """1 / tpot in tokens a second: the speed one user sees. None where tpot is None or 0."""
    return 1000.0 / tpot_ms if tpot_ms else None


def cost_per_million_tokens(price_per_hour: float, output_tps: float) -> float | None:
    """Price per hour / output tokens per hour × 10⁶; None when nothing came out."""
    return price_per_hour / (output_tps * 3600.0) * 1e6 if output_tps > 0 else None


class Limit(Struct, frozen=True, kw_only=True):
    """One latency clause of an SLO: this quantile of this metric is at most so many ms."""

    name: str
    metric: str
    quantile: float
    ms: float


def limits(slo: Slo) -> list[Limit]:
    """The latency clauses that are given, in the order of the SLO; `tps_per_user_min` is not among them."""
    given = ((name, value) for name, value in structs.asdict(slo).items() if value is not None and name.endswith("_ms"))
    return [
        Limit(name=name, metric=f"{name.split('_')[0]}_ms", quantile=int(name.split("_p")[1][:2]) / 100, ms=value)
        for name, value in given
    ]


def request_limits(slo: Slo) -> list[Limit]:
    """What one request must meet to count as good: per metric the clause of the highest quantile.

    That is the promise made for the most requests; a P50 limit beside a P99 limit is not meant for each request.
    `tps_per_user_min` counts as a limit on the median TPOT.
    """
    clauses = limits(slo)
    if slo.tps_per_user_min is not None:
        tpot_ms = 1000.0 / slo.tps_per_user_min
        clauses.append(Limit(name="tps_per_user_min", metric="tpot_ms", quantile=0.5, ms=tpot_ms))
    highest: dict[str, Limit] = {}
    for clause in sorted(clauses, key=lambda clause: (clause.quantile, -clause.ms)):
        highest[clause.metric] = clause
    return list(highest.values())


def is_good(ok: bool, values: Mapping[str, float | None], clauses: Sequence[Limit]) -> bool:
    """The goodput predicate: ended ok and met every clause.

    A request of one token has no TPOT and no ITL and passes those clauses; a missing TTFT or E2E is a miss. For
    `itl_ms` the value is the request's own quantile of its token-weighted ITL.
    """
    return ok and all(_meets(values.get(clause.metric), clause) for clause in clauses)


def _meets(value: float | None, clause: Limit) -> bool:
    return clause.metric in {"tpot_ms", "itl_ms"} if value is None else value <= clause.ms


class Measures(Struct, frozen=True, kw_only=True):
    """The metrics of one request, in ns; None where the metric does not exist for it."""

    lag_ns: int | None = None
    ttft_ns: int | None = None
    ttfat_ns: int | None = None
    ttfb_ns: int | None = None
    e2e_ns: int | None = None
    tpot_ns: float | None = None
    worst_gap_ns: int | None = None
    tokens: int = 0


def measures(record: Record, loop: Loop) -> Measures:
    """Every metric of one record, whatever its outcome. Only those of outcome ok may reach a latency percentile."""
    start, origin = record.start_ns, origin_ns(record.due_ns, record.start_ns, loop)
    if start is None or origin is None:
        return Measures()
    lag = lag_ns(start, record.due_ns)
    ttfb = None if record.first_byte_ns is None else ttfb_ns(record.first_byte_ns, start)
    line, reported = record.timeline, record.usage.completion_tokens
    tokens = tokens_of(len(line.at_ns), line.k, reported)
    if not line.at_ns:
        whole = record.end_ns if record.outcome is Outcome.OK else None
        e2e = None if whole is None else e2e_ns(whole, origin)
        return Measures(lag_ns=int(lag), ttfb_ns=_int(ttfb), e2e_ns=_int(e2e), tokens=tokens)
    first, last = line.at_ns[0], line.at_ns[-1]
    answer = None if line.first_answer is None else ttfat_ns(line.at_ns[line.first_answer], origin)
    return Measures(
        lag_ns=int(lag),
        ttft_ns=int(ttft_ns(first, origin)),
        ttfat_ns=_int(answer),
        ttfb_ns=_int(ttfb),
        e2e_ns=int(e2e_ns(last, origin)),
        tpot_ns=tpot_ns(last - first, tokens, first_tokens(len(line.at_ns), line.k, tokens)),
        worst_gap_ns=int(gaps_ns(line.at_ns).max()) if len(line.at_ns) > 1 else None,
        tokens=tokens,
    )


def _int(value: float | None) -> int | None:
    return None if value is None else int(value)
