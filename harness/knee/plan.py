"""What a model-assisted search is to find, what it may spend, and what it has seen. Values; no clock, no I/O."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from msgspec import Struct

from harness.findings import Level
from harness.knee.search import Probe
from harness.metrics import Limit
from harness.model import Count, Positive, Slo
from harness.twin.misses import clauses
from harness.twin.observed import Observation
from harness.twin.traffic import Traffic

Stage = Literal["ladder", "calibrate", "verify", "anchor", "confirm", "fallback", "fit"]
REQUESTS: dict[Stage, int] = {
    "ladder": 150,
    "calibrate": 700,
    "verify": 2000,
    "anchor": 500,
    "confirm": 2000,
    "fallback": 2000,
    "fit": 2000,
}
"""Judged requests of one level of each stage."""
CALIBRATIONS = (0.8, 0.95, 1.0)
"""Loads to calibrate at, as shares of what the twin then takes for the knee: far below it a twin extrapolates."""
LEAST_VERIFIED, MOST_VERIFIED = 3, 12
EXPECTED_VERIFIED = 4
LEAST_HOLD_S = 2.0
HEADROOM = 1.5
"""A heavier level may carry this much more than the best one so far."""


class Plan(Struct, frozen=True, kw_only=True):
    """The question, the traffic it is asked for, and the limits of the search."""

    slo: Slo
    traffic: Traffic
    loop: Literal["closed", "open"]
    ladder: list[Positive]
    """The climb begins at its lowest and doubles, beyond its top if need be."""
    max_num_seqs: Count
    max_num_batched_tokens: Count
    seed: int = 1
    precision: Positive = 0.03
    """Half-width of the 95 % interval, relative to the knee, at which the search is content."""
    budget_requests: Count = 15_000
    budget_minutes: Positive | None = None
    confirm: bool = True
    long_run: Count = 200_000
    """Simulated requests behind each prediction."""

    def clauses(self) -> list[Limit]:
        """The latency clauses. Raises ValueError when there is none."""
        return clauses(self.slo)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One level of the search: as judged, as the twin needs it, and why it was run."""

    level: Level
    observed: Observation
    why: Stage
    preemptions: int | None = None
    """As the server's own counter says; None: not known."""


class Cost(Struct, frozen=True, kw_only=True):
    """What a search is expected to spend, said before it begins."""

    requests: int
    minutes: float | None
    """Of load, without pauses between levels; None where no rate is known (users)."""
    text: str


def plan_cost(plan: Plan, guess: float | None = None, *, method: Literal["twin", "fit"] = "twin") -> Cost:
    """Expected requests and minutes if the knee is near `guess` (None: the middle of the ladder), within budget."""
    if method == "fit":
        text = f"up to {plan.budget_requests:,} requests; the more, the narrower the interval"
        return Cost(requests=plan.budget_requests, minutes=None, text=text)
    low, high = min(plan.ladder), max(plan.ladder)
    near = guess or (low * high) ** 0.5
    rungs = _rungs(low, near)
    spent = [(load, REQUESTS["ladder"]) for load in rungs]
    spent += [(near, REQUESTS["calibrate"])] * len(CALIBRATIONS) + [(near, REQUESTS["verify"])] * EXPECTED_VERIFIED
    spent += [(near, REQUESTS["anchor"])] + [(near, REQUESTS["confirm"])] * plan.confirm
    requests = min(plan.budget_requests, sum(count for _, count in spent))
    if plan.loop == "closed":
        return Cost(requests=requests, minutes=None, text=f"about {requests:,} requests; minutes depend on the server")
    minutes = sum(count / load for load, count in spent) / 60
    minutes = min(minutes, plan.budget_minutes or minutes)
    text = f"about {requests:,} requests and {minutes:.0f} min of load if the knee is near {near:.3g} requests/s"
    return Cost(requests=requests, minutes=minutes, text=text)


def _rungs(low: float, knee: float) -> list[float]:
    """Loads of a climb by doubling to the first at or beyond the knee."""
    loads = [low]
    while loads[-1] < knee:
        loads.append(loads[-1] * 2)
    return loads


def requests_spent(history: Sequence[Seen]) -> int:
    """Every request sent, warm-up included."""
    return sum(len(seen.observed.trace) for seen in history)


def minutes_spent(history: Sequence[Seen]) -> float:
    """Minutes of hold; warm-up and drain are not known here."""
    return sum(seen.level.hold_s for seen in history) / 60


def is_affordable(plan: Plan, history: Sequence[Seen], *stages: Stage) -> bool:
    """Would one more level of each of these stages stay within the budget? Warm-up and minutes as they were so far."""
    spent = requests_spent(history)
    judged = sum(int(seen.observed.counts.sum()) for seen in history)
    more = sum(REQUESTS[stage] for stage in stages) * (spent / judged if judged else 1.0)
    if spent + more > plan.budget_requests:
        return False
    if plan.budget_minutes is None or not history:
        return True
    last = history[-1].level
    return minutes_spent(history) + more / max(last.achieved_rps, 1e-9) / 60 <= plan.budget_minutes


def hold_s(probe: Probe, history: Sequence[Seen], asked_s: float, loop: Literal["closed", "open"]) -> float:
    """How long a level must be held for the requests its probe wants; as asked where it wants no number.

    A closed loop makes no more of them than the server answers: at most so many as the best level seen, and a user no
    more than on the nearest lighter one.
    """
    if probe.requests is None:
        return asked_s
    if loop == "open":
        return max(LEAST_HOLD_S, probe.requests / probe.load)
    known = [(seen.level.load, seen.level.achieved_rps) for seen in history if seen.level.achieved_rps > 0]
    if not known:
        return asked_s
    users, rps = max([each for each in known if each[0] <= probe.load] or known[:1])
    expected_rps = min(rps * max(1.0, probe.load / users), max(rate for _, rate in known) * HEADROOM)
    return max(LEAST_HOLD_S, probe.requests / expected_rps)


def failed(history: Sequence[Seen]) -> tuple[int, int]:
    """(requests that did not end ok, requests due) of the holds of these levels."""
    due = sum(seen.level.due for seen in history)
    return due - sum(seen.level.outcomes.get("ok", 0) for seen in history), due


def values_s(metric: str, observed: Observation) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """A metric of every request of a level in seconds, but ITL; NaN where it does not exist."""
    if metric == "ttft_ms":
        return observed.ttft_s
    if metric == "tpot_ms":
        return observed.tpot_s
    later = observed.trace.output_tokens - 1
    return observed.ttft_s + np.where(later > 0, later * observed.tpot_s, 0.0)


def misses(limit: Limit, observed: Observation) -> tuple[float, int]:
    """(judged requests beyond the limit or without a first token, judged requests). One token has no TPOT: no miss.

    For ITL the share of slow tokens stands for as large a share of requests: tokens of a step, and of a request, miss
    together, and say no more than one of them.
    """
    judged = observed.counts
    if limit.metric == "itl_ms":
        requests = int(judged.sum())
        return (observed.gaps.share_beyond(limit.ms / 1e3) if observed.gaps else 0.0) * requests, requests
    beyond = values_s(limit.metric, observed)[judged] > limit.ms / 1e3
    return int(np.sum(beyond | ~np.isfinite(observed.ttft_s[judged]))), int(judged.sum())
