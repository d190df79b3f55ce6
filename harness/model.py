"""The nouns a run is made of: Scenario, Arrival, Chunk, Delta, Timeline, Record, RunHeader. No clock, no I/O.

Units stand in names. Inside the harness time is integer nanoseconds of CLOCK_REALTIME; `_s` and `_ms` appear only at
the edges. None means "it did not happen"; 0 is a measurement.
"""

from array import array
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

Positive = Annotated[float, Meta(gt=0)]
NotNegative = Annotated[float, Meta(ge=0)]
Count = Annotated[int, Meta(ge=1)]
Share = Annotated[float, Meta(ge=0, le=1)]
Json = Any  # what a JSON document may hold


# --- what the user writes: the scenario -------------------------------------------------------------------------------


class Fixed(Struct, frozen=True, kw_only=True, tag_field="dist", tag="fixed", forbid_unknown_fields=True):
    """Always the same number of tokens. A bare number in a scenario means this."""

    tokens: Count


class Uniform(Struct, frozen=True, kw_only=True, tag_field="dist", tag="uniform", forbid_unknown_fields=True):
    """Every whole number from min to max, both included, equally likely."""

    min: Count
    max: Count


class LogNormal(Struct, frozen=True, kw_only=True, tag_field="dist", tag="lognormal", forbid_unknown_fields=True):
    """exp(Normal(ln median, sigma)), cut to [min, max]."""

    median: Positive
    sigma: Positive
    min: Count = 1
    max: Count = 1_000_000


class Exponential(Struct, frozen=True, kw_only=True, tag_field="dist", tag="exponential", forbid_unknown_fields=True):
    """Exponential with this mean, cut to [min, max]."""

    mean: Positive
    min: Count = 1
    max: Count = 1_000_000


class Quantiles(Struct, frozen=True, kw_only=True, tag_field="dist", tag="quantiles", forbid_unknown_fields=True):
    """Inverse of an empirical distribution: rising shares 0 … 1 and the tokens there, linear in between."""

    shares: list[Share]
    tokens: list[Count]


class Choice(Struct, frozen=True, kw_only=True, tag_field="dist", tag="choice", forbid_unknown_fields=True):
    """One of these numbers of tokens, with these weights (equal ones when absent)."""

    tokens: list[Count]
    weights: list[Positive] | None = None


Length = Fixed | Uniform | LogNormal | Exponential | Quantiles | Choice


class Timeouts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Four limits, in seconds; passing each is an outcome of its own."""

    connect_s: Positive = 5.0
    first_token_s: Positive = 60.0
    between_tokens_s: Positive = 30.0
    total_s: Positive = 600.0


class Target(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where requests go and in what form."""

    host: str | None = None
    """Base URL, http:// or https://. None: the embedded engine named by `engine`."""
    engine: str | None = None
    """Profile of the embedded engine (`harness/engine/profiles`) to start when there is no host."""
    dialect: Literal["openai-chat", "openai-completions"] = "openai-chat"
    path: str | None = None
    """Request path; None: the dialect's own."""
    model: str | None = None
    """Model name; None: the first that the server's /v1/models lists."""
    stream: bool = True
    body: dict[str, Json] = {}
    """Extra fields of the request body; they win over ours."""
    headers: dict[str, str] = {}
    api_key_env: str | None = None
    """Name of the environment variable that holds the API key. The key itself stands nowhere."""
    proxy: str | None = None
    verify_tls: bool = True
    ca_file: str | None = None
    keep_alive: bool = True
    metrics: str = "/metrics"
    """Path on the host, or URL, of the server's own Prometheus metrics, asked for once a second. "": they are not."""
    timeouts: Timeouts = Timeouts()
    max_response_bytes: Count = 64 * 1024 * 1024


