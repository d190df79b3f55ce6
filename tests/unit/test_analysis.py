"""Tables of records to judged levels: small runs worked out by hand, and the flat arithmetic against one record's."""

from array import array
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from harness import metrics
from harness.analysis import flat
from harness.analysis.distributions import curve, merged, tally, tally_weighted, tally_whole
from harness.analysis.frame import frame_of
from harness.analysis.ledger import ledger
from harness.analysis.levels import levels
from harness.analysis.report import report_value
from harness.analysis.settling import Series, settling
from harness.findings import Knee, Level, Report
from harness.knee.saturation import laws_of
from harness.model import (
    Fixed,
    Health,
    Load,
    Outcome,
    Phase,
    Prices,
    Record,
    RunHeader,
    Scenario,
    Slo,
    Stage,
    Timeline,
    Usage,
)
from harness.record.columns import HEALTH, RECORDS, health_batch, records_batch

MS = 1_000_000
S = 1_000_000_000
T0 = 1_700_000_000 * S
HOLD_S = 10
NO_SLO = Slo()
STAGE = Stage(
    level=0, load=2, warmup_at_ns=T0, hold_at_ns=T0 + 5 * S, end_at_ns=T0 + (5 + HOLD_S) * S, drained_by_ns=T0 + 60 * S
)


def table_of(records: list[Record]) -> pa.Table:
    return pa.Table.from_batches([records_batch(records)], RECORDS)


def beats_of(beats: list[Health]) -> pa.Table:
    return pa.Table.from_batches([health_batch(beats)], HEALTH)


def request(due_s: float, gaps_ms: list[float], **given: Any) -> Record:
    """Due so long after the beginning of the warm-up, started at once; gaps_ms[0] is the wait for the first token."""
    due = T0 + int(due_s * S)
    start = given.pop("start_ns", due)
    at = [start + round(sum(gaps_ms[: j + 1]) * 1000) * 1000 for j in range(len(gaps_ms))]
    line = Timeline(
        at_ns=array("q", at),
        k=given.pop("k", None),
        first_answer=given.pop("first_answer", 0 if at else None),
        coalesced=given.pop("coalesced", 0),
    )
    fields: dict[str, Any] = {
        "request_id": int(due_s * 1e6),
        "worker": 0,
        "slot": 0,
        "level": 0,
        "phase": STAGE.phase_of(due),
        "request_class": "default",
        "due_ns": due,
        "start_ns": start,
        "end_ns": (at[-1] if at else due) + MS,
        "outcome": Outcome.OK,
        "stamp_source": "kernel",
        "timeline": line,
        "prompt_tokens_asked": 10,
    }
    return Record(**(fields | given))


def beat(at_s: float, **given: Any) -> Health:
    fields: dict[str, Any] = {"worker": 0, "level": 0, "at_ns": T0 + int(at_s * S), "span_ns": S, "cpu": 0.3}
    fields |= {"runnable": 0.01, "stolen": 0.0, "hub_delay_ns": MS, "lag_ns": 0, "due": 0, "ended": 0, "in_flight": 0}
    fields |= {"token_events": 0, "coalesced": 0, "wall_minus_mono_ns": 0}
    return Health(**(fields | given))


def scenario(loop: str = "closed", slo: Slo = NO_SLO, **given: Any) -> Scenario:
    return Scenario(
        name="s",
        load=Load(loop=loop, levels=[2]),  # type: ignore[arg-type]  # one of the two words
        prompt_tokens=Fixed(tokens=10),
        output_tokens=Fixed(tokens=10),
        slo=slo,
        **given,
    )


def one_level(
    records: list[Record], asked: Scenario | None = None, beats: list[Health] | None = None, stage: Stage = STAGE
) -> Level:
    table, health = table_of(records), beats_of([] if beats is None else beats)
    return levels(frame_of(table), health, asked or scenario(), [stage])[0]


def steady(count: int = 40, wait_ms: float = 50.0, **given: Any) -> list[Record]:
    """That many equal requests of five tokens, evenly over the hold."""
    return [request(5 + HOLD_S * i / count, [wait_ms, 20, 20, 20, 20], **given) for i in range(count)]


