"""Health rows and records of a level to a Client: was the load generator itself in the way? Pure."""

from collections.abc import Collection, Sequence

import numpy as np
import pandas as pd
import pyarrow as pa
from msgspec import Struct
from scipy.special import bdtrc

from harness.analysis.distributions import tally
from harness.analysis.frame import Frame
from harness.clock import MS, S
from harness.findings import STOLEN, Client
from harness.metrics import limits, share
from harness.model import Outcome, Phase, Scenario, Slo, Stage


class Threshold(Struct, frozen=True, kw_only=True):
    """Above `limit` the client is limited. `reason` is a template for what is said, `why` is why the limit is there."""

    limit: float
    reason: str
    why: str


COALESCED = Threshold(
    limit=0.01,
    reason="{0:.1%} of token events were hidden behind a late read (limit {1:.0%})",
    why="a hidden event's stamp is that of a later one; above 1 % that reaches the P99 of ITL",
)
FEW_HIDDEN = 10
"""Fewer hidden events than this are a hiccup, whatever their share."""
BUSY = Threshold(
    limit=0.95,
    reason="a worker used or waited for {0:.2f} of a core (limit {1:.2f})",
    why="one process has one core; beyond this, work queues inside the client",
)
LAG = Threshold(
    limit=2.0,
    reason="requests left {0:.3g} ms late at P99 (limit {1:.3g} ms)",
    why="lateness is part of open-loop latency; 2 ms, or 1 % of the tightest TTFT limit, changes no verdict",
)
LAG_OF_TTFT = 0.01
LATE, LUCK = 0.01, 0.05
"""More than 1 % of the requests are late, and by more than luck: the P99 of 150 is about its second latest, and a core
that slept through two dues is no client that cannot keep up."""
IDLE = Threshold(
    limit=0.02,
    reason="users stood idle {0:.1%} of the time before their next request left (limit {1:.0%})",
    why="a closed loop times from the start, so lateness changes no latency; but N users are then fewer than N",
)
UNSENT = Threshold(
    limit=0.0,
    reason="{0:.1%} of due requests could not be sent from here (no file, port or socket left)",
    why="load that was never offered says nothing about the server",
)
HUB = Threshold(
    limit=100.0,
    reason="the event loop was {0:.3g} ms late at P99 (limit {1:.0f} ms)",
    why="kernel stamps forgive a late loop, but not so late that many segments wait in a socket or heartbeats fail",
)
STEP = Threshold(
    limit=5.0,
    reason="the wall clock stepped by {0:.3g} ms (limit {1:.0f} ms)",
    why="all stamps are on the wall clock; slewing moves both clocks alike, so only a step shows",
)
SILENT_NS = 100 * MS
"""A worker beats when it has drained, after the end of the hold, or has done so less than 50 ms before."""
ADVICE = {
    "lost": "see why the worker's process ended (its log, the kernel's), then measure again",
    "coalesced": "add client processes (--processes 2, up to the cores) or spread workers over machines",
    "busy": "add client processes (--processes 2, up to the cores) or spread workers over machines",
    "lag": "add client processes (--processes 2, up to the cores) or spread workers over machines",
    "unsent": "raise the limit of open files (ulimit -n), or spread workers over machines",
    "hub": "add client processes (--processes 2) and keep other work off the client's cores",
    "stolen": "a quieter host: this machine's own gave {0:.0%} of its CPU time to others, which no process count mends",
    "step": "let the clock settle (no NTP step during a run), then measure again",
}
STARVED = frozenset({"coalesced", "busy", "lag", "hub"})
"""What stolen time shows as."""


def health_frame(health: pa.Table) -> pd.DataFrame:
    """The health table as pandas."""
    rows: pd.DataFrame = health.to_pandas()
    return rows


