"""Report to the figures over load: latency, output, requests, client health. No clock, no I/O."""

from collections.abc import Callable

from harness.findings import Client, Level, Report
from harness.report import laws, words
from harness.report.figures import (
    BAND,
    BLUE,
    GREEN,
    GREY,
    INK,
    KNEE,
    ORANGE,
    PURPLE,
    Figure,
    Key,
    Plot,
    drawn_knee,
    keys,
    knee_band,
    layout,
    line,
    load_axis,
    log_axis,
    markers,
    slo_lines,
)
from harness.report.sentences import by_load

QUANTILES = (("p50", BLUE), ("p99", ORANGE))
LATENCIES = (("ttft_ms", "Time to first token"), ("itl_ms", "Time between tokens"))


def latency(report: Report, metric: str, name: str) -> Figure:
    """P50 and P99 of one metric against load, with intervals, the SLO's limits and the knee."""
    levels = [level for level in by_load(report.levels) if words.value_of(level.metrics.get(metric), "p50")]
    figure_id = f"latency-{metric.removesuffix('_ms')}"
    if not levels:
        return Figure(id=figure_id, title=name, missing=nothing(report.levels))
    limits = slo_lines(report.header.scenario.slo, metric)
    shapes = [*knee_band(drawn_knee(report), levels), *(limit_line(label, ms) for label, ms in limits.items())]
    y = log_axis(*span_ms(levels, metric, list(limits.values())), "")
    slo = [Key(label, INK, "dash") for label in limits]
    return Figure(
        id=figure_id,
        title=f"{name}: {journey(levels, metric)}",
        caption="Bars are 95 % intervals; a point without one had too few requests.",
        keys=[*(Key(q.upper(), color) for q, color in QUANTILES), *slo, *keys(levels, drawn_knee(report))],
        data=[quantile_line(levels, metric, q, color) for q, color in QUANTILES],
        layout=layout(load_axis(levels), y, shapes=shapes),
    )


def nothing(levels: list[Level]) -> str:
    """Why a latency cannot be drawn."""
    if any(level.outcomes.get("ok") for level in levels):
        return "No request that succeeded has this latency (was it streamed?)."
    return "No request succeeded, so there is no latency to draw."


def quantile_line(levels: list[Level], metric: str, name: str, color: str, said_first: str = "") -> Plot:
    """One quantile over load, with its intervals as error bars; `said_first` is HTML for the pointer."""
    values = [words.value_of(level.metrics[metric], name) or None for level in levels]
    bounds = [level.metrics[metric].interval.get(name) for level in levels]
    pairs = list(zip(values, bounds, strict=True))
    said = [
        f"{said_first}{words.load_of(level.load, level.axis)}<br>{name.upper()} {words.duration(value)}"
        f"<br>95 %: {words.interval(level.metrics[metric], name)}"
        for level, value in zip(levels, values, strict=True)
    ]
    bars = {
        "type": "data",
        "symmetric": False,
        "array": [max(0.0, b[1] - v) if b and v is not None else None for v, b in pairs],
        "arrayminus": [max(0.0, v - b[0]) if b and v is not None else None for v, b in pairs],
        "color": color,
        "thickness": 1.4,
        "width": 4,
    }
    return line(levels, values, color, said) | {"error_y": bars}


def limit_line(label: str, limit_ms: float) -> Plot:
    """A limit of the SLO, across the plot."""
    ends = {"x0": 0, "x1": 1, "y0": limit_ms, "y1": limit_ms, "xref": "paper", "yref": "y"}
    text = {"text": label, "textposition": "start", "yanchor": "bottom", "font": {"size": 11}}
    return {"type": "line", "line": {"color": GREY, "width": 1.5, "dash": "dash"}, "label": text, **ends}


