"""Report to one web page that needs nothing else. No clock; reads only files of packages."""

from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from harness import schema
from harness.clock import iso
from harness.findings import Clause, Level, Report
from harness.report import columns, laws, load_figures, sentences, stream_figures, words
from harness.report.figures import Figure

EXPLAINED = (
    *("ttft_ms", "ttfat_ms", "itl_ms", "gap_ms", "worst_gap_ms", "tpot_ms", "e2e_ms", "lag_ms"),
    *("offered_rps", "achieved_rps", "output_tps", "goodput_rps", "attainment", "in_flight", "running"),
    *("time_in_system_s", "little"),
    *("tokens_per_event", "coalesced_share", "cost_per_million_output_tokens"),
)
"""Fields of the schema whose meaning the page tells, in this order."""


def html(report: Report) -> str:
    """The whole page. Every text of the report is escaped; nothing is loaded from anywhere."""
    plots = sections(report)
    meanings = {field.name: field for field in schema.FIELDS}
    return template().render(
        report=report,
        levels=sentences.by_load(report.levels),
        started=iso(report.header.started_ns),
        sections=plots,
        payload=payload([figure for section in plots.values() for figure in section]),
        outcomes=outcome_names(report),
        clauses=clause_names(report),
        definitions=[meanings[name] for name in EXPLAINED if name in meanings],
        # plotly.js holds no closing script tag, and it is ours: it goes in as it is.
        plotly=Markup(get_plotlyjs()),
    )


@cache
def template() -> Template:
    """The template, and the words it may use."""
    return worded(
        "page.html.jinja",
        columns=columns.FULL,
        laws=laws,
        sentences=sentences,
        clause_of=clause_of,
        legend=columns.legend,
    )


def worded(name: str, **more: Any) -> Template:
    """A template beside this file that escapes every text; it may use `words`, and these."""
    place = FileSystemLoader(Path(__file__).parent)
    rooms = Environment(loader=place, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    rooms.globals.update(words=words, **more)
    return rooms.get_template(name)


def sections(report: Report) -> dict[str, list[Figure]]:
    """Figures by section of the page."""
    names = load_figures.LATENCIES
    return {
        "search": [load_figures.search(report)] if report.located is not None and report.levels else [],
        "latency": [load_figures.latency(report, metric, name) for metric, name in names],
        "throughput": [load_figures.output(report), load_figures.requests(report)] if report.levels else [],
        "timeline": [stream_figures.timeline(report)],
        "distribution": [stream_figures.distribution(report, metric, name) for metric, name in names],
        "client": load_figures.client_health(report),
    }


def payload(plots: list[Figure]) -> Markup:
    """Data and layout of all figures as JSON that cannot leave the script element it stands in."""
    drawn = {figure.id: {"data": figure.data, "layout": figure.layout} for figure in plots if not figure.missing}
    text = msgspec.json.encode(drawn).decode()
    # In JSON these three occur within strings only, where \u escapes mean the same.
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def outcome_names(report: Report) -> list[str]:
    """Outcomes that happened anywhere in the run, ok first."""
    totals = dict(report.ledger.outcomes)
    for level in report.levels:
        for name, many in level.outcomes.items():
            totals[name] = max(totals.get(name, 0), many)
    return [name for name, _ in sentences.ranked(totals)]


def clause_names(report: Report) -> list[str]:
    """Clauses judged on any level, in the order of the scenario."""
    given = list(sentences.objective(report.header.scenario.slo))
    judged = {clause.name for level in report.levels for clause in level.clauses}
    return [name for name in given if name in judged] + sorted(judged - set(given))


def clause_of(level: Level, name: str) -> Clause | None:
    """A level's clause of this name."""
    return next((clause for clause in level.clauses if clause.name == name), None)