# --- distributions ----------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 50), min_size=1, max_size=60), st.sampled_from([0.01, 0.5, 0.9, 0.95, 0.99, 1.0]))
def test_every_kind_of_tally_gives_the_nearest_rank(numbers: list[int], q: float) -> None:
    expected = sorted(numbers)[max(int(np.ceil(q * len(numbers) - 1e-6)), 1) - 1]
    whole, real = np.array(numbers, dtype=np.int32), np.array(numbers, dtype=np.float64)
    assert tally(real).quantile(q) == expected
    assert tally_whole(whole).quantile(q) == expected
    assert tally_weighted(real, np.full(len(real), 2.0)).quantile(q) == expected
    assert merged([tally_whole(whole[:20]), tally_whole(whole[20:])]).quantile(q) == expected
    assert tally_whole(whole).mean == pytest.approx(real.mean())


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 5)), min_size=1, max_size=30))
def test_a_weight_of_three_is_the_value_three_times(pairs: list[tuple[int, int]]) -> None:
    values, weights = (np.array(column, dtype=np.float64) for column in zip(*pairs, strict=True))
    weighted, repeated = tally_weighted(values, weights), tally(np.repeat(values, weights.astype(int)))
    assert [weighted.quantile(q / 20) for q in range(1, 21)] == [repeated.quantile(q / 20) for q in range(1, 21)]
    assert weighted.share_upto(4) == pytest.approx(repeated.share_upto(4))


def test_negative_and_huge_whole_numbers_are_counted_too() -> None:
    odd = tally_whole(np.array([-3, 1 << 30, 5, 5], dtype=np.int32))
    assert (odd.quantile(0.25), odd.quantile(0.5), odd.max) == (-3, 5, 1 << 30)


def test_nothing_has_no_quantile() -> None:
    empty = tally(np.array([np.nan]))
    assert (empty.quantile(0.5), empty.mean, empty.max, empty.share_upto(1)) == (None, None, None, 0.0)
    assert curve("ttft_ms", 0, empty).x == []
    assert merged([]).quantile(0.5) is None


def test_a_curve_is_thin_rising_and_ends_at_one() -> None:
    drawn = curve("itl_ms", 3, tally(np.random.default_rng(1).exponential(1, 5000)), 0.5)
    assert len(drawn.x) == len(drawn.share) <= 200
    assert drawn.x == sorted(drawn.x)
    assert drawn.share[-1] == 1.0


# --- frame ------------------------------------------------------------------------------------------------------------

_gaps = st.lists(st.integers(0, 90_000), max_size=8)
_row = st.tuples(_gaps, st.integers(0, 2), st.sampled_from([None, 0, 1, 5, 17]), st.booleans(), st.booleans())


def _random_record(place: int, row: tuple[list[int], int, int | None, bool, bool]) -> Record:
    gaps, level, reported, stated, ok = row
    events = len(gaps)
    return request(
        4.9 + place * 0.003,
        [gap / 1000 for gap in gaps],
        level=level,
        start_ns=T0 + int((4.9 + place * 0.003) * S) + 7000,
        first_answer=events - 1 if events else None,
        k=array("q", [1 + j % 3 for j in range(events)]) if stated and events else None,
        usage=Usage(completion_tokens=reported),
        outcome=Outcome.OK if ok else Outcome.RESET,
        request_id=place,
    )


