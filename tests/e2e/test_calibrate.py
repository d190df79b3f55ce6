"""Calibration with real processes over real sockets: one small level, truth and log joined. No timing is judged."""

import sys

import pytest
from msgspec.structs import replace

from harness.calibrate.climb import Climb, climbed
from harness.calibrate.level import header, measured
from harness.calibrate.source import emitter
from harness.calibrate.trial import NoTrial, Trial
from harness.engine.emitter import Beat

pytestmark = pytest.mark.e2e

SMALL = Trial(streams=5, tokens=20, beat=Beat(first_ms=20, gap_ms=10), ramp_s=0.1, warmup_s=0.2, hold_s=1.0)


def test_a_level_is_joined_with_its_truth(tmp_path):
    rung = measured(SMALL, tmp_path / "level")
    assert rung.streams == 5
    assert rung.failed == 0
    assert rung.requests >= 5
    assert 0 < rung.tokens_per_s <= 1.05 * rung.asked_per_s
    assert rung.ttft.sent.p50_ms >= 20  # no token leaves before its time
    assert rung.gap.sent.p50_ms == pytest.approx(10, rel=0.5)
    assert header(tmp_path / "level").scenario.load.levels == [5]
    if sys.platform == "linux":
        assert rung.cpu > 0


def test_a_climb_ends_at_its_top_and_tells_of_every_level():
    heard = []
    found = climbed(Climb(streams=(2, 4), trial=replace(SMALL, hold_s=0.5)), 1, heard.append)
    assert heard == found.rungs
    assert [rung.streams for rung in found.rungs] == [2, 4][: len(found.rungs)]
    assert found.stopped in ("top", "untrue")
    assert found.machine["python"]


def test_no_level_begins_after_the_time_is_up():
    found = climbed(Climb(streams=(2, 4), trial=replace(SMALL, hold_s=0.3), limit_s=0.0), 1, lambda rung: None)
    assert (len(found.rungs), found.stopped, found.at_least) == (1, "time", True)


def test_a_run_that_fails_is_one_line(tmp_path):
    (tmp_path / "level").mkdir()
    (tmp_path / "level" / "header.json").write_text("{}")
    with pytest.raises(NoTrial, match=r"5 streams: the run failed: .*level") as error:
        measured(SMALL, tmp_path / "level")
    assert "\n" not in str(error.value)


def test_an_emitter_leaves_its_truth_behind():
    with emitter(SMALL) as source:
        assert source.url.startswith("http://127.0.0.1:")
        assert source.streams == []
    assert source.streams == []  # nobody asked for anything
    assert 0 <= source.queued <= 1
