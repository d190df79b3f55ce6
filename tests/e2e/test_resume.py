"""A search that was interrupted goes on from its run directory: whole levels count, one that was cut short does not."""

import json
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest
from command import COMMAND, balanced, begun, records, said, settings, soon, summary

pytestmark = pytest.mark.e2e

LEVELS = [1, 2, 3, 4]
ASKED = settings(
    load={"loop": "closed", "levels": LEVELS}, phases={"warmup_s": 0.2, "hold_s": 1.5, "drain_s": 2},
    prompt_tokens=8, output_tokens=20, slo={"ttft_p99_ms": 10_000},
)  # fmt: skip
SEARCH = [*COMMAND, "knee", "demo", *ASKED, "--out", "run"]


def stages(run: Path, name: str = "stages.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / name).read_text().splitlines()] if (run / name).exists() else []


def interrupted(how: signal.Signals, host: str, cwd: Path) -> Path:
    """A run directory whose third level was begun and not ended."""
    with begun([*SEARCH, "--host", host], cwd) as process:
        soon(lambda: len(stages(cwd / "run", "announced.jsonl")) == 3)
        soon(lambda: any(row["level"] == 2 for row in records(cwd / "run")))
        if how is signal.SIGKILL:
            psutil.Process(process.pid).children()[0].kill()
        else:
            process.send_signal(how)
        assert process.wait(20) == 2
    return cwd / "run"


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_search_goes_on_where_it_was(how: signal.Signals, host: str, tmp_path: Path) -> None:
    run = interrupted(how, host, tmp_path)
    assert "tokenswarm resume run" in (tmp_path / "stdout.txt").read_text() + (tmp_path / "stderr.txt").read_text()
    before = stages(run)
    assert [stage["load"] for stage in before] == LEVELS[:2]
    done = said("resume", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    report, whole = summary(run), stages(run)
    assert whole[:2] == before
    assert list(dict.fromkeys(stage["load"] for stage in whole)) == LEVELS
    assert [stage["level"] for stage in whole[:4]] == [0, 1, 3, 4], "the number of the one cut short is not used again"
    assert [level["index"] for level in report["levels"]] == [stage["level"] for stage in whole]
    assert report["knee"]["holds"] == LEVELS[-1]
    assert {row["worker"] for row in records(run) if row["level"] > 2} == {1}, "as another worker of the same run"
    assert len({row["request_id"] for row in records(run)}) == balanced(run)["due"]
    assert any("resumed at" in note for note in report["notes"])


def test_what_is_complete_is_said_again_and_nothing_measured(host: str, tmp_path: Path) -> None:
    asked = settings(load={"loop": "closed", "levels": [2]}, phases__hold_s=0.5)
    assert said(*SEARCH[len(COMMAND) :], "--host", host, *asked, cwd=tmp_path).returncode == 0
    before, due = summary(tmp_path / "run"), len(records(tmp_path / "run"))
    assert said("resume", "run", cwd=tmp_path).returncode == 0
    after = summary(tmp_path / "run")
    assert after["header"].pop("resumed_ns")
    assert not before["header"].pop("resumed_ns")
    assert after == before
    assert len(records(tmp_path / "run")) == due


def test_nobody_goes_on_with_a_run_that_is_under_way(host: str, tmp_path: Path) -> None:
    with begun([*SEARCH, "--host", host], tmp_path) as process:
        soon(lambda: stages(tmp_path / "run", "announced.jsonl"))
        done = said("resume", "run", cwd=tmp_path)
        assert done.returncode == 2
        assert done.stderr.splitlines() == ["run: a run is under way there; wait for its end, or choose another"]
        assert process.poll() is None
        assert process.wait(30) == 0
    assert not summary(tmp_path / "run")["header"]["resumed_ns"]