@settings(max_examples=60, deadline=None)
@given(st.lists(_row, max_size=14), st.randoms(use_true_random=False), st.integers(1, 6))
def test_the_frame_agrees_with_single_records(rows: list[Any], shuffle: Any, batch: int) -> None:
    """Whatever the order, batching and mixture of rows, flat arithmetic equals `metrics.measures` of each record."""
    records = [_random_record(place, row) for place, row in enumerate(rows)]
    shuffle.shuffle(records)
    frame = frame_of(pa.Table.from_batches(table_of(records).to_batches(max_chunksize=batch), schema=RECORDS))
    by_id = {seen.request_id: seen for seen in records}
    assert len(frame.rows) == len(records)
    for place, row in frame.rows.iterrows():
        seen = by_id[row["request_id"]]
        expected, line = metrics.measures(seen, "open"), seen.timeline
        assert row["tokens"] == expected.tokens
        gaps, weights = frame.gaps_of(place, place + 1)
        assert gaps.tolist() == [gap // 1000 for gap in metrics.gaps_ns(line.at_ns).tolist()]
        k = metrics.tokens_per_event(len(line.at_ns), line.k, seen.usage.completion_tokens)
        assert (np.ones(len(gaps)) if weights is None else weights).tolist() == pytest.approx(k[1:].tolist())
        if line.at_ns:
            assert (row["first"], row["answer"]) == (expected.ttft_ns, expected.ttfat_ns)
            assert row["last"] == expected.e2e_ns
            tpot = metrics.tpot_ns(row["last"] - row["first"], row["tokens"], row["first_tokens"])
            assert tpot == pytest.approx(expected.tpot_ns)


def test_a_batch_larger_than_a_piece_is_cut_between_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_of([request(6 + i / 100, [50, *[20.0] * (i % 7)]) for i in range(50)])
    whole = frame_of(table)
    monkeypatch.setattr(flat, "PIECE_EVENTS", 8)
    assert len(list(flat.pieces(table))) > 10
    pieced = frame_of(table)
    assert pieced.gaps_us.tolist() == whole.gaps_us.tolist()
    assert pieced.rows.equals(whole.rows)


def test_a_sliced_table_gives_its_own_rows_only() -> None:
    records = [request(6 + i, [50, *[float(20 + i)] * i]) for i in range(5)]
    part = frame_of(table_of(records).slice(2, 2))
    assert part.rows["events"].tolist() == [3, 4]
    assert part.gaps_us.tolist() == [22_000] * 2 + [23_000] * 3


# --- levels: what is measured -----------------------------------------------------------------------------------------


def test_a_plain_level_by_hand() -> None:
    seen = one_level(steady(), scenario(prices=Prices(per_hour=3.6)))
    assert (seen.due, seen.offered_rps, seen.outcomes) == (40, 4.0, {"ok": 40})
    values = {name: spread.p99 for name, spread in seen.metrics.items()}
    assert (values["ttft_ms"], values["itl_ms"], values["tpot_ms"], values["e2e_ms"]) == (50, 20, 20, 130)
    assert (values["gap_ms"], values["worst_gap_ms"], values["lag_ms"], values["ttfat_ms"]) == (20, 20, 0, 50)
    assert (seen.metrics["itl_ms"].n, seen.metrics["ttft_ms"].n) == (160, 40)
    assert seen.metrics["connect_ms"].absent == 40
    assert seen.output_tps == pytest.approx(20.0)
    assert seen.input_tps == pytest.approx(40.0)
    assert seen.in_flight == pytest.approx(40 * 0.131 / HOLD_S)
    assert seen.running == pytest.approx(40 * 0.080 / HOLD_S)
    assert seen.cost_per_million_output_tokens == pytest.approx(3.6 / (20 * 3600) * 1e6)
    assert (seen.held, seen.why, seen.settled) == ("held", "no SLO clauses", True)
    assert seen.metrics["ttft_ms"].interval["p99"] is None


def test_only_requests_due_in_the_hold_are_judged() -> None:
    seen = one_level([request(4.0, [900, 90]), *steady(), request(15.0, [900, 90])])
    assert seen.due == 40
    assert seen.metrics["ttft_ms"].max == 50


def test_tokens_count_by_their_stamps_whatever_became_of_the_request() -> None:
    warm = request(4.9, [50, 20, 20, 20, 20])  # tokens at 4.95, 4.97, 4.99, 5.01, 5.03: two in the hold
    late = request(14.9, [50, 20, 40, 20], outcome=Outcome.CENSORED, end_ns=None)  # 14.95, 14.97, then 15.01: two
    whole = request(7, [], end_ns=T0 + 8 * S, usage=Usage(completion_tokens=30))  # not streamed: all at its end
    seen = one_level([warm, late, whole])
    assert seen.output_tps == pytest.approx((2 + 2 + 30) / HOLD_S)
    assert seen.achieved_rps == pytest.approx(2 / HOLD_S)
    assert seen.in_flight == pytest.approx((0.031 + 0.1 + 1.0) / HOLD_S)


def test_partly_inside_counts_inferred_tokens_of_each_event() -> None:
    warm = request(4.9, [50, 20, 20, 20, 20], usage=Usage(completion_tokens=13))  # 1 + four events of 3
    assert one_level([warm]).output_tps == pytest.approx(6 / HOLD_S)


def test_itl_is_weighted_and_the_raw_gap_is_not() -> None:
    seen = one_level([request(6, [50, 60, 20], k=array("q", [1, 3, 1]))])
    assert (seen.metrics["itl_ms"].n, seen.metrics["itl_ms"].max, seen.metrics["itl_ms"].mean) == (4, 20, 20)
    assert (seen.metrics["gap_ms"].n, seen.metrics["gap_ms"].max) == (2, 60)
    assert seen.metrics["tpot_ms"].p50 == 20
    assert seen.tokens_per_event == pytest.approx(5 / 3)


def test_an_event_that_states_no_token_has_no_itl() -> None:
    seen = one_level([request(6, [50, 60, 20], k=array("q", [1, 0, 1]))], scenario(slo=Slo(itl_p99_ms=30)))
    assert (seen.metrics["itl_ms"].n, seen.metrics["itl_ms"].max, seen.attainment) == (1, 20, 1.0)


def test_open_loop_latency_counts_from_due() -> None:
    records = [request(5.5, [50, 20], start_ns=T0 + int(5.503 * S))]
    opened, closed = one_level(records, scenario("open")), one_level(records)
    assert (opened.metrics["ttft_ms"].p50, opened.metrics["e2e_ms"].p50) == (53, 73)
    assert (closed.metrics["ttft_ms"].p50, closed.metrics["e2e_ms"].p50) == (50, 70)
    assert opened.axis == "rate"


def test_absent_metrics_are_counted_and_not_zero() -> None:
    seen = one_level([request(6, [50]), request(7, [], usage=Usage(completion_tokens=3), end_ns=T0 + 8 * S)])
    assert (seen.metrics["tpot_ms"].n, seen.metrics["tpot_ms"].absent, seen.metrics["tpot_ms"].p50) == (0, 2, None)
    assert (seen.metrics["ttft_ms"].n, seen.metrics["ttft_ms"].absent) == (1, 1)
    assert (seen.metrics["itl_ms"].n, seen.metrics["itl_ms"].absent) == (0, 2)
    assert seen.metrics["e2e_ms"].max == 1000


def test_failures_reach_no_percentile() -> None:
    records = [*steady(), request(9, [9000, 90], outcome=Outcome.TRUNCATED)]
    seen = one_level(records, scenario(slo=Slo(ttft_p99_ms=60)))
    assert seen.metrics["ttft_ms"].max == 50
    assert seen.outcomes == {"ok": 40, "truncated": 1}
    assert seen.error_share == pytest.approx(1 / 41)
    assert seen.attainment == pytest.approx(40 / 41)
    assert "1 requests that failed" in seen.clauses[0].note


# --- levels: what is judged -------------------------------------------------------------------------------------------


def test_the_most_exceeded_clause_binds() -> None:
    seen = one_level(steady(), scenario(slo=Slo(ttft_p50_ms=40, itl_p50_ms=10, e2e_p99_ms=500)))
    assert [clause.held for clause in seen.clauses] == ["broken", "broken", "held"]
    assert seen.held == "broken"
    assert seen.why == "itl_p50_ms 20 > 10"


def test_goodput_asks_each_request_and_counts_all_that_were_due() -> None:
    slow = [request(6.01, [200, 20]), request(6.02, [50, 20, 300]), request(6.03, [50]), request(6.04, [50, 20])]
    slo = Slo(ttft_p90_ms=100, itl_p50_ms=30, itl_p90_ms=200, tpot_p50_ms=30)
    seen = one_level([*slow, request(6.05, [], outcome=Outcome.REFUSED)], scenario(slo=slo))
    assert seen.goodput_rps == pytest.approx(2 / HOLD_S)
    assert seen.attainment == pytest.approx(2 / 5)


def test_goodput_weighs_inferred_tokens() -> None:
    many = [request(6.01, [50, 80, 80], usage=Usage(completion_tokens=9)), request(6.02, [50, 80, 80])]
    assert one_level(many, scenario(slo=Slo(itl_p99_ms=25))).goodput_rps == pytest.approx(1 / HOLD_S)


def test_speed_per_user_and_error_share_clauses() -> None:
    slo = Slo(error_share=0.0, tps_per_user_min=49)
    seen = one_level([*steady(), request(9, [], outcome=Outcome.REFUSED)], scenario(slo=slo))
    by_name = {clause.name: clause for clause in seen.clauses}
    assert (by_name["tps_per_user_min"].value, by_name["tps_per_user_min"].held) == (50, "held")
    assert by_name["error_share"].held == "broken"
    assert one_level(steady(), scenario(slo=Slo(tps_per_user_min=51))).why == "tps_per_user_min 50 < 51"


def test_those_that_timed_out_count_against_the_limit_they_outwaited() -> None:
    """Forty quick survivors and four that waited ten seconds for nothing are not a P95 below 100 ms."""
    lost = [
        request(6 + i, [], outcome=Outcome.TIMEOUT_FIRST_TOKEN, end_ns=T0 + (6 + i + 10) * S, request_id=i)
        for i in range(4)
    ]
    slo = Slo(ttft_p90_ms=100, ttft_p95_ms=100)
    seen = one_level([*steady(), *lost], scenario(slo=slo))
    assert [(clause.value, clause.held) for clause in seen.clauses] == [(50, "held"), (50, "broken")]
    assert "4 requests without a value outwaited" in seen.why
    refused = [request(6 + i, [], outcome=Outcome.REFUSED, request_id=i) for i in range(4)]
    assert one_level([*steady(), *refused], scenario(slo=slo)).held == "held"


def test_a_clause_without_data_is_unjudged() -> None:
    whole = [request(6 + i, [], usage=Usage(completion_tokens=3), end_ns=T0 + (7 + i) * S) for i in range(3)]
    seen = one_level(whole, scenario(slo=Slo(e2e_p50_ms=2000, ttft_p50_ms=100)))
    assert {clause.name: clause.held for clause in seen.clauses} == {"e2e_p50_ms": "held", "ttft_p50_ms": "unjudged"}
    assert (seen.held, seen.why) == ("unjudged", "ttft_p50_ms: no ttft was measured")


def test_answers_of_one_token_leave_an_itl_clause_unjudged_but_are_good() -> None:
    slo = Slo(itl_p99_ms=50, tps_per_user_min=10, ttft_p99_ms=100)
    seen = one_level([request(6 + i / 10, [50]) for i in range(9)], scenario(slo=slo))
    assert (seen.held, seen.attainment) == ("unjudged", 1.0)
    assert seen.why == "itl_p99_ms: no itl was measured; tps_per_user_min: no tpot was measured"
    assert seen.clauses[0].note == "a P99 of fewer than 368 values"


def test_no_success_is_broken_and_nothing_due_is_unjudged() -> None:
    slo = Slo(ttft_p99_ms=100)
    failed = one_level([request(6, [], outcome=Outcome.REFUSED)], scenario(slo=slo))
    assert (failed.held, failed.why, failed.clauses[0].held) == ("broken", "no request succeeded", "unjudged")
    idle = one_level([], scenario(slo=slo))
    assert (idle.held, idle.due, idle.attainment, idle.error_share) == ("unjudged", 0, None, None)


def test_an_interval_that_holds_the_limit_is_said() -> None:
    waits = np.random.default_rng(3).lognormal(4, 0.5, 400)
    records = [request(5 + i / 41, [round(float(wait), 3), 20]) for i, wait in enumerate(waits)]
    slo = Slo(ttft_p90_ms=float(np.sort(waits)[365]))
    clause = one_level(records, scenario(slo=slo)).clauses[0]
    assert clause.low is not None
    assert clause.high is not None
    assert clause.low < clause.limit < clause.high
    assert clause.note == "the 95 % interval holds the limit"


# --- the client -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"cpu": 0.8, "runnable": 0.2}, "a worker used or waited for 1.00 of a core"),
        ({"hub_delay_ns": 101 * MS}, "the event loop was 101 ms late"),
    ],
)
def test_a_busy_client_is_named(change: dict[str, Any], reason: str) -> None:
    seen = one_level(steady(), beats=[beat(5 + i, **change) for i in range(1, 11)])
    assert seen.client.limited
    assert seen.client.reasons[0].startswith(reason)
    assert seen.held == "unjudged"
    assert seen.why.startswith(f"client-limited: {reason}")
    assert "--processes 2" in seen.client.advice


