"""What the engine counted, as Prometheus text under vLLM's names. No clock, no I/O."""

from bisect import bisect_left
from collections.abc import Iterator

from harness.engine.core import Engine

_FINE_S = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
_GAP_S = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.075,
    0.1,
    0.15,
    0.2,
    0.3,
    0.4,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
    10.0,
    40.0,
)
_LONG_S = (0.05, 0.1, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 60.0, 120.0, 480.0, 1920.0)


class Histogram:
    """Counts per bucket; a value on a bound belongs to the bucket it bounds."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


class Tally:
    """Everything counted at the engine's front since it started."""

    def __init__(self) -> None:
        self.prompt_tokens = 0
        self.generation_tokens = 0
        self.finished = {"stop": 0, "length": 0, "abort": 0, "error": 0}
        self.slipped_s = 0.0
        self.queue_s = Histogram(_LONG_S)
        self.ttft_s = Histogram(_FINE_S)
        self.gap_s = Histogram(_GAP_S)
        self.e2e_s = Histogram(_LONG_S)


def text(tally: Tally, engine: Engine, model: str) -> str:
    """The exposition, text format 0.0.4."""
    escaped = model.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    labels = f'engine="0",model_name="{escaped}"'
    lines: list[str] = []
    for name, kind, about, value in _plain(tally, engine):
        lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}", f"{name}{{{labels}}} {float(value)}"]
    name = "vllm:request_success_total"
    lines += [f"# HELP {name} Finished requests by reason.", f"# TYPE {name} counter"]
    lines += [
        f'{name}{{{labels},finished_reason="{reason}"}} {float(count)}' for reason, count in tally.finished.items()
    ]
    for name, about, histogram in _histograms(tally):
        lines += [f"# HELP {name} {about}", f"# TYPE {name} histogram", *_buckets(name, labels, histogram)]
    return "\n".join(lines) + "\n"


def _plain(tally: Tally, engine: Engine) -> list[tuple[str, str, str, float]]:
    return [
        ("vllm:num_requests_running", "gauge", "Requests in the batch.", engine.running),
        ("vllm:num_requests_waiting", "gauge", "Requests in the queue.", engine.waiting),
        ("vllm:kv_cache_usage_perc", "gauge", "Share of the KV cache in use, 1 is all.", engine.kv_usage),
        ("vllm:num_preemptions_total", "counter", "Preemptions.", engine.preemptions_total),
        ("vllm:prompt_tokens_total", "counter", "Prompt tokens of accepted requests.", tally.prompt_tokens),
        ("vllm:generation_tokens_total", "counter", "Tokens generated.", tally.generation_tokens),
        ("vllm:prefix_cache_queries_total", "counter", "Tokens looked up.", engine.prefix_queries_total),
        ("vllm:prefix_cache_hits_total", "counter", "Tokens found.", engine.prefix_hits_total),
        ("tokenswarm:engine_slip_seconds_total", "counter", "Delay never caught up: slow host.", tally.slipped_s),
    ]


def _histograms(tally: Tally) -> list[tuple[str, str, Histogram]]:
    return [
        ("vllm:request_queue_time_seconds", "Request received to its first step.", tally.queue_s),
        ("vllm:time_to_first_token_seconds", "Request received to first token.", tally.ttft_s),
        ("vllm:inter_token_latency_seconds", "Between the frames of one answer.", tally.gap_s),
        ("vllm:e2e_request_latency_seconds", "Request received to last token.", tally.e2e_s),
    ]


def _buckets(name: str, labels: str, histogram: Histogram) -> Iterator[str]:
    total = 0
    for bound, count in zip((*histogram.bounds, "+Inf"), histogram.counts, strict=True):
        total += count
        yield f'{name}_bucket{{{labels},le="{bound}"}} {float(total)}'
    yield f"{name}_count{{{labels}}} {float(total)}"
    yield f"{name}_sum{{{labels}}} {histogram.sum}"
