"""What records are folded into: Spread, Clause, Level, Knee, Laws, Ledger, Verdict, Report. No clock, no I/O.

`Report` is the document `summary.json`; its fields are documented here and versioned by `Report.schema_version`.
"""

import math
from typing import Literal

from msgspec import Struct, field

from harness.model import Json, RunHeader, Stage

Held = Literal["held", "broken", "unjudged"]
STOPPED_EARLY = "stopped early"


class Spread(Struct, frozen=True, kw_only=True):
    """The distribution of one metric over one level. Values are in the unit its name carries."""

    n: int
    """Values it is made of (requests, or tokens for `itl_ms`)."""
    absent: int = 0
    """Requests for which the metric does not exist."""
    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None
    interval: dict[str, tuple[float, float] | None] = {}
    """95 % interval per quantile ("p50" …), from blocks; None: too few to say."""


class Clause(Struct, frozen=True, kw_only=True):
    """One SLO clause judged on one level."""

    name: str
    limit: float
    value: float | None
    low: float | None = None
    high: float | None = None
    held: Held
    note: str = ""


STOLEN = 0.02
"""Of the CPU time."""


class Client(Struct, frozen=True, kw_only=True):
    """Health of the load generator during the hold of one level, worst worker."""

    lag_p99_ms: float | None
    hub_delay_p99_ms: float | None
    cpu: float | None
    """Mean CPU share of the busiest worker process; 1.0 is one core."""
    runnable: float | None
    """Mean share of time the most starved worker waited for a CPU."""
    stolen: float | None = None
    """Mean share of this machine's CPU time that its host gave to others."""
    coalesced_share: float
    stamp_source: str
    """kernel, user, mixed, or "" when nothing arrived."""
    clock_step_ms: float = 0.0
    limited: bool
    reasons: list[str] = []
    advice: str = ""

    @property
    def robbed(self) -> bool:
        """The host took so much CPU time that this explains what is late, and is the first thing to mend."""
        return (self.stolen or 0.0) > STOLEN


class Level(Struct, frozen=True, kw_only=True):
    """One level of load and everything measured in its hold."""

    index: int
    load: float
    axis: Literal["users", "rate"]
    hold_s: float
    due: int
    """Requests due in the hold; every share below is of these."""
    offered_rps: float
    achieved_rps: float
    """Requests that ended ok per second of hold."""
    output_tps: float
    """Tokens whose event arrived in the hold / hold, unfinished requests included."""
    input_tps: float
    goodput_rps: float
    attainment: float | None
    error_share: float | None
    outcomes: dict[str, int]
    metrics: dict[str, Spread]
    """ttft_ms, itl_ms, gap_ms, tpot_ms, e2e_ms, lag_ms, ttfb_ms, ttfat_ms, connect_ms, worst_gap_ms (per request)."""
    tokens_per_event: float | None
    in_flight: float
    """Mean number of requests in flight during the hold (due or started until end)."""
    running: float
    """Mean number of streams between first and last token: the decode batch as the client sees it."""
    time_in_system_s: float | None = None
    """Mean of end − due (open loop) or − start (closed loop) of all due in the hold, whatever became of them; one that
    did not end counts to the end of the drain. None: nothing was due."""
    little: float | None = None
    """in_flight / (offered_rps · time_in_system_s), 1 where the level was steady. Decides nothing."""
    cost_per_million_output_tokens: float | None = None
    settled: bool
    settling: str = ""
    """Why not settled, in words."""
    client: Client
    clauses: list[Clause]
    held: Held
    why: str = ""
    """For broken: the binding clause. For unjudged: what was missing."""


class Knee(Struct, frozen=True, kw_only=True):
    """Between which loads the SLO breaks. `holds` was measured to hold and `breaks` to break; never more than that."""

    found: Literal["bracket", "none_up_to", "breaks_at_first", "undecided"]
    axis: Literal["users", "rate"]
    holds: float | None = None
    """Highest load that held with nothing below or at it broken."""
    breaks: float | None = None
    """Lowest load that broke."""
    binding: str = ""
    """The clause that broke at `breaks`."""
    holds_level: int | None = None
    """Index of the level measured at `holds`."""
    breaks_level: int | None = None
    output_tps: float | None = None
    goodput_rps: float | None = None
    running: float | None = None
    cost_per_million_output_tokens: float | None = None
    probes: list[int] = []
    """Level indices in the order they were run."""
    text: str = ""


