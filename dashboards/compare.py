"""Two runs, level by level, on the same axes. A panel is a row; pure."""

from dashboards.levels import ABOUT, EVERY, FOUND, UNITS, levels
from dashboards.panels import Panel, against, column, joined

RUNS = (("A", "run", ""), ("B", "other", " B"))
"""Name, variable, and what is put behind column names so that two runs' tables can be joined."""


def compared(title, about, y, **more):
    """A column of one of the level tables against load, of both runs on the same axes."""
    return Panel(
        title=title,
        about=about,
        kind="xychart",
        queries=tuple(query for _, run, suffix in RUNS for query in levels(y, run=run, suffix=suffix)),
        transformations=joined("load"),
        options=against(*((name, f"load{suffix}", f"{y}{suffix}") for name, _, suffix in RUNS)),
        overrides=tuple(column(f"load{suffix}", unit="short") for _, _, suffix in RUNS),
        custom={"show": "points"},
        **more,
    )


def found(name, run):
    """What one of the runs found."""
    return Panel(
        title=f"Run {name}: ${run}",
        about=FOUND.about,
        kind="table",
        height=4,
        queries=(FOUND.queries[0].replace("${run:", f"${{{run}:"),),
        overrides=FOUND.overrides,
    )


def level_table(name, run):
    """One row a level of one run."""
    return Panel(
        title=f"Levels of run {name}",
        about=ABOUT,
        kind="table",
        height=9,
        queries=levels(*EVERY, run=run),
        transformations=joined("load"),
        units=UNITS,
    )


PANELS = (
    *(found(name, run) for name, run, _ in RUNS),
    compared(
        "Tokens a second against load",
        "One dot a level: its typical second. Higher is better; flat is saturated.",
        "tokens",
    ),
    compared(
        "Share of good requests against load",
        "One dot a level: requests due in its hold that met every clause of the run's own SLO.",
        "good",
        unit="percentunit",
        most=1,
    ),
    compared(
        "TTFT P99 against load",
        "One dot a level: exact, over the ok requests due in its hold. Lower is better.",
        "TTFT P99",
        unit="ms",
    ),
    compared(
        "ITL P99 against load",
        "One dot a level: token-weighted P99 of its typical second (median over its seconds). Lower is better.",
        "ITL P99",
        unit="ms",
    ),
    *(level_table(name, run) for name, run, _ in RUNS),
)