def span_ms(levels: list[Level], metric: str, limits_ms: list[float]) -> tuple[float, float]:
    """Range that shows every point, every interval and every limit."""
    shown = list(limits_ms)
    for level in levels:
        spread = level.metrics[metric]
        for name, _ in QUANTILES:
            shown += [words.value_of(spread, name) or 0.0, *(spread.interval.get(name) or ())]
    seen = [value for value in shown if value > 0]
    return min(seen) / 1.25, max(seen) * 1.4


def journey(levels: list[Level], metric: str) -> str:
    """From where to where P99 went, in words; the median where there is no P99."""
    known = [(level, words.value_of(level.metrics[metric], "p99")) for level in levels]
    told = [(level, value) for level, value in known if value is not None]
    if not told:
        return "too few requests for a P99"
    (first, low), (last, high) = told[0], told[-1]
    if len(told) == 1:
        return f"P99 is {words.duration(low)} at {words.load_of(first.load, first.axis)}"
    way = f"P99 goes from {words.duration(low)} at {words.load(first.load)} to {words.duration(high)}"
    return f"{way} at {words.load_of(last.load, last.axis)}"


def output(report: Report) -> Figure:
    """Tokens a second, and how many streams ran at once, against load."""
    levels = by_load(report.levels)
    tokens = "output tokens/s"
    said = [f"{words.load_of(x.load, x.axis)}<br>{words.scaled(x.output_tps)} {tokens}" for x in levels]
    batch = [f"{words.load_of(x.load, x.axis)}<br>{words.number(x.running)} streams running" for x in levels]
    second = line(levels, [x.running for x in levels], GREY, batch) | {"yaxis": "y2"}
    second["line"] = {"color": GREY, "width": 1.5, "dash": "dot"}
    right = {
        "overlaying": "y",
        "side": "right",
        "tickmode": "auto",
        "nticks": 6,
        "showgrid": False,
        "rangemode": "tozero",
        "zeroline": False,
    }
    more: Plot = {"margin": {"l": 60, "r": 52, "t": 10, "b": 44}, "shapes": knee_band(drawn_knee(report), levels)}
    more["yaxis2"] = right | {"fixedrange": True, "title": {"text": "streams"}}
    best = max(levels, key=lambda x: (not x.client.limited, x.output_tps))
    return Figure(
        id="output",
        title=f"Output: {words.scaled(best.output_tps)} tokens/s at most, at {words.load_of(best.load, best.axis)}",
        caption="Where the blue line bends while the dotted one climbs, more load only makes everyone wait.",
        keys=[Key(tokens, BLUE), Key("streams running", GREY, "dash"), *keys(levels, drawn_knee(report))],
        data=[line(levels, [x.output_tps for x in levels], BLUE, said), second],
        layout=layout(load_axis(levels), {"rangemode": "tozero", "title": {"text": "tokens/s"}}, **more),
    )


RATES: tuple[tuple[str, str, Callable[[Level], float]], ...] = (
    ("offered", GREY, lambda level: level.offered_rps),
    ("answered", BLUE, lambda level: level.achieved_rps),
    ("answered within the SLO (goodput)", GREEN, lambda level: level.goodput_rps),
)


def requests(report: Report) -> Figure:
    """Requests a second offered, answered, and answered within the SLO, against load."""
    levels = by_load(report.levels)
    best = max(levels, key=lambda level: (not level.client.limited, level.goodput_rps))
    fit = laws.curve(report)
    legend = [*(Key(name, color) for name, color, _ in RATES), *([laws.FIT] if fit else [])]
    return Figure(
        id="goodput",
        title=f"Goodput: {words.number(best.goodput_rps)} requests/s at most, at {words.load_of(best.load, best.axis)}",
        caption="The space between the lines is work that failed or came too late.",
        keys=[*legend, *keys(levels, drawn_knee(report))],
        data=[*(rate_line(levels, name, color, rate) for name, color, rate in RATES), *fit],
        layout=layout(
            load_axis(levels),
            {"rangemode": "tozero", "title": {"text": "requests/s"}},
            shapes=knee_band(drawn_knee(report), levels),
        ),
    )


