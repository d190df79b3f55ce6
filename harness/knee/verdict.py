"""Numbers against limits: clauses, levels and runs are judged here and nowhere else. Pure.

held, broken or unjudged. A value is judged as measured; where its interval holds the limit the note says so.
"""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from harness.findings import Clause, Client, Held, Knee, Ledger, Level, Spread, Verdict
from harness.metrics import FEW_FOR_P99, Limit

EXIT_CODES: dict[Held, Literal[0, 1, 2]] = {"held": 0, "broken": 1, "unjudged": 2}
NO_CLAUSES = "no SLO clauses"


class Evidence(Struct, frozen=True, kw_only=True):
    """What a latency clause is judged from."""

    spread: Spread
    within: float
    """Share of the spread's values that are ≤ the limit."""
    late: int = 0
    """Requests without a value that are known to have waited longer than the limit: unfinished or timed out."""
    failed: int = 0
    """Requests due that did not end ok, the late ones included."""


def latency_clause(limit: Limit, evidence: Evidence) -> Clause:
    """quantile(metric) ≤ limit, over the ok requests and those known to be late.

    A request that timed out has no TTFT, yet it is known to lie beyond a limit it outwaited: leaving it out would let
    an overloaded server pass on its survivors.
    """
    spread = evidence.spread
    label = f"p{round(limit.quantile * 100)}"
    value = getattr(spread, label)
    if value is None:
        note = f"no {limit.metric.removesuffix('_ms')} was measured"
        return Clause(name=limit.name, limit=limit.ms, value=None, held="unjudged", note=note)
    low, high = spread.interval.get(label) or (None, None)
    enough = evidence.within * spread.n >= limit.quantile * (spread.n + evidence.late) * (1 - 1e-9)
    return Clause(
        name=limit.name,
        limit=limit.ms,
        value=value,
        low=low,
        high=high,
        held="held" if value <= limit.ms and enough else "broken",
        note="; ".join(_latency_notes(limit, evidence, low, high)),
    )


def _latency_notes(limit: Limit, evidence: Evidence, low: float | None, high: float | None) -> list[str]:
    notes = []
    if evidence.late:
        notes.append(f"{evidence.late} requests without a value outwaited the limit and count as beyond it")
    elif evidence.failed:
        notes.append(f"{evidence.failed} requests that failed are not in it")
    if low is not None and high is not None and low <= limit.ms <= high:
        notes.append("the 95 % interval holds the limit")
    if limit.quantile >= 0.99 and evidence.spread.n < FEW_FOR_P99:
        notes.append(f"a P99 of fewer than {FEW_FOR_P99} values")
    return notes


def error_clause(limit: float, error_share: float | None) -> Clause:
    """Share of due requests that did not end ok ≤ limit."""
    held: Held = "unjudged" if error_share is None else "held" if error_share <= limit else "broken"
    note = "no request was due" if error_share is None else ""
    return Clause(name="error_share", limit=limit, value=error_share, held=held, note=note)


def speed_clause(least: float, tpot_ms: Spread) -> Clause:
    """1 / median TPOT ≥ least, in tokens a second."""
    name, slow = "tps_per_user_min", tpot_ms.interval.get("p50")
    if not tpot_ms.p50:
        return Clause(name=name, limit=least, value=None, held="unjudged", note="no tpot was measured")
    value = 1000.0 / tpot_ms.p50
    low, high = (1000.0 / slow[1], 1000.0 / slow[0]) if slow and slow[0] > 0 else (None, None)
    return Clause(name=name, limit=least, value=value, low=low, high=high, held="held" if value >= least else "broken")


def excess(clause: Clause) -> float:
    """How far a clause is exceeded relative to its limit: 1 is at the limit, more is worse."""
    if clause.value is None:
        return 0.0
    better_high = clause.name.endswith("_min")
    over, under = (clause.limit, clause.value) if better_high else (clause.value, clause.limit)
    return over / under if under > 0 else float("inf") if over > 0 else 1.0


def level_held(due: int, succeeded: int, client: Client, clauses: Sequence[Clause]) -> tuple[Held, str]:
    """The judgement of one level and why: the binding clause if broken, what is missing if unjudged."""
    if client.limited:
        return "unjudged", f"client-limited: {'; '.join(client.reasons)}"
    if not due:
        return "unjudged", "no request was due in the hold"
    if not succeeded:
        return "broken", "no request succeeded"
    broken = [clause for clause in clauses if clause.held == "broken"]
    if broken:
        return "broken", said(max(broken, key=excess))
    missing = [f"{clause.name}: {clause.note}" for clause in clauses if clause.held == "unjudged"]
    if missing:
        return "unjudged", "; ".join(missing)
    return "held", "" if clauses else NO_CLAUSES


def said(clause: Clause) -> str:
    """A clause as a short phrase: name, value, relation, limit."""
    if clause.value is None:
        return f"{clause.name}: {clause.note}"
    held = clause.value >= clause.limit if clause.name.endswith("_min") else clause.value <= clause.limit
    sign = ("≥" if held else "<") if clause.name.endswith("_min") else ("≤" if held else ">")
    phrase = f"{clause.name} {clause.value:.4g} {sign} {clause.limit:.4g}"
    return f"{phrase}, but {clause.note}" if held and clause.held == "broken" else phrase


def run_verdict(levels: Sequence[Level], ledger: Ledger, knee: Knee | None = None) -> Verdict:
    """The answer of a run: of its search if it made one, else of all its levels together."""
    held, text = _run_held(levels, ledger, knee)
    return Verdict(held=held, text=text, exit_code=EXIT_CODES[held])


def _run_held(levels: Sequence[Level], ledger: Ledger, knee: Knee | None) -> tuple[Held, str]:
    if not ledger.balanced:
        return "unjudged", unbalanced(ledger)
    if not levels:
        return "unjudged", "no level was measured"
    if knee is not None:
        found: dict[str, Held] = {"bracket": "held", "none_up_to": "held", "breaks_at_first": "broken"}
        return found.get(knee.found, "unjudged"), knee.text
    for held in ("broken", "unjudged"):
        first = next((level for level in levels if level.held == held), None)
        if first is not None:
            return first.held, f"{'SLO broken' if held == 'broken' else 'not judged'} at {load(first)}: {first.why}"
    count = f"{len(levels)} level{'s' if len(levels) > 1 else ''} ({load(levels[0])}"
    upto = f"{count} to {load(levels[-1])})" if len(levels) > 1 else f"{count})"
    if all(not level.clauses for level in levels):
        return "held", f"measured {upto}; {NO_CLAUSES} to judge"
    return "held", f"SLO held at {upto}"


def unbalanced(ledger: Ledger) -> str:
    """Why nothing can be judged of a run that lost requests."""
    return f"{ledger.lost} of {ledger.due} due requests have no record, so no share can be trusted"


def load(level: Level) -> str:
    """The load of a level in words: "8 users", "2.5 requests/s"."""
    return load_words(level.load, level.axis)


def load_words(load: float, axis: Literal["users", "rate"]) -> str:
    """A load with its unit."""
    unit = "requests/s" if axis == "rate" else "user" if load == 1 else "users"
    return f"{load:g} {unit}"
