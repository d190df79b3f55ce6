"""Which load next? `next_probe(history) → Probe | Stop`, pure: no clock, no I/O.

First form: climb the ladder until a level breaks, then bisect between the highest that held and the lowest that broke.
Levels the client limited, or that could not be judged, are never used as either end.
"""

import math
from collections.abc import Callable, Sequence

from msgspec import Struct

from harness.findings import Level

UNJUDGED_TRIES = 2
"""A level that could not be judged, be it for a neighbour on the client's cores, is measured once more; then the search
gives up."""
ROBBED_TRIES = 5
"""The same where the host gave its CPU time to others: it may be quieter a moment later."""


class Probe(Struct, frozen=True):
    """Measure this load next: users, or requests a second."""

    load: float
    requests: int | None = None
    """So many are wanted in the hold; None: as long as the scenario says."""
    why: str = ""
    """The stage of the search that asks; comes back with what was measured."""


class Stop(Struct, frozen=True):
    """Nothing more to measure, and why."""

    why: str


NextProbe = Callable[[Sequence[Level]], Probe | Stop]


class Grid(Struct, frozen=True, kw_only=True):
    """What loads may be probed."""

    ladder: list[float]
    whole: bool
    """Users come whole; rates do not."""
    precision: float
    """Rates only: the bracket is narrow enough when (breaks − holds) / holds is at most this."""


def listed(loads: Sequence[float]) -> NextProbe:
    """Every planned level once, in order."""

    def next_probe(history: Sequence[Level]) -> Probe | Stop:
        return Probe(loads[len(history)]) if len(history) < len(loads) else Stop("all levels measured")

    return next_probe


def knee(grid: Grid) -> NextProbe:
    """Ladder, then bisection."""

    def next_probe(history: Sequence[Level]) -> Probe | Stop:
        if history and history[-1].held == "unjudged":
            return _again(history)
        holds, breaks = bracket(history)
        if breaks is None:
            above = [load for load in sorted(grid.ladder) if holds is None or load > holds]
            return Probe(above[0]) if above else Stop("the ladder's top held")
        if holds is None:
            return _down(grid, breaks)
        middle = _middle(grid, holds, breaks)
        return Stop("bracket closed") if middle is None else Probe(middle)

    return next_probe


def bracket(history: Sequence[Level]) -> tuple[float | None, float | None]:
    """(highest load that held below every broken one, lowest load that broke); None where there is none."""
    broken = [level.load for level in history if level.held == "broken"]
    breaks = min(broken, default=None)
    held = [level.load for level in history if level.held == "held" and (breaks is None or level.load < breaks)]
    return max(held, default=None), breaks


def _again(history: Sequence[Level]) -> Probe | Stop:
    last = history[-1]
    tries = sum(level.load == last.load for level in history)
    if tries >= tries_of(last):
        return Stop(f"level {last.load:g} could not be judged: {last.why}")
    return Probe(last.load)


def tries_of(level: Level) -> int:
    """How often a level that could not be judged is measured before a search gives up."""
    return ROBBED_TRIES if level.client.robbed else UNJUDGED_TRIES


def _down(grid: Grid, breaks: float) -> Probe | Stop:
    """The first level measured broke already: look below it, down to one user or a hundredth of the lowest rate."""
    lowest = min(grid.ladder)
    if grid.whole:
        return Probe(max(1, breaks // 2)) if breaks > 1 else Stop("breaks at one user already")
    return Probe(rounded(breaks / 2)) if breaks > lowest / 100 else Stop("breaks at every rate tried")


def _middle(grid: Grid, holds: float, breaks: float) -> float | None:
    if grid.whole:
        return (holds + breaks) // 2 if breaks - holds > 1 else None
    if (breaks - holds) / holds <= grid.precision:
        return None
    middle = rounded(math.sqrt(holds * breaks))
    return middle if holds < middle < breaks else None


def rounded(rate: float) -> float:
    """Three significant digits: a rate anybody can type again."""
    return float(f"{rate:.3g}")
