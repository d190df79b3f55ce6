"""The columns of a level, one row each: head, part, cell. Terminal, Markdown and page read them. No clock, no I/O."""

from collections.abc import Callable, Iterable

from msgspec import Struct

from harness.findings import Level
from harness.report import words
from harness.report.sentences import ok_share


class Column(Struct, frozen=True):
    """One column of a table of levels."""

    head: str
    part: str
    """Second line of the head: the quantile or the unit."""
    cell: Callable[[Level], str]
    interval: Callable[[Level], str] | None = None
    """The 95 % interval of what the cell says, where it has one."""


def quantile(head: str, metric: str, name: str) -> Column:
    """A column of one quantile of one metric, in ms."""
    return Column(
        head,
        name.upper(),
        lambda level: words.quantile(level.metrics.get(metric), name),
        lambda level: words.interval(level.metrics.get(metric), name),
    )


def client(level: Level) -> str:
    """Whether the load generator was in the way."""
    return "limited" if level.client.limited else "ok"


LOAD = Column("load", "", lambda level: words.load(level.load))
DUE = Column("due", "", lambda level: str(level.due))
OK = Column("ok", "%", lambda level: words.percent(ok_share(level)))
TOKENS = Column("tokens", "/s", lambda level: words.scaled(level.output_tps))
GOODPUT = Column("good", "/s", lambda level: words.number(level.goodput_rps))
CLIENT = Column("client", "", client)
SLO = Column("SLO", "", lambda level: words.HELD[level.held])

BRIEF: list[Column] = [
    LOAD,
    DUE,
    OK,
    TOKENS,
    quantile("TTFT", "ttft_ms", "p50"),
    quantile("TTFT", "ttft_ms", "p99"),
    quantile("ITL", "itl_ms", "p50"),
    quantile("ITL", "itl_ms", "p99"),
    quantile("TPOT", "tpot_ms", "p99"),
    GOODPUT,
    CLIENT,
    SLO,
]
"""What fits 80 characters."""

FULL: list[Column] = [
    LOAD,
    SLO,
    DUE,
    OK,
    Column("offered", "/s", lambda level: words.number(level.offered_rps)),
    Column("answered", "/s", lambda level: words.number(level.achieved_rps)),
    Column("goodput", "/s", lambda level: words.number(level.goodput_rps)),
    Column("attained", "%", lambda level: words.percent(level.attainment)),
    Column("output", "tokens/s", lambda level: words.scaled(level.output_tps)),
    Column("input", "tokens/s", lambda level: words.scaled(level.input_tps)),
    Column("in flight", "mean", lambda level: words.number(level.in_flight)),
    Column("Little", "L / λW", lambda level: words.number(level.little)),
    Column("running", "mean", lambda level: words.number(level.running)),
    *(quantile("TTFT", "ttft_ms", name) for name in ("p50", "p90", "p99")),
    *(quantile("ITL", "itl_ms", name) for name in ("p50", "p99")),
    quantile("gap", "gap_ms", "p99"),
    quantile("worst gap", "worst_gap_ms", "p50"),
    *(quantile("TPOT", "tpot_ms", name) for name in ("p50", "p99")),
    *(quantile("E2E", "e2e_ms", name) for name in ("p50", "p99")),
    quantile("lag", "lag_ms", "p99"),
    Column("tokens", "/event", lambda level: words.number(level.tokens_per_event)),
    Column("cost", "/M tokens", lambda level: words.number(level.cost_per_million_output_tokens)),
    Column("settled", "", lambda level: "yes" if level.settled else "no"),
    CLIENT,
]
"""Everything, for a page that can scroll."""


def legend(levels: Iterable[Level]) -> str:
    """What the marks in a table of levels mean; only the marks that occur."""
    cells = {column.cell(level) for column in BRIEF for level in levels}
    marks = ["latencies in ms"]
    if any(cell.endswith(words.UNSURE) for cell in cells):
        marks.append(f"{words.UNSURE} too few requests for an interval")
    if words.ABSENT in cells:
        marks.append(f"{words.ABSENT} not measured")
    return "; ".join(marks)
