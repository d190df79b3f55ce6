"""Run directories for tests: waits and gaps as arrays, written as a run would have left them. I/O, no clock."""

from array import array
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray
from scipy.signal import lfilter

from harness.model import (
    Fixed,
    Health,
    Load,
    Outcome,
    Phase,
    Record,
    RunHeader,
    Scenario,
    Slo,
    Stage,
    Target,
    Timeline,
    Usage,
)
from harness.record.columns import health_batch, records_batch
from harness.record.directory import append_stage, write_header
from harness.record.log import Batch, RunLog
from harness.record.messages import message

MS, S = 1_000_000, 1_000_000_000
T0 = 1_700_000_000 * S
RATE = 50.0
TOKENS = 5
GAP_MS = 20.0
SLO = Slo(ttft_p99_ms=500, itl_p50_ms=30, error_share=0.01)

Waits = NDArray[np.float64]


def scenario(slo: Slo = SLO, **load: Any) -> Scenario:
    """An open loop of two levels, or what else is given."""
    return Scenario(
        name="staging-chat",
        target=Target(host="http://staging.example:8000"),
        load=Load(**({"loop": "open", "levels": [RATE]} | load)),
        prompt_tokens=Fixed(tokens=10),
        output_tokens=Fixed(tokens=TOKENS),
        slo=slo,
    )


def clustered(count: int, correlation: float = 0.0, seed: int = 1, median_ms: float = 100.0) -> Waits:
    """Log-normal waits in ms whose logarithms, of deviation 0.4, are AR(1) with this lag-1 correlation."""
    shocks = np.random.default_rng(seed).standard_normal(count)
    shocks[1:] *= np.sqrt(1 - correlation**2)
    return median_ms * np.exp(0.4 * np.asarray(lfilter([1.0], [1.0, -correlation], shocks)))


def written(
    directory: Path, levels: list[Waits], asked: Scenario | None = None, *, gap_ms: float = GAP_MS, **header: Any
) -> Path:
    """A finished run: one level for each array, whose requests are due at even distances. An infinite wait is a request
    that was refused."""
    asked = asked or scenario(levels=[RATE * (1 + place) for place in range(len(levels))])
    told = {"run_id": directory.name, "version": "0.1.0", "host": "http://staging.example:8000", "model": "m"}
    write_header(directory, RunHeader(scenario=asked, started_ns=T0, **(told | header)))
    log, at_ns, due = RunLog(directory), T0, 0
    for index, waits in enumerate(levels):
        stage = _stage(index, RATE * (1 + index), at_ns, len(waits))
        records = [_record(due + j, stage, j, float(wait), gap_ms) for j, wait in enumerate(waits)]
        due += len(records)
        log.append(_batch("records", records_batch(records), index))
        beats = [replace(_beat(stage, at_ns), due=due) for at_ns in range(stage.hold_at_ns, stage.drained_by_ns, S)]
        log.append(_batch("health", health_batch(beats), index))
        append_stage(directory, stage)
        at_ns = stage.drained_by_ns
    log.close()
    return directory


def _batch(kind: Any, rows: Any, seq: int) -> Batch:
    return Batch(kind=kind, worker=0, seq=seq, rows=rows.num_rows, data=message(rows, seq))


def _stage(index: int, load: float, at_ns: int, count: int) -> Stage:
    end_ns = at_ns + S + round(count / load * S)
    return Stage(
        level=index, load=load, warmup_at_ns=at_ns, hold_at_ns=at_ns + S, end_at_ns=end_ns, drained_by_ns=end_ns + 9 * S
    )


def _record(request_id: int, stage: Stage, place: int, wait_ms: float, gap_ms: float) -> Record:
    due_ns = stage.hold_at_ns + round(place / stage.load * S)
    ok = np.isfinite(wait_ms)
    at = [due_ns + round((wait_ms + j * gap_ms) * 1000) * 1000 for j in range(TOKENS)] if ok else []
    return Record(
        request_id=request_id,
        worker=0,
        slot=0,
        level=stage.level,
        phase=Phase.HOLD,
        request_class="default",
        due_ns=due_ns,
        start_ns=due_ns,
        end_ns=at[-1] if at else due_ns + MS,
        outcome=Outcome.OK if ok else Outcome.REFUSED,
        stamp_source="kernel",
        timeline=Timeline(at_ns=array("q", at)),
        prompt_tokens_asked=10,
        usage=Usage(completion_tokens=TOKENS if ok else None),
    )


def _beat(stage: Stage, at_ns: int) -> Health:
    return Health(
        worker=0,
        level=stage.level,
        at_ns=at_ns,
        span_ns=S,
        cpu=0.2,
        runnable=0.01,
        stolen=0.0,
        hub_delay_ns=MS,
        lag_ns=0,
        due=0,
        ended=0,
        in_flight=0,
        token_events=0,
        coalesced=0,
        wall_minus_mono_ns=0,
    )
