"""Every formula of metrics.py on numbers worked out by hand, and the field table."""

from array import array

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import metrics, schema
from harness.model import Outcome, Phase, Record, Slo, Timeline, Usage

MS = 1_000_000
T0 = 1_700_000_000_000_000_000


def record(at_ms: list[float], *, start_ms: float | None = 2.0, **given: object) -> Record:
    fields: dict[str, object] = {
        "request_id": 1,
        "worker": 0,
        "slot": 0,
        "level": 0,
        "phase": Phase.HOLD,
        "request_class": "default",
        "due_ns": T0,
        "start_ns": None if start_ms is None else T0 + int(start_ms * MS),
        "end_ns": T0 + 500 * MS,
        "outcome": Outcome.OK,
        "timeline": Timeline(at_ns=array("q", [T0 + int(at * MS) for at in at_ms])),
    }
    return Record(**(fields | given))  # type: ignore[arg-type]  # a test's shorthand for keyword fields


def test_open_loop_counts_from_due_and_closed_loop_from_start() -> None:
    seen = record([52, 72, 102])
    open_loop, closed = metrics.measures(seen, "open"), metrics.measures(seen, "closed")
    assert (open_loop.ttft_ns, open_loop.e2e_ns) == (52 * MS, 102 * MS)
    assert (closed.ttft_ns, closed.e2e_ns) == (50 * MS, 100 * MS)
    assert open_loop.lag_ns == closed.lag_ns == 2 * MS
    assert closed.tpot_ns == 25 * MS
    assert closed.worst_gap_ns == 30 * MS
    assert closed.tokens == 3


def test_first_answer_is_later_than_first_reasoning_token() -> None:
    line = Timeline(at_ns=array("q", [T0 + 10 * MS, T0 + 20 * MS, T0 + 40 * MS]), first_answer=2)
    seen = metrics.measures(record([], timeline=line, first_byte_ns=T0 + 9 * MS), "open")
    assert (seen.ttft_ns, seen.ttfat_ns, seen.ttfb_ns) == (10 * MS, 40 * MS, 7 * MS)
    assert metrics.measures(record([10]), "open").ttfat_ns is None


def test_what_did_not_happen_is_none() -> None:
    assert metrics.measures(record([], start_ms=None, outcome=Outcome.NOT_SENT), "open") == metrics.Measures()
    one = metrics.measures(record([50]), "open")
    assert one.tpot_ns is None
    assert one.worst_gap_ns is None
    failed = metrics.measures(record([], outcome=Outcome.REFUSED), "open")
    assert failed.e2e_ns is None
    assert failed.ttft_ns is None


def test_an_answer_that_is_not_streamed_has_only_an_end() -> None:
    seen = metrics.measures(record([], usage=Usage(completion_tokens=7)), "open")
    assert (seen.ttft_ns, seen.tpot_ns, seen.e2e_ns, seen.tokens) == (None, None, 500 * MS, 7)


@pytest.mark.parametrize(
    ("events", "k", "reported", "expected"),
    [
        (3, None, None, [1, 1, 1]),
        (3, None, 3, [1, 1, 1]),
        (3, None, 9, [1, 4, 4]),
        (3, None, 2, [1, 0.5, 0.5]),
        (3, [2, 1, 4], 9, [2, 1, 4]),
        (1, None, 8, [8]),
        (3, None, 0, [1, 1, 1]),
        (3, None, 1, [1, 1, 1]),
        (0, None, 5, []),
    ],
)
def test_tokens_per_event(events: int, k: list[int] | None, reported: int | None, expected: list[float]) -> None:
    assert metrics.tokens_per_event(events, k, reported).tolist() == expected


@given(st.integers(2, 400), st.integers(2, 4000))
def test_inferred_tokens_add_up_to_usage(events: int, reported: int) -> None:
    assert metrics.tokens_per_event(events, None, reported).sum() == pytest.approx(reported)


def test_tokens_come_from_usage_then_frames() -> None:
    assert metrics.tokens_of(3, None, 9) == 9
    assert metrics.tokens_of(3, [2, 2, 2], None) == 6
    assert metrics.tokens_of(3, None, None) == 3
    assert metrics.tokens_of(3, None, 0) == 3


