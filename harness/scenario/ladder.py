"""The levels that a load plans, written out or climbed. No clock, no I/O."""

import math

from harness.model import Ladder, Load


def levels(load: Load) -> list[float]:
    """Planned levels in order. A ladder is expanded, `to` included; in closed loop to distinct whole users."""
    if load.ladder is None:
        return list(load.levels or [])
    planned, step = [], load.ladder.from_
    # A step that misses `to` by rounding alone would otherwise stand beside it as a level of its own.
    while step < load.ladder.to * (1 - 1e-9):
        planned.append(step)
        step *= load.ladder.factor
    planned.append(load.ladder.to)
    return list(dict.fromkeys(float(round(step)) for step in planned)) if load.loop == "closed" else planned


def rungs(ladder: Ladder) -> int:
    """About how many levels it has; counted without climbing, which near factor 1 would take for ever."""
    return 1 + math.ceil((math.log(ladder.to) - math.log(ladder.from_)) / math.log(ladder.factor))
