"""Does recording disturb what it records? The same level with the exporter off, on, and the database away. I/O.

    python bench/recording.py [--streams 200] [--rounds 3] [--hold-s 4]

Rounds alternate, so that what wanders on the machine falls on all alike. Wanted: no measurable difference of P99
between on and off, against what was sent. The database is a real influxd, which with the exporter and the emitter has
one core, as the client has the other. Needs Debian's influxdb.
"""

import argparse
import sys
import tempfile
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
from rig import BENCH, trial
from tables import Table, show

from harness.calibrate.level import measured, tokenswarm_run
from harness.record.log import read_records

sys.path.append(str(BENCH.parent / "tests" / "influx"))
import servers

NOBODY = "http://127.0.0.1:9/llm"
"""A port where nothing listens."""


def level(streams, hold_s, url):
    """(rung, P99 of start − due in ms) of one level that is recorded there."""
    with tempfile.TemporaryDirectory(prefix="tokenswarm-bench-") as folder:
        directory = Path(folder) / "run"
        rung = measured(trial(streams, tokens=100, hold_s=hold_s), directory, partial(tokenswarm_run, influx=url))
        rows = read_records(directory)
        lag_ms = (rows["start_ns"].to_numpy() - rows["due_ns"].to_numpy()) / 1e6
    return rung, float(np.quantile(lag_ms, 0.99))


def measure(args):
    found = {"off": [], "on": [], "database away": []}
    with tempfile.TemporaryDirectory(prefix="tokenswarm-bench-") as place, servers.influxd(Path(place)) as influxd:
        where = {"off": "", "on": f"{influxd.url}/llm", "database away": NOBODY}
        for _ in range(args.rounds):
            for case, url in where.items():
                found[case].append(level(args.streams, args.hold_s, url))
    cells, facts = [], {}
    for case, levels in found.items():
        values = {
            "TTFT P99 error ms": [rung.ttft.reported.p99_ms - rung.ttft.sent.p99_ms for rung, _ in levels],
            "ITL P99 error ms": [rung.gap.reported.p99_ms - rung.gap.sent.p99_ms for rung, _ in levels],
            "lag P99 ms": [lag for _, lag in levels],
            "coalesced": [rung.coalesced for rung, _ in levels],
            "µs/token": [rung.cpu_us_per_token for rung, _ in levels],
        }
        cells.append([case, *(f"{median(each):.3f} ({min(each):.3f} … {max(each):.3f})" for each in values.values())])
        facts |= {f"{case}: {name}": median(each) for name, each in values.items()}
    return Table(
        title=f"Exporter beside {args.streams} streams of 50 tokens/s: median (least … most) of {args.rounds} rounds",
        columns=["exporter", *values],
        cells=cells,
        facts=facts,
    )


def main(argv=None):
    parser = argparse.ArgumentParser(description="Does the exporter disturb the measurement?")
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--hold-s", type=float, default=4.0)
    show("recording", [measure(parser.parse_args(argv))])


if __name__ == "__main__":
    main()
