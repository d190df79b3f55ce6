"""A clause on a level to pass, fail or inconclusive: decided only where the interval leaves no doubt. Pure.

`verdict` judges numbers as measured, for a search that must go on; a gate stands between a change and its users, and
says so when the data cannot tell.
"""

from collections.abc import Sequence

from msgspec import Struct, structs

from harness.decisions import EXIT_CODES, Change, Check, Decision, Gate
from harness.findings import Level
from harness.knee.verdict import load_words


class Portion(Struct, frozen=True, kw_only=True):
    """The share of requests beyond a limit, and its 95 % interval; None: too few to say."""

    requests: int
    beyond: float | None = None
    low: float | None = None
    high: float | None = None
    needed: int | None = None
    """Requests that would tell, where these do not; None: a number would not help."""


class Asked(Struct, frozen=True, kw_only=True):
    """One clause, whatever its kind: at most `allowed` of all may lie beyond `limit`."""

    name: str
    limit: float
    allowed: float
    of: str = "requests"
    """What the shares are of: requests, or tokens."""


def check(asked: Asked, level: Level, portion: Portion) -> Check:
    """One clause on one level. A pass also needs a client that kept up and a level that had settled."""
    value = next((clause.value for clause in level.clauses if clause.name == asked.name), None)
    by_share = decided(asked, portion)
    decision, why = _of_level(level, by_share)
    more_would_tell = decision == "inconclusive" and why == by_share[1]
    needed = portion.needed if more_would_tell else None
    return Check(
        level=level.index,
        load=level.load,
        axis=level.axis,
        hold_s=level.hold_s,
        clause=asked.name,
        limit=asked.limit,
        value=value,
        requests=portion.requests,
        beyond=portion.beyond,
        allowed=asked.allowed,
        low=portion.low,
        high=portion.high,
        decision=decision,
        why=why,
        needed_requests=needed,
        needed_minutes=None if needed is None or not level.due else needed * level.hold_s / level.due / 60,
    )


def _of_level(level: Level, by_share: tuple[Decision, str]) -> tuple[Decision, str]:
    """What is left of a decision by requests on a level like this."""
    if level.client.limited:
        return "inconclusive", f"the client was the limit: {'; '.join(level.client.reasons)}"
    if not level.due:
        return "inconclusive", "no request was due in the hold"
    if not level.outcomes.get("ok"):
        return "fail", "no request succeeded"
    decision, why = by_share
    if decision == "pass" and not level.settled:
        return "inconclusive", f"{why}, but the level had not settled: {level.settling}"
    return decision, why


def decided(asked: Asked, portion: Portion) -> tuple[Decision, str]:
    """What the share beyond the limit says, and in words why; level and client aside."""
    if portion.beyond is None:
        return "inconclusive", "nothing was measured that it could be decided from"
    said = f"{_percent(portion.beyond)} of {portion.requests:,} requests"
    if asked.of != "requests":
        said = f"{_percent(portion.beyond)} of the {asked.of} of {portion.requests:,} requests"
    said = f"{said} {'failed' if asked.name == 'error_share' else 'lie beyond the limit'}"
    if asked.allowed == 0:  # no interval of a share ever excludes 0 from above
        return ("fail", f"{said}, none may") if portion.beyond > 0 else ("pass", f"{said}, none may")
    may = f"{_percent(asked.allowed)} may"
    if portion.low is None or portion.high is None:
        return "inconclusive", f"{said}, {may}: too few to say how sure that is{_remedy(portion)}"
    said = f"{said} (95 %: {_percent(portion.low)} to {_percent(portion.high)}), {may}"
    if portion.high <= asked.allowed:
        return "pass", said
    if portion.low > asked.allowed:
        return "fail", said
    return "inconclusive", f"{said}{_remedy(portion)}"


def _remedy(portion: Portion) -> str:
    if portion.needed is None:
        return ": this load lies at the limit, and no longer run would tell on which side"
    return f": about {_rounded(portion.needed):,} requests would tell"


def _rounded(count: int) -> int:
    """Two significant digits: it is an estimate."""
    return int(float(f"{count:.2g}"))


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.995 or share == 1 else f"{100 * share:.4g} %"


def decision_of(decisions: Sequence[Decision]) -> Decision:
    """One for all: any fail fails, else anything open leaves it open. Nothing at all is open."""
    if "fail" in decisions:
        return "fail"
    return "inconclusive" if not decisions or "inconclusive" in decisions else "pass"


def said(gate: Sequence[Check | Change]) -> str:
    """Why all of these together pass, fail or stay open: the first that decides it, and how many do."""
    whole = decision_of([each.decision for each in gate])
    deciding = [each for each in gate if each.decision == whole]
    if whole == "pass" or not deciding:
        return f"all {len(gate)} checks passed" if gate else "nothing was there to check"
    first = deciding[0]
    name, why = (first.clause, first.why) if isinstance(first, Check) else (first.metric, first.text)
    count = f"{len(deciding)} of {len(gate)} checks {'failed' if whole == 'fail' else 'could not be decided'}"
    return f"{count}; {name} at {load_words(first.load, first.axis)}: {why}"


def unsure(gate: Gate, why: str) -> Gate:
    """The same gate where something speaks against trusting any of it: a pass becomes inconclusive, a fail stays."""
    decision: Decision = "inconclusive" if gate.decision == "pass" else gate.decision
    return structs.replace(
        gate,
        notes=[*gate.notes, why],
        decision=decision,
        text=why if gate.decision == "pass" else gate.text,
        exit_code=EXIT_CODES[decision],
    )
