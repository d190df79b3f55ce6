"""Calibration without processes: the join with the truth, when a level is true, when the climb ends, what is said."""

from array import array

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from harness.calibrate.joined import joined, keyed, late_ns
from harness.calibrate.rung import (
    Calibration,
    Compared,
    Emitting,
    Rung,
    Times,
    highest_true,
    is_true,
    reason_to_stop,
)
from harness.calibrate.trial import Cores, Trial, scenario_of
from harness.calibrate.words import HEADING, answer, line, text
from harness.clock import MS, US, S
from harness.engine.emitter import Beat, SentStream
from harness.model import Outcome, Record, Stage, Timeline
from harness.record.columns import RECORDS, records_batch
from harness.scenario import dump, parse

T0 = 1_700_000_000 * S
STAGE = Stage(level=0, load=2, warmup_at_ns=T0, hold_at_ns=T0 + S, end_at_ns=T0 + 3 * S, drained_by_ns=T0 + 9 * S)
BEAT = Beat(first_ms=50, gap_ms=20)


def sent(key, begin_ns, count, late_ns=0):
    """What an emitter does that is always so late."""
    stamps = [begin_ns + 50 * MS + k * 20 * MS + late_ns for k in range(count)]
    return SentStream(
        key=key, request_at_ns=begin_ns, opened_ns=begin_ns, tokens=count, blocked=0, sent_ns=array("q", stamps)
    )


def record(number, begin_ns, at_ns, outcome=Outcome.OK, coalesced=0):
    return Record(
        request_id=number,
        worker=0,
        slot=0,
        level=0,
        phase=STAGE.phase_of(begin_ns),
        request_class="default",
        due_ns=begin_ns,
        start_ns=begin_ns,
        outcome=outcome,
        timeline=Timeline(at_ns=array("q", at_ns), coalesced=coalesced),
    )


def table(*records):
    return pa.Table.from_batches([records_batch(records)], RECORDS)


def times(p50_ms, p99_ms):
    return Times(p50_ms=p50_ms, p99_ms=p99_ms)


def rung(streams=100, rate=5000.0, *, off_ms=0.0, late_ms=0.1, queued=0.0, client_queued=0.0, failed=0):
    return Rung(
        streams=streams,
        asked_per_s=rate,
        tokens_per_s=rate,
        requests=400,
        failed=failed,
        ttft=Compared(reported=times(50.1, 52.0 + off_ms), sent=times(50.0, 52.0)),
        gap=Compared(reported=times(20.0, 20.1), sent=times(20.0, 20.1)),
        coalesced=0.0,
        cpu=0.1,
        queued=client_queued,
        emitting=Emitting(queued=queued, late_p99_ms=late_ms, blocked=0),
    )


def calibration(rungs, stopped="untrue", processes=1):
    best = highest_true(rungs)
    return Calibration(
        machine={},
        processes=processes,
        cores="emitter on core 0, client on 1",
        rungs=rungs,
        true_per_s=best.tokens_per_s if best else None,
        true_streams=best.streams if best else None,
        stopped=stopped,
    )


# --- the join ---------------------------------------------------------------------------------------------------------


def test_what_arrives_a_little_after_it_was_sent_differs_by_that_little():
    begin = T0 + S
    truth = sent("7", begin + 100 * US, 10)
    found = joined(table(record(7, begin, [at + 15 * US for at in truth.sent_ns])), {"7": truth}, STAGE, BEAT)
    assert found.ttft_sent.tolist() == [50 * MS + 100 * US]
    assert found.ttft_reported.tolist() == [50 * MS + 115 * US]
    assert found.gap_sent.tolist() == found.gap_reported.tolist() == [20 * MS] * 9
    assert found.late.tolist() == [0] * 10
    assert (found.tokens, found.failed, found.coalesced) == (10, 0, 0.0)


