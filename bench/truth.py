"""How true are the reported latencies? Ours and the plain Locust user against what a known emitter sent. I/O.

    python bench/truth.py [--streams 100 400 1000] [--hold-s 6]

50 tokens a second on every stream, 100 tokens an answer, emitter and client on a core each. About 15 s a row.
"""

import argparse

from rig import PLAIN, WHOLE, run, trial
from tables import Table, show

from harness.calibrate.words import verdict

COLUMNS = ["client", "streams", "tokens/s", "TTFT P50", "TTFT P99", "ITL P50", "ITL P99", "coalesced", "verdict"]


def quantiles(rung):
    """(name, reported, sent) in ms, for the four that are judged."""
    return [
        (f"{metric} {name[:3].upper()}", getattr(both.reported, name), getattr(both.sent, name))
        for metric, both in (("TTFT", rung.ttft), ("ITL", rung.gap))
        if both
        for name in ("p50_ms", "p99_ms")
    ]


def cells(client, rung):
    """One row of COLUMNS."""
    told = [f"{ours:.2f} / {sent:.2f} ({ours - sent:+.2f})" for _, ours, sent in quantiles(rung)] or ["–"] * 4
    hidden = "–" if client == PLAIN else f"{rung.coalesced:.2%}"
    return [client, f"{rung.streams}", f"{rung.tokens_per_s:,.0f}", *told, hidden, verdict(rung)]


def measure(streams, hold_s):
    """Both clients at every number of streams, one after the other."""
    rungs = [
        (client, run(client, trial(count, tokens=100, hold_s=hold_s))) for count in streams for client in (WHOLE, PLAIN)
    ]
    return Table(
        title="Reported / sent (error) in ms: 50 tokens/s a stream, 100 tokens an answer, one core for each side",
        columns=COLUMNS,
        cells=[cells(client, rung) for client, rung in rungs],
        notes=["true: P50 and P99 of TTFT and ITL each within 1 % or 0.2 ms of what was sent"],
        facts={
            f"{client}, {rung.streams} streams, error of {name}, ms": ours - sent
            for client, rung in rungs
            for name, ours, sent in quantiles(rung)
        },
    )


def main(argv=None):
    parser = argparse.ArgumentParser(description="Reported against sent.")
    parser.add_argument("--streams", type=int, nargs="+", default=[100, 400, 1000])
    parser.add_argument("--hold-s", type=float, default=6.0)
    args = parser.parse_args(argv)
    show("truth", [measure(args.streams, args.hold_s)])


if __name__ == "__main__":
    main()
