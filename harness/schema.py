"""The one table of names, units and meanings: metrics, columns of the record log, points in a database. Pure.

Recorder, sinks, README, web page and dashboards are read from `FIELDS` and `MEASUREMENTS` or tested against them.
"""

from typing import Literal

from msgspec import Struct

Of = Literal["request", "level", "token", "client"]
Kind = Literal["tag", "field"]
Form = Literal["int", "float", "text"]


class Field(Struct, frozen=True, array_like=True):
    """One named number or word. `of` says what it is one of; a tag is for grouping, a field is a value."""

    name: str
    unit: str
    of: Of
    kind: Kind
    meaning: str


_TAGS = (
    Field("worker", "", "request", "tag", "Number of the client process that sent it"),
    Field("level", "", "request", "tag", "Index of the level of load it was due in"),
    Field("phase", "", "request", "tag", "warmup, hold or drain; only requests due in the hold are judged"),
    Field("request_class", "", "request", "tag", "Class of the request in the scenario"),
    Field("outcome", "", "request", "tag", "How it ended; exactly one for every due request"),
    Field("stamp_source", "", "request", "tag", "Who stamped arrivals: kernel or user"),
    Field("usage_source", "", "request", "tag", "Where the token count came from: usage, frames or nowhere"),
    Field("finish_reason", "", "request", "tag", "Why the server stopped, in its own word"),
    Field("retried", "", "request", "tag", "A kept connection was found closed, and a fresh one was used"),
)

_STAMPS = (
    Field("request_id", "", "request", "field", "Unique in the run: worker · 2⁴⁰ + count on that worker"),
    Field(
        "slot",
        "",
        "request",
        "field",
        "On its worker: user number (closed loop), or the lowest that no running request has (open loop)",
    ),
    Field("due_ns", "ns", "request", "field", "Planned start, on the wall clock"),
    Field("start_ns", "ns", "request", "field", "Right before the first byte was handed to the kernel"),
    Field("headers_ns", "ns", "request", "field", "Arrival of the last byte of the response headers"),
    Field("first_byte_ns", "ns", "request", "field", "Arrival of the first response byte"),
    Field("end_ns", "ns", "request", "field", "End of the response, or the instant at which it failed"),
    Field("connect_ns", "ns", "request", "field", "Duration of connection set-up; absent on a kept connection"),
    Field("status", "", "request", "field", "HTTP status"),
    Field("detail", "", "request", "field", "Why it ended so, in a few words"),
)

_TOKENS = (
    Field("gaps_us", "µs", "token", "field", "c_1 − start, then the gap before each later token event"),
    Field("k", "tokens", "token", "field", "Exact tokens of each event, where frames say so"),
    Field("first_answer", "", "request", "field", "Index of the first event with answer text"),
    Field("coalesced", "events", "request", "field", "Events whose arrival a late read hid behind an earlier one"),
    Field("prompt_tokens_asked", "tokens", "request", "field", "Prompt length asked for"),
    Field("output_tokens_asked", "tokens", "request", "field", "Output length asked for"),
    Field("usage_prompt_tokens", "tokens", "request", "field", "Prompt tokens as the server counted them"),
    Field("usage_completion_tokens", "tokens", "request", "field", "Output tokens as the server counted them"),
    Field("usage_reasoning_tokens", "tokens", "request", "field", "Of these, reasoning"),
    Field("usage_cached_tokens", "tokens", "request", "field", "Prompt tokens served from a cache"),
    Field("response_bytes", "bytes", "request", "field", "Bytes of the response, head and framing included"),
)

_LATENCIES = (
    Field("ttft_ms", "ms", "request", "field", "First token − due (open loop) or − start (closed loop)"),
    Field("ttfat_ms", "ms", "request", "field", "First answer token, counted from the same origin as ttft"),
    Field("ttfb_ms", "ms", "request", "field", "First response byte − start"),
    Field(
        "tpot_ms",
        "ms",
        "request",
        "field",
        "(last − first token event) / (n − tokens of the first); none if nothing is left",
    ),
    Field("e2e_ms", "ms", "request", "field", "Last token (or end, when not streamed) − origin of ttft"),
    Field("worst_gap_ms", "ms", "request", "field", "Largest gap between token events of one request"),
    Field("connect_ms", "ms", "request", "field", "Connection set-up; absent on a kept connection"),
    Field("lag_ms", "ms", "request", "field", "Start − due: lateness of the load generator itself"),
    Field("itl_ms", "ms", "token", "field", "Gap / tokens of the event, counted once per token"),
    Field("gap_ms", "ms", "token", "field", "Raw gap between token events"),
)