class Located(Struct, frozen=True, kw_only=True):
    """Where the SLO breaks in the long run, over the declared traffic: the answer of `--method twin` and `fit`."""

    axis: Literal["users", "rate"]
    method: Literal["twin", "pooled", "band", "none"]
    """twin: predicted and corrected by verification. pooled: from misses alone, asked for or as the twin was not
    believed. band: the server moved, or nothing else could tell. none: the search ended before there was anything to
    say."""
    load: float | None = None
    """Users come whole: the highest number that holds."""
    low: float | None = None
    high: float | None = None
    """95 % interval (of a band: the range of what was found)."""
    binding: str = ""
    """The clause that breaks first."""
    sure: str = ""
    """How sure, in words, and what spoke against it."""
    corrections: list[float] = []
    """η of each verified level: ln(twin / server), how much less (above 0) load the server carries than its twin."""
    requests: int = 0
    """Sent by the search, warm-up included."""
    minutes: float = 0.0
    """Of hold."""
    confirmed: bool | None = None
    """Did the hold-out at the lower end agree? None: it was not run, or cannot tell."""
    drift: float | None = None
    """Relative change of the step time between the same level at the start and at the end."""
    saturation_rps: float | None = None
    """What the twin can deliver at most."""
    headroom: float | None = None
    """Knee (as a rate) over saturation."""
    batch_p50: float | None = None
    batch_p99: float | None = None
    """Running batch at the knee, by the twin."""
    twin: dict[str, Json] = {}
    """The fitted server: knots (batch, ms a step), per_prefill_token_ms, per_kv_token_ms, constant_ms, its limits."""
    scatter: dict[str, Json] | None = None
    """About what the twin says. tpot, by length of the answer: longest, slopes, residuals (ln); itl: slope, shortest,
    chances (residuals in cells of 0.5 %, and how likely each is); null where too little was measured. None: no twin."""
    stopped: str = ""
    """Why the search ended."""
    text: str = ""


class Usl(Struct, frozen=True, kw_only=True):
    """Universal scalability law (Gunther 2007): X(N) = λN / (1 + σ(N − 1) + κN(N − 1))."""

    lone_rps: float
    """λ: requests a second of one user alone."""
    contention: float
    """σ ≥ 0: the share of work that queues; 1/σ users' worth of throughput is the ceiling when κ = 0."""
    coherence: float
    """κ ≥ 0: work that grows with every pair of users."""
    error: float
    """Root mean square of the relative error of N / X."""

    @property
    def peak(self) -> float | None:
        """N* = √((1 − σ) / κ), where throughput is highest; None: it never turns down, or does so from the start."""
        if self.coherence <= 0 or self.contention >= 1:
            return None
        return math.sqrt((1 - self.contention) / self.coherence)

    def rps(self, users: float) -> float:
        """X(users)."""
        return self.lone_rps * users / (1 + self.contention * (users - 1) + self.coherence * users * (users - 1))


class Laws(Struct, frozen=True, kw_only=True):
    """Saturation laws of answered requests a second against users. Shown beside a verdict; none depends on them."""

    levels: list[int] = []
    """Indices of the levels that were fitted: closed loop, settled, answered, and not limited by the client."""
    usl: Usl | None = None
    peak: float | None = None
    """N* in users, where the law is near the levels and its peak within their loads; None: `missing` says why not."""
    kneedle: float | None = None
    """Users of the level where throughput bends most (Satopaa et al. 2011)."""
    missing: dict[str, str] = {}
    """Why there is none, in words, of `usl`, `peak` and `kneedle`."""


class Ledger(Struct, frozen=True, kw_only=True):
    """due = Σ outcomes, for all phases. `lost` counts requests a worker reported due of which no row was found."""

    due: int
    outcomes: dict[str, int]
    lost: int
    balanced: bool


class Verdict(Struct, frozen=True, kw_only=True):
    """The answer of a run and the exit code it stands for: held 0, broken 1, unjudged 2."""

    held: Held
    text: str
    exit_code: Literal[0, 1, 2]

    @property
    def stopped_early(self) -> bool:
        """Levels are left to measure; the text begins so."""
        return self.text.startswith(STOPPED_EARLY)


class Sample(Struct, frozen=True, kw_only=True):
    """Token arrivals of one request, for the timeline plot; times in ms from due."""

    request_id: int
    level: int
    outcome: str
    events_ms: list[float]
    """First element is the first token."""
    e2e_ms: float | None


class Curve(Struct, frozen=True, kw_only=True):
    """An empirical distribution thinned to ≤ 200 points: `x[i]` in ms is not passed by a share `share[i]`."""

    metric: str
    level: int
    x: list[float]
    share: list[float]


class Report(Struct, frozen=True, kw_only=True):
    """One run, judged. Terminal, Markdown, JSON and HTML are all made from this value."""

    schema_version: int = 1
    header: RunHeader
    stages: list[Stage] = []
    levels: list[Level]
    knee: Knee | None = None
    located: Located | None = None
    """Of a search that answers with an interval."""
    laws: Laws | None = None
    """None in summaries older than this field."""
    ledger: Ledger
    verdict: Verdict
    notes: list[str] = []
    """Anything a reader must know before trusting the numbers."""
    samples: list[Sample] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)
