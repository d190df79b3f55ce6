"""A finished run to a gate: decided, and written where a pipeline looks. I/O (reads and writes files), no clock."""

from pathlib import Path

import msgspec
from msgspec import Struct

from harness import comparison
from harness.analysis import checks, compare
from harness.comparison import Read
from harness.decisions import EXIT_CODES, Change, Check, Difference, Gate
from harness.findings import STOPPED_EARLY, Report
from harness.knee.bracket import axis_of
from harness.knee.changes import REGRESSION
from harness.knee.gate import decision_of, said, unsure
from harness.knee.search import Stop
from harness.knee.verdict import load_words
from harness.record.directory import put
from harness.report import gated, junit
from harness.run import results

GATE = "gate.json"
JUNIT = "junit.xml"
MARKDOWN = "gate.md"


class Against(Struct, frozen=True, kw_only=True):
    """What a run is compared with, and how strictly."""

    baseline: Path
    regression: float = REGRESSION
    """Regression of a metric that is let pass, as a share of the old value."""
    anyway: bool = False
    """Compare although the scenarios differ."""


class Regressions(Struct, frozen=True, kw_only=True):
    """What the comparison with a baseline gave."""

    baseline: str
    changes: list[Change]
    differences: list[Difference]
    notes: list[str]


def judged(directory: Path, against: Against | None = None) -> Gate:
    """Every SLO clause of every level, and every metric against the baseline. Raises ValueError, for the user."""
    ours = comparison.read(directory)
    header, found = ours.report.header, _checks(ours)
    if header.plan == "knee":
        raise ValueError(
            f"{directory}: is a knee search, which chose its loads itself; a gate needs a run at fixed loads"
        )
    if not found and against is None and ours.report.levels:
        raise ValueError(f"{directory}: its scenario has no slo clauses to judge; add some, or give --baseline RUN")
    before = None if against is None else _regressions(ours, against)
    changes = [] if before is None else before.changes
    told: list[Check | Change] = [*found, *changes]
    decision = decision_of([each.decision for each in told])
    gate = Gate(
        run_id=header.run_id,
        scenario=header.scenario.name,
        host=header.host,
        model=header.model,
        baseline=None if before is None else before.baseline,
        checks=found,
        changes=changes,
        differences=[] if before is None else before.differences,
        notes=[*ours.report.notes, *([] if before is None else before.notes)],
        decision=decision,
        text=said(told),
        exit_code=EXIT_CODES[decision],
    )
    return _trusted(gate, ours.report)


def write(directory: Path, gate: Gate) -> list[Path]:
    """gate.json, junit.xml and gate.md, each whole or not at all; returns their paths."""
    document = msgspec.json.format(msgspec.json.encode(gate, order="deterministic"), indent=2) + b"\n"
    files = {GATE: document, JUNIT: junit.xml(gate), MARKDOWN: gated.text(gate).encode()}
    return [put(directory / name, data) for name, data in files.items()]


def _checks(ours: Read) -> list[Check]:
    scenario = ours.run.scenario
    weighed = [checks.Weighed(frame=ours.run.frame, level=each, loop=scenario.load.loop) for each in ours.run.levels]
    return [check for each in weighed for check in checks.checks(each, scenario.slo)]


def _regressions(ours: Read, against: Against) -> Regressions:
    theirs = comparison.read(against.baseline)
    differing = comparison.agreed([theirs, ours], anyway=against.anyway)
    pairs = compare.pairs(ours.run, theirs.run)
    if not pairs:
        ran = ", ".join(f"{each.load:g}" for each in theirs.run.levels) or "none"
        raise ValueError(f"{against.baseline}: measured none of this run's loads (it measured: {ran})")
    return Regressions(
        baseline=theirs.report.header.run_id,
        changes=[each for pair in pairs for each in compare.changes(ours.run, theirs.run, pair, against.regression)],
        differences=differing,
        notes=[f"Client-limited in the baseline at {pair.old.load:g}." for pair in pairs if pair.old.client.limited],
    )


def _trusted(gate: Gate, report: Report) -> Gate:
    """What speaks against any pass: requests without a record, levels that were never measured."""
    if not report.ledger.balanced:
        return unsure(gate, f"{report.ledger.lost} of {report.ledger.due} due requests have no record")
    left = results.planned(report.header)(report.levels)
    if isinstance(left, Stop):
        return gate
    axis = axis_of(report.header.scenario.load.loop)
    return unsure(gate, f"the run {STOPPED_EARLY}, before {load_words(left.load, axis)} was measured")
