"""What saturation laws say of a run, in words and as a curve. No clock, no I/O."""

from harness.findings import Laws, Level, Report
from harness.report import words
from harness.report.figures import PURPLE, Key, Plot
from harness.report.sentences import by_load

SHOWN = (
    "Shown, and deciding nothing: no level, knee, verdict or exit code depends on a saturation law. "
    "The laws know no SLO, and they move with the loads that were measured."
)
STEADY = 0.05
"""How far from 1 Little's ratio may be before a level is named."""
CURVE_STEPS = 60
FIT = Key("USL fitted to answered", PURPLE, "thin")


def lines(report: Report) -> list[str]:
    """Every law in a sentence: its numbers, or why it has none."""
    if report.laws is None:
        return []
    return [*fitted_lines(report.laws, report), *little_lines(by_load(report.levels))]


def fitted_lines(laws: Laws, report: Report) -> list[str]:
    """USL and Kneedle; in one line where neither could be fitted for the same reason."""
    why = laws.missing.get("usl", "")
    if why and why == laws.missing.get("kneedle"):
        return [f"USL and Kneedle: not fitted: {why}."]
    over = f"over the {len(laws.levels)} of {len(report.levels)} levels that settled with the client out of the way"
    pausing = ", counting users who pause" if report.header.scenario.load.think_s else ""
    return [f"USL {over}{pausing}: {told(laws)}.", f"{kneedle(laws)}."]


def told(laws: Laws) -> str:
    """The law's coefficients with their meaning, how well it fits, and its peak."""
    law = laws.usl
    if law is None:
        return f"not fitted: {laws.missing['usl']}"
    queues = f"σ = {law.contention:.2g} (the share of work that queues)"
    grows = f"κ = {law.coherence:.2g} (work that every pair of users adds)"
    return f"{queues}, {grows}, off by {law.error:.1%} (RMS); {peak(laws)}"


def brief(report: Report) -> str:
    """All laws in one line; "" where none could be fitted."""
    laws = report.laws
    if laws is None or not laws.levels:
        return ""
    law = laws.usl
    usl = told(laws) if law is None else f"σ = {law.contention:.2g}, κ = {law.coherence:.2g}, {peak(laws)}"
    return f"USL {usl}; {kneedle(laws)}. Shown, deciding nothing."


def peak(laws: Laws) -> str:
    """N*, or why it is not told."""
    return f"no N*: {laws.missing['peak']}" if laws.peak is None else f"peak at N* = {words.number(laws.peak)} users"


def kneedle(laws: Laws) -> str:
    """Where throughput bends most, or that it does not."""
    if laws.kneedle is None:
        return f"Kneedle: no knee: {laws.missing['kneedle']}"
    return f"Kneedle: throughput bends most at {words.load_of(laws.kneedle, 'users')}"


def little_lines(levels: list[Level]) -> list[str]:
    """Whether the mean number in flight is arrival rate × mean time in system, and at which levels it is not."""
    ratios = [(level, level.little) for level in levels if level.little is not None]
    if not ratios:
        return []
    furthest, ratio = max(ratios, key=lambda pair: abs(pair[1] - 1))
    law = "Little's law (mean in flight = arrival rate × mean time in system)"
    off = [words.load(level.load) for level, each in ratios if abs(each - 1) > STEADY]
    if not off:
        return [f"{law}: within {abs(ratio - 1):.1%} at every level."]
    at = f"{', '.join(off)} {words.UNITS[furthest.axis]}"
    worst = f"ratio {words.number(ratio)} at {words.load(furthest.load)}"
    why = "Such a level filled up (below 1), ran empty (above 1), or its hold is short beside the time of one request"
    return [f"{law}: off by more than {STEADY:.0%} at {at} ({worst}). {why}."]


def curve(report: Report) -> list[Plot]:
    """The fitted law between its lightest and its heaviest level: nothing is drawn where nothing was measured."""
    laws = report.laws
    if laws is None or laws.usl is None:
        return []
    fitted = [level.load for level in report.levels if level.index in laws.levels]
    low, high = min(fitted), max(fitted)
    users = [low * (high / low) ** (step / CURVE_STEPS) for step in range(CURVE_STEPS + 1)]
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "x": users,
            "y": [laws.usl.rps(each) for each in users],
            "hoverinfo": "skip",
            "line": {"color": PURPLE, "width": 1.2},
        }
    ]
