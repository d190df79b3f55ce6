"""How long from records on disk to a judged report, and how much memory: 10⁶ requests of 100 tokens by default.

    python bench/analysis_speed.py [--requests 1000000] [--tokens 100] [--levels 5] [--usage 150]

Writes a synthetic Arrow file, analyses it in a fresh process and prints seconds and peak memory. Limits for 10⁸ tokens:
20 s and 6 GB; for 10⁶ tokens, imports included: 3 s.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import numpy as np
import pyarrow as pa

SECOND = 1_000_000_000
T0 = 1_700_000_000 * SECOND
HOLD_S = 60
BATCH = 20_000
TEXTS = {
    "phase": "hold",
    "request_class": "default",
    "outcome": "ok",
    "detail": "",
    "stamp_source": "kernel",
    "finish_reason": "stop",
    "usage_source": "usage",
}


def batch_of(asked: argparse.Namespace, first: int, random: np.random.Generator) -> pa.RecordBatch:
    """Requests first … of the run, which ended in a slightly different order from that in which they were due."""
    count = min(BATCH, asked.requests - first)
    number = first + random.permutation(count)
    per_level = -(-asked.requests // asked.levels)
    level = number // per_level
    due = T0 + level * 200 * SECOND + (number % per_level) * HOLD_S * SECOND // per_level
    gaps = random.normal(20_000, 1_500, count * asked.tokens).astype(np.int32)
    gaps[:: asked.tokens] = (random.lognormal(0, 0.5, count) * 80_000).astype(np.int32)
    spent = np.add.reduceat(gaps, np.arange(0, len(gaps), asked.tokens), dtype=np.int64) * 1000
    start = due + random.integers(0, 200_000, count)
    nothing = pa.nulls(count, pa.int32())
    columns = {
        "request_id": number,
        "due_ns": due,
        "start_ns": start,
        "headers_ns": start + 1_000_000,
        "first_byte_ns": start + 1_000_000,
        "end_ns": start + spent,
        "connect_ns": pa.nulls(count, pa.int64()),
        "level": level.astype(np.int32),
        "status": np.full(count, 200, dtype=np.int32),
        "first_answer": np.zeros(count, dtype=np.int32),
        "retried": np.zeros(count, dtype=bool),
        "gaps_us": pa.ListArray.from_arrays(pa.array(np.arange(count + 1, dtype=np.int32) * asked.tokens), gaps),
        "k": pa.nulls(count, pa.list_(pa.int32())),
        "usage_completion_tokens": np.full(count, asked.usage or asked.tokens, dtype=np.int32),
        "usage_reasoning_tokens": nothing,
        "usage_cached_tokens": nothing,
        "response_bytes": np.full(count, 9000, dtype=np.int64),
    }
    same = {"worker": 0, "slot": 0, "coalesced": 0, "prompt_tokens_asked": 100, "output_tokens_asked": 100}
    columns |= {name: np.full(count, value, dtype=np.int32) for name, value in same.items()}
    columns |= {"usage_prompt_tokens": columns["prompt_tokens_asked"]}
    columns |= {name: pa.array([text]).take(pa.array(np.zeros(count, dtype=np.int32))) for name, text in TEXTS.items()}
    return pa.RecordBatch.from_pydict(columns)


def write(asked: argparse.Namespace, path: Path) -> None:
    random = np.random.default_rng(1)
    batches = (batch_of(asked, first, random) for first in range(0, asked.requests, BATCH))
    first = next(batches)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, first.schema) as writer:
        writer.write_batch(first)
        for batch in batches:
            writer.write_batch(batch)


def analyse(path: Path, levels: int, began: float) -> None:
    from harness.analysis.report import report_value
    from harness.clock import peak_rss_bytes
    from harness.model import Fixed, Health, Load, RunHeader, Scenario, Slo, Stage

    imported = perf_counter()
    stages = [
        Stage(level=i, load=i + 1, warmup_at_ns=at, hold_at_ns=at, end_at_ns=at + HOLD_S * SECOND, drained_by_ns=at)
        for i, at in ((i, T0 + i * 200 * SECOND) for i in range(levels))
    ]
    scenario = Scenario(
        name="speed",
        load=Load(loop="open", levels=[1.0]),
        prompt_tokens=Fixed(tokens=100),
        output_tokens=Fixed(tokens=100),
        slo=Slo(ttft_p99_ms=500, itl_p99_ms=40, tpot_p95_ms=30),
    )
    header = RunHeader(run_id="speed", version="0", scenario=scenario, host="", model="", started_ns=T0)
    health = pa.table({name: pa.array([], pa.int64()) for name in Health.__struct_fields__})
    with pa.memory_map(str(path)) as source:
        table = pa.ipc.open_stream(source).read_all()
        report = report_value(header, stages, table, health)
    done = perf_counter()
    tokens = sum(level.output_tps * level.hold_s for level in report.levels)
    print(f"imports {imported - began:.2f} s, analysis {done - imported:.2f} s, peak {peak_rss_bytes() / 1e9:.2f} GB")
    print(f"{len(report.levels)} levels, {tokens:.3g} tokens in their holds; {report.verdict.text}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--tokens", type=int, default=100, help="token events per request")
    parser.add_argument("--levels", type=int, default=5)
    parser.add_argument("--usage", type=int, default=0, help="tokens per request, if not one an event")
    parser.add_argument("--path", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.path:
        analyse(asked.path, asked.levels, perf_counter())
        return
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "records.arrows"
        write(asked, path)
        print(f"{asked.requests:,} requests × {asked.tokens} token events, {path.stat().st_size / 1e9:.2f} GB on disk")
        again = [sys.executable, *sys.argv, "--path", str(path)]
        began = perf_counter()
        subprocess.run(again, check=True)
        print(f"whole process {perf_counter() - began:.2f} s")


if __name__ == "__main__":
    main()
