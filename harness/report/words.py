"""Numbers to words: three significant digits, units, and honest gaps. No clock, no I/O."""

import math
from typing import Literal

from harness.findings import Held, Spread
from harness.model import Choice, Exponential, Fixed, Length, LogNormal, Quantiles, Slo, Uniform

ABSENT = "–"
"""Stands where nothing was measured."""
TOO_FEW = "too few"
"""Stands where something was measured, but not often enough to say this."""
UNSURE = "†"
"""Follows a quantile that has no interval."""

Axis = Literal["users", "rate"]
UNITS: dict[Axis, str] = {"users": "users", "rate": "requests/s"}
HELD: dict[Held, str] = {"held": "held", "broken": "broken", "unjudged": "unjudged"}


def number(value: float | None) -> str:
    """Three significant digits without an exponent: 0.0512, 50.1, 1230. None and NaN: a dash."""
    if value is None or not math.isfinite(value):
        return ABSENT
    if value == 0:
        return "0"
    if abs(value) < 0.001:
        return "~0"
    rounded = float(f"{value:.3g}")
    decimals = max(0, 2 - math.floor(math.log10(abs(rounded))))
    return f"{rounded:.{decimals}f}"


def scaled(value: float | None) -> str:
    """A rate or count in at most six characters: 9870, 12.3k, 4.56M."""
    if value is None or not math.isfinite(value) or abs(value) < 10_000:
        return number(value)
    millions = abs(value) >= 999_500
    return f"{number(value / (1e6 if millions else 1e3))}{'M' if millions else 'k'}"


def count(value: int) -> str:
    """A whole number, exact, thousands set apart."""
    return f"{value:,}"


def ms(value_ms: float | None) -> str:
    """Milliseconds without the unit; from 100 s on, seconds with it, so that no table column runs away."""
    if value_ms is None or abs(value_ms) < 100_000:
        return number(value_ms)
    return f"{number(value_ms / 1000)} s"


def duration(value_ms: float | None) -> str:
    """Milliseconds with the unit that reads best: 50.1 ms, 1.23 s."""
    if value_ms is None or not math.isfinite(value_ms):
        return ABSENT
    return f"{number(value_ms)} ms" if abs(value_ms) < 999.5 else f"{number(value_ms / 1000)} s"


def percent(share: float | None) -> str:
    """A share in percent, without the sign. Only a whole share reads 100 and only none reads 0."""
    if share is None or not math.isfinite(share):
        return ABSENT
    if share in (0, 1):
        return str(round(100 * share))
    if share < 0.0001:
        return "<0.01"
    hundredths = math.floor(10_000 * share + 1e-6) if share > 0.99 else round(10_000 * share)
    return f"{min(hundredths, 9_999) / 100:.{2 if share > 0.99 or share < 0.01 else 1}f}"


def load(value: float) -> str:
    """A load as it was asked for: 64, 4.25."""
    return f"{value:.0f}" if value == int(value) or value >= 1000 else f"{value:.4g}"


def load_of(value: float, axis: Axis) -> str:
    """A load with its unit: 64 users, 4.25 requests/s."""
    return f"{load(value)} {'user' if axis == 'users' and value == 1 else UNITS[axis]}"


def value_of(spread: Spread | None, name: str) -> float | None:
    """The named number of a spread (`p50` … `p99`, `mean`, `max`); None where there is none."""
    value: float | None = getattr(spread, name) if spread is not None else None
    return value


def quantile(spread: Spread | None, name: str) -> str:
    """A quantile in ms, marked when it has no interval; `too few` is never replaced by a number."""
    if spread is None or spread.n == 0:
        return ABSENT
    value = value_of(spread, name)
    if value is None:
        return TOO_FEW
    return ms(value) + ("" if spread.interval.get(name) else UNSURE)


def interval(spread: Spread | None, name: str) -> str:
    """The 95 % interval of a quantile, in ms."""
    if spread is None or spread.n == 0:
        return ABSENT
    bounds = spread.interval.get(name)
    return f"{ms(bounds[0])} … {ms(bounds[1])}" if bounds else TOO_FEW


def length(tokens: Length) -> str:
    """A distribution of lengths in a few words."""
    match tokens:
        case Fixed():
            return f"{tokens.tokens}"
        case Uniform():
            return f"{tokens.min} to {tokens.max}, uniform"
        case LogNormal():
            return f"log-normal, median {number(tokens.median)}, σ {number(tokens.sigma)}"
        case Exponential():
            return f"exponential, mean {number(tokens.mean)}"
        case Quantiles():
            return f"empirical, {tokens.tokens[0]} to {tokens.tokens[-1]}" if tokens.tokens else "empirical"
        case Choice():
            return "one of " + ", ".join(str(each) for each in tokens.tokens)


def clause_label(name: str) -> str:
    """A clause name of `Slo` as a reader says it, `ttft_p99_ms` as TTFT P99; anything else is left as it is."""
    fixed = {"error_share": "error share", "tps_per_user_min": "tokens/s per user"}
    if name not in Slo.__struct_fields__:
        return name
    return fixed.get(name) or name.removesuffix("_ms").replace("_", " ").upper()


def clause_value(name: str, value: float | None) -> str:
    """A clause's value or limit in its own unit."""
    if name == "error_share":
        return ABSENT if value is None else f"{percent(value)} %"
    return duration(value) if name.endswith("_ms") else number(value)


def clause_limit(name: str, limit: float) -> str:
    """A clause's limit with its direction, as it was written in the scenario: ≤ 500 ms, ≥ 20."""
    if name == "error_share":
        return f"≤ {100 * limit:g} %"
    return f"≤ {limit:g} ms" if name.endswith("_ms") else f"≥ {limit:g}"
