"""What searches with an interval share: the first climb, one level more, the levels of a stage. No clock, no I/O."""

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import bdtrc

from harness.knee.plan import REQUESTS, Plan, Seen, Stage, misses
from harness.knee.search import Probe, Stop, rounded, tries_of
from harness.metrics import Limit

GAIN = 1.05
"""A doubling that brings less throughput has reached the plateau."""
LOWEST = 64
"""The climb down ends at this fraction of the ladder's foot."""
BEYOND_LADDER = 2**12
CLEARLY = 3.0
"""Times as many misses as are allowed, or as few: clusters of them are no luck any more."""
TELLING = 6.0
"""Misses allowed at a level that may be said to hold clearly."""
APART = 1.25
"""A guess may be so far outside of what was counted: the edges of a bracket are themselves no sharper."""
LUCK = 0.05
"""Chance of so many misses at the very knee, below which a level is believed to be beyond it."""


def climb(plan: Plan, history: Sequence[Seen]) -> Probe | Stop | None:
    """The next rung: double until broken or saturated, halve where the foot breaks; None when the knee is behind us.

    At any stage, a level that could not be used is asked for again first.
    """
    if history and not is_usable(history[-1]):
        return _again(history)
    ladder, foot = of(usable(history), "ladder"), min(plan.ladder)
    if not ladder:
        return probe(plan, foot, "ladder")
    breaks = broken(plan, ladder)
    if breaks and len(breaks) < len(ladder):
        return None
    if breaks:
        return _down(plan, min(breaks), foot)
    top = max(one.level.load for one in ladder)
    if is_saturated(ladder):
        return None
    if top >= foot * BEYOND_LADDER:
        return Stop(f"no knee up to {top:g}: every level held")
    return probe(plan, top * 2, "ladder")


def broken(plan: Plan, seen: Sequence[Seen]) -> list[float]:
    """Loads of those of these levels that broke, and not by luck."""
    return [one.level.load for one in seen if _is_broken(plan, one)]


def _is_broken(plan: Plan, one: Seen) -> bool:
    """By more misses than luck brings at the allowed share, or by what a twin does not speak of.

    The P99 of a rung's 150 requests is about its second longest: two long prompts break it far below the knee.
    """
    counted = [(*misses(limit, one.observed), 1 - limit.quantile) for limit in plan.clauses()]
    over = [bdtrc(missed - 1, n, allowed) for missed, n, allowed in counted if missed > allowed * n]
    return one.level.held == "broken" and (not over or min(over) < LUCK)


def counted_bracket(limit: Limit, seen: Sequence[Seen]) -> tuple[float, float]:
    """(highest load that clearly holds one clause, below the lowest that clearly breaks it); 0 and infinity unknown."""
    counted = [(one.level.load, *misses(limit, one.observed)) for one in seen]
    levels = [(load, missed, (1 - limit.quantile) * n) for load, missed, n in counted]
    breaks = min((load for load, missed, allowed in levels if missed >= CLEARLY * allowed > 0), default=math.inf)
    held = [
        load for load, missed, allowed in levels if allowed >= TELLING and CLEARLY * missed <= allowed and load < breaks
    ]
    return max(held, default=0.0), breaks


def inside(guess: float, limit: Limit, seen: Sequence[Seen]) -> float:
    """The guess, or the middle of the bracket where it lies far outside: what was counted weighs more."""
    holds, breaks = counted_bracket(limit, seen)
    if holds / APART <= guess <= breaks * APART:
        return guess
    return math.sqrt((holds or breaks / 2) * (breaks if breaks < math.inf else 2 * holds))


def _down(plan: Plan, lowest: float, foot: float) -> Probe | Stop:
    if plan.loop == "closed" and lowest <= 1:
        return Stop("breaks at one user already")
    if lowest <= foot / LOWEST:
        return Stop(f"breaks at every load tried, down to {lowest:g}")
    return probe(plan, lowest / 2, "ladder")


def probe(plan: Plan, load: float, why: Stage) -> Probe:
    """A level of this stage: whole users, or a rate of three digits; as many requests as the stage takes."""
    at = float(max(1, round(load))) if plan.loop == "closed" else rounded(load)
    return Probe(at, requests=max(REQUESTS[why], round(6 * at) if plan.loop == "closed" else 0), why=why)


def ending(plan: Plan, half_width: float) -> str:
    """Why a search that has an answer ends."""
    if half_width <= plan.precision:
        return f"known to ±{half_width:.1%}"
    return f"budget spent at ±{half_width:.1%}, {plan.precision:.1%} was asked for"


def _again(history: Sequence[Seen]) -> Probe | Stop:
    last = history[-1]
    tries = sum(one.level.load == last.level.load and one.why == last.why for one in history if not is_usable(one))
    if tries >= tries_of(last.level):
        return Stop(f"level {last.level.load:g} could not be used: {last.level.why or 'nothing came back'}")
    return Probe(last.level.load, requests=REQUESTS[last.why], why=last.why)


def of(seen: Sequence[Seen], *stages: Stage) -> list[Seen]:
    """Those of these stages, in order."""
    return [one for one in seen if one.why in stages]


def usable(history: Sequence[Seen]) -> list[Seen]:
    """Levels that say something of the server."""
    return [one for one in history if is_usable(one)]


def is_usable(one: Seen) -> bool:
    """The client kept up, and something came back."""
    return not one.level.client.limited and bool(np.isfinite(one.observed.ttft_s[one.observed.counts]).any())


def is_saturated(ladder: Sequence[Seen]) -> bool:
    """The last doubling brought less than 5 % more requests a second."""
    rungs = sorted(ladder, key=lambda one: one.level.load)
    return len(rungs) > 1 and rungs[-1].level.achieved_rps < GAIN * rungs[-2].level.achieved_rps
