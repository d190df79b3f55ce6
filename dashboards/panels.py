"""From a panel as a row of a table to the JSON that Grafana loads. Pure.

Grafana's own words for things stand here and nowhere else.
"""

from dataclasses import dataclass, field

SOURCE = {"type": "influxdb", "uid": "influxdb"}
WIDE = 24
GREEN, AMBER, RED, BLUE, GREY = "green", "orange", "red", "blue", "#8e8e8e"


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One panel. `queries` are InfluxQL, answered as lines over time or, where no time axis is drawn, as tables."""

    title: str
    about: str
    queries: tuple[str, ...]
    kind: str = "timeseries"
    unit: str = "short"
    width: int = 12
    height: int = 8
    most: float | None = None
    """End of the axis; None: as the data want it. It begins at 0."""
    limit: float | None = None
    """A dashed line: above it something is wrong."""
    aliases: tuple[str, ...] = ("$col",)
    """Names of lines, one for each query; the last for all that follow."""
    units: dict[str, str] = field(default_factory=dict)
    """Columns with units of their own."""
    overrides: tuple[dict, ...] = ()
    """Lines or columns that look different: `line`, `column`."""
    transformations: tuple[dict, ...] = ()
    options: dict = field(default_factory=dict)
    custom: dict = field(default_factory=dict)


def _override(matcher, options, properties):
    named = [{"id": name.replace("custom__", "custom."), "value": value} for name, value in properties.items()]
    return {"matcher": {"id": matcher, "options": options}, "properties": named}


def line(pattern, **properties):
    """An override for lines whose name matches. Properties of `custom` as `custom__NAME`."""
    return _override("byRegexp", f"/{pattern}/", properties)


def fixed(colour):
    """A colour of its own."""
    return {"mode": "fixed", "fixedColor": colour}


def column(name, **properties):
    """An override for one column of a table."""
    return _override("byName", name, properties)


LIMIT = line("^SLO", color=fixed(RED), custom__lineStyle={"fill": "dash", "dash": [10, 10]})
"""How a line of the SLO looks."""


def renamed(pattern, name):
    """What the database names by itself, in words."""
    return {"id": "renameByRegex", "options": {"regex": pattern, "renamePattern": name}}


SLO_NAMES = renamed("max_slo_([a-z0-9]+)_p([0-9]+)_ms", "SLO P$2")


def joined(by):
    """Tables of one row a level, side by side; sorted by this column."""
    return (
        {"id": "filterFieldsByName", "options": {"exclude": {"names": ["Time", "time"]}}},
        {"id": "joinByField", "options": {"byField": "level", "mode": "outer"}},
        {"id": "sortBy", "options": {"sort": [{"field": by}]}},
    )


def ordered(by):
    """Rows by a column: points of a level chart are joined in this order."""
    return ({"id": "sortBy", "options": {"sort": [{"field": by}]}},)


def against(*pairs):
    """Options of a chart of one column against another: (name, x, y), all in one table."""
    drawn = [
        {
            "name": {"fixed": name},
            "frame": {"matcher": {"id": "byIndex", "options": 0}},
            "x": {"matcher": {"id": "byName", "options": x}},
            "y": {"matcher": {"id": "byName", "options": y}},
        }
        for name, x, y in pairs
    ]
    return {"mapping": "manual", "series": drawn}


def placed(panels):
    """Panels as JSON, from left to right, a new row where one is full. Numbers are ids."""
    x = y = tallest = 0
    for number, panel in enumerate(panels, start=1):
        if x + panel.width > WIDE:
            x, y, tallest = 0, y + tallest, 0
        yield _json(panel, number, {"h": panel.height, "w": panel.width, "x": x, "y": y})
        x, tallest = x + panel.width, max(tallest, panel.height)


def _json(panel, number, place):
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": SOURCE,
        "gridPos": place,
        "targets": [_target(panel, number) for number in range(len(panel.queries))],
        "transformations": list(panel.transformations),
        "fieldConfig": {
            "defaults": _defaults(panel),
            "overrides": [*panel.overrides, *(column(name, unit=unit) for name, unit in panel.units.items())],
        },
        "options": {**_OPTIONS[panel.kind], **panel.options},
    }


def _target(panel, number):
    common = {"refId": "ABCDEFGH"[number], "datasource": SOURCE, "rawQuery": True, "query": panel.queries[number]}
    if panel.kind in ("timeseries", "heatmap"):
        alias = panel.aliases[min(number, len(panel.aliases) - 1)]
        return {**common, "resultFormat": "time_series", "alias": alias}
    return {**common, "resultFormat": "table"}


def _defaults(panel):
    steps = [{"color": GREEN, "value": None}]
    if panel.limit is not None:
        steps.append({"color": RED, "value": panel.limit})
    found = {"unit": panel.unit, "thresholds": {"mode": "absolute", "steps": steps}, "custom": dict(panel.custom)}
    if panel.kind == "timeseries":
        dashed = {"mode": "off" if panel.limit is None else "dashed"}
        found["custom"] = {**_LINES, "thresholdsStyle": dashed, **panel.custom}
    if panel.kind == "xychart":
        found["custom"] = {**_DOTS, **panel.custom}
    if panel.kind in ("timeseries", "xychart"):
        found["min"] = 0
    if panel.most is not None:
        found["max"] = panel.most
    return found


_LINES = {"drawStyle": "line", "lineWidth": 2, "showPoints": "auto", "pointSize": 4, "spanNulls": 5000}
_DOTS = {"show": "points+lines", "pointSize": {"fixed": 8}, "lineWidth": 1}
_LEGEND = {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []}
_OPTIONS = {
    "timeseries": {"legend": _LEGEND, "tooltip": {"mode": "multi", "sort": "desc"}},
    "xychart": {"legend": _LEGEND, "tooltip": {"mode": "single", "sort": "none"}},
    "table": {"showHeader": True, "cellHeight": "sm", "frameIndex": 0},
    "heatmap": {
        "calculate": False,
        "cellGap": 0,
        "color": {"mode": "scheme", "scheme": "Turbo", "fill": BLUE, "exponent": 0.5, "reverse": False, "steps": 64},
        "exemplars": {"color": RED},
        "filterValues": {"le": 1e-9},
        "legend": {"show": True},
        "rowsFrame": {"layout": "le"},
        "showValue": "never",
        "tooltip": {"mode": "single", "yHistogram": True},
        "yAxis": {"axisPlacement": "left", "unit": "µs"},
    },
}
