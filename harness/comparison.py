"""Run directories to a comparison of them, and to its files. I/O (reads and writes files), no clock."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from harness.analysis import compare
from harness.analysis.frame import frame_of
from harness.decisions import Comparison, Difference, Side
from harness.findings import Report
from harness.knee.changes import REGRESSION
from harness.record.directory import NoRun, put
from harness.record.log import read_records
from harness.report import compared as rendered
from harness.run import results

MOST_LISTED = 12
"""Differences that are listed in a refusal; the rest are counted."""


class Read(Struct, frozen=True, kw_only=True):
    """A run directory, read whole."""

    label: str
    report: Report
    run: compare.Run


def read(directory: Path) -> Read:
    """Raises NoRun or LogError, one line each."""
    try:
        report = results.read_report(directory)
    except NoRun:
        report = results.report_of(directory)
    run = compare.Run(
        frame=frame_of(read_records(directory)),
        scenario=report.header.scenario,
        stages=report.stages,
        levels=report.levels,
    )
    return Read(label=directory.resolve().name, report=report, run=run)


def agreed(runs: Sequence[Read], *, anyway: bool) -> list[Difference]:
    """Where the scenarios of runs differ. Raises ValueError with the differences, path by path, unless `anyway`."""
    found = compare.differences([each.run.scenario for each in runs])
    if found and not anyway:
        listed = [f"  {each.path}: {' | '.join(shown(value) for value in each.values)}" for each in found]
        more = [f"  … and {len(found) - MOST_LISTED} more"] if len(found) > MOST_LISTED else []
        names = ", ".join(each.label for each in runs)
        head = f"the scenarios of {names} differ, so their numbers do not compare; --anyway compares them all the same"
        raise ValueError("\n".join([head, *listed[:MOST_LISTED], *more]))
    return found


def shown(value: object) -> str:
    """A value of a scenario as it would be typed; None: not given."""
    return "not given" if value is None else msgspec.json.encode(value).decode()


def compared(directories: Sequence[Path], *, anyway: bool = False) -> tuple[Comparison, list[Report]]:
    """Two runs or more, the first of which is what the others are compared with, and their reports for the plots.

    Raises ValueError: fewer than two, no run, scenarios that differ, no load in common.
    """
    if len(directories) < 2:
        raise ValueError(f"compare: got {len(directories)} run directory, expected two or more")
    runs = [read(directory) for directory in directories]
    differing = agreed(runs, anyway=anyway)
    rows, notes = compare.rows([each.run for each in runs], REGRESSION)
    if not rows:
        loads = "; ".join(f"{each.label}: {', '.join(f'{x.load:g}' for x in each.run.levels)}" for each in runs)
        raise ValueError(f"compare: no load was measured in every run ({loads})")
    sides = [_side(each) for each in runs]
    name = runs[0].run.scenario.name
    found = Comparison(scenario=name, sides=sides, rows=rows, differences=differing, notes=notes)
    return found, [each.report for each in runs]


def write(directory: Path, comparison: Comparison, reports: Sequence[Report]) -> Path:
    """comparison.json, comparison.md and comparison.html, each whole or not at all; returns the path of the page."""
    directory.mkdir(parents=True, exist_ok=True)
    document = msgspec.json.format(msgspec.json.encode(comparison, order="deterministic"), indent=2) + b"\n"
    put(directory / "comparison.json", document)
    put(directory / "comparison.md", rendered.text(comparison).encode())
    return put(directory / "comparison.html", rendered.html(comparison, reports).encode())


def _side(each: Read) -> Side:
    header = each.report.header
    return Side(
        label=each.label,
        run_id=header.run_id,
        host=header.host,
        model=header.model,
        started_ns=header.started_ns,
        version=header.version,
    )
