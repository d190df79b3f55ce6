"""The answer of an assisted search as a finding, with the words for it. Pure."""

from collections.abc import Sequence

from msgspec import structs, to_builtins

from harness.findings import Ledger, Located, Verdict
from harness.knee.answer import Answer
from harness.knee.assisted import Assisted, is_usable
from harness.knee.plan import CALIBRATIONS, Seen
from harness.knee.verdict import load_words
from harness.twin.predict import Predicted

CONFIRMED = {True: "confirmed by a hold-out at the lower end", False: "NOT confirmed by the hold-out", None: ""}


def located(answer: Answer, search: Assisted, history: Sequence[Seen], stopped: str) -> Located:
    """Everything a reader is told."""
    predicted = _predicted(search, history)
    found = Located(
        axis=answer.axis,
        method=answer.method,
        load=answer.load,
        low=answer.low,
        high=answer.high,
        binding=answer.binding,
        sure=answer.sure,
        corrections=answer.etas,
        requests=answer.requests,
        minutes=answer.minutes,
        confirmed=answer.confirmed,
        drift=answer.drift,
        saturation_rps=answer.saturation_rps,
        headroom=_headroom(answer, predicted),
        batch_p50=predicted.batch_p50 if predicted else None,
        batch_p99=predicted.batch_p99 if predicted else None,
        twin={} if answer.server is None else to_builtins(answer.server),
        stopped=stopped,
    )
    return structs.replace(found, text=_text(found))


def located_verdict(found: Located, ledger: Ledger) -> Verdict:
    """A knee was found, or the search could not tell."""
    if not ledger.balanced:
        text = f"{ledger.lost} of {ledger.due} due requests have no record, so no share can be trusted"
        return Verdict(held="unjudged", text=text, exit_code=2)
    if found.load is None:
        return Verdict(held="unjudged", text=found.text, exit_code=2)
    return Verdict(held="held", text=found.text, exit_code=0)


def _predicted(search: Assisted, history: Sequence[Seen]) -> Predicted | None:
    seen = [one for one in history if is_usable(one)]
    if sum(one.why == "calibrate" for one in seen) < len(CALIBRATIONS):
        return None
    return search.standing(seen).binding.predicted


def _headroom(answer: Answer, predicted: Predicted | None) -> float | None:
    """Share of the saturated rate that the knee is: an open loop's own; a closed loop's by the twin's rate there."""
    if predicted is None or not answer.saturation_rps or answer.load is None:
        return None
    rate = answer.load if answer.axis == "rate" else predicted.rps
    return rate / answer.saturation_rps


def _text(found: Located) -> str:
    if found.load is None or found.low is None or found.high is None:
        return f"no knee was located: {found.stopped or found.sure}"
    span = f"{found.low:.3g} to {found.high:.3g}"
    parts = [f"{found.sure.split(';')[0]}: {span}" if found.method == "twin" else f"{found.sure}: {span}"]
    parts += [f"{found.binding} breaks first", CONFIRMED[found.confirmed]]
    return f"knee at {load_words(float(f'{found.load:.3g}'), found.axis)} ({'; '.join(part for part in parts if part)})"