_LEVELS = (
    Field("load", "users or 1/s", "level", "tag", "Users (closed loop) or requests a second (open loop)"),
    Field("due", "requests", "level", "field", "Requests due in the hold; every share is of these"),
    Field("offered_rps", "1/s", "level", "field", "Requests due in the hold / hold"),
    Field("achieved_rps", "1/s", "level", "field", "Requests that ended ok in the hold / hold"),
    Field(
        "output_tps", "tokens/s", "level", "field", "Tokens whose event arrived in the hold / hold, unfinished included"
    ),
    Field("input_tps", "tokens/s", "level", "field", "Prompt tokens of requests first answered in the hold / hold"),
    Field("goodput_rps", "1/s", "level", "field", "Due in the hold, ended ok and met every SLO clause / hold"),
    Field("attainment", "share", "level", "field", "Same numerator / all due; errors and unfinished are misses"),
    Field("error_share", "share", "level", "field", "Due in the hold and not ended ok / all due"),
    Field("tps_per_user", "tokens/s", "level", "field", "1 / median TPOT"),
    Field("tokens_per_event", "tokens", "level", "field", "Tokens / token events of ok requests"),
    Field("in_flight", "requests", "level", "field", "Mean number of requests between origin and end"),
    Field("running", "requests", "level", "field", "Mean number of streams between first and last token"),
    Field("time_in_system_s", "s", "level", "field", "Mean of end − origin over all due in the hold, ok or not"),
    Field("little", "", "level", "field", "in_flight / (offered_rps · time_in_system_s): 1 where steady"),
    Field("stall_free", "share", "level", "field", "Share of token deadlines met, slack carried"),
    Field(
        "cost_per_million_output_tokens", "currency", "level", "field", "Price an hour / output tokens an hour × 10⁶"
    ),
)

_CLIENT = (
    Field("cpu", "cores", "client", "field", "CPU seconds a client process used, per second"),
    Field("stolen", "share", "client", "field", "CPU time the host of this virtual machine gave to others"),
    Field("runnable", "share", "client", "field", "Time it was ready to run but had no CPU"),
    Field("hub_delay_ns", "ns", "client", "field", "Largest delay of a timer callback in a second"),
    Field("lag_ns", "ns", "client", "field", "Largest start − due in a second"),
    Field("ended", "requests", "client", "field", "Requests ended on this worker since the run began"),
    Field("token_events", "events", "client", "field", "Token events on this worker"),
    Field("coalesced_share", "share", "client", "field", "Coalesced events / token events"),
    Field("wall_minus_mono_ns", "ns", "client", "field", "Wall minus monotonic clock; moves when the wall clock steps"),
)

FIELDS: tuple[Field, ...] = (*_TAGS, *_STAMPS, *_TOKENS, *_LATENCIES, *_LEVELS, *_CLIENT)

LEVEL_METRICS = tuple(field.name for field in _LATENCIES)
"""Names of the distributions in `Level.metrics`."""


# --- what stands in a database ----------------------------------------------------------------------------------------


class Value(Struct, frozen=True, array_like=True):
    """A field of a measurement. `each`: the names of a family of fields that share one row."""

    name: str
    form: Form
    unit: str
    meaning: str
    each: tuple[str, ...] = ()


class Measurement(Struct, frozen=True, kw_only=True):
    """One kind of point. Its tags and its stamp are its key: unique, and computed from the log alone."""

    name: str
    tags: tuple[str, ...]
    stamp: str
    """What instant a point is stamped with; always in ns."""
    values: tuple[Value, ...]

    @property
    def forms(self) -> dict[str, Form]:
        """Every field name it may have, families spelt out, in order, with its form."""
        return {name: value.form for value in self.values for name in value.each or (value.name,)}


def _known(form: Form, *names: str) -> tuple[Value, ...]:
    """Fields that mean in a point what they mean in `FIELDS`."""
    rows = {field.name: field for field in reversed(FIELDS)}
    return tuple(Value(name, form, rows[name].unit, rows[name].meaning) for name in names)


