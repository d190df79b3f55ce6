"""Report to the figures of its page: plain dicts as plotly.js takes them. No clock, no I/O.

Colours of text, grid and axes are left to the page's style sheet, so that one figure serves light, dark and paper.
"""

import math
from typing import Any

from msgspec import Struct

from harness.findings import Knee, Level, Report
from harness.model import Slo
from harness.report import words
from harness.report.sentences import objective

Plot = dict[str, Any]

BLUE, ORANGE, GREEN, GREY, PURPLE = "#3a8fd0", "#dd6b20", "#1f9e78", "#8b929c", "#a566b8"
"""Told apart with any colour vision, and legible on white and on near black."""
INK = "currentColor"
"""Of limits: drawn in the colour of text, which the style sheet knows."""
BAND = "rgba(221, 150, 32, 0.20)"
MANTISSAS = ((1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 4, 5, 6, 7, 8, 9), (1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,))
MOST_TICKS = 7


class Key(Struct, frozen=True):
    """One entry of a legend; `mark` is a class of the style sheet: line, thin, dash, band, dot, hollow."""

    label: str
    color: str
    mark: str = "line"


class Figure(Struct, frozen=True, kw_only=True):
    """One plot of the page, with the words around it."""

    id: str
    title: str
    """What to see."""
    caption: str = ""
    """How to read it."""
    keys: list[Key] = []
    data: list[Plot] = []
    layout: Plot = {}
    height_px: int = 300
    missing: str = ""
    """Why there is nothing to draw; "" when there is."""


HOLLOW = Key("client-limited", GREY, "hollow")
KNEE = Key("knee lies in here", BAND, "band")


def log_ticks(low: float, high: float) -> list[float]:
    """Round values in [low, high] for a logarithmic axis: as many as can be read."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks: list[float] = []
    for mantissas in MANTISSAS:
        rounded = [float(f"{mantissa}e{decade}") for decade in decades for mantissa in mantissas]
        ticks = [value for value in rounded if low <= value <= high]
        if len(ticks) <= MOST_TICKS:
            break
    return ticks


def log_axis(low: float, high: float, title: str) -> Plot:
    """A logarithmic axis over [low, high] ms."""
    ticks = log_ticks(low, high)
    return {
        "type": "log",
        "range": [math.log10(low), math.log10(high)],
        "tickvals": ticks,
        "ticktext": [f"{value / 1000:g} s" if value >= 1000 else f"{value:g} ms" for value in ticks],
        "title": {"text": title},
    }


def load_axis(levels: list[Level], most_ticks: int = 14) -> Plot:
    """A logarithmic axis of load, with ticks at loads that were measured, the heaviest for certain."""
    loads = sorted({level.load for level in levels})
    low, high = loads[0] / 1.2, loads[-1] * 1.2
    apart = (high / low) ** (1 / most_ticks)
    ticks: list[float] = []
    for value in reversed(loads):
        if not ticks or value <= ticks[-1] / apart:
            ticks.append(value)
    return {
        "type": "log",
        "range": [math.log10(low), math.log10(high)],
        "tickvals": ticks,
        "ticktext": [words.load(value) for value in ticks],
        "title": {"text": words.UNITS[levels[0].axis]},
    }


def layout(x: Plot, y: Plot, **more: Any) -> Plot:
    """What every figure shares."""
    clear = "rgba(0,0,0,0)"
    return {
        "xaxis": {"zeroline": False, "fixedrange": True, "automargin": True} | x,
        "yaxis": {"zeroline": False, "fixedrange": True, "automargin": True} | y,
        "margin": {"l": 60, "r": 14, "t": 10, "b": 44},
        "paper_bgcolor": clear,
        "plot_bgcolor": clear,
        "font": {"family": "system-ui, sans-serif", "size": 12},
        "showlegend": False,
        "dragmode": False,
        "hovermode": "closest",
    } | more


def markers(levels: list[Level]) -> list[str]:
    """Full where the server was measured, hollow where the client was in the way."""
    return ["circle-open" if level.client.limited else "circle" for level in levels]


def line(levels: list[Level], y: list[float | None], color: str, said: list[str]) -> Plot:
    """One curve over load; `said` is what a pointer reads at each level."""
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": [level.load for level in levels],
        "y": y,
        "text": said,
        "hovertemplate": "%{text}<extra></extra>",
        "line": {"color": color, "width": 2},
        "marker": {"color": color, "size": 8, "symbol": markers(levels), "line": {"width": 2, "color": color}},
    }


def drawn_knee(report: Report) -> Knee | None:
    """What the band shows: the interval of a search with the twin, else the bracket."""
    found = report.located
    if found is None or found.low is None or found.high is None:
        return report.knee
    return Knee(found="bracket", axis=found.axis, holds=found.low, breaks=found.high)


def knee_band(knee: Knee | None, levels: list[Level]) -> list[Plot]:
    """The band in which the SLO breaks: between the load that held and the load that broke."""
    if knee is None or knee.breaks is None:
        return []
    low = knee.holds if knee.holds is not None else min(level.load for level in levels) / 1.2
    edges = {"x0": low, "x1": knee.breaks, "y0": 0, "y1": 1, "xref": "x", "yref": "paper"}
    return [{"type": "rect", "layer": "below", "fillcolor": BAND, "line": {"width": 0}, **edges}]


def slo_lines(slo: Slo, metric: str) -> dict[str, float]:
    """Limits the SLO sets on a metric: label to ms."""
    prefix = metric.removesuffix("ms")
    clauses = {name: limit for name, limit in objective(slo).items() if name.startswith(prefix)}
    return {f"{words.clause_label(name)} {words.clause_limit(name, limit)}": limit for name, limit in clauses.items()}


def keys(levels: list[Level], knee: Knee | None) -> list[Key]:
    """Legend of what stands in every plot over load, where it does."""
    band = [KNEE] if knee is not None and knee.breaks is not None else []
    return [*band, *([HOLLOW] if any(level.client.limited for level in levels) else [])]
