"""What the measured levels say about the knee. No clock, no I/O."""

from collections.abc import Sequence
from typing import Literal

from harness.findings import Knee, Level
from harness.knee.search import bracket
from harness.knee.verdict import load_words

Axis = Literal["users", "rate"]


def axis_of(loop: Literal["closed", "open"]) -> Axis:
    """What a load is in this loop: users, or requests a second."""
    return "users" if loop == "closed" else "rate"


def knee_of(levels: Sequence[Level], axis: Axis) -> Knee:
    """The bracket around the load at which the SLO breaks.

    Never a load that no level passed; never at or above one that failed. A level that held above a broken one is an
    inversion: it is named in the text and used for nothing.
    """
    holds, breaks = bracket(levels)
    holding = _level_at(levels, holds, "held")
    breaking = _level_at(levels, breaks, "broken")
    found: Literal["bracket", "none_up_to", "breaks_at_first", "undecided"]
    if holding is not None and breaking is not None:
        found = "bracket"
    elif breaking is not None:
        found = "breaks_at_first"
    elif holding is not None and levels[-1].held == "held":
        found = "none_up_to"
    else:
        found = "undecided"
    return Knee(
        found=found,
        axis=axis,
        holds=holds,
        breaks=breaks,
        binding=breaking.why if breaking else "",
        holds_level=holding.index if holding else None,
        breaks_level=breaking.index if breaking else None,
        output_tps=holding.output_tps if holding else None,
        goodput_rps=holding.goodput_rps if holding else None,
        running=holding.running if holding else None,
        cost_per_million_output_tokens=holding.cost_per_million_output_tokens if holding else None,
        probes=[level.index for level in levels],
        text=_text(found, levels, axis) + _gap(levels, found, axis) + _inversions(levels, breaks),
    )


def _level_at(levels: Sequence[Level], load: float | None, held: str) -> Level | None:
    """The last level measured there with that result."""
    return next((level for level in reversed(levels) if level.load == load and level.held == held), None)


def _text(found: str, levels: Sequence[Level], axis: Axis) -> str:
    holds, breaks = bracket(levels)
    breaking = _level_at(levels, breaks, "broken")
    held = load_words(holds, axis) if holds is not None else ""
    if breaking is not None:
        broke = f"at {load_words(breaking.load, axis)}: {breaking.why}"
        return f"holds at {held}, breaks {broke}" if found == "bracket" else f"breaks already {broke}"
    if found == "none_up_to":
        return f"no knee up to {held}: every level held"
    why = levels[-1].why if levels else "no level was measured"
    return f"undecided: {why}" + (f"; held up to {held}" if held else "")


def _gap(levels: Sequence[Level], found: str, axis: Axis) -> str:
    """The search ended on a level inside the bracket that could not be judged: say so."""
    if found != "bracket" or levels[-1].held != "unjudged":
        return ""
    return f" ({load_words(levels[-1].load, axis)}, between them, could not be judged: {levels[-1].why})"


def _inversions(levels: Sequence[Level], breaks: float | None) -> str:
    above = [level.load for level in levels if breaks is not None and level.held == "held" and level.load > breaks]
    return f" (not monotone: {', '.join(f'{load:g}' for load in above)} held above it)" if above else ""
