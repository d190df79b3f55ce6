"""How fast records become line protocol, and seconds, on one core: token, request and second points.

    python bench/encoding.py [--requests 20000] [--tokens 100]

Limits: 300,000 token points/s; 5·10⁶ token events/s folded into seconds.
"""

import argparse
import time

import numpy as np
import pyarrow as pa
from analysis_speed import T0, batch_of
from tables import Table, show

from harness.export.points import request_lines, token_lines
from harness.export.seconds import Seconds
from harness.model import Fixed, Load, RunHeader, Scenario, Slo

TIMES = 3
SLO = Slo(ttft_p99_ms=500, itl_p99_ms=40, tpot_p95_ms=30)


def header():
    load = Load(loop="open", levels=[1.0])
    asked = Scenario(name="encoding", load=load, prompt_tokens=Fixed(tokens=1), output_tokens=Fixed(tokens=1), slo=SLO)
    return RunHeader(run_id="2026-01-01-encoding", version="0", scenario=asked, host="", model="", started_ns=T0)


def best(work):
    """Least CPU seconds of a few times, and what came out: wall time would measure the neighbours."""
    spent_s = []
    for _ in range(TIMES):
        began = time.process_time()
        found = work()
        spent_s.append(time.process_time() - began)
    return min(spent_s), found


def folded(asked, rows):
    seconds = Seconds(asked)
    seconds.add(rows)
    return seconds.lines()


def line(what, points, unit, seconds, lines):
    size = f"{lines.nbytes / max(len(lines), 1):.0f}"
    return [what, f"{points:,}", f"{points / seconds:,.0f}", f"{seconds / points * 1e6:.2f}", size, unit]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--tokens", type=int, default=100, help="token events per request")
    parser.add_argument("--usage", type=int, default=0, help="tokens per request, if not one an event")
    asked = parser.parse_args()
    asked.levels = 2
    pa.set_cpu_count(1)
    rows = pa.Table.from_batches(
        [batch_of(asked, first, np.random.default_rng(1)) for first in range(0, asked.requests, 20_000)]
    )
    events, portion = asked.requests * asked.tokens, rows.slice(0, max(1, 500_000 // asked.tokens))
    token_s, tokens = best(lambda: token_lines(header(), portion))
    request_s, requests = best(lambda: request_lines(header(), rows))
    second_s, seconds = best(lambda: folded(header(), rows))
    cells = [
        line("token", len(tokens), "token events", token_s, tokens),
        line("request", len(requests), f"requests of {asked.tokens} token events", request_s, requests),
        line("second", events, f"token events into {len(seconds)} seconds", second_s, seconds),
    ]
    rates = {"token_points_per_s": len(tokens) / token_s, "events_folded_per_s": events / second_s}
    title = "Records to line protocol on one core"
    columns = ["point", "n", "n/s", "µs each", "bytes a line", "n counts"]
    show("encoding", [Table(title=title, columns=columns, cells=cells, facts=rates)])


if __name__ == "__main__":
    main()
