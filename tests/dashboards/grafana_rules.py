"""What Grafana sends for a dashboard's queries: its variables, intervals and escapes, by its own rules. Pure.

Rules read off Grafana's code: `$timeFilter` and `$__interval` of the InfluxQL query model, the table by which an
interval is rounded, and the `regex` format of a variable.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

ALL = "$__all"
SPECIAL = re.compile(r"[\\^$*+?.()|\[\]{}/]")
ROUNDED_MS = (
    *((1_500, 1_000), (3_500, 2_000), (7_500, 5_000), (12_500, 10_000), (17_500, 15_000), (25_000, 20_000)),
    *((45_000, 30_000), (90_000, 60_000), (210_000, 120_000), (450_000, 300_000), (750_000, 600_000)),
)
"""An interval below the first number is rounded to the second, in ms; never below the data source's 1 s."""
POINTS = 1_000
"""About the width of a panel in pixels: as many points does it ask for."""


class Window(NamedTuple):
    """The time range of a dashboard, in ms since 1970."""

    from_ms: int
    to_ms: int


class Asked(NamedTuple):
    """One query of a dashboard, and whose it is."""

    where: str
    query: str


def interval_ms(window: Window, points: int = POINTS) -> int:
    """Length of the buckets in which a panel of this width asks for this window."""
    exact = (window.to_ms - window.from_ms) / points
    return next(rounded for below, rounded in ROUNDED_MS if exact < below)


def as_regex(value: str | list[str], of: Mapping[str, Any]) -> str:
    """`${x:regex}`: escaped; several values as alternatives; "All" as the dashboard spells it."""
    if value == ALL:
        return str(of["allValue"])
    values = [SPECIAL.sub(r"\\\g<0>", each) for each in ([value] if isinstance(value, str) else value)]
    return values[0] if len(values) == 1 else f"({'|'.join(values)})"


def sent(query: str, window: Window, chosen: Mapping[str, str | list[str]], board: Mapping[str, Any]) -> str:
    """The query as the database gets it. KeyError: it names a variable that the dashboard has not."""
    known = {each["name"]: each for each in board["templating"]["list"]}
    width_ms = interval_ms(window)
    query = query.replace("$timeFilter", f"time >= {window.from_ms}ms and time <= {window.to_ms}ms")
    query = query.replace("$__interval_ms", str(width_ms)).replace("$__interval", f"{width_ms // 1000}s")
    return re.sub(r"\$\{(\w+):regex\}", lambda found: as_regex(chosen[found[1]], known[found[1]]), query)


def panel_queries(board: Mapping[str, Any]) -> Iterator[Asked]:
    """Queries of all panels."""
    for panel in board["panels"]:
        yield from (Asked(f"{panel['title']} {each['refId']}", each["query"]) for each in panel["targets"])


def annotation_queries(board: Mapping[str, Any]) -> Iterator[Asked]:
    """Queries of all annotations."""
    yield from (Asked(each["name"], each["target"]["query"]) for each in board["annotations"]["list"])


def variable_queries(board: Mapping[str, Any]) -> Iterator[Asked]:
    """Queries of all variables, in the order in which they are asked."""
    yield from (Asked(each["name"], each["query"]) for each in board["templating"]["list"])
