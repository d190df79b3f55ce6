"""InfluxQL for the panels, variables and annotations of the dashboards. Pure.

Only what InfluxDB 1.x, 2.x and 3 Core all serve, every name in quotes. A variable stands in a regular expression as
`${x:regex}`, so that Grafana escapes what is in it. What each field means stands in docs/fields.md.
"""

SCOPES = {
    "second": ("run", "class", "level"),
    "request": ("run", "class", "level"),
    "token": ("run", "level"),
    "engine": ("run", "level"),
    "client": ("run", "level"),
    "event": ("run",),
}
"""Measurement to the tags that variables choose from; a run is of one scenario, so that one need not be asked again."""

HOLD = """"phase" = 'hold'"""
"""Requests that are judged, as in the report."""
HELD = f'{HOLD} AND "ok" = 1'
"""Requests whose latencies are judged."""

BOUNDS_US = [str(digit * 10**power) for power in range(2, 8) for digit in range(1, 10)]
"""Upper bounds of the histogram buckets; a test holds them equal to those of the schema."""


def quantile(field, percent):
    """Nearest rank, exact over the points."""
    return f'percentile("{field}", {percent})'


def per_second(field):
    """Sum of what is counted by the second, as a rate; mean over the interval of what is a mean of each second."""
    return f'sum("{field}") / $__interval_ms * 1000'


def scope(source, run="run", extra=""):
    """WHERE: the time range, and what the variables chose. `run` is the variable that holds the run."""
    chosen = [f'"{tag}" =~ /^${{{run if tag == "run" else tag}:regex}}$/' for tag in SCOPES[source]]
    return " AND ".join(["$timeFilter", *chosen, *([extra] if extra else [])])


def series(source, *tags, extra="", **columns):
    """One line a column (and a value of the tags) over time. A column is named by its keyword, `_` for a space."""
    by = ", ".join(["time($__interval)", *(f'"{tag}"' for tag in tags)])
    return f'SELECT {_columns(columns)} FROM "{source}" WHERE {scope(source, extra=extra)} GROUP BY {by} fill(none)'


def family(source, function, pattern):
    """One line for every field whose name matches, named `FUNCTION_FIELD` by the database."""
    where = scope(source)
    return f'SELECT {function}(/{pattern}/) FROM "{source}" WHERE {where} GROUP BY time($__interval) fill(none)'


def buckets(metric):
    """One column a histogram bucket, named by its upper bound in µs: what a heat map sorts by."""
    bounds = [(bound, bound) for bound in BOUNDS_US] + [("inf", "+Inf")]
    columns = ", ".join(f'sum("{metric}_le_{field}") AS "{name}"' for field, name in bounds)
    return f'SELECT {columns} FROM "second" WHERE {scope("second")} GROUP BY time($__interval) fill(none)'


def by_level(source, run="run", extra="", **columns):
    """One row a level, over all its requests."""
    return f'SELECT {_columns(columns)} FROM "{source}" WHERE {scope(source, run, extra)} GROUP BY "level"'


def typical_second(run="run", suffix="", **columns):
    """One row a level: load, and the median over the level's seconds of what each second summed up over classes.

    The median, because a level begins and ends with seconds that hold only a part of it.
    """
    columns = {"load": 'max("load")', **columns}
    where = scope("second", run)
    inner = f'SELECT {_columns(columns)} FROM "second" WHERE {where} GROUP BY time(1s), "level" fill(none)'
    names = [name.replace("_", " ") for name in columns]
    outer = ", ".join(f'median("{name}") AS "{name}{suffix}"' for name in names)
    return f'SELECT {outer} FROM ({inner}) WHERE $timeFilter GROUP BY "level"'


def rows(source, fields, extra="", limit=1000):
    """Points as they are."""
    return f'SELECT {fields} FROM "{source}" WHERE {scope(source, extra=extra)} LIMIT {limit}'


def events(kind, columns='"title"'):
    """Marks in time."""
    return f"""SELECT {columns} FROM "event" WHERE {scope("event")} AND "kind" = '{kind}'"""


def tag_values(tag, *asked, source="second", unlike=""):
    """Values of a tag in the time range (3 Core would look at the last day only), given other variables' choice."""
    chosen = [f'"{name}" =~ /^${{{name}:regex}}$/' for name in asked]
    chosen += [f'"{tag}" !~ /^${{{unlike}:regex}}$/'] if unlike else []
    return f'SHOW TAG VALUES FROM "{source}" WITH KEY = "{tag}" WHERE {" AND ".join(["$timeFilter", *chosen])}'


def _columns(columns):
    return ", ".join(f'{what} AS "{name.replace("_", " ")}"' for name, what in columns.items())
