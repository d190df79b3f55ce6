"""In the open loop a slot is a lane: requests of a worker that overlap have different ones, and as few as can be."""

from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest
from command import balanced, records, said, settings

pytestmark = pytest.mark.e2e


def most_at_once(spans: list[tuple[int, int]]) -> int:
    """How many of these spans overlap at most."""
    turns = sorted([(begin, 1) for begin, _ in spans] + [(end, -1) for _, end in spans], key=lambda turn: turn[0])
    running = most = 0
    for _, step in turns:
        running += step
        most = max(most, running)
    return most


def test_requests_of_a_slot_follow_each_other(host: str, tmp_path: Path) -> None:
    asked = ("--rate", "60", "--prompt-tokens", "8", "--output-tokens", "20", *settings(phases__hold_s=1))
    said("run", "--host", host, *asked, "--out", "run", cwd=tmp_path)
    assert balanced(tmp_path / "run")["outcomes"].keys() == {"ok"}
    rows = records(tmp_path / "run")
    by_slot = defaultdict(list)
    for row in sorted(rows, key=lambda row: row["request_id"]):
        by_slot[row["slot"]].append(row)
    for lane in by_slot.values():
        assert all(earlier["end_ns"] <= later["start_ns"] for earlier, later in pairwise(lane))
    spans = [(row["due_ns"], row["end_ns"]) for row in rows]
    assert sorted(by_slot) == list(range(len(by_slot)))
    assert 1 < len(by_slot) <= most_at_once(spans) + 3, (
        "a lane is free as soon as its request has ended, or little later"
    )
