"""Runs side by side to the figures of their page: every run one colour in each plot. No clock, no I/O."""

from collections.abc import Callable, Sequence

from harness.decisions import Comparison
from harness.findings import Level, Report, Spread
from harness.report import words
from harness.report.figures import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    Figure,
    Key,
    Plot,
    layout,
    line,
    load_axis,
    log_axis,
)
from harness.report.load_figures import quantile_line
from harness.report.sentences import by_load

COLORS = (BLUE, ORANGE, GREEN, PURPLE, GREY)
"""Of the first run, the second …; a sixth begins anew."""
LATENCIES = (
    ("ttft_ms", "p50", "Time to first token, P50"),
    ("ttft_ms", "p99", "Time to first token, P99"),
    ("itl_ms", "p99", "Time between tokens, P99"),
    ("e2e_ms", "p99", "Whole answers, P99"),
)
RATES: tuple[tuple[str, str, str, Callable[[Level], float]], ...] = (
    ("output", "Output", "tokens/s", lambda level: level.output_tps),
    ("goodput", "Goodput", "requests/s", lambda level: level.goodput_rps),
)


def color(place: int) -> str:
    """The colour of a run by its place."""
    return COLORS[place % len(COLORS)]


def figures(comparison: Comparison, reports: Sequence[Report]) -> list[Figure]:
    """Latencies and rates against load."""
    keys = [Key(side.label, color(place)) for place, side in enumerate(comparison.sides)]
    runs = [by_load(report.levels) for report in reports]
    return [
        *(_latency(runs, keys, metric, quantile, title) for metric, quantile, title in LATENCIES),
        *(_rate(runs, keys, rate) for rate in RATES),
    ]


def _latency(runs: Sequence[list[Level]], keys: list[Key], metric: str, quantile: str, title: str) -> Figure:
    figure_id = f"{metric.removesuffix('_ms')}-{quantile}"
    shown = [[level for level in levels if words.value_of(level.metrics.get(metric), quantile)] for levels in runs]
    drawn = [level for levels in shown for level in levels]
    if not drawn:
        return Figure(id=figure_id, title=title, missing="No run has this latency.")
    spreads = [level.metrics[metric] for level in drawn]
    seen = [value for spread in spreads for value in _values(spread, quantile) if value > 0]
    return Figure(
        id=figure_id,
        title=title,
        caption="Bars are 95 % intervals; a point without one had too few requests.",
        keys=keys,
        data=[
            quantile_line(levels, metric, quantile, color(place), f"{_escaped(keys[place].label)}<br>")
            for place, levels in enumerate(shown)
            if levels
        ],
        layout=layout(load_axis(drawn), log_axis(min(seen) / 1.25, max(seen) * 1.4, "")),
    )


def _values(spread: Spread, quantile: str) -> list[float]:
    return [words.value_of(spread, quantile) or 0.0, *(spread.interval.get(quantile) or ())]


def _rate(runs: Sequence[list[Level]], keys: list[Key], of: tuple[str, str, str, Callable[[Level], float]]) -> Figure:
    figure_id, title, unit, rate = of
    drawn = [level for levels in runs for level in levels]
    data = []
    for place, levels in enumerate(runs):
        at = [f"{_escaped(keys[place].label)}<br>{words.load_of(level.load, level.axis)}" for level in levels]
        said = [f"{begin}<br>{words.scaled(rate(level))} {unit}" for begin, level in zip(at, levels, strict=True)]
        data.append(line(levels, [rate(level) for level in levels], color(place), said))
    axis: Plot = {"rangemode": "tozero", "title": {"text": unit}}
    return Figure(id=figure_id, title=title, keys=keys, data=data, layout=layout(load_axis(drawn), axis))


def _escaped(text: str) -> str:
    """A run's name inside the little markup that plotly.js knows."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