def test_tpot_leaves_out_the_tokens_of_the_first_event() -> None:
    assert metrics.tpot_ns(90.0, 10, 1) == 10.0
    assert metrics.tpot_ns(90.0, 12, 3) == 10.0
    assert metrics.tpot_ns(0.0, 3, 3) is None
    both = metrics.tpot_ns(np.array([90.0, 5.0]), np.array([10.0, 1.0]), np.array([1.0, 1.0]))
    assert both[0] == 10.0
    assert np.isnan(both[1])


def test_one_frame_of_many_tokens_has_no_tpot_even_if_counts_disagree() -> None:
    assert metrics.measures(record([50], usage=Usage(completion_tokens=10)), "open").tpot_ns is None
    stated = Timeline(at_ns=array("q", [T0 + 50 * MS]), k=array("q", [3]))
    assert metrics.measures(record([], timeline=stated, usage=Usage(completion_tokens=5)), "open").tpot_ns is None


def test_itl_and_gaps() -> None:
    assert metrics.gaps_ns([T0, T0 + 5, T0 + 12]).tolist() == [5, 7]
    assert metrics.itl(60.0, 3.0) == 20.0


@pytest.mark.parametrize(
    ("waits", "expected"),
    [
        ([], None),
        ([100, 20, 20], 1.0),
        ([40, 80, 20], 1.0),  # 60 early, then 60 late: the slack pays
        ([100, 30, 20], 2 / 3),
        ([100, 60, 20], 2 / 4),  # one stall of 40 over misses two deadlines
        ([100, 61, 20], 2 / 5),
    ],
)
def test_stall_free_carries_slack(waits: list[float], expected: float | None) -> None:
    assert metrics.stall_free(waits, 100.0, 20.0) == expected


def test_rates_shares_and_prices() -> None:
    assert metrics.per_second(90, 30) == 3
    assert metrics.share(3, 4) == 0.75
    assert metrics.share(0, 0) is None
    assert metrics.tps_per_user(25.0) == 40
    assert metrics.tps_per_user(None) is None
    assert metrics.cost_per_million_tokens(3.6, 1000) == pytest.approx(1.0)
    assert metrics.cost_per_million_tokens(3.6, 0) is None


def test_limits_read_the_slo() -> None:
    slo = Slo(ttft_p50_ms=100, ttft_p99_ms=500, itl_p95_ms=40, error_share=0.01)
    assert [(each.metric, each.quantile, each.ms) for each in metrics.limits(slo)] == [
        ("ttft_ms", 0.5, 100),
        ("ttft_ms", 0.99, 500),
        ("itl_ms", 0.95, 40),
    ]


def test_a_request_must_meet_the_clause_of_the_highest_quantile() -> None:
    clauses = metrics.request_limits(Slo(ttft_p50_ms=100, ttft_p99_ms=500, tps_per_user_min=50))
    assert {each.metric: each.ms for each in clauses} == {"ttft_ms": 500, "tpot_ms": 20}
    assert metrics.is_good(True, {"ttft_ms": 300, "tpot_ms": 20}, clauses)
    assert metrics.is_good(True, {"ttft_ms": 300, "tpot_ms": None}, clauses)
    assert not metrics.is_good(True, {"ttft_ms": 300, "tpot_ms": 21}, clauses)
    assert not metrics.is_good(True, {"ttft_ms": None, "tpot_ms": 20}, clauses)
    assert not metrics.is_good(False, {"ttft_ms": 300, "tpot_ms": 20}, clauses)


def test_every_field_has_one_row_and_a_meaning() -> None:
    names = [(field.name, field.of) for field in schema.FIELDS]
    assert len(set(names)) == len(names)
    text = schema.fields_markdown()
    assert all(f"| `{field.name}` |" in text and field.meaning for field in schema.FIELDS)
    assert text.count("\n") == len(schema.FIELDS) + 2


def test_every_column_of_a_record_and_metric_of_a_level_is_in_the_table() -> None:
    named = {field.name for field in schema.FIELDS}
    columns = set(Record.__struct_fields__) - {"timeline", "usage"}
    assert columns <= named
    assert {f"usage_{name}" for name in Usage.__struct_fields__} <= named
    assert set(schema.LEVEL_METRICS) <= named
