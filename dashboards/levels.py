"""What several dashboards show: what a run found, and its levels as a table of one row a level. Pure."""

from dashboards.panels import Panel, column
from dashboards.queries import HELD, HOLD, by_level, quantile, rows, typical_second

FOUND = Panel(
    title="What the run found",
    about="The knee, where it was searched for, and the verdict: written when the run ends. Only requests due in the "
    "hold of a level are judged.",
    kind="table",
    width=24,
    height=4,
    queries=(rows("event", '"kind", "title"', extra="""("kind" = 'knee' OR "kind" = 'verdict')"""),),
    overrides=(column("kind", custom__width=90), column("Time", custom__width=190)),
)


SECONDS = {
    "in flight": 'sum("in_flight")',
    "streaming": 'sum("running")',
    "tokens": 'sum("tokens")',
    "TTFT P50": 'median("ttft_p50_ms")',
    "ITL P99": 'max("itl_p99_ms")',
}
"""Of a level's typical second, over the classes; `load` is always there."""
DUE = {"due": 'count("ok")', "ok": 'mean("ok")', "good": 'mean("good")'}
"""Of all requests due in its hold."""
TIMED = {
    "TTFT P99": quantile("ttft_ms", 99),
    "worst gap": 'max("worst_gap_ms")',
}
"""Of those that ended ok. A quantile reads and sorts every request: one a panel keeps it under a second."""
EVERY = (*SECONDS, *DUE, *TIMED)
UNITS = {"ok": "percentunit", "good": "percentunit", **dict.fromkeys(("TTFT P50", "ITL P99", *TIMED), "ms")}
ABOUT = (
    "One row a level. Load to ITL P99: the level's typical second (median over its seconds). Due, ok, good: exact, of "
    "the requests due in its hold. TTFT P99 and worst gap: exact, of those that ended ok. The report has all the rest."
)


def levels(*wanted, run="run", suffix=""):
    """Tables of one row a level that have these columns, and load. The suffix keeps those of two runs apart."""
    due, timed = ({f"{name}{suffix}": of[name] for name in wanted if name in of} for of in (DUE, TIMED))
    tables = [typical_second(run, suffix, **{name: SECONDS[name] for name in wanted if name in SECONDS})]
    tables += [by_level("request", run, HOLD, **due)] if due else []
    tables += [by_level("request", run, HELD, **timed)] if timed else []
    return tuple(tables)
