"""Levels to what saturation laws say of them. Shown beside a knee, never deciding one. No clock, no I/O."""

from collections.abc import Sequence
from statistics import fmean

from harness.findings import Laws, Level, Usl
from harness.knee.laws import LEAST_POINTS, Point, kneedle, usl
from harness.knee.verdict import load_words

MOST_ERROR = 0.1
"""Root mean square, relative: a law that is further off than this is not the law of these levels."""
LEAST_LOSS = 0.1
"""Of what one user alone would get, lost at the heaviest load: below it σ and κ are mostly noise, and N* is a guess."""
OPEN = "the loop is open, and both laws are of a fixed number of users"


def laws_of(levels: Sequence[Level]) -> Laws:
    """USL and Kneedle over the levels that tell of the server alone, and in words what could not be had.

    A level that the client limited, that had not settled or that answered nothing enters no fit.
    """
    if any(level.axis == "rate" for level in levels):
        return _nothing(OPEN)
    fair = [level for level in levels if level.settled and not level.client.limited and level.achieved_rps > 0]
    points = throughput(fair)
    if len(points) < LEAST_POINTS:
        return _nothing(
            f"of the {LEAST_POINTS} different loads it takes, {len(points)} settled with the client out of the way"
        )
    law, why_no_law = fitted(points)
    peak, why_no_peak = (None, why_no_law) if law is None else within(law, [users for users, _ in points])
    bend = kneedle(points)
    why_no_bend = "" if bend is not None else f"no bend stands out up to {_users(points[-1][0])}"
    missing = {"usl": why_no_law, "peak": why_no_peak, "kneedle": why_no_bend}
    return Laws(
        levels=[level.index for level in fair],
        usl=law,
        peak=peak,
        kneedle=bend,
        missing={name: why for name, why in missing.items() if why},
    )


def throughput(levels: Sequence[Level]) -> list[Point]:
    """Users and requests answered a second, from light to heavy; of a load measured more than once, the mean."""
    loads = sorted({level.load for level in levels})
    return [(load, fmean(level.achieved_rps for level in levels if level.load == load)) for load in loads]


def fitted(points: Sequence[Point]) -> tuple[Usl | None, str]:
    """The USL of these points, or why they have none."""
    law = usl(points)
    if law is None:
        return None, "no law of this form goes through the levels"
    if law.error > MOST_ERROR:
        return None, f"the closest law of this form is off by {law.error:.0%}"
    return law, ""


def within(law: Usl, users: Sequence[float]) -> tuple[float | None, str]:
    """N* of a law fitted to these loads, in rising order, or why it is no finding."""
    least, most = users[0], users[-1]
    if law.rps(most) > (1 - LEAST_LOSS) * most * law.lone_rps:
        return None, f"no saturation is visible up to {_users(most)}"
    if law.coherence == 0 and law.contention < 1:
        return None, "throughput levels off and never falls (κ = 0)"
    if law.peak is None or law.peak < least:
        return None, "throughput does not grow from the first level on"
    if law.peak > most:
        return None, f"beyond {_users(most)}, the most fitted"
    return law.peak, ""


def _nothing(why: str) -> Laws:
    return Laws(missing=dict.fromkeys(("usl", "peak", "kneedle"), why))


def _users(load: float) -> str:
    return load_words(load, "users")