def test_gaps_count_by_when_they_arrived_and_first_tokens_by_when_they_were_due():
    early = sent("1", T0 + 900 * MS, 10)  # due before the hold; tokens at 950, 970, 990, 1010, … ms
    found = joined(table(record(1, T0 + 900 * MS, early.sent_ns)), {"1": early}, STAGE, BEAT)
    assert len(found.ttft_sent) == 0
    assert len(found.gap_sent) == 7
    assert found.tokens == 7


def test_gaps_do_not_reach_from_one_stream_into_the_next():
    one, other = sent("1", T0 + S, 3), sent("2", T0 + 2 * S, 2)
    records = table(record(1, T0 + S, one.sent_ns), record(2, T0 + 2 * S, other.sent_ns))
    assert joined(records, {"1": one, "2": other}, STAGE, BEAT).gap_reported.tolist() == [20 * MS] * 3


def test_a_token_hidden_behind_a_late_read_shows_as_a_wrong_gap():
    truth = sent("1", T0 + S, 4)
    at_ns = [truth.sent_ns[0], truth.sent_ns[2], truth.sent_ns[2], truth.sent_ns[3]]
    found = joined(table(record(1, T0 + S, at_ns, coalesced=1)), {"1": truth}, STAGE, BEAT)
    assert found.gap_reported.tolist() == [40 * MS, 0, 20 * MS]
    assert found.gap_sent.tolist() == [20 * MS] * 3
    assert found.coalesced == 0.25


@pytest.mark.parametrize(
    ("outcome", "arrived", "known"),
    [(Outcome.TRUNCATED, 4, True), (Outcome.OK, 3, True), (Outcome.OK, 4, False)],
    ids=["did not end ok", "ends disagree", "emitter does not know it"],
)
def test_streams_that_cannot_be_compared_are_not(outcome, arrived, known):
    truth = sent("1", T0 + S, 4)
    records = table(record(1, T0 + S, truth.sent_ns[:arrived], outcome))
    found = joined(records, {"1": truth} if known else {}, STAGE, BEAT)
    assert found.ttft is found.gap is None
    assert found.tokens == arrived
    assert found.failed == (outcome != Outcome.OK)


def test_a_request_never_sent_has_failed_and_nothing_else():
    never = replace(record(1, T0 + S, []), start_ns=None, outcome=Outcome.NOT_SENT)
    found = joined(table(never), {}, STAGE, BEAT)
    assert (found.failed, found.tokens, found.ttft) == (1, 0, None)


def test_streams_are_known_by_run_and_the_later_of_two_sendings_counts():
    streams = [sent("run-1", T0, 2), sent("other-1", T0, 2), sent("run-1", T0 + 5, 2), sent("warm", T0, 2)]
    assert {key: stream.request_at_ns for key, stream in keyed(streams, "run").items()} == {"1": T0 + 5}


@given(late=st.integers(0, 10**9), count=st.integers(1, 50))
def test_lateness_is_what_was_sent_less_what_was_due(late, count):
    assert np.all(late_ns(sent("1", T0, count, late), BEAT) == late)


# --- true or not ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reported", "true_sent", "expected"),
    [
        (20.0, 20.0, True),
        (20.2, 20.0, True),
        (20.21, 20.0, False),
        (19.79, 20.0, False),
        (101.0, 100.0, True),
        (101.1, 100.0, False),
        (98.9, 100.0, False),
        (0.19, 0.0, True),
    ],
)
def test_within_one_percent_or_a_fifth_of_a_millisecond(reported, true_sent, expected):
    assert is_true(reported, true_sent) is expected


@given(st.floats(0, 1e4), st.floats(0, 1e4))
def test_truth_asks_for_no_more_than_the_wider_limit(reported, true_sent):
    assert is_true(reported, true_sent) == (abs(reported - true_sent) <= max(0.01 * true_sent, 0.2))


def test_each_of_the_four_quantiles_can_make_a_level_untrue():
    right = Compared(reported=times(50.0, 50.0), sent=times(50.0, 50.0))
    for wrong in (times(51.0, 50.0), times(50.0, 51.0)):
        off = replace(right, reported=wrong)
        assert len(replace(rung(), ttft=off, gap=right).faults) == 1
        assert len(replace(rung(), ttft=right, gap=off).faults) == 1
    assert replace(rung(), ttft=right, gap=right).faults == []


