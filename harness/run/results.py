"""A run directory: what is in it, and the Report its records fold into. I/O (reads and writes files)."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

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
from harness.record.log import read_health, read_records
from harness.report import document, markdown, page

HEADER = "header.json"
STAGES = "stages.jsonl"
SUMMARY = "summary.json"
REPORT = "report.html"


class NoRun(ValueError):
    """The directory is not a run. The message is one line."""


def write_header(directory: Path, header: RunHeader) -> None:
    """The first file of a run."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / HEADER).write_bytes(msgspec.json.format(msgspec.json.encode(header)))


def read_header(directory: Path) -> RunHeader:
    """Raises NoRun."""
    try:
        return msgspec.json.decode((directory / HEADER).read_bytes(), type=RunHeader)
    except OSError:
        raise NoRun(f"{directory}: not a run directory (no {HEADER}); runs are written below runs/") from None
    except msgspec.DecodeError as error:
        raise NoRun(f"{directory / HEADER}: {error}") from None


def read_stages(directory: Path) -> list[Stage]:
    """Stages that were run to their end; a torn last line is left out."""
    path = directory / STAGES
    lines = path.read_bytes().split(b"\n") if path.exists() else []
    return [msgspec.json.decode(line, type=Stage) for line in lines[:-1] if line]


def judged(directory: Path, stages: Sequence[Stage]) -> list[Level]:
    """The levels of these stages, from the log."""
    asked = read_header(directory).scenario
    return levels(frame_of(read_records(directory)), read_health(directory), asked, list(stages))


def report_of(directory: Path) -> Report:
    """Everything in the log, judged. Raises NoRun, or LogError when the log is damaged in its middle."""
    header, stages = read_header(directory), read_stages(directory)
    report = report_value(header, stages, read_records(directory), read_health(directory))
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
