"""A run directory: what is in it, and the Report its records fold into. I/O (reads and writes files)."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pyarrow as pa
from msgspec import Struct

from harness import scenario
from harness.analysis.frame import frame_of
from harness.analysis.levels import levels
from harness.analysis.report import report_value
from harness.findings import Level, Report, Verdict
from harness.knee import search
from harness.knee.bracket import Axis, knee_of
from harness.knee.search import NextProbe, Stop
from harness.knee.verdict import load_words, run_verdict
from harness.model import RunHeader, Stage
from harness.record.directory import NoRun, read_header, read_stages
from harness.record.log import read_health, read_records
from harness.report import document, markdown, page

SUMMARY = "summary.json"
REPORT = "report.html"


class Facts(Struct, frozen=True, kw_only=True):
    """All that a Report is made from."""

    header: RunHeader
    stages: list[Stage]
    records: pa.Table
    """As `record.reading.read_records` gives it."""
    health: pa.Table


def judged(directory: Path, stages: Sequence[Stage]) -> list[Level]:
    """The levels of these stages, from the log."""
    asked = read_header(directory).scenario
    return levels(frame_of(read_records(directory)), read_health(directory), asked, list(stages))


def report_of(directory: Path) -> Report:
    """Everything in the log, judged. Raises NoRun, or LogError when the log is damaged in its middle."""
    return report_from(
        Facts(
            header=read_header(directory),
            stages=read_stages(directory),
            records=read_records(directory),
            health=read_health(directory),
        )
    )


def report_from(facts: Facts) -> Report:
    """The same from a run's facts, wherever they were kept."""
    header = facts.header
    report = report_value(header, facts.stages, facts.records, facts.health)
    axis: Axis = "users" if header.scenario.load.loop == "closed" else "rate"
    if header.plan == "knee" or len(report.levels) > 1:
        knee = knee_of(report.levels, axis)
        judged_by = knee if header.plan == "knee" else None
        verdict = run_verdict(report.levels, report.ledger, judged_by)
        report = msgspec.structs.replace(report, knee=knee, verdict=verdict)
    left = next_probe(header)(report.levels)
    if isinstance(left, Stop):
        return report
    text = f"stopped early, before {load_words(left.load, axis)} was measured; until then: {report.verdict.text}"
    return msgspec.structs.replace(report, verdict=Verdict(held="unjudged", text=text, exit_code=2))


def next_probe(header: RunHeader) -> NextProbe:
    """What a run measures: the levels as listed, or the knee search over them."""
    load = header.scenario.load
    loads = scenario.levels(load)
    if header.plan != "knee":
        return search.listed(loads)
    return search.knee(search.Grid(ladder=loads, whole=load.loop == "closed", precision=load.precision))


def write_report(directory: Path, report: Report) -> Path:
    """summary.json, report.md and report.html, each whole or not at all; returns the path of the page."""
    for name, data in (
        (SUMMARY, document.summary(report)),
        ("report.md", markdown.text(report).encode()),
        (REPORT, page.html(report).encode()),
    ):
        unfinished = directory / f".{name}"
        unfinished.write_bytes(data)
        unfinished.replace(directory / name)
    return directory / REPORT


def read_report(directory: Path) -> Report:
    """The Report as it was written at the end of the run. Raises NoRun."""
    try:
        return document.read((directory / SUMMARY).read_bytes())
    except OSError:
        raise NoRun(f"{directory}: no {SUMMARY}; `tokenswarm report {directory}` makes it from the log") from None
