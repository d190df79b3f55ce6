"""Requests with everything that is computed of each, in the order of their Frame. No clock, no I/O.

No formula stands here: they are those of `metrics`, as `analysis` applies them to whole columns.
"""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from harness.analysis.flat import Flags, Floats
from harness.analysis.frame import Frame, frame_of
from harness.analysis.judging import met
from harness.analysis.spreads import latencies_ms
from harness.clock import MS
from harness.model import Outcome, RunHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Requests of a run; every column has one value a row of `frame.rows`, NaN or None where it does not exist."""

    frame: Frame
    logged: pa.Table
    """Their columns of the log, without the lists of token events."""
    ms: dict[str, Floats]
    """Their latencies, and `lag_ms`."""
    ok: Flags
    good: Flags
    """Ended ok and met every clause of the SLO."""


def measured(header: RunHeader, table: pa.Table) -> Measured:
    """Of rows that stand, with the columns of `record.columns.RECORDS`."""
    frame = frame_of(table)
    places = pc.index_in(pa.array(frame.rows["request_id"].to_numpy()), value_set=table["request_id"].combine_chunks())
    each = latencies_ms(frame.rows, header.scenario.load.loop)
    ok = (frame.rows["outcome"] == Outcome.OK).to_numpy()
    return Measured(
        frame=frame,
        logged=table.drop_columns(["gaps_us", "k"]).take(places),
        ms=each | {"lag_ms": frame.rows["start"].to_numpy() / MS},
        ok=ok,
        good=ok & met(frame, slice(0, len(ok)), header.scenario.slo, each),
    )
