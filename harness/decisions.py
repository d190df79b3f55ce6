"""What a pipeline or a comparison is told: Check, Change, Gate, Compared, Comparison. No clock, no I/O.

`Gate` is the document `gate.json` beside a run's `summary.json`; its fields are documented here and in `docs/ci.md`.
"""

from typing import Literal

from msgspec import Struct

from harness.model import Json

Decision = Literal["pass", "fail", "inconclusive"]
EXIT_CODES: dict[Decision, Literal[0, 1, 2]] = {"pass": 0, "fail": 1, "inconclusive": 2}
Axis = Literal["users", "rate"]
Ends = tuple[float, float]


class Check(Struct, frozen=True, kw_only=True):
    """One SLO clause on one level, decided by the share of requests (tokens for `itl`) beyond its limit."""

    level: int
    load: float
    axis: Axis
    hold_s: float
    clause: str
    """As in the scenario: ttft_p99_ms, error_share …"""
    limit: float
    value: float | None
    """The quantile, share or speed that was measured, in the unit of the limit."""
    requests: int
    """Requests this was decided from."""
    beyond: float | None = None
    """Share of them beyond the limit."""
    allowed: float
    """Share that may be: 0.01 for a P99."""
    low: float | None = None
    high: float | None = None
    """95 % interval of `beyond`; None: too few to say."""
    decision: Decision
    why: str
    needed_requests: int | None = None
    """Inconclusive only: about how many requests would tell, if they came as these did; None: no number would."""
    needed_minutes: float | None = None
    """The same as a hold at this level's rate."""


class Change(Struct, frozen=True, kw_only=True):
    """One metric of one level against the same level of another run."""

    level: int
    load: float
    axis: Axis
    metric: str
    """ttft_p50_ms … e2e_p99_ms, output_tps, goodput_rps."""
    better: Literal["lower", "higher"]
    old: float | None
    new: float | None
    ratio: float | None = None
    """new / old."""
    low: float | None = None
    high: float | None = None
    """95 % interval of the ratio; None: too few to say."""
    limit: float = 0.05
    """Regression that is let pass, as a share of the old value."""
    decision: Decision
    text: str
    """"slower by 12 % (8 to 17 %)", "no difference beyond ±3 %", "too few"."""


class Difference(Struct, frozen=True, kw_only=True):
    """One field in which the scenarios of runs differ."""

    path: str
    """load.levels[2]; a field that one of them lacks has None there."""
    values: list[Json]
    """One a run, in the order of the runs."""


class Gate(Struct, frozen=True, kw_only=True):
    """A run at fixed loads, decided clause by clause and, with a baseline, metric by metric."""

    schema_version: int = 1
    run_id: str
    scenario: str
    host: str = ""
    model: str = ""
    baseline: str | None = None
    """Run id of the baseline."""
    checks: list[Check] = []
    changes: list[Change] = []
    differences: list[Difference] = []
    """Where the baseline's scenario differs although the two were compared."""
    notes: list[str] = []
    decision: Decision
    text: str
    exit_code: Literal[0, 1, 2]


class Side(Struct, frozen=True, kw_only=True):
    """One of the runs that are compared."""

    label: str
    run_id: str
    host: str
    model: str
    started_ns: int
    version: str


class Compared(Struct, frozen=True, kw_only=True):
    """One metric of one level in every run; the first run is what the others are compared with."""

    load: float
    axis: Axis
    metric: str
    better: Literal["lower", "higher"]
    values: list[float | None]
    intervals: list[Ends | None]
    """95 %, one a run; rates have none of their own."""
    changes: list[Change | None]
    """Of the second run, the third … against the first; None: neither has this metric."""


class Comparison(Struct, frozen=True, kw_only=True):
    """Runs side by side, for the levels that all of them measured."""

    scenario: str
    sides: list[Side]
    rows: list[Compared]
    differences: list[Difference] = []
    notes: list[str] = []