FAILURES = (
    *("refused", "rate_limited", "error_in_stream", "unreachable", "reset"),
    *("timeout_connect", "timeout_first_token", "timeout_between_tokens", "timeout_total"),
    *("truncated", "empty", "malformed", "cancelled", "not_sent", "censored"),
)
"""Every outcome but ok."""

BOUNDS_US = tuple(digit * 10**power for power in range(2, 8) for digit in range(1, 10))
"""Upper bounds of histogram buckets, in µs: 100 µs … 90 s, nine to a decade."""

SLO_CLAUSES = tuple(
    f"{metric}_{quantile}_ms" for metric in ("ttft", "itl", "tpot", "e2e") for quantile in ("p50", "p90", "p95", "p99")
)


def bucket_names(metric: str) -> tuple[str, ...]:
    """One field a bucket: `METRIC_le_100` … `METRIC_le_90000000`, and `METRIC_le_inf` for what is above."""
    return tuple(f"{metric}_le_{bound}" for bound in (*BOUNDS_US, "inf"))


_RUN = ("run", "scenario")
_PLACE = (*_RUN, "class", "level", "worker", "slot")

REQUEST = Measurement(
    name="request",
    tags=_PLACE,
    stamp="due",
    values=(
        Value("request", "int", "", "Unique in the run: worker · 2⁴⁰ + count on that worker"),
        *_known("text", "phase", "outcome"),
        Value("ok", "int", "0 or 1", "Ended ok; only such requests reach a latency percentile"),
        Value("good", "int", "0 or 1", "Ended ok and met every clause of the SLO"),
        *_known("float", "lag_ms", "ttft_ms", "ttfat_ms", "ttfb_ms", "tpot_ms", "e2e_ms", "worst_gap_ms", "connect_ms"),
        Value("tokens", "float", "tokens", "n: as the server counted, else as the frames say, else one an event"),
        Value("events", "int", "events", "Token events"),
        *_known("int", "start_ns", "headers_ns", "first_byte_ns", "end_ns", "connect_ns"),
        *_known("text", "detail"),
        *_known("int", "status"),
        Value("retried", "int", "0 or 1", "A kept connection was found closed, and a fresh one was used"),
        *_known("text", "stamp_source"),
        *_known("int", "first_answer", "coalesced"),
        *_known("text", "finish_reason"),
        *_known("int", "prompt_tokens_asked", "output_tokens_asked", "usage_prompt_tokens", "usage_completion_tokens"),
        *_known("int", "usage_reasoning_tokens", "usage_cached_tokens"),
        *_known("text", "usage_source"),
        *_known("int", "response_bytes"),
    ),
)

TOKEN = Measurement(
    name="token",
    tags=_PLACE,
    stamp="arrival of the event, or 1 ns after the event before it where that is later",
    values=(
        Value("request", "int", "", "Request it belongs to"),
        Value("index", "int", "", "Number of the token event in its request, from 0"),
        Value("gap_us", "int", "µs", "As in the log: c_1 − start (index 0), then the gap before the event"),
        Value("k", "int", "tokens", "Exact tokens of the event, where frames say so"),
    ),
)

SECOND = Measurement(
    name="second",
    tags=(*_RUN, "class", "level"),
    stamp="start of the second of wall time",
    values=(
        Value(
            "load", "float", "users or 1/s", "Load of the level: users (closed loop) or requests a second (open loop)"
        ),
        Value("due", "int", "requests", "Due in this second"),
        Value("ok", "int", "requests", "Ended in it, ok"),
        Value("failed", "int", "requests", "Ended in it, not ok; without an end: due in it"),
        Value("good", "int", "requests", "Ended in it, ok and within every clause of the SLO"),
        Value(
            "outcome_<name>",
            "int",
            "requests",
            "Of the failed, those that ended so",
            tuple(f"outcome_{name}" for name in FAILURES),
        ),
        Value("tokens", "float", "tokens", "Tokens whose event arrived in it, whatever became of the request"),
        Value("events", "int", "events", "Token events that arrived in it"),
        Value("in_flight", "float", "requests", "Mean number of requests between origin and end"),
        Value("running", "float", "requests", "Mean number of streams between first and last token"),
        Value("ttft_p50_ms", "float", "ms", "Median TTFT of first tokens in it; ok requests; within 1.6 %"),
        Value("ttft_p99_ms", "float", "ms", "99th percentile of the same"),
        Value("itl_p50_ms", "float", "ms", "Median ITL of its tokens, token-weighted; ok requests; within 1.6 %"),
        Value("itl_p99_ms", "float", "ms", "99th percentile of the same"),
        Value(
            "ttft_le_<µs>",
            "int",
            "requests",
            "TTFTs in the bucket that ends at this bound; ok requests",
            bucket_names("ttft"),
        ),
        Value(
            "gap_le_<µs>",
            "int",
            "events",
            "Raw gaps in the bucket that ends at this bound; ok requests",
            bucket_names("gap"),
        ),
        Value(
            "slo_<clause>",
            "float",
            "ms",
            "Limit of this clause of the SLO",
            tuple(f"slo_{clause}" for clause in SLO_CLAUSES),
        ),
    ),
)