def test_a_host_that_takes_the_cpu_is_named_before_any_other_advice() -> None:
    taken = [beat(5 + i, hub_delay_ns=101 * MS, stolen=0.2) for i in range(1, 11)]
    advice = one_level(steady(), beats=taken).client.advice
    assert advice.startswith("a quieter host: this machine's own gave 20% of its CPU time to others")
    assert "--processes 2" in advice


def test_stolen_time_limits_nothing_by_itself() -> None:
    seen = one_level(steady(), beats=[beat(5 + i, stolen=0.2) for i in range(1, 11)]).client
    assert (seen.limited, seen.advice, seen.stolen) == (False, "", pytest.approx(0.2))


def test_a_healthy_client_is_not() -> None:
    seen = one_level(steady(), beats=[beat(5 + i) for i in range(1, 11)] + [beat(3, cpu=1.0)]).client
    assert (seen.limited, seen.reasons, seen.advice, seen.stamp_source) == (False, [], "", "kernel")
    assert seen.cpu == pytest.approx(0.3)


def test_the_busiest_worker_decides_and_not_the_mean() -> None:
    beats = [beat(5 + i, worker=w, cpu=c) for i in range(1, 11) for w, c in ((0, 0.1), (1, 0.97))]
    assert one_level(steady(), beats=beats).client.cpu == pytest.approx(0.97)
    assert one_level(steady(), beats=beats).client.limited


