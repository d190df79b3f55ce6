"""Report to the figures of streams: token timelines of single requests, distributions per level. No clock, no I/O."""

from html import escape

from harness.findings import Curve, Level, Report, Sample
from harness.report import words
from harness.report.figures import BLUE, GREY, INK, ORANGE, PURPLE, Figure, Key, Plot, layout, log_axis, slo_lines
from harness.report.sentences import by_load

RAMP = ((46, 139, 212), (140, 108, 206), (208, 84, 144), (230, 126, 34))
"""Colours from light load to heavy, as red, green and blue; evenly spaced, with straight ways in between."""
DOTS_PER_AXIS = 1000
"""Dots nearer than this part of the axis are one dot on any screen, and are drawn once."""


def timeline(report: Report) -> Figure:
    """One row a request, one dot a token event, from the instant it was due."""
    samples = ordered(report)
    if not samples:
        return Figure(id="timeline", title="Token timelines", missing="No sample requests were kept.")
    rows = range(len(samples))
    y = {"tickvals": list(rows), "ticktext": labels(report, samples), "range": [len(samples) - 0.4, -0.6]}
    x = {"title": {"text": "ms since due"}, "rangemode": "tozero"}
    return Figure(
        id="timeline",
        title=stall(report, samples),
        caption="One row a request. A space between dots is what a user sees as a stall; "
        "dots too near to be told apart are drawn once.",
        keys=[Key("waiting", GREY), Key("first token", ORANGE, "dot"), Key("tokens", BLUE, "dot"), *cut_key(samples)],
        data=[waits(samples), tokens(samples), first_tokens(samples), *cuts(samples)],
        layout=layout(x, y | {"showgrid": False}, margin={"l": 100, "r": 14, "t": 6, "b": 44}),
        height_px=70 + 26 * len(samples),
    )


def ordered(report: Report) -> list[Sample]:
    """Samples from light load to heavy, quick to slow."""
    loads = {level.index: level.load for level in report.levels}
    return sorted(report.samples, key=lambda each: (loads.get(each.level, 0.0), each.events_ms[:1], each.request_id))


def labels(report: Report, samples: list[Sample]) -> list[str]:
    """What stands at each row: the load, and the outcome where it is not ok."""
    at = {level.index: words.load_of(level.load, level.axis) for level in report.levels}
    names = [at.get(each.level, f"level {each.level}").replace("requests", "req") for each in samples]
    # The page draws these as a small subset of HTML, so what came from outside is escaped here.
    return [f"{n}{'' if e.outcome == 'ok' else ', ' + escape(e.outcome)}" for n, e in zip(names, samples, strict=True)]


def stall(report: Report, samples: list[Sample]) -> str:
    """The longest silence within a sample, in words."""
    at = {level.index: words.load_of(level.load, level.axis) for level in report.levels}
    gaps = [(b - a, e) for e in samples for a, b in zip(e.events_ms, e.events_ms[1:], strict=False)]
    if not gaps:
        return "Token timelines of sample requests"
    gap_ms, sample = max(gaps, key=lambda pair: pair[0])
    return (
        f"Token timelines: the longest silence lasts {words.duration(gap_ms)}, at {at.get(sample.level, 'one level')}"
    )


def waits(samples: list[Sample]) -> Plot:
    """A thin line from due to the first token (or the end), all rows in one path."""
    ends = [each.events_ms[0] if each.events_ms else each.e2e_ms for each in samples]
    x = [v for end in ends for v in (0.0, end or 0.0, None)]
    y = [v for row, _ in enumerate(ends) for v in (row, row, None)]
    look = {"color": GREY, "width": 1.5}
    return {"type": "scatter", "mode": "lines", "x": x, "y": y, "line": look, "hoverinfo": "skip"}


def dots(x: list[float], y: list[int], marker: Plot, said: str) -> Plot:
    """A cloud of dots; `said` is what a pointer reads before the time."""
    template = f"{said} at %{{x:.1f}} ms<extra></extra>"
    return {"type": "scatter", "mode": "markers", "x": x, "y": y, "marker": marker, "hovertemplate": template}


def first_tokens(samples: list[Sample]) -> Plot:
    """The first token of every row."""
    rows = [row for row, each in enumerate(samples) if each.events_ms]
    look = {"color": ORANGE, "size": 9, "symbol": "diamond"}
    return dots([samples[row].events_ms[0] for row in rows], rows, look, "first token")


def tokens(samples: list[Sample]) -> Plot:
    """All later tokens."""
    apart_ms = max((each.events_ms[-1] for each in samples if each.events_ms), default=0.0) / DOTS_PER_AXIS
    seen = [(at_ms, row) for row, each in enumerate(samples) for at_ms in thinned(each.events_ms[1:], apart_ms)]
    look = {"color": BLUE, "size": 5, "opacity": 0.8}
    return dots([at_ms for at_ms, _ in seen], [row for _, row in seen], look, "token")


