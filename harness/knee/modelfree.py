"""Which load next, without a twin? `next_probe(history) → Probe | Stop`, pure: no clock, no I/O.

Ladder (as with a twin) → fit (levels around the root of one curve through all misses, `fallback.pooled`) → confirm (a
hold-out at the interval's lower end). For servers that no single engine in virtual time can be: several replicas, a
hosted API, speculation. It believes in nothing but misses, and pays for it in requests.
"""

import math
from collections.abc import Sequence

from harness.knee.climb import broken, climb, ending, of, probe, usable
from harness.knee.fallback import Counted, Pooled, next_load, pooled
from harness.knee.plan import Plan, Seen, Stage, is_affordable, misses
from harness.knee.search import Probe, Stop
from harness.metrics import Limit

CHANCE = 2.0
"""Standard deviations of a miss count, clusters included, that chance may explain."""
LEAST_LEVELS = 4
"""Of the fit: fewer do not show how they scatter."""
FEW_OUTSIDE = 2
"""Levels on either side that the fit must have before it may end: a root that all lie below is extrapolated."""


class ModelFree:
    """A search for one plan. It keeps nothing: same history, same answer."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def next_probe(self, history: Sequence[Seen]) -> Probe | Stop:
        """The next level, or why there is none."""
        step = climb(self.plan, history)
        if step is not None:
            return step
        seen = usable(history)
        fitted, found = of(seen, "fit"), self.located(seen)
        if of(seen, "confirm"):
            return Stop(self._ending(found))
        kept: tuple[Stage, ...] = ("confirm",) if found and self.plan.confirm else ()
        if not self._is_content(fitted, found) and is_affordable(self.plan, seen, "fit", *kept):
            return probe(self.plan, next_load(self._guess(seen, found), len(fitted)), "fit")
        if found and self.plan.confirm and is_affordable(self.plan, seen, "confirm"):
            return probe(self.plan, found[1].low, "confirm")
        return Stop(self._ending(found))

    def located(self, seen: Sequence[Seen]) -> tuple[Limit, Pooled] | None:
        """The clause that breaks first and its knee, from the levels of the fit; None: they cannot say."""
        found = [
            (limit, knee) for limit in self.plan.clauses() if (knee := estimated(limit, of(seen, "fit"))) is not None
        ]
        return min(found, key=lambda pair: pair[1].load, default=None)

    def _is_content(self, fitted: Sequence[Seen], found: tuple[Limit, Pooled] | None) -> bool:
        if found is None or len(fitted) < LEAST_LEVELS:
            return False
        below = sum(one.level.load < found[1].load for one in fitted)
        around = min(below, len(fitted) - below) >= FEW_OUTSIDE
        return around and found[1].half_width <= self.plan.precision

    def _guess(self, seen: Sequence[Seen], found: tuple[Limit, Pooled] | None) -> float:
        """Where the curve has its root; without one, the middle of the bracket that the levels leave."""
        if found is not None:
            return found[1].load
        tried = of(seen, "ladder", "fit")
        breaks = min(broken(self.plan, tried), default=math.inf)
        holds = max((one.level.load for one in tried if one.level.load < breaks), default=breaks / 2)
        return math.sqrt(holds * min(breaks, 2 * holds))

    def _ending(self, found: tuple[Limit, Pooled] | None) -> str:
        if found is None:
            return "budget spent, and no curve goes through the misses"
        return ending(self.plan, found[1].half_width)


def estimated(limit: Limit, seen: Sequence[Seen]) -> Pooled | None:
    """The knee of one clause from the misses of these levels; None: they cannot say."""
    counted = [Counted(one.level.load, *misses(limit, one.observed)) for one in seen]
    return pooled(counted, 1 - limit.quantile)


def confirmed(seen: Sequence[Seen], limit: Limit, found: Pooled) -> bool | None:
    """Did the hold-out at the lower end miss no more than is allowed? None: not run, or chance could have done it."""
    held_out = of(seen, "confirm")
    if not held_out:
        return None
    missed, requests = misses(limit, held_out[-1].observed)
    allowed = (1 - limit.quantile) * requests
    if missed <= allowed:
        return True
    return False if missed > allowed + CHANCE * math.sqrt(found.dispersion * allowed) else None