ENGINE = Measurement(
    name="engine",
    tags=(*_RUN, "level", "server"),
    stamp="receipt of the server's metrics",
    values=(
        Value("told", "int", "", "How many of the following this server told in this look"),
        Value("running", "float", "requests", "Requests in the server's batch"),
        Value("waiting", "float", "requests", "Requests queued in the server"),
        Value("kv_usage", "float", "share", "Share of the KV cache in use"),
        Value("preemptions_total", "float", "requests", "Preemptions since the server began"),
        Value("prompt_tokens_total", "float", "tokens", "Prompt tokens since the server began"),
        Value("generation_tokens_total", "float", "tokens", "Generated tokens since the server began"),
        Value("prefix_queries_total", "float", "tokens", "Prompt tokens looked up in the prefix cache"),
        Value("prefix_hits_total", "float", "tokens", "Prompt tokens found in the prefix cache"),
        Value("queue_s_total", "float", "s", "Time that requests have waited in the server's queue"),
        Value("dequeued_total", "float", "requests", "Requests whose wait queue_s_total holds"),
    ),
)

CLIENT = Measurement(
    name="client",
    tags=(*_RUN, "level", "worker"),
    stamp="end of the second of the worker's health",
    values=(
        Value("span_ns", "int", "ns", "What it covers"),
        *_known("float", "cpu", "runnable", "stolen"),
        *_known("int", "hub_delay_ns", "lag_ns"),
        Value("due", "int", "requests", "Requests due on this worker since the run began"),
        *_known("int", "ended"),
        Value("in_flight", "int", "requests", "Requests under way on this worker"),
        *_known("int", "token_events"),
        Value("coalesced", "int", "events", "Of these, events whose arrival a late read hid"),
        *_known("int", "wall_minus_mono_ns"),
    ),
)

EVENT = Measurement(
    name="event",
    tags=(*_RUN, "kind"),
    stamp="start of the run; beginning of each stage; end of the last stage for knee and verdict",
    values=(
        Value("title", "text", "", "What happened, for people: kind is export, run, stage, knee or verdict"),
        Value("end_ns", "int", "ns", "End of a stage's hold, on the wall clock"),
        Value(
            "value", "text", "JSON", "RunHeader, Stage (of those run to their end), Knee or Verdict, for reading back"
        ),
    ),
)

MEASUREMENTS = {each.name: each for each in (REQUEST, TOKEN, SECOND, ENGINE, CLIENT, EVENT)}


def markdown() -> str:
    """The whole table as Markdown: `FIELDS`, then each measurement, one row a field."""
    return "\n".join([fields_markdown(), *(_section(each) for each in MEASUREMENTS.values())])


def fields_markdown(fields: tuple[Field, ...] = FIELDS) -> str:
    """`FIELDS` as Markdown, one row a field."""
    rows = [f"| `{f.name}` | {f.unit or '–'} | {f.of} | {f.kind} | {f.meaning} |" for f in fields]
    return "\n".join(["| name | unit | of | kind | meaning |", "|---|---|---|---|---|", *rows, ""])


def _section(of: Measurement) -> str:
    tags = ", ".join(f"`{tag}`" for tag in of.tags)
    rows = [f"| `{v.name}` | {v.form} | {v.unit or '–'} | {v.meaning} |" for v in of.values]
    head = [f"## `{of.name}`", "", f"Tags: {tags}. Stamp: {of.stamp}.", ""]
    return "\n".join([*head, "| field | form | unit | meaning |", "|---|---|---|---|", *rows, ""])