def thinned(events_ms: list[float], apart_ms: float) -> list[float]:
    """Events without those that follow a kept one sooner than `apart_ms`."""
    kept: list[float] = []
    for at_ms in events_ms:
        if not kept or at_ms - kept[-1] >= apart_ms:
            kept.append(at_ms)
    return kept


def cut(samples: list[Sample]) -> list[tuple[float, int]]:
    """Where requests ended that did not end well, and in which row."""
    return [
        (each.e2e_ms if each.e2e_ms is not None else (each.events_ms or [0.0])[-1], row)
        for row, each in enumerate(samples)
        if each.outcome != "ok"
    ]


def cuts(samples: list[Sample]) -> list[Plot]:
    """A cross at every bad end."""
    ends, look = cut(samples), {"color": PURPLE, "size": 9, "symbol": "x-thin", "line": {"width": 2, "color": PURPLE}}
    return [dots([x for x, _ in ends], [row for _, row in ends], look, "ended")] if ends else []


def cut_key(samples: list[Sample]) -> list[Key]:
    """Legend of the crosses, where there are any."""
    return [Key("ended without success", PURPLE, "dot")] if cut(samples) else []


def distribution(report: Report, metric: str, name: str) -> Figure:
    """Cumulative distribution of one metric, one curve a level, from light load in blue to heavy load in orange."""
    of = {each.level: each for each in report.curves if each.metric == metric and any(x > 0 for x in each.x)}
    levels = [level for level in by_load(report.levels) if level.index in of]
    figure_id = f"distribution-{metric.removesuffix('_ms')}"
    if not levels:
        return Figure(id=figure_id, title=f"{name}: distribution", missing="No distribution was kept.")
    limits = slo_lines(report.header.scenario.slo, metric)
    seen = [x for level in levels for x in of[level.index].x if x > 0] + list(limits.values())
    colors = ramp(len(levels))
    shares = [0, 0.25, 0.5, 0.75, 0.9, 0.99]
    y = {"range": [0, 1.02], "tickvals": shares, "ticktext": [f"{share:.0%}" for share in shares]}
    return Figure(
        id=figure_id,
        title=f"{name}: how its distribution moves with load",
        caption=f"Share of {'requests' if metric == 'ttft_ms' else 'tokens'} that waited no longer than this.",
        keys=[*level_keys(levels, colors), *(Key(label, INK, "dash") for label in limits)],
        data=[step(of[level.index], level, color) for level, color in zip(levels, colors, strict=True)],
        layout=layout(log_axis(min(seen) / 1.1, max(seen) * 1.1, ""), y, shapes=[upright(x) for x in limits.values()]),
    )


def step(curve: Curve, level: Level, color: str) -> Plot:
    """One empirical distribution; dotted where the client was in the way."""
    points = [(x, share) for x, share in zip(curve.x, curve.share, strict=True) if x > 0]
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [x for x, _ in points],
        "y": [share for _, share in points],
        "line": {"color": color, "width": 1.8, "shape": "hv", "dash": "dot" if level.client.limited else "solid"},
        "hovertemplate": f"{words.load_of(level.load, level.axis)}<br>%{{y:.1%}} within %{{x:.4~g}} ms<extra></extra>",
    }


def upright(limit_ms: float) -> Plot:
    """A limit of the SLO on the axis of time."""
    look = {"color": GREY, "width": 1.5, "dash": "dash"}
    return {
        "type": "line", "line": look, "x0": limit_ms, "x1": limit_ms, "y0": 0, "y1": 1, "xref": "x", "yref": "paper"
    }  # fmt: skip


def ramp(steps: int) -> list[str]:
    """Colours from light to heavy load."""
    return [color_at(step / max(1, steps - 1)) for step in range(steps)]


def color_at(part: float) -> str:
    """The colour at this part, 0 to 1, of the ramp."""
    place = part * (len(RAMP) - 1)
    left = min(int(place), len(RAMP) - 2)
    mixed = [round(a + (b - a) * (place - left)) for a, b in zip(RAMP[left], RAMP[left + 1], strict=True)]
    return f"rgb({', '.join(map(str, mixed))})"


def level_keys(levels: list[Level], colors: list[str]) -> list[Key]:
    """Legend of the ramp: every level, or the two ends when there are many."""
    pairs = list(zip(levels, colors, strict=True))
    shown = pairs if len(pairs) <= 12 else [pairs[0], pairs[len(pairs) // 2], pairs[-1]]
    return [Key(words.load_of(level.load, level.axis), color) for level, color in shown]
