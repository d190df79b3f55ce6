"""The search against engines whose knee is known: twelve seats, so the thirteenth user has to queue."""

from pathlib import Path
from typing import Any

import pytest
from command import MOST_ATTEMPTS, said, settings, summary

pytestmark = pytest.mark.e2e

NOT_JUDGED = "could not be judged"
"""Said of a level inside the bracket: then the bracket is wider, and true all the same."""
SEATS = 12
QUEUES_MS = 40
"""TTFT of the engine `demo`: about 28 ms while a seat is free, 50 ms and more in a queue."""


def searched(host: str, cwd: Path, **fields: Any) -> Any:
    """Summary of a search. A neighbour on this machine can starve the client: a search that says so is made again."""
    for attempt in range(1, MOST_ATTEMPTS + 1):
        out = cwd / f"attempt-{attempt}"
        done = said("knee", "demo", "--host", host, *settings(**fields), "--out", str(out), cwd=cwd)
        found = summary(out)
        assert done.returncode == found["verdict"]["exit_code"], done.stderr
        assert found["ledger"]["balanced"]
        ends = {found["knee"]["holds_level"], found["knee"]["breaks_level"]} - {None}
        assert not any(found["levels"][index]["client"]["limited"] for index in ends)
        if found["knee"]["found"] != "undecided" and NOT_JUDGED not in found["knee"]["text"]:
            break
    return found


def levels_by_load(found: Any) -> dict[float, str]:
    """What was measured, and whether it held."""
    return {level["load"]: level["held"] for level in found["levels"]}


def test_the_bracket_closes_on_the_last_seat(host: str, tmp_path: Path) -> None:
    found = searched(
        host,
        tmp_path,
        load__ladder={"from": 10, "to": 15, "factor": 1.5},
        phases={"warmup_s": 0.5, "hold_s": 2.5, "drain_s": 5},
        slo={"ttft_p99_ms": QUEUES_MS},
    )
    knee = found["knee"]
    assert knee["found"] == "bracket", found["verdict"]["text"]
    assert found["verdict"]["exit_code"] == 0
    assert knee["breaks"] - knee["holds"] == 1 or NOT_JUDGED in knee["text"]
    assert knee["holds"] <= SEATS + 1
    assert knee["breaks"] >= SEATS
    assert "ttft_p99_ms" in knee["binding"]
    tried = levels_by_load(found)
    assert tried[knee["holds"]] == "held"
    assert tried[knee["breaks"]] == "broken"
    assert list(tried)[:2] == [10, 15]


def test_no_knee_up_to_the_top_of_the_ladder(host: str, tmp_path: Path) -> None:
    asked = {"load__ladder": {"from": 1, "to": 2}, "slo": {"ttft_p99_ms": 2000}, "phases__hold_s": 0.6}
    found = searched(host, tmp_path, **asked)
    assert found["knee"]["found"] == "none_up_to"
    assert found["verdict"]["exit_code"] == 0
    assert found["knee"]["holds"] == 2
    assert found["knee"]["breaks"] is None
    assert "no knee up to 2 users" in found["verdict"]["text"]
    assert levels_by_load(found) == {1: "held", 2: "held"}


def test_broken_at_one_user_already(host: str, tmp_path: Path) -> None:
    asked = {"load__ladder": {"from": 2, "to": 4}, "slo": {"ttft_p99_ms": 5}, "phases__hold_s": 0.6}
    found = searched(host, tmp_path, **asked)
    assert found["knee"]["found"] == "breaks_at_first"
    assert found["knee"]["breaks"] == 1
    assert found["knee"]["holds"] is None
    assert found["verdict"]["exit_code"] == 1
    assert levels_by_load(found) == {2: "broken", 1: "broken"}


def test_the_bracket_of_an_open_loop_is_as_narrow_as_asked(host: str, tmp_path: Path) -> None:
    """Twelve seats at 12.6 ms a step and ten tokens a request serve 95 requests a second at the very most."""
    tokens = {"dist": "fixed", "tokens": 10}
    found = searched(
        host,
        tmp_path,
        load={"loop": "open", "ladder": {"from": 10, "to": 160, "factor": 4}, "precision": 1, "arrivals": "constant"},
        output_tokens=tokens,
        phases={"warmup_s": 0.3, "hold_s": 1, "drain_s": 8},
        slo={"e2e_p99_ms": 300, "ttft_p99_ms": 5000},  # one to break; and one that lets a busy client be 50 ms late
    )
    knee = found["knee"]
    assert knee["found"] == "bracket", found["verdict"]["text"]
    assert knee["axis"] == "rate"
    assert 0 < (knee["breaks"] - knee["holds"]) / knee["holds"] <= 1
    assert knee["holds"] < 95 * 1.5, "in a second the queue of a smaller excess stays short"
    assert knee["breaks"] > 95 * 0.7