def test_coalesced_late_and_stepped_clients_are_named() -> None:
    assert one_level(steady(coalesced=1)).client.coalesced_share == pytest.approx(0.2)
    assert "hidden behind a late read" in one_level(steady(coalesced=1)).why
    late = [request(5 + i / 10, [50, 20], start_ns=T0 + int((5 + i / 10) * S) + 4 * MS) for i in range(50)]
    assert "left 4 ms late" in one_level(late, scenario("open")).why
    assert not one_level(late, scenario("open", Slo(ttft_p99_ms=500))).client.limited  # 1 % of it is 5 ms
    seldom = one_level([*late[:2], *(request(5 + i / 10, [50, 20]) for i in range(98))], scenario("open")).client
    assert seldom.lag_p99_ms == pytest.approx(4)
    assert not seldom.limited  # two of a hundred are as likely luck as not
    assert one_level([*late[:5], *(request(5 + i / 10, [50, 20]) for i in range(95))], scenario("open")).client.limited
    stepped = [beat(6, wall_minus_mono_ns=0), beat(7, wall_minus_mono_ns=6 * MS)]
    assert "stepped by 6 ms" in one_level(steady(), beats=stepped).why
    both = [*steady(20), request(14.99, [50, 20], stamp_source="user")]
    assert one_level(both).client.stamp_source == "mixed"