class Serve(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How `tokenswarm knee --batch` starts the server under test, anew for each setting, and ends it again.

    Either a server that is known by name, or a command.
    """

    built_in: Literal["engine", "llama.cpp", "vllm"] | None = None
    """engine: the embedded one, its profile's limits replaced. llama.cpp: `llama-server`. vllm: `vllm serve`."""
    model: str | None = None
    """Of a built-in: the model to serve, a GGUF file for llama.cpp; for engine a profile. None: `target.engine`."""
    options: str = ""
    """Of a built-in: more words for its command line."""
    command: str | None = None
    """Command line with {max_num_seqs} and, where they apply, {max_num_batched_tokens} and {port}. No shell reads it.
    With {port} the load goes to that port of this machine, which is a free one; without, to `target.host`."""
    ready: str | None = None
    """Path that answers 200 once the server can be used; None: /health, or /v1/models where that is unknown."""
    ready_within_s: Positive = 600.0
    stop_within_s: Positive = 30.0
    """Between SIGTERM and SIGKILL."""
    env: dict[str, str] = {}
    """Added to the environment of the command. No secrets: export those."""


class Ladder(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Levels from, from·factor, from·factor² … up to and including `to`."""

    from_: Positive = field(name="from", default=1.0)
    to: Positive
    factor: Annotated[float, Meta(gt=1)] = 2.0


class Load(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much load, in which order. A level is a number of users (closed loop) or requests a second (open loop)."""

    loop: Literal["closed", "open"]
    levels: list[Positive] | None = None
    ladder: Ladder | None = None
    arrivals: Literal["poisson", "constant"] = "poisson"
    """Open loop only."""
    think_s: NotNegative = 0.0
    """Closed loop only: pause of a user between an answer and the next request."""
    precision: Positive = 0.05
    """Open loop only: the knee search stops when the bracket is this narrow, relative to its lower end."""


class Phases(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The parts of one level, in seconds. Only requests due in the hold are judged."""

    warmup_s: NotNegative = 5.0
    ramp_s: NotNegative | None = None
    """Closed loop: users start evenly spread over this part of the warm-up; None: half of it."""
    hold_s: Positive = 30.0
    drain_s: NotNegative = 60.0
    """After the hold nothing new starts; what is still running after this long is censored."""


class Slo(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Clauses of the service level objective. Each is optional; a level holds when every given clause holds.

    `METRIC_pQQ_ms`: that quantile of the metric is at most so many milliseconds. Metrics: see `metrics.py`.
    """

    ttft_p50_ms: Positive | None = None
    ttft_p90_ms: Positive | None = None
    ttft_p95_ms: Positive | None = None
    ttft_p99_ms: Positive | None = None
    itl_p50_ms: Positive | None = None
    itl_p90_ms: Positive | None = None
    itl_p95_ms: Positive | None = None
    itl_p99_ms: Positive | None = None
    tpot_p50_ms: Positive | None = None
    tpot_p90_ms: Positive | None = None
    tpot_p95_ms: Positive | None = None
    tpot_p99_ms: Positive | None = None
    e2e_p50_ms: Positive | None = None
    e2e_p90_ms: Positive | None = None
    e2e_p95_ms: Positive | None = None
    e2e_p99_ms: Positive | None = None
    error_share: Share | None = None
    """Share of due requests that did not end `ok`, at most."""
    tps_per_user_min: Positive | None = None
    """1 / median TPOT, at least so many tokens a second."""


class Prices(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the deployment under test costs."""

    per_hour: NotNegative
    currency: str = "USD"


class Search(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How `tokenswarm knee` looks for the load at which the SLO breaks."""

    method: Literal["bracket", "twin", "fit"] = "bracket"
    """bracket: climb and bisect; two loads, each measured. twin: fit a simulated server to short levels, let it choose
    where to measure, verify with real load; a load with a 95 % interval. fit: one curve through the misses of all
    levels, no model of the server; the same answer for several times the requests."""
    precision: Positive = 0.03
    """twin, fit: half-width of the interval, relative to the knee, at which it is content."""
    budget: Count = 15_000
    """twin, fit: requests it may send."""
    budget_minutes: Positive | None = None
    """twin, fit: minutes of hold it may spend."""
    confirm: bool = True
    """twin, fit: end with a hold-out level at the interval's lower end."""
    max_num_seqs: Count | None = None
    """twin: seats of the server's batch; None: the most it was seen to run, else 256."""
    max_num_batched_tokens: Count = 2048
    """twin: tokens the server computes a step at most."""


INFLUX_URL, INFLUX_ORG = "TOKENSWARM_INFLUX_URL", "TOKENSWARM_INFLUX_ORG"
"""Environment variables that name the database where a scenario does not."""


class Influx(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where every token is also recorded. Secrets stand in the environment only: TOKENSWARM_INFLUX_TOKEN, or
    TOKENSWARM_INFLUX_USER and TOKENSWARM_INFLUX_PASSWORD."""

    url: str
    """http://HOST:8086/DATABASE, or /BUCKET for 2.x."""
    org: str = ""
    """2.x only."""
    version: Literal["auto", 1, 2, 3] = "auto"
    token_points: str = "all"
    """all, none, or sample=N: one point a token event of every Nth request."""
    wait_s: NotNegative = 30.0
    """How long the end of a run waits for the database; what is left then can be pushed at any time."""


class Scenario(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One named workload with its load, phases, objective and seed. Validated by `scenario.load`."""

    name: str
    about: str = ""
    target: Target = Target()
    load: Load
    phases: Phases = Phases()
    prompt_tokens: Length
    output_tokens: Length
    ignore_eos: bool = True
    """Ask the server to generate exactly `output_tokens` (vLLM, SGLang, llama.cpp and our engine know `ignore_eos`)."""
    slo: Slo = Slo()
    seed: int = 1
    prices: Prices | None = None
    search: Search = Search()
    serve: Serve | None = None
    influx: Influx | None = None


# --- what a run does --------------------------------------------------------------------------------------------------


class Phase(StrEnum):
    """Part of a level in which a request was due."""

    WARMUP = "warmup"
    HOLD = "hold"
    DRAIN = "drain"


class Stage(Struct, frozen=True, kw_only=True):
    """One level as it is run: broadcast to every worker before it begins. Instants are absolute, on the wall clock."""

    level: int
    load: float
    """Users (closed loop) or requests a second (open loop), over all workers."""
    warmup_at_ns: int
    hold_at_ns: int
    end_at_ns: int
    """End of the hold: nothing is due at or after it."""
    drained_by_ns: int
    workers: int = 1
    why: str = ""
    """The part of a search that asked for it: ladder, calibrate, verify, anchor, confirm; "" where there is but one."""

    def phase_of(self, due_ns: int) -> Phase:
        """The phase in which this instant lies; anything at or after the end is `drain`."""
        if due_ns < self.hold_at_ns:
            return Phase.WARMUP
        return Phase.HOLD if due_ns < self.end_at_ns else Phase.DRAIN


class RequestSpec(Struct, frozen=True, kw_only=True):
    """What one request asks for."""

    prompt: str
    prompt_tokens: int
    """Asked for; the server's own count comes back as usage."""
    output_tokens: int
    request_class: str = "default"


class Arrival(Struct, frozen=True, kw_only=True):
    """One due request. Level and phase are stamped here, at birth; nothing later guesses them."""

    request_id: int
    """Unique in the run: worker index · 2⁴⁰ + count on that worker."""
    due_ns: int
    level: int
    phase: Phase
    slot: int
    """On this worker: user number (closed loop), or the lowest number that no running request has (open loop)."""
    spec: RequestSpec


# --- what comes back --------------------------------------------------------------------------------------------------


class Chunk(Struct, frozen=True, array_like=True, gc=False):
    """Bytes as one read returned them, and the instant the kernel received the newest of them. b"" is end of file."""

    at_ns: int
    data: bytes
    since_ns: int = 0
    """All of it arrived after this instant: the socket was seen empty then. 0: not known."""


class Usage(Struct, frozen=True, kw_only=True):
    """Token counts as the server reported them; None where it did not."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None


class Delta(Struct, frozen=True, kw_only=True):
    """What one frame of a stream said, whatever the dialect."""

    answer: bool = False
    """Carries non-empty answer text."""
    reasoning: bool = False
    tool: bool = False
    """Carries non-empty tool-call arguments or name."""
    tokens: int | None = None
    """Exact number of tokens in this frame, where the frame says so."""
    usage: Usage | None = None
    finish: str | None = None
    error: str | None = None

    @property
    def is_token(self) -> bool:
        """Only a frame with content is a token event: not role-only, usage, finish or comment frames."""
        return self.answer or self.reasoning or self.tool


ANSWER = Delta(answer=True)
"""The frame of nearly every token: shared, so that the hot path makes no object and knows it by identity."""


class Outcome(StrEnum):
    """How a due request ended: exactly one of these."""

    OK = "ok"
    REFUSED = "refused"
    RATE_LIMITED = "rate_limited"
    ERROR_IN_STREAM = "error_in_stream"
    UNREACHABLE = "unreachable"
    RESET = "reset"
    TIMEOUT_CONNECT = "timeout_connect"
    TIMEOUT_FIRST_TOKEN = "timeout_first_token"
    TIMEOUT_BETWEEN_TOKENS = "timeout_between_tokens"
    TIMEOUT_TOTAL = "timeout_total"
    TRUNCATED = "truncated"
    EMPTY = "empty"
    MALFORMED = "malformed"
    CANCELLED = "cancelled"
    NOT_SENT = "not_sent"
    CENSORED = "censored"


OPEN = "open"
"""Not an outcome: marks a log row of a request born but not ended. A later row with the same id replaces it; a reader
that finds none reports the request as censored (its process was killed)."""


class Timeline(Struct, kw_only=True):
    """Token events of one response. The few mutable nouns: this one grows while the stream runs.

    `at_ns[j]` is the arrival of the last byte of event j. `k[j]` is its exact token count; None while every event so
    far carried one token or did not say (then analysis reconciles with usage, see `metrics.tokens_per_event`).
    """

    at_ns: "array[int]" = field(default_factory=lambda: array("q"))
    k: "array[int] | None" = None
    first_answer: int | None = None
    """Index of the first event with answer text (not reasoning, not tool arguments)."""
    coalesced: int = 0
    """Events whose true arrival the reader's delay hides: they share a read with an earlier event, came in another HTTP
    chunk, and the socket had not been looked at for longer than `exchange.BUNCHED_NS`. Events that the server itself
    sent together are not counted."""


class Record(Struct, frozen=True, kw_only=True):
    """Everything kept of one request. On disk before anything is computed from it."""

    request_id: int
    worker: int
    slot: int
    level: int
    phase: Phase
    request_class: str
    due_ns: int
    start_ns: int | None = None
    """Right before the first byte of the request was handed to the kernel. None: never sent."""
    headers_ns: int | None = None
    """Arrival of the last byte of the response headers."""
    first_byte_ns: int | None = None
    end_ns: int | None = None
    """End of the response, or the instant at which it failed."""
    connect_ns: int | None = None
    """Duration of connection set-up (name, TCP, proxy, TLS). None: a kept connection was used."""
    outcome: Outcome
    detail: str = ""
    """Why, in a few words; at most 1 KiB and never a secret."""
    status: int | None = None
    retried: bool = False
    """A kept connection was found closed by the server, and a fresh one was used."""
    stamp_source: Literal["kernel", "user", ""] = ""
    timeline: Timeline = field(default_factory=Timeline)
    finish_reason: str = ""
    prompt_tokens_asked: int = 0
    output_tokens_asked: int = 0
    usage: Usage = Usage()
    usage_source: Literal["usage", "frames", ""] = ""
    """Where `usage.completion_tokens` came from: the server's usage, exact counts in the frames, or nowhere."""
    response_bytes: int = 0


class Health(Struct, frozen=True, kw_only=True):
    """One second of one worker process: was the client itself in the way?"""

    worker: int
    level: int
    at_ns: int
    span_ns: int
    cpu: float
    """CPU seconds this process used, per second."""
    runnable: float
    """Seconds it was ready to run but had no CPU, per second (/proc/self/schedstat); 0 where not known."""
    stolen: float
    """Seconds of CPU the host took from this machine, per second and core (/proc/stat); 0 where not known."""
    hub_delay_ns: int
    """Largest delay of a timer callback in this second."""
    lag_ns: int
    """Largest start − due in this second."""
    due: int
    """Requests due on this worker since the run began."""
    ended: int
    in_flight: int
    token_events: int
    coalesced: int
    wall_minus_mono_ns: int


class RunHeader(Struct, frozen=True, kw_only=True):
    """What one run is: made once by the master, broadcast, written to `header.json` first."""

    run_id: str
    version: str
    scenario: Scenario
    host: str
    model: str
    started_ns: int
    plan: Literal["levels", "knee"] = "levels"
    """levels: every planned level is run. knee: the search decides (`knee/search.py`)."""
    workers: int = 1
    command: str = ""
    """The command line, secrets removed."""
    machine: Mapping[str, str] = {}
    """Python, kernel, CPU model, cores."""
    resumed_ns: list[int] = []
    """When a run that was interrupted was taken up again."""
