"""One level as the twin needs it: what was really sent and what came back, in order of arrival. Pure."""

import numpy as np
import pandas as pd

from harness.analysis.flat import Floats
from harness.analysis.frame import Frame
from harness.analysis.spreads import TENTHS_PER_MS, itl_tally, latencies_ms
from harness.clock import S
from harness.metrics import Loop
from harness.model import Phase, Stage
from harness.twin.gaps import Gaps, gaps
from harness.twin.observed import Observation
from harness.twin.trace import Tokens, Trace


def observation(  # noqa: PLR0913 - a stage of a frame, and by keyword only what it was run with
    frame: Frame, stage: Stage, loop: Loop, *, think_s: float, since_ns: int, with_gaps: bool = False
) -> Observation:
    """All requests of a level, warm-up included; those due in the hold are judged. `since_ns`: when the run began.

    `with_gaps`: those between tokens too, which only a clause on ITL asks for.
    Lengths are as the server counted them, else as asked for. A request that failed has no times.
    """
    rows = frame.rows.iloc[frame.level(stage.level)]
    late_ns = 0.0 if loop == "open" else rows["start"].fillna(0.0)
    at_s = (rows["due_ns"] - stage.warmup_at_ns + late_ns) / S  # whole ns first: a float holds no wall clock
    rows = rows.assign(at_s=at_s).sort_values("at_s", kind="stable")
    ms = latencies_ms(rows, loop)
    ok = (rows["outcome"] == "ok").to_numpy()
    return Observation(
        load=stage.load,
        loop=loop,
        trace=_trace(rows, loop, think_s),
        counts=(rows["phase"] == Phase.HOLD).to_numpy(),
        ttft_s=np.where(ok, ms["ttft_ms"] / 1e3, np.nan),
        tpot_s=np.where(ok, ms["tpot_ms"] / 1e3, np.nan),
        at_s=(stage.hold_at_ns - since_ns) / S,
        gaps=_gaps(frame, stage) if with_gaps else None,
    )


def _gaps(frame: Frame, stage: Stage) -> Gaps:
    rows = frame.judged(stage.level)
    found = itl_tally(frame, rows.start, rows.stop)
    return gaps(found.values / (TENTHS_PER_MS * 1e3), found.weights)


def _trace(rows: pd.DataFrame, loop: Loop, think_s: float) -> Trace:
    prompts, outputs = _prompts(rows), _outputs(rows)
    at_s: Floats = np.maximum(rows["at_s"].to_numpy(dtype=np.float64), 0.0)
    if loop == "open":
        return Trace(prompt_tokens=prompts, output_tokens=outputs, arrival_s=at_s)
    starts_s = at_s[~rows.duplicated(["worker", "slot"]).to_numpy()]
    users = max(1, len(starts_s))
    return Trace(prompt_tokens=prompts, output_tokens=outputs, users=users, think_s=think_s, starts_s=starts_s)


def _prompts(rows: pd.DataFrame) -> Tokens:
    counted = rows["usage_prompt_tokens"].to_numpy(dtype=np.float64)
    asked = rows["prompt_tokens_asked"].to_numpy(dtype=np.float64)
    return np.maximum(np.where(counted >= 1, counted, asked), 1).astype(np.int64)


def _outputs(rows: pd.DataFrame) -> Tokens:
    """n where the request ended ok; else what it asked for, as the server did not know that it would fail."""
    n = rows["tokens"].to_numpy(dtype=np.float64)
    asked = rows["output_tokens_asked"].to_numpy(dtype=np.float64)
    whole = (rows["outcome"] == "ok").to_numpy() & (n >= 1)
    return np.maximum(np.where(whole, n, asked), 1).astype(np.int64)
