"""Header, stages and tables of a run to its Report. Pure."""

import pyarrow as pa

from harness import clock
from harness.analysis.frame import Frame, frame_of
from harness.analysis.ledger import ledger
from harness.analysis.levels import measured
from harness.analysis.timelines import samples
from harness.findings import Knee, Ledger, Level, Report
from harness.knee.saturation import laws_of
from harness.knee.verdict import load, run_verdict
from harness.metrics import FEW_FOR_P99
from harness.model import RunHeader, Stage

LONG_PAUSE_S = 120
"""From here on a pause is told in minutes."""


def report_value(
    header: RunHeader, stages: list[Stage], table: pa.Table, health_table: pa.Table, knee: Knee | None = None
) -> Report:
    """The whole run, judged: by its knee if a search found one, else by all levels together."""
    frame = frame_of(table)
    found = measured(frame, health_table, header.scenario, stages)
    levels, account = [each.level for each in found], ledger(frame, health_table)
    return Report(
        header=header,
        stages=stages,
        levels=levels,
        knee=knee,
        laws=laws_of(levels),
        ledger=account,
        verdict=run_verdict(levels, account, knee),
        notes=[*sittings(header, stages), *notes(frame, levels, account)],
        samples=samples(frame, levels),
        curves=[curve for each in found for curve in each.curves],
    )


def sittings(header: RunHeader, stages: list[Stage]) -> list[str]:
    """When a run went on after an interruption; one sentence for each that a level was measured after."""
    said = []
    for at_ns in header.resumed_ns:
        ended_ns = [stage.end_at_ns for stage in stages if stage.end_at_ns <= at_ns]
        if ended_ns and len(ended_ns) < len(stages):
            pause_s = (at_ns - max(ended_ns)) / clock.S
            pause = f"{pause_s / 60:.0f} min" if pause_s >= LONG_PAUSE_S else f"{pause_s:.0f} s"
            said.append(f"Interrupted, and resumed at {clock.iso(at_ns)}, {pause} after the hold of the level before.")
    return said


def notes(frame: Frame, levels: list[Level], account: Ledger) -> list[str]:
    """What a reader must know before trusting the numbers; one sentence each."""
    said = []
    if account.lost:
        said.append(f"{account.lost} of {account.due} due requests left no record: a client process was lost.")
    said += [f"Not settled at {load(level)}: {level.settling}." for level in levels if not level.settled]
    said += [f"Client-limited at {load(level)}; {level.client.advice}." for level in levels if level.client.limited]
    few = [level for level in levels if 0 < level.metrics["ttft_ms"].n < FEW_FOR_P99]
    if few:
        said.append(f"Fewer than {FEW_FOR_P99} requests at {_loads(few)}: a P99 there has no interval.")
    user = [level for level in levels if level.client.stamp_source in {"user", "mixed"}]
    if user:
        said.append(f"Arrivals at {_loads(user)} were stamped after the read and not by the kernel.")
    uncounted = int((frame.rows["judged"] & ~(frame.rows["usage_completion_tokens"] >= 1)).sum())
    if uncounted:
        said.append(f"The server reported no token count for {uncounted} ok requests: their frames were counted.")
    return said


def _loads(levels: list[Level]) -> str:
    return ", ".join(load(level) for level in levels)