# --- settling ---------------------------------------------------------------------------------------------------------


def test_settled_values_seldom_raise_an_alarm() -> None:
    """Independent and moderately clustered (lag-1 correlation 0.8) log-normal waits: at most 2 % of false alarms."""
    random = np.random.default_rng(11)
    alarms = 0
    for correlation in (0.0, 0.8):
        for _ in range(150):
            shock = random.standard_normal(400) * np.sqrt(1 - correlation**2)
            values = [shock[0]]
            for each in shock[1:]:
                values.append(correlation * values[-1] + each)
            alarms += settling([Series("TTFT", np.exp(0.6 * np.array(values)))]) != ""
    assert alarms <= 6


def test_a_growing_queue_is_noticed() -> None:
    """An open loop 20 % above capacity: the wait of the i-th request is i times what capacity falls short of."""
    random = np.random.default_rng(5)
    records = [request(5 + i / 40, [30 + 4.0 * i * float(random.uniform(0.8, 1.2)), 20]) for i in range(400)]
    seen = one_level(records, scenario("open"))
    assert not seen.settled
    assert seen.settling.startswith("TTFT still rising: second half")
    assert "not settled" in seen.why


@pytest.mark.parametrize(
    ("loop", "records", "in_flight", "time_in_system_s", "little"),
    [
        ("closed", steady(), 4 * 0.131, 0.131, 1.0),
        (
            "closed",
            [request(14, [], end_ns=T0 + 16 * S)],
            0.1,
            2.0,
            0.5,
        ),  # filling up: half of its stay is still to come
        ("closed", [request(4, [], end_ns=T0 + 6 * S), request(7, [], end_ns=T0 + 8 * S)], 0.2, 1.0, 2.0),  # emptying
        ("closed", [request(14, [], outcome=Outcome.RESET, end_ns=T0 + 15 * S)], 0.1, 1.0, 1.0),  # not ok, yet there
        ("closed", [request(9, [], outcome=Outcome.CENSORED, end_ns=None)], 0.6, 51.0, 0.6 / 5.1),  # drained by 60 s
        ("closed", [request(9, [], start_ns=T0 + 10 * S, end_ns=T0 + 11 * S)], 0.1, 1.0, 1.0),  # from its start
        ("open", [request(9, [], start_ns=T0 + 10 * S, end_ns=T0 + 11 * S)], 0.2, 2.0, 1.0),  # from due
    ],
)
def test_littles_law_by_hand(
    loop: str, records: list[Record], in_flight: float, time_in_system_s: float, little: float
) -> None:
    seen = one_level(records, scenario(loop))
    assert seen.in_flight == pytest.approx(in_flight)
    assert seen.time_in_system_s == pytest.approx(time_in_system_s)
    assert seen.little == pytest.approx(little)


