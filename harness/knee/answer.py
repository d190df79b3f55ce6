"""The answer of a model-assisted search: a load, an interval, and how far to trust them. Pure."""

import math
from collections.abc import Sequence
from typing import Literal

from msgspec import structs, to_builtins

from harness.findings import Ledger, Located, Verdict
from harness.knee.assisted import Assisted, Standing
from harness.knee.bracket import Axis, axis_of
from harness.knee.climb import counted_bracket, of, usable
from harness.knee.estimate import Estimate
from harness.knee.fallback import Pooled
from harness.knee.modelfree import ModelFree, confirmed
from harness.knee.plan import CALIBRATIONS, LEAST_VERIFIED, Seen, minutes_spent, requests_spent
from harness.knee.verdict import load_words, unbalanced
from harness.model import Json
from harness.twin.fit import Fitted

CONFIRMED = {True: "confirmed by a hold-out at the lower end", False: "NOT confirmed by the hold-out", None: ""}
WIDEST = math.log(2)
"""A knee that pooled misses know to a factor of two on either side is better said by the bracket."""
OUTLIER = 3.0
"""Standard deviations by which a hold-out must be slower than all verifications together to contradict them."""


def answer(search: Assisted | ModelFree, history: Sequence[Seen], stopped: str = "") -> Located:
    """What the levels seen so far say; at any point of the search, not only at its end. `stopped`: why it ended."""
    found = _of_misses(search, history) if isinstance(search, ModelFree) else _found(search, history)
    found = structs.replace(found, requests=requests_spent(history), minutes=minutes_spent(history), stopped=stopped)
    return structs.replace(found, text=_text(found))


def located_verdict(found: Located, ledger: Ledger) -> Verdict:
    """A knee was found, or the search could not tell."""
    if not ledger.balanced:
        return Verdict(held="unjudged", text=unbalanced(ledger), exit_code=2)
    if found.load is None:
        return Verdict(held="unjudged", text=found.text, exit_code=2)
    return Verdict(held="held", text=found.text, exit_code=0)


def _of_misses(search: ModelFree, history: Sequence[Seen]) -> Located:
    seen, axis = usable(history), axis_of(search.plan.loop)
    located = search.located(seen)
    if located is None:
        return Located(axis=axis, method="none", sure="no curve goes through the misses yet")
    limit, found = located
    load, low, high = _whole(axis, _span(found, seen))
    return Located(
        axis=axis,
        method="pooled",
        load=load,
        low=low,
        high=high,
        binding=limit.name,
        sure=f"95 % interval of pooled misses ±{found.half_width:.1%}, from {len(of(seen, 'fit'))} levels",
        confirmed=confirmed(seen, limit, found),
    )


def _found(search: Assisted, history: Sequence[Seen]) -> Located:
    seen, axis = usable(history), axis_of(search.plan.loop)
    if len(of(seen, "calibrate")) < len(CALIBRATIONS):
        return Located(axis=axis, method="none", sure="nothing is known yet: the twin is not calibrated")
    standing = search.standing(seen)
    method, span = _located(search, seen, standing)
    load, low, high = _whole(axis, span)
    binding = standing.binding
    predicted = binding.predicted
    rate = load if axis == "rate" else predicted.rps
    return Located(
        axis=axis,
        method=method,
        load=load,
        low=low,
        high=high,
        binding=binding.limit.name,
        sure=_sure(method, standing),
        corrections=[correction.eta for correction in binding.corrections],
        confirmed=_confirmed(search, seen, standing),
        drift=standing.drift,
        saturation_rps=predicted.saturation_rps,
        headroom=rate / predicted.saturation_rps if predicted.saturation_rps else None,
        batch_p50=predicted.batch_p50,
        batch_p99=predicted.batch_p99,
        twin=to_builtins(standing.fitted.server),
        scatter=_scatter(standing.fitted),
    )


def _scatter(fitted: Fitted) -> dict[str, Json]:
    """To digits finer than a residual, or its chance, is known."""
    found: dict[str, Json] = to_builtins(fitted.scatter)
    if fitted.scatter.tpot is not None:
        rows = [[round(each, 4) for each in row] for row in fitted.scatter.tpot.residuals]
        found["tpot"] = {**to_builtins(fitted.scatter.tpot), "residuals": rows}
    if fitted.scatter.itl is not None:
        chances = [round(each, 7) for each in fitted.scatter.itl.chances]
        found["itl"] = {**to_builtins(fitted.scatter.itl), "chances": chances}
    return found


def _located(
    search: Assisted, seen: Sequence[Seen], standing: Standing
) -> tuple[Literal["twin", "pooled", "band"], tuple[float, float, float]]:
    binding = standing.binding
    if not standing.vetoes:
        return "twin", (binding.load, min(one.low for one in standing.estimates), binding.high)
    if standing.moved:
        return "band", _band(binding)
    found, (holds, breaks) = search.pooled(seen, standing), counted_bracket(binding.limit, seen)
    if (found is None or found.half_width > WIDEST) and 0 < holds < breaks < math.inf:
        return "band", (math.sqrt(holds * breaks), holds, breaks)
    return ("band", _band(binding)) if found is None else ("pooled", _span(found, seen))


def _whole(axis: Axis, span: tuple[float, float, float]) -> tuple[float, float, float]:
    """Load, low and high as they are said: users come whole, the interval outwards."""
    load, low, high = span
    return span if axis == "rate" else (math.floor(load), math.floor(low), math.ceil(high))


def _span(found: Pooled, seen: Sequence[Seen]) -> tuple[float, float, float]:
    """No further than was measured: where misses hardly grow with the load, their curve leads anywhere."""
    loads = [found.load, *(one.level.load for one in seen)]
    return found.load, max(found.low, min(loads)), min(found.high, max(loads))


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
    found = search.twins.corrected(standing.fitted, held_out[-1].observed, binding.limit)
    if found is None:
        return False
    etas = binding.etas
    sd = math.sqrt(binding.eta_variance * (1 + 1 / len(etas)))
    if found.eta - sum(etas) / len(etas) > OUTLIER * sd:
        return False
    return True if binding.predicted.load * math.exp(-found.eta) >= found.load else None


def _text(found: Located) -> str:
    if found.load is None or found.low is None or found.high is None:
        return f"no knee was located: {found.stopped or found.sure}"
    span = f"{found.low:.3g} to {found.high:.3g}"
    parts = [f"{found.sure.split(';')[0]}: {span}" if found.method == "twin" else f"{found.sure}: {span}"]
    parts += [f"{found.binding} breaks first", CONFIRMED[found.confirmed]]
    return f"knee at {load_words(float(f'{found.load:.3g}'), found.axis)} ({'; '.join(part for part in parts if part)})"