def test_failed_requests_and_silence_are_not_true():
    assert rung(failed=3).faults == ["3 requests failed"]
    assert replace(rung(), ttft=None).faults == ["no request of the hold was whole"]


def test_the_highest_true_rate_is_not_the_highest_rate():
    rungs = [rung(100, 5e3), rung(400, 2e4, off_ms=9), rung(800, 4e4), rung(1000, 5e4, off_ms=9)]
    found = highest_true(rungs)
    assert found is not None
    assert found.streams == 800
    assert highest_true([rung(off_ms=9)]) is None


def test_one_untrue_level_is_an_accident_and_two_are_the_end():
    good, bad = rung(), rung(off_ms=9)
    assert reason_to_stop([bad]) is None
    assert reason_to_stop([bad, good]) is None
    assert reason_to_stop([bad, good, bad]) is None
    assert reason_to_stop([good, bad, bad]) == "untrue"


def test_an_emitter_that_is_late_by_itself_ends_the_climb():
    assert reason_to_stop([rung(late_ms=5.0)]) is None  # a quarter of a gap of 20 ms
    assert reason_to_stop([rung(late_ms=5.1)]) == "emitter"
    assert reason_to_stop([rung(late_ms=5.1, queued=0.1)]) is None  # others had its core
    assert reason_to_stop([replace(rung(late_ms=5.1), stolen=0.1)]) is None  # nobody here had it
    assert reason_to_stop([rung(late_ms=9, off_ms=9), rung(late_ms=9, off_ms=9)]) == "untrue"


# --- words ------------------------------------------------------------------------------------------------------------


def test_the_answer_says_whether_it_is_a_lower_bound():
    rungs = [rung(100, 5e3), rung(400, 2e4, off_ms=9), rung(800, 4e4, off_ms=9)]
    assert "times 5,000 tokens/s truly (100 streams)" in answer(calibration(rungs))
    for stopped in ("emitter", "top", "time"):
        assert "times at least 5,000 tokens/s" in answer(calibration(rungs, stopped))
        assert "Why no more" in text(calibration(rungs, stopped))
    assert "Why no more" not in text(calibration(rungs))
    assert "2 processes" in answer(calibration(rungs, processes=2))
    assert answer(calibration(rungs[1:])).startswith("No level was timed truly")


def test_a_line_stands_under_its_heading_and_says_what_is_untrue():
    assert line(rung()).endswith("  true")
    assert line(rung()).rindex("true") == HEADING.rindex("verdict")
    assert line(rung(off_ms=9)).endswith("untrue: P99 of TTFT 61.00 ms, sent 52.00 ms")
    assert "–" in line(replace(rung(rate=0.0), ttft=None))


def test_neighbours_are_named():
    said = text(calibration([replace(rung(queued=0.03, client_queued=0.2), stolen=0.1)]))
    assert "disturbed: emitter queued 3%, client queued 20%, host took 10%" in said
    assert "measure again when the machine is quiet" in said
    assert "quiet" not in text(calibration([rung()]))


# --- the load it makes ------------------------------------------------------------------------------------------------


def test_a_trial_is_a_scenario_like_any_other():
    asked = Trial(streams=400, tokens=101, hold_s=2.5)
    scenario = scenario_of(asked, "http://127.0.0.1:1")
    assert parse(dump(scenario)) == scenario
    assert scenario.load.levels == [400]
    assert asked.stream_s == pytest.approx(2.05)
    assert asked.asked_per_s == pytest.approx(400 * 101 / 2.05)
    assert scenario.phases.drain_s > asked.stream_s


def test_cores_are_told_as_they_were_given():
    assert str(Cores(emitter=frozenset({0}), client=frozenset({2, 1}))) == "emitter on core 0, client on 1,2"
    assert str(Cores()) == "emitter and client share all cores"