def test_littles_law_of_nothing_is_nothing() -> None:
    idle = one_level([request(4, [50])])
    assert (idle.due, idle.time_in_system_s, idle.little) == (0, None, None)


def test_a_growing_number_in_flight_is_noticed_though_none_has_ended() -> None:
    stuck = [request(5 + i / 10, [], outcome=Outcome.CENSORED, end_ns=None) for i in range(100)]
    assert one_level(stuck, scenario("open")).settling.startswith("number in flight still rising")


def test_a_warm_up_that_was_too_short_is_noticed() -> None:
    random = np.random.default_rng(2)
    values = (100 + 400 * (np.arange(300) < 60)) * random.lognormal(0, 0.2, 300)
    assert settling([Series("TTFT", values)]) == "TTFT of the first 20 % of the hold is 5.3 × the rest"


def test_a_level_that_still_warms_up_at_its_end_is_noticed() -> None:
    values = np.linspace(300, 100, 400) * np.random.default_rng(6).lognormal(0, 0.2, 400)
    assert settling([Series("TTFT", values)]).startswith("TTFT still falling: first half")


def test_equal_or_few_values_are_settled() -> None:
    assert settling([Series("TTFT", np.full(300, 50.0)), Series("E2E", np.arange(1.0, 40.0))]) == ""
    assert settling([Series("TTFT", np.zeros(0))]) == ""


# --- ledger, verdict, report ------------------------------------------------------------------------------------------

HEADER = RunHeader(run_id="r", version="0", scenario=scenario(), host="h", model="m", started_ns=T0)


def report(records: list[Record], slo: Slo = NO_SLO, beats: list[Health] | None = None, **given: Any) -> Report:
    header = RunHeader(run_id="r", version="0", scenario=scenario(slo=slo), host="h", model="m", started_ns=T0)
    return report_value(header, given.pop("stages", [STAGE]), table_of(records), beats_of(beats or []), **given)


def test_a_report_tells_what_saturation_laws_say_of_its_levels() -> None:
    stages = [structs.replace(STAGE, level=index, load=index + 1) for index in range(5)]
    records = [
        structs.replace(each, level=stage.level, request_id=1000 * stage.level + place)
        for stage in stages
        for place, each in enumerate(steady(40 + 40 * stage.level))
    ]
    found = report(records, stages=stages)
    assert found.laws == laws_of(found.levels)
    assert found.laws is not None
    assert found.laws.levels == [0, 1, 2, 3, 4]
    assert found.laws.usl is not None
    assert found.laws.usl.lone_rps == pytest.approx(4, rel=0.01)


def test_the_ledger_finds_what_a_worker_reported_and_no_row_shows() -> None:
    records = [*steady(), *steady(worker=1), request(4, [50])]
    beats = [beat(9, due=43), beat(6, due=99), beat(9, worker=1, due=10), beat(9, worker=2, due=5)]
    account = ledger(frame_of(table_of(records)), beats_of(beats))
    assert (account.lost, account.due, account.balanced) == (2 + 5, 81 + 7, False)
    assert account.outcomes == {"ok": 81}
    assert sum(account.outcomes.values()) + account.lost == account.due
    assert ledger(frame_of(table_of(records)), beats_of([])).balanced


