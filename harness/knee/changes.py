"""The ratio of a metric in two runs to a decision and its words. Pure.

fail only when the whole 95 % interval lies beyond the regression that is let pass, pass only when none of it does.
"""

from msgspec import Struct, structs

from harness.decisions import Change, Decision, Ends
from harness.findings import Level

RATES = ("output_tps", "goodput_rps")
REGRESSION = 0.05


class Ratio(Struct, frozen=True, kw_only=True):
    """new / old of one metric; None where that does not exist."""

    old: float | None
    new: float | None
    point: float | None = None
    ends: Ends | None = None
    """95 % interval; None: too few to say."""


def change(level: Level, metric: str, ratio: Ratio, limit: float = REGRESSION) -> Change:
    """One metric of this level against another run; `limit` is the regression let pass, as a share of the old value."""
    higher = metric in RATES
    decision, text = decided(ratio, higher, limit)
    return Change(
        level=level.index,
        load=level.load,
        axis=level.axis,
        metric=metric,
        better="higher" if higher else "lower",
        old=ratio.old,
        new=ratio.new,
        ratio=ratio.point,
        low=ratio.ends[0] if ratio.ends else None,
        high=ratio.ends[1] if ratio.ends else None,
        limit=limit,
        decision=decision,
        text=text,
    )


def spoilt(each: Change, why: str) -> Change:
    """The same change where it says nothing about the servers."""
    return structs.replace(each, decision="inconclusive", text=f"{each.text}, but {why}")


def decided(ratio: Ratio, higher: bool, limit: float) -> tuple[Decision, str]:
    """What a ratio says; `higher`: more is better."""
    if ratio.old is None or ratio.new is None:
        return "inconclusive", f"not measured in the {'new' if ratio.new is None else 'old'} run"
    if higher and ratio.new == 0 < ratio.old:
        return "fail", "fell to nothing"
    if higher and ratio.old == 0:
        return "pass", "was nothing before"
    if ratio.point is None or ratio.ends is None:
        return "inconclusive", f"too few{_measured(ratio.point)}"
    worse = [1 - end if higher else end - 1 for end in ratio.ends]
    text = said(ratio.point, ratio.ends, higher=higher)
    if min(worse) > limit:
        return "fail", text
    if max(worse) <= limit:
        return "pass", text
    return "inconclusive", f"{text}: a regression of {_percent(limit)} is neither shown nor ruled out"


def said(point: float, ends: Ends, *, higher: bool) -> str:
    """A ratio in words: "slower by 12 % (8 to 17 %)", "no difference beyond ±3 %"."""
    if ends == (1, 1):
        return "no difference"
    if ends[0] <= 1 <= ends[1]:
        return f"no difference beyond ±{_percent(max(ends[1] - 1, 1 - ends[0]))}"
    up, down = ("more", "less") if higher else ("slower", "faster")
    near, far = sorted(abs(end - 1) for end in ends)
    return f"{up if point > 1 else down} by {_percent(abs(point - 1))} ({_number(near)} to {_percent(far)})"


def _measured(point: float | None) -> str:
    return "" if point is None else f"; measured {100 * (point - 1):+.2g} %"


def _percent(share: float) -> str:
    return f"{_number(share)} %"


def _number(share: float) -> str:
    """Two significant digits, no exponent."""
    return f"{float(f'{100 * share:.2g}'):g}"
