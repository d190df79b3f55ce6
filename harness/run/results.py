"""A run directory: what is in it, and the Report its records fold into. I/O (reads and writes files)."""

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from harness import scenario
from harness.analysis.frame import Frame, frame_of
from harness.analysis.levels import levels
from harness.analysis.observed import observation
from harness.analysis.report import report_value
from harness.analysis.server import most_running, preemptions
from harness.findings import STOPPED_EARLY, Level, Report, Verdict
from harness.knee import search
from harness.knee.answer import answer, located_verdict
from harness.knee.assisted import Assisted
from harness.knee.bracket import Axis, axis_of, knee_of
from harness.knee.modelfree import ModelFree
from harness.knee.plan import Plan, Seen, plan_cost
from harness.knee.search import NextProbe, Probe, Stop
from harness.knee.verdict import load_words, run_verdict
from harness.metrics import limits
from harness.model import RunHeader, Stage
from harness.record.directory import SUMMARY, NoRun, put
from harness.record.facts import Facts, facts_of
from harness.record.log import read_server
from harness.report import document, markdown, page
from harness.twin import traffic

REPORT = "report.html"
USUAL_SEATS = 256
"""Of a batch, where neither the scenario nor the server says: vLLM's default."""
BISECTIONS = 4
"""Levels that a bracket needs after the ladder, usually."""


def seen(directory: Path, stages: Sequence[Stage]) -> list[Seen]:
    """These stages, from the log: as judged, and as a search needs them. LogError, NoRun."""
    facts = facts_of(directory)
    frame = frame_of(facts.records)
    return _seen(facts, frame, stages, levels(frame, facts.health, facts.header.scenario, list(stages)))


def _seen(facts: Facts, frame: Frame, stages: Sequence[Stage], judged: Sequence[Level]) -> list[Seen]:
    header, load = facts.header, facts.header.scenario.load
    with_gaps = any(limit.metric == "itl_ms" for limit in limits(header.scenario.slo))
    return [
        Seen(
            level=level,
            observed=observation(
                frame, stage, load.loop, think_s=load.think_s, since_ns=header.started_ns, with_gaps=with_gaps
            ),
            why=stage.why,  # type: ignore[arg-type]  # a search reads its own words back
            preemptions=preemptions(facts.server, stage),
        )
        for level, stage in zip(judged, stages, strict=True)
    ]


def report_of(directory: Path) -> Report:
    """Everything in the log, judged. Raises NoRun, or LogError when the log is damaged in its middle."""
    return report_from(facts_of(directory))


def report_from(facts: Facts) -> Report:
    """The same from a run's facts, wherever they were kept."""
    header = facts.header
    report = report_value(header, facts.stages, facts.records, facts.health)
    axis = axis_of(header.scenario.load.loop)
    if has_interval(header):
        return _located(report, facts)
    if header.plan == "knee" or len(report.levels) > 1:
        knee = knee_of(report.levels, axis)
        judged_by = knee if header.plan == "knee" else None
        verdict = run_verdict(report.levels, report.ledger, judged_by)
        report = msgspec.structs.replace(report, knee=knee, verdict=verdict)
    left = planned(header)(report.levels)
    return report if isinstance(left, Stop) else _early(report, left.load, axis)


def _located(report: Report, facts: Facts) -> Report:
    search = _search(facts.header, most_running(facts.server))
    history = _seen(facts, frame_of(facts.records), facts.stages, report.levels)
    left = search.next_probe(history)
    found = answer(search, history, stopped=left.why if isinstance(left, Stop) else "")
    knee = knee_of(report.levels, found.axis)
    verdict = located_verdict(found, report.ledger)
    report = msgspec.structs.replace(report, knee=knee, located=found, verdict=verdict)
    return report if isinstance(left, Stop) else _early(report, left.load, found.axis)


def _early(report: Report, load: float, axis: Axis) -> Report:
    text = f"{STOPPED_EARLY}, before {load_words(load, axis)} was measured; until then: {report.verdict.text}"
    return msgspec.structs.replace(report, verdict=Verdict(held="unjudged", text=text, exit_code=2))


def has_interval(header: RunHeader) -> bool:
    """A search that answers with one load and an interval."""
    return header.plan == "knee" and header.scenario.search.method != "bracket"


def next_probe(directory: Path, header: RunHeader) -> Callable[[Sequence[Seen]], Probe | Stop]:
    """What a run measures: the levels as listed, or a knee search over them."""
    if not has_interval(header):
        over_levels = planned(header)
        return lambda history: over_levels([one.level for one in history])
    searches: dict[int | None, Assisted | ModelFree] = {}

    def step(history: Sequence[Seen]) -> Probe | Stop:
        """Seats are known once the server was seen full; a search keeps what it has computed for them."""
        seats = most_running(read_server(directory))
        if seats not in searches:
            searches[seats] = _search(header, seats)
        return searches[seats].next_probe(history)

    return step


def _search(header: RunHeader, seats: int | None) -> Assisted | ModelFree:
    plan = plan_of(header, seats)
    return ModelFree(plan) if header.scenario.search.method == "fit" else Assisted(plan)


def planned(header: RunHeader) -> NextProbe:
    """The levels as listed, or climb and bisect."""
    load = header.scenario.load
    loads = scenario.levels(load)
    if header.plan != "knee":
        return search.listed(loads)
    return search.knee(search.Grid(ladder=loads, whole=load.loop == "closed", precision=load.precision))


def expected_cost(header: RunHeader) -> str:
    """What a search will take, in words, before it begins; "" where the levels are listed."""
    if header.plan != "knee":
        return ""
    if has_interval(header):
        fit = header.scenario.search.method == "fit"
        return plan_cost(plan_of(header, None), method="fit" if fit else "twin").text
    phases, rungs = header.scenario.phases, len(scenario.levels(header.scenario.load))
    minutes = (rungs + BISECTIONS) * (phases.warmup_s + phases.hold_s) / 60
    return f"up to {rungs} levels of the ladder, then about {BISECTIONS} to bisect: at most about {minutes:.0f} min"


def plan_of(header: RunHeader, seats: int | None) -> Plan:
    """What a search with the twin is to find."""
    asked = header.scenario
    wanted = asked.search
    cap = wanted.max_num_seqs or seats or USUAL_SEATS
    return Plan(
        slo=asked.slo,
        traffic=traffic.of(asked),
        loop=asked.load.loop,
        ladder=scenario.levels(asked.load),
        max_num_seqs=cap,
        max_num_batched_tokens=max(wanted.max_num_batched_tokens, cap),
        seed=asked.seed,
        precision=wanted.precision,
        budget_requests=wanted.budget,
        budget_minutes=wanted.budget_minutes,
        confirm=wanted.confirm,
    )


def write_report(directory: Path, report: Report) -> Path:
    """summary.json, report.md and report.html, each whole or not at all; returns the path of the page."""
    put(directory / SUMMARY, document.summary(report))
    put(directory / "report.md", markdown.text(report).encode())
    return put(directory / REPORT, page.html(report).encode())


def read_report(directory: Path) -> Report:
    """The Report as it was written at the end of the run. Raises NoRun."""
    try:
        return document.read((directory / SUMMARY).read_bytes())
    except OSError:
        raise NoRun(f"{directory}: no {SUMMARY}; `tokenswarm report {directory}` makes it from the log") from None