@pytest.mark.parametrize(
    ("given", "held", "exit_code", "text"),
    [
        ({"records": steady()}, "held", 0, "measured 1 level (2 users); no SLO clauses to judge"),
        ({"records": steady(), "slo": Slo(ttft_p99_ms=60)}, "held", 0, "SLO held at 1 level (2 users)"),
        (
            {"records": steady(), "slo": Slo(ttft_p99_ms=40)},
            "broken",
            1,
            "SLO broken at 2 users: ttft_p99_ms 50 > 40",
        ),
        ({"records": []}, "unjudged", 2, "not judged at 2 users: no request was due in the hold"),
        ({"records": steady(), "stages": []}, "unjudged", 2, "no level was measured"),
        (
            {"records": steady(), "beats": [beat(9, due=50)]},
            "unjudged",
            2,
            "10 of 50 due requests have no record, so no share can be trusted",
        ),
    ],
)
def test_the_verdict_of_a_plain_run(given: dict[str, Any], held: str, exit_code: int, text: str) -> None:
    verdict = report(**given).verdict
    assert (verdict.held, verdict.exit_code, verdict.text) == (held, exit_code, text)


@pytest.mark.parametrize(
    ("found", "exit_code"), [("bracket", 0), ("none_up_to", 0), ("breaks_at_first", 1), ("undecided", 2)]
)
def test_a_search_is_judged_by_its_knee(found: Any, exit_code: int) -> None:
    knee = Knee(found=found, axis="users", text="the knee")
    verdict = report(steady(), Slo(ttft_p99_ms=40), knee=knee).verdict
    assert (verdict.exit_code, verdict.text) == (exit_code, "the knee")


def test_a_report_of_two_levels() -> None:
    second = Stage(
        level=1,
        load=4,
        warmup_at_ns=T0 + 100 * S,
        hold_at_ns=T0 + 105 * S,
        end_at_ns=T0 + 115 * S,
        drained_by_ns=T0 + 160 * S,
    )
    later = [request(105 + i / 4, [90, 20, 70], level=1, phase=Phase.HOLD) for i in range(40)]
    told = report([*later, *steady()], stages=[STAGE, second])
    assert [level.metrics["ttft_ms"].p50 for level in told.levels] == [50, 90]
    assert {(drawn.metric, drawn.level) for drawn in told.curves} == {
        (m, level) for m in ("ttft_ms", "itl_ms") for level in (0, 1)
    }
    assert {sample.level for sample in told.samples} == {0, 1}
    shown = next(sample for sample in told.samples if sample.level == 1)
    assert shown.events_ms == [90, 110, 180]
    assert shown.e2e_ms == 180
    assert any("Fewer than 368 requests at 2 users, 4 users" in note for note in told.notes)
    assert any("reported no token count for 80 ok requests" in note for note in told.notes)


def test_user_stamps_and_unsettled_levels_are_noted() -> None:
    growing = [request(5 + i / 40, [30 + 4.0 * i, 20], stamp_source="user") for i in range(400)]
    told = report(growing)
    assert any("Arrivals at 2 users were stamped after the read" in note for note in told.notes)
    assert any(note.startswith("Not settled at 2 users: TTFT still rising") for note in told.notes)


def test_twelve_samples_are_enough_for_thirty_levels() -> None:
    hold = {"warmup_at_ns": T0, "hold_at_ns": T0 + 5 * S, "end_at_ns": T0 + 15 * S, "drained_by_ns": T0 + 60 * S}
    stages = [Stage(level=i, load=i + 1, **hold) for i in range(30)]
    records = [request(6 + i / 100 + j / 1000, [50 + j, 20 + (j == 1)], level=i) for i in range(30) for j in range(5)]
    told = report(records, stages=stages)
    assert len(told.samples) == 12
    assert told.samples[-1].level == 29


def test_a_worker_that_fell_silent_limits_the_level() -> None:
    beats = [beat(1 + second, worker=worker) for worker in (0, 1) for second in range(10 if worker == 0 else 3)]
    seen = one_level(steady(), beats=beats).client
    assert seen.limited
    assert "worker 1 was lost" in seen.reasons[0]


def test_a_few_hidden_events_limit_nothing() -> None:
    first, *rest = steady()
    hiccup = structs.replace(first, timeline=structs.replace(first.timeline, coalesced=9))
    assert not one_level([hiccup, *rest[:50]]).client.limited
    assert one_level([hiccup, *rest[:50]]).client.coalesced_share > 0.01
