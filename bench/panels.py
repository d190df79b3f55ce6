"""How long does a panel take on a run of a million tokens? All panels of all dashboards. I/O (a database, sockets).

    python bench/panels.py [--tokens 1e6] [--answer 100] [--window-s 600]

The run is made up (tests/dashboards/made_up_run.py), the database is a real InfluxDB 1.x on loopback, the substitutions
are Grafana's, and so is the order: queries of a panel one after the other. Short answers mean more requests, and so
more points for what reads requests. The best of three counts: what is above it is the machine's other work.
"""

import argparse
import json
import re
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tables import Table, show

ROOT = Path(__file__).resolve().parent.parent
sys.path += [str(ROOT / "tests" / folder) for folder in ("dashboards", "e2e", "influx")]

import local_influx  # noqa: E402  (after the path is known)
from grafana_rules import ALL, Window, annotation_queries, panel_queries, sent, variable_queries  # noqa: E402  (same)
from made_up_run import MS, Made, S  # noqa: E402  (likewise)
from seed import DATABASE, write  # noqa: E402  (likewise)

LOADS = (50, 100, 150, 200, 250)
TIMES = 3
LIMIT_S = 1.0
SHOWN = 8
STARTED_NS = 1_770_000_000 * S
CHOSEN = {"scenario": ALL, "run": "big", "other": "small", "class": ALL, "level": ALL, "worker": "0", "slot": "1"}


def made(run, asked, share, started_ns):
    """A run of about that share of the tokens: five levels, hundreds of users. A made-up user waits for its batch."""
    answer_s = sum(0.008 + max(0, load - 12) * 0.006 + asked.answer * 0.015 for load in LOADS) / len(LOADS)
    hold_s = max(2, round(share * asked.tokens / sum(LOADS) / (asked.answer / answer_s)))
    return Made(run=run, scenario="chat", started_ns=started_ns, loads=LOADS, hold_s=hold_s, tokens=asked.answer)


def filled(url, asked):
    """The database with a run of so many tokens, and one of a quarter to compare with; returns the number of points."""
    local_influx.create(url, DATABASE)
    runs = (made("big", asked, 1, STARTED_NS), made("small", asked, 0.25, STARTED_NS + 300 * S))
    return sum(write(url, run) for run in runs)


def seconds(url, query):
    """The best of three."""
    taken = []
    for _ in range(TIMES):
        start = time.perf_counter()
        local_influx.asked(url, DATABASE, query)
        taken.append(time.perf_counter() - start)
    return min(taken)


def slowest_first(url, window):
    """(seconds, dashboard and panel) of every panel, annotation and variable."""
    found = Counter()
    for path in sorted((ROOT / "dashboards").glob("*.json")):
        board = json.loads(path.read_text(encoding="utf-8"))
        for asked in [*panel_queries(board), *annotation_queries(board), *variable_queries(board)]:
            where = re.sub(r" [A-H]$", "", asked.where)
            found[f"{path.stem}: {where}"] += seconds(url, sent(asked.query, window, CHOSEN, board))
    return [(taken, where) for where, taken in found.most_common()]


def count(url, what):
    """Points of the big run."""
    field, source = what
    answer = local_influx.asked(url, DATABASE, f'SELECT count("{field}") FROM "{source}" WHERE "run" = \'big\'')
    return answer[0]["values"][0][1]


def table(found, tokens, requests, points):
    """The slowest, and how many there are."""
    slow = sum(taken > LIMIT_S for taken, _ in found)
    median_ms = statistics.median(taken for taken, _ in found) * 1000
    return Table(
        title=f"Panels of the dashboards on a run of {tokens:,} tokens in {requests:,} requests",
        columns=["ms", "panel"],
        cells=[[f"{taken * 1000:.0f}", where] for taken, where in found[:SHOWN]],
        notes=[
            f"{len(found)} panels, annotations and variables, median {median_ms:.0f} ms, {slow} above {LIMIT_S:g} s",
            f"{points:,} points in the database; best of {TIMES}",
        ],
        facts={"slowest_ms": found[0][0] * 1000, "median_ms": median_ms, "tokens": tokens, "requests": requests},
    )


def main(arguments=None):
    parser = argparse.ArgumentParser(description="How long does a panel take?")
    parser.add_argument("--tokens", type=float, default=1e6, help="tokens of the larger of two runs, about")
    parser.add_argument("--answer", type=int, default=100, help="tokens an answer")
    parser.add_argument("--window-s", type=float, default=600, help="time range of the dashboards")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as place, local_influx.running(Path(place)) as url:
        points = filled(url, asked)
        begin_ms = STARTED_NS // MS - 5_000
        found = slowest_first(url, Window(begin_ms, begin_ms + int(asked.window_s * 1000)))
        tokens, requests = count(url, ("index", "token")), count(url, ("ok", "request"))
    show("panels", [table(found, tokens, requests, points)])
    return 0 if found[0][0] <= LIMIT_S else 1


if __name__ == "__main__":
    sys.exit(main())
