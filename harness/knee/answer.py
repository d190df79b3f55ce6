"""The answer of a model-assisted search: a load, an interval, and how far to trust them. Pure."""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from msgspec import Struct

from harness.knee.assisted import Assisted, Standing, is_usable, of
from harness.knee.estimate import ETA_DF, ETA_SD, Estimate
from harness.knee.fallback import Pooled
from harness.knee.plan import CALIBRATIONS, LEAST_VERIFIED, Seen, minutes_spent, requests_spent
from harness.twin.server import Server

OUTLIER = 3.0
"""Standard deviations by which a hold-out must be slower than all verifications together to contradict them."""


class Answer(Struct, frozen=True, kw_only=True):
    """Where the SLO breaks in the long run, over the declared traffic."""

    axis: Literal["users", "rate"]
    method: Literal["twin", "pooled", "band", "none"]
    """twin: corrected by verification. pooled: from misses alone. band: vetoed, the server moved or nothing else could
    tell. none: the search ended before there was anything to say."""
    load: float | None = None
    """Users come whole: the highest number that holds."""
    low: float | None = None
    high: float | None = None
    binding: str = ""
    sure: str = ""
    """How sure, in words, and what spoke against it."""
    etas: list[float] = []
    requests: int
    """Sent, warm-up included."""
    minutes: float
    """Of hold."""
    server: Server | None = None
    """The twin."""
    saturation_rps: float | None = None
    """What the twin can deliver at most."""
    confirmed: bool | None = None
    """Did the hold-out at the lower end agree? None: it was not run, or cannot tell."""
    drift: float | None = None
    refitted: bool = False


def answer(search: Assisted, history: Sequence[Seen]) -> Answer:
    """What the levels seen so far say; at any point of the search, not only at its end."""
    seen = [one for one in history if is_usable(one)]
    axis: Literal["users", "rate"] = "users" if search.plan.loop == "closed" else "rate"
    requests, minutes = requests_spent(history), minutes_spent(history)
    if len(of(seen, "calibrate")) < len(CALIBRATIONS):
        sure = "nothing is known yet: the twin is not calibrated"
        return Answer(axis=axis, method="none", sure=sure, requests=requests, minutes=minutes)
    standing = search.standing(seen)
    method, (load, low, high) = _located(search, seen, standing)
    whole = math.floor if axis == "users" else float
    binding = standing.binding
    return Answer(
        axis=axis,
        method=method,
        load=whole(load),
        low=whole(low),
        high=math.ceil(high) if axis == "users" else high,
        binding=binding.limit.name,
        sure=_sure(method, standing),
        etas=[correction.eta for correction in binding.corrections],
        requests=requests,
        minutes=minutes,
        server=standing.fitted.server,
        saturation_rps=binding.predicted.saturation_rps,
        confirmed=_confirmed(search, seen, standing),
        drift=standing.drift,
        refitted=standing.refitted,
    )


def _located(
    search: Assisted, seen: Sequence[Seen], standing: Standing
) -> tuple[Literal["twin", "pooled", "band"], tuple[float, float, float]]:
    binding = standing.binding
    if not standing.vetoes:
        return "twin", (binding.load, min(one.low for one in standing.estimates), binding.high)
    found = None if standing.moved else search.pooled(seen, standing)
    return ("band", _band(binding)) if found is None else ("pooled", _span(found))


def _span(found: Pooled) -> tuple[float, float, float]:
    return found.load, found.low, found.high


def _band(binding: Estimate) -> tuple[float, float, float]:
    """From the lowest to the highest knee that any single verification stands for, and no less than the interval."""
    knees = [binding.predicted.load * math.exp(-correction.eta) for correction in binding.corrections]
    return binding.load, min([binding.low, *knees]), max([binding.high, *knees])


def _sure(method: str, standing: Standing) -> str:
    count, half = len(standing.binding.corrections), standing.binding.half_width
    reasons = "; ".join(veto.text for veto in standing.vetoes)
    if method == "twin":
        few = "" if count >= LEAST_VERIFIED else ", too few to test the twin"
        return f"95 % interval ±{half:.1%}, from {count} verified levels{few}"
    if method == "pooled":
        return f"95 % interval of pooled misses, widened: {reasons}"
    return f"a band, not an interval: {reasons}"


def _confirmed(search: Assisted, seen: Sequence[Seen], standing: Standing) -> bool | None:
    """The hold-out alone, explained by the twin: True when its own knee is not below its load, False when it is slower
    than chance allows for a level like those verified."""
    held_out, binding = of(seen, "confirm"), standing.binding
    if not held_out or not binding.corrections:
        return None
    found = search.twins.corrected(standing.fitted.server, held_out[-1].observed, binding.limit)
    if found is None:
        return False
    etas = np.array([correction.eta for correction in binding.corrections])
    squares = float(np.sum((etas - etas.mean()) ** 2)) + ETA_DF * ETA_SD**2
    sd = math.sqrt(squares / (len(etas) - 1 + ETA_DF) * (1 + 1 / len(etas)))
    if found.eta - float(etas.mean()) > OUTLIER * sd:
        return False
    return True if binding.predicted.load * math.exp(-found.eta) >= found.load else None
