"""How true are the reported latencies? Ours and the plain Locust user against what a known emitter sent. I/O.

    python bench/truth.py [--streams 100 400 1000] [--hold-s 6]

50 tokens a second on every stream, 100 tokens an answer, emitter and client on a core each. About 15 s a row.
"""

import argparse

from rig import PLAIN, WHOLE, WIRE, run, trial
from tables import Table, show

from harness.calibrate.words import verdict

COLUMNS = [
    "client", "streams", "tokens/s",
    "TTFT P50 reported", "sent", "error", "TTFT P99 reported", "sent", "error",
    "ITL P50 reported", "sent", "error", "ITL P99 reported", "sent", "error",
    "coalesced", "verdict",
]  # fmt: skip


def cells(client, rung):
    """One row; times in ms."""
    quantiles = [
        (f"{getattr(both.reported, name):.2f}", f"{getattr(both.sent, name):.2f}", f"{getattr(both.error, name):+.2f}")
        if both
        else ("–", "–", "–")
        for both in (rung.ttft, rung.gap)
        for name in ("p50_ms", "p99_ms")
    ]
    known = [f"{rung.coalesced:.2%}"] if client in (WHOLE, WIRE) else ["–"]
    return [client, f"{rung.streams}", f"{rung.tokens_per_s:,.0f}", *sum(quantiles, ()), *known, verdict(rung)]


def measure(streams, hold_s):
    """Both clients at every number of streams, one after the other."""
    rungs = [
        (client, run(client, trial(count, tokens=100, hold_s=hold_s))) for count in streams for client in (WHOLE, PLAIN)
    ]
    facts = {
        f"{client}, {rung.streams} streams, {metric} {name} error": getattr(both.error, name)
        for client, rung in rungs
        for metric, both in (("TTFT", rung.ttft), ("ITL", rung.gap))
        if both
        for name in ("p50_ms", "p99_ms")
    }
    return Table(
        title="Reported against sent, ms: 50 tokens/s a stream, 100 tokens an answer, one core for each side",
        columns=COLUMNS,
        cells=[cells(client, rung) for client, rung in rungs],
        notes=["true: P50 and P99 of TTFT and ITL each within 1 % or 0.2 ms of what was sent"],
        facts=facts,
    )


def main(argv=None):
    parser = argparse.ArgumentParser(description="Reported against sent.")
    parser.add_argument("--streams", type=int, nargs="+", default=[100, 400, 1000])
    parser.add_argument("--hold-s", type=float, default=6.0)
    args = parser.parse_args(argv)
    show("truth", [measure(args.streams, args.hold_s)])


if __name__ == "__main__":
    main()