def rate_line(levels: list[Level], name: str, color: str, rate: Callable[[Level], float]) -> Plot:
    """One rate over load."""
    said = [f"{words.load_of(x.load, x.axis)}<br>{words.number(rate(x))} requests/s {name}" for x in levels]
    return line(levels, [rate(level) for level in levels], color, said)


CLIENT: tuple[tuple[str, str, str, Callable[[Client], float | None]], ...] = (
    ("cpu", "CPU of the busiest process", "cores", lambda client: client.cpu),
    ("lag", "Late starts (lag P99)", "ms", lambda client: client.lag_p99_ms),
    ("hub", "Event loop delay P99", "ms", lambda client: client.hub_delay_p99_ms),
    ("coalesced", "Token events read late", "%", lambda client: 100 * client.coalesced_share),
)


STAGES = {
    "ladder": GREY,
    "calibrate": BLUE,
    "verify": ORANGE,
    "anchor": PURPLE,
    "confirm": GREEN,
    "fallback": "#b8443b",
    "fit": BLUE,
}
"""Parts of a search with an interval, in the order in which they come."""


def search(report: Report) -> Figure:
    """Which load was measured when, for what, and the interval that came of it."""
    why = {stage.level: stage.why for stage in report.stages}
    located = report.located
    probes = [[level for level in report.levels if why.get(level.index) == name] for name in STAGES]
    shapes: list[Plot] = []
    if located is not None and located.low is not None and located.high is not None:
        edges = {"x0": 0, "x1": 1, "y0": located.low, "y1": located.high, "xref": "paper", "yref": "y"}
        shapes.append({"type": "rect", "layer": "below", "fillcolor": BAND, "line": {"width": 0}, **edges})
    unit = words.UNITS[report.levels[0].axis] if report.levels else ""
    return Figure(
        id="probes",
        title="Where the search measured, level after level",
        caption="Verification and hold-out gather around the knee; the band is its 95 % interval.",
        keys=[KNEE, *(Key(name, color) for (name, color), some in zip(STAGES.items(), probes, strict=True) if some)],
        data=[
            {
                "type": "scatter",
                "mode": "markers",
                "x": [level.index for level in some],
                "y": [level.load for level in some],
                "text": [f"{name}: {words.load_of(x.load, x.axis)}<br>{x.due} requests, {x.held}" for x in some],
                "hovertemplate": "%{text}<extra></extra>",
                "marker": {"color": color, "size": 9, "symbol": markers(some)},
            }
            for (name, color), some in zip(STAGES.items(), probes, strict=True)
            if some
        ],
        layout=layout({"title": {"text": "level"}}, {"rangemode": "tozero", "title": {"text": unit}}, shapes=shapes),
    )


def client_health(report: Report) -> list[Figure]:
    """Four small figures: was the load generator itself in the way?"""
    levels = by_load(report.levels)
    return [client_figure(levels, f"client-{name}", title, (unit, value)) for name, title, unit, value in CLIENT]


def client_figure(
    levels: list[Level], figure_id: str, title: str, of: tuple[str, Callable[[Client], float | None]]
) -> Figure:
    """One measure of the client over load; `of` is its unit and its value."""
    unit, value = of
    values = [value(level.client) for level in levels]
    known = [each for each in values if each is not None]
    if not known:
        return Figure(id=figure_id, title=title, missing="Not measured.", height_px=190)
    said = [f"{words.load_of(x.load, x.axis)}<br>{words.number(y)} {unit}" for x, y in zip(levels, values, strict=True)]
    y = {"rangemode": "tozero", "title": {"text": unit}, "nticks": 5}
    return Figure(
        id=figure_id,
        title=f"{title}: up to {words.number(max(known))} {unit}",
        data=[line(levels, values, BLUE, said)],
        layout=layout(load_axis(levels, most_ticks=6), y, margin={"l": 50, "r": 10, "t": 8, "b": 40}),
        height_px=190,
    )
