"""What the queries of the dashboards are tried on: a database with two runs. I/O (HTTP)."""

from itertools import islice
from pathlib import Path
from typing import NamedTuple

import local_influx
from command import engine, said, settings, summary
from grafana_rules import Window
from made_up_run import MS, Made, S, lines

STARTED_NS = 1_770_000_000 * S
DATABASE = "tokenswarm"


class Seeded(NamedTuple):
    """What is in the database: two runs, and the time range that holds both."""

    runs: tuple[str, str]
    window: Window


RUNS = (
    Made(run="20260202T024000-chat, 8B (q4)", scenario="chat", started_ns=STARTED_NS),
    Made(run="20260202T024100-chat/2", scenario="chat", started_ns=STARTED_NS + 60 * S, seed=2),
)
"""Names with all that a regular expression or line protocol would stumble over."""


def seeded(url: str) -> Seeded:
    """Fill the empty database at this URL with two runs."""
    local_influx.create(url, DATABASE)
    for made in RUNS:
        write(url, made)
    return Seeded((RUNS[0].run, RUNS[1].run), Window(STARTED_NS // MS - 5_000, STARTED_NS // MS + 120_000))


def measured(url: str, place: Path) -> Seeded:
    """Fill the empty database with a search and a run of two levels, measured and recorded as a user would."""
    every_50th = {"fault": {"status": 429, "retry_after_s": 1}, "fault_every": 50}
    slo = {"ttft_p99_ms": 60, "itl_p99_ms": 45, "error_share": 0.5}
    with engine(**every_50th) as host:
        recorded = ("--host", host, "--influx", f"{url}/{DATABASE}", *settings(slo=slo, load__levels=[4, 14]))
        for verb, name in (("knee", "a"), ("run", "b")):
            done = said(verb, "demo", *recorded, "--out", name, cwd=place)
            assert "nothing pending" in done.stdout, done.stdout + done.stderr
    runs = [summary(place / name) for name in ("a", "b")]
    first, last = runs[0]["header"]["started_ns"], runs[1]["stages"][-1]["drained_by_ns"]
    a, b = (run["header"]["run_id"] for run in runs)
    return Seeded((a, b), Window(first // MS - 5_000, last // MS + 5_000))


def write(url: str, made: Made) -> int:
    """Write all lines of a made-up run; returns how many."""
    source, count = lines(made), 0
    while batch := list(islice(source, 5_000)):
        local_influx.write(url, DATABASE, "\n".join(batch))
        count += len(batch)
    return count
