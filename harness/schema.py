"""The one table of names, units and meanings: metrics and the columns of the record log. Pure.

Recorder, sinks, README, web page and dashboards are read from `FIELDS` or tested against it.
"""

from typing import Literal

from msgspec import Struct

Of = Literal["request", "level", "token", "client"]
Kind = Literal["tag", "field"]


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
    Field("slot", "", "request", "field", "User number on its worker (closed loop), or -1"),
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


def markdown(fields: tuple[Field, ...] = FIELDS) -> str:
    """The table as Markdown, one row a field."""
    rows = [f"| `{f.name}` | {f.unit or '–'} | {f.of} | {f.kind} | {f.meaning} |" for f in fields]
    return "\n".join(["| name | unit | of | kind | meaning |", "|---|---|---|---|---|", *rows, ""])