def client(frame: Frame, health: pd.DataFrame, stage: Stage, scenario: Scenario) -> Client:
    """The client during the hold of one level; worst worker."""
    level = health[health["level"] == stage.level]
    hold = level[(level["at_ns"] > stage.hold_at_ns) & (level["at_ns"] <= stage.end_at_ns)]
    rows = frame.rows.iloc[frame.level(stage.level)]
    rows = rows[rows["phase"] == Phase.HOLD]
    by_worker = hold.groupby("worker")
    cpu, runnable = by_worker["cpu"].mean(), by_worker["runnable"].mean()
    late_ns = rows["start"] - rows["connect"].fillna(0.0)  # connection set-up is the server's and the network's time
    lag_ms = tally(late_ns.to_numpy() / MS).quantile(0.99)
    unsent = share(float((rows["outcome"] == Outcome.NOT_SENT).sum()), float(len(rows)))
    hub_ms = tally(hold["hub_delay_ns"].to_numpy(dtype=np.float64) / MS).quantile(0.99)
    hidden = float(rows["coalesced"].sum())
    coalesced = share(hidden, float(rows["events"].sum())) or 0.0
    step_ms = _clock_step_ms(level)
    busy = (cpu + runnable).max() if len(cpu) else None
    found = {
        "lost": _lost(level, stage),
        "coalesced": _said(COALESCED, coalesced) if hidden >= FEW_HIDDEN else "",
        "busy": _said(BUSY, busy),
        "lag": _late(late_ns, rows["end"], lag_ms, scenario),
        "unsent": _said(UNSENT, unsent),
        "hub": _said(HUB, hub_ms),
        "step": _said(STEP, step_ms),
    }
    reasons = {name: said for name, said in found.items() if said}
    stolen = float(hold["stolen"].mean()) if len(hold) else None
    return Client(
        lag_p99_ms=lag_ms,
        hub_delay_p99_ms=hub_ms,
        cpu=float(cpu.max()) if len(cpu) else None,
        runnable=float(runnable.max()) if len(runnable) else None,
        stolen=stolen,
        coalesced_share=coalesced,
        stamp_source=_stamp_source(rows["stamp_source"].unique().tolist()),
        clock_step_ms=step_ms,
        limited=bool(reasons),
        reasons=list(reasons.values()),
        advice=_advice(reasons.keys(), stolen or 0.0),
    )


def _advice(reasons: Collection[str], stolen: float) -> str:
    advice = [ADVICE[name] for name in reasons]
    if stolen > STOLEN and not STARVED.isdisjoint(reasons):
        advice.insert(0, ADVICE["stolen"].format(stolen))
    return "; ".join(dict.fromkeys(advice))


def _said(threshold: Threshold, value: float | None, limit: float | None = None) -> str:
    limit = threshold.limit if limit is None else limit
    return "" if value is None or value <= limit else threshold.reason.format(value, limit)


def _lost(level: pd.DataFrame, stage: Stage) -> str:
    """Workers that fell silent before the hold was over: for a part of it the load was lighter than it says."""
    last_ns = level.groupby("worker")["at_ns"].max()
    silent = sorted(last_ns[last_ns < stage.end_at_ns - SILENT_NS].index)
    said = [
        f"worker {worker} was lost {(stage.end_at_ns - last_ns[worker]) / S:.1f} s before the end" for worker in silent
    ]
    if 0 < len(last_ns) < stage.workers:
        said.append(f"{stage.workers - len(last_ns)} of {stage.workers} workers were never heard of")
    return "; ".join(said)


def _late(late_ns: "pd.Series[float]", end_ns: "pd.Series[float]", lag_ms: float | None, scenario: Scenario) -> str:
    """Open loop: lateness is part of the latency. Closed loop: it only makes the load lighter than it says."""
    if scenario.load.loop == "open":
        limit_ms, known = _lag_limit_ms(scenario.slo), late_ns.notna()
        late = int((late_ns[known] > limit_ms * MS).sum())
        return _said(LAG, lag_ms, limit=limit_ms) if bdtrc(late - 1, int(known.sum()), LATE) < LUCK else ""
    return _said(IDLE, share(float(late_ns.sum()), float(end_ns.sum())))


def _lag_limit_ms(slo: Slo) -> float:
    tightest = [limit.ms for limit in limits(slo) if limit.metric == "ttft_ms"]
    return max(LAG.limit, LAG_OF_TTFT * min(tightest)) if tightest else LAG.limit


def _clock_step_ms(level: pd.DataFrame) -> float:
    if level.empty:
        return 0.0
    offset = level.groupby("worker")["wall_minus_mono_ns"]
    return float((offset.max() - offset.min()).max()) / MS


def _stamp_source(sources: Sequence[str]) -> str:
    some = sorted({source for source in sources if source})
    return "mixed" if len(some) > 1 else some[0] if some else ""
