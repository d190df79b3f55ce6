"""A level out of the log as the twin needs it, and what the server said of itself meanwhile."""

import numpy as np
import pyarrow as pa
import pytest
from test_analysis import STAGE, T0, S, request, table_of

from harness.analysis.frame import frame_of
from harness.analysis.observed import observation
from harness.analysis.server import most_running, preemptions
from harness.knee.plan import LEAST_HOLD_S, hold_s
from harness.knee.search import Probe
from harness.model import Outcome, Record, Usage
from harness.record.columns import SERVER, server_batch
from harness.record.vitals import Vitals
from harness.twin.observed import Observation


def observed(records: list[Record], loop: str) -> Observation:
    return observation(frame_of(table_of(records)), STAGE, loop, think_s=0.5, since_ns=T0 - 100 * S)  # type: ignore[arg-type]


def test_an_open_loop_is_as_it_was_due_warm_up_included_and_failures_too() -> None:
    late = request(6, [30, 20, 20], start_ns=T0 + 6 * S + 7_000_000, usage=Usage(prompt_tokens=11, completion_tokens=3))
    failed = request(7, [], outcome=Outcome.REFUSED, output_tokens_asked=9)
    warm = request(1, [50, 25], usage=Usage(prompt_tokens=12, completion_tokens=2))
    found = observed([failed, late, warm], "open")
    assert found.trace.arrival_s is not None
    assert found.trace.arrival_s.tolist() == [1, 6, 7]
    assert found.trace.prompt_tokens.tolist() == [12, 11, 10]
    assert found.trace.output_tokens.tolist() == [2, 3, 9]
    assert found.counts.tolist() == [False, True, True]
    assert found.ttft_s[:2].tolist() == pytest.approx([0.05, 0.037])
    assert found.tpot_s[:2].tolist() == pytest.approx([0.025, 0.02])
    assert np.isnan(found.ttft_s[2])
    assert (found.load, found.at_s) == (2, 105)


def test_a_closed_loop_is_users_who_start_when_they_did() -> None:
    rows = [
        request(0.5, [50, 20], slot=0),
        request(0.75, [50, 20], slot=1),
        request(1.0, [50, 20], slot=0),
        request(6.0, [50, 20], slot=0, start_ns=T0 + 6 * S + 10_000_000),
    ]
    found = observed(rows, "closed")
    assert found.trace.arrival_s is None
    assert (found.trace.users, found.trace.think_s) == (2, 0.5)
    assert found.trace.starts_s is not None
    assert found.trace.starts_s.tolist() == [0.5, 0.75]
    assert found.ttft_s.tolist() == pytest.approx([0.05] * 4), "from the start"
    assert found.counts.tolist() == [False, False, False, True]


def test_gaps_are_kept_where_they_are_asked_for() -> None:
    """Of judged answers that ended ok, a token of a frame of two waited half of its gap."""
    pair = request(7, [50, 40, 30], k=[1, 2, 1])
    warm, failed = request(1, [50, 25]), request(8, [50, 99], outcome=Outcome.RESET)
    frame = frame_of(table_of([warm, request(6, [30, 20, 20]), pair, failed]))
    found = observation(frame, STAGE, "open", think_s=0, since_ns=T0, with_gaps=True).gaps
    assert found is not None
    assert found.total == 2 + 3
    assert found.share_beyond(0.0195) == 1
    assert found.share_beyond(0.025) == pytest.approx(1 / 5)
    assert found.share_beyond(0.031) == 0
    assert observation(frame, STAGE, "open", think_s=0, since_ns=T0).gaps is None


def looks(*rows: tuple[float, dict[str, float]]) -> pa.Table:
    """Looks at one server: when (s), and what it told."""
    told = [Vitals(at_ns=T0 + int(at_s * S), server="h:1", **row) for at_s, row in rows]
    return pa.Table.from_batches([server_batch(told)] if told else [], SERVER)


def test_seats_are_what_a_full_server_ran() -> None:
    half = (6.0, {"running": 40.0, "waiting": 0.0})
    assert most_running(looks(half)) is None, "it may have room for more"
    assert most_running(looks(half, (7.0, {"running": 32.0, "waiting": 3.0}))) == 32
    assert most_running(looks()) is None


def test_preemptions_are_counted_in_the_hold_and_unknown_where_untold() -> None:
    totals = [(at_s, {"preemptions_total": total}) for at_s, total in ((1.0, 0.0), (6.0, 5.0), (9.0, 7.0))]
    assert preemptions(looks(*totals), STAGE) == 2
    restarted = [(at_s, {"preemptions_total": total}) for at_s, total in ((6.0, 5.0), (7.0, 0.0), (9.0, 1.0))]
    assert preemptions(looks(*restarted), STAGE) == 1
    assert preemptions(looks((6.0, {"running": 1.0})), STAGE) is None


def test_a_level_is_held_for_the_requests_it_wants() -> None:
    assert hold_s(Probe(8.0), [], 30, "open") == 30
    assert hold_s(Probe(8.0, requests=400), [], 30, "open") == 50
    assert hold_s(Probe(1000.0, requests=10), [], 30, "open") == LEAST_HOLD_S
    assert hold_s(Probe(8.0, requests=400), [], 30, "closed") == 30, "nothing is known of its rate"
