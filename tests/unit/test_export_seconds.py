"""Seconds against the same counted request by request and token by token, and whatever portions they come in."""

from array import array
from collections import Counter, defaultdict
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from export_example import MS, SLO, T0_NS, S, header, some_records, stage, table
from hypothesis import given, settings
from hypothesis import strategies as st
from line_protocol import Point, points, tag_value

from harness import metrics, schema
from harness.analysis.distributions import tally, tally_weighted
from harness.export import buckets, seconds
from harness.export.buckets import Sketch
from harness.export.points import request_lines
from harness.export.seconds import Seconds
from harness.model import Outcome, Record, Timeline, Usage
from harness.record.log import records_of

quick = settings(max_examples=25, deadline=None)
Key = tuple[int, str, int]
STAGES = [stage(0), stage(1)]


def folded(records: list[Record], loop: str = "open", **given: Any) -> list[Point]:
    whole = Seconds(header(loop))
    whole.add(table(records))
    return points(whole.lines(**({"stages": STAGES} | given)))


def key_of(point: Point) -> Key:
    return int(point.tags["level"]), point.tags.get("class", ""), point.at_ns // S


# --- one by one -------------------------------------------------------------------------------------------------------


def spread(begin_ns: int | None, close_ns: int | None) -> dict[int, int]:
    """Nanoseconds of an interval in each second."""
    spent: dict[int, int] = {}
    if begin_ns is not None and close_ns is not None:
        for second in range(begin_ns // S, close_ns // S + 1):
            within = min(close_ns, (second + 1) * S) - max(begin_ns, second * S)
            if within > 0:
                spent[second] = within
    return spent


def counted(records: list[Record], loop: Any) -> dict[Key, dict[str, float]]:
    """All sums of all seconds, from the definitions in the schema."""
    sums: dict[Key, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for record in records:
        at_ns, n = record.timeline.at_ns, metrics.measures(record, loop).tokens

        def put(name: str, ns: int, amount: float = 1, of: Record = record) -> None:
            sums[of.level, tag_value(of.request_class), ns // S][name] += amount

        put("due", record.due_ns)
        ended_ns = record.due_ns if record.end_ns is None else record.end_ns
        put("ok" if record.outcome is Outcome.OK else "failed", ended_ns)
        if record.outcome is not Outcome.OK:
            put(f"outcome_{record.outcome.value}", ended_ns)
        weights = metrics.tokens_per_event(len(at_ns), record.timeline.k, record.usage.completion_tokens)
        for index, event_ns in enumerate(at_ns):
            put("events", event_ns)
            only = len(at_ns) == 1
            put("tokens", event_ns, n if only else weights[index])
        if not at_ns and record.end_ns is not None and n:
            put("tokens", record.end_ns, n)
        begin_ns = metrics.origin_ns(record.due_ns, record.start_ns, loop)
        close_ns = STAGES[record.level].drained_by_ns if record.end_ns is None else record.end_ns
        lives = {"in_flight": spread(begin_ns, close_ns)}
        lives["running"] = spread(at_ns[0], at_ns[-1]) if at_ns else {}
        for name, spent in lives.items():
            for second, ns in spent.items():
                put(name, second * S, ns / S)
    return sums


@quick
@given(some_records(), st.sampled_from(["open", "closed"]))
def test_sums_are_what_they_say(records: list[Record], loop: str) -> None:
    records = list(records_of(table(records)))
    expected = counted(records, loop)
    found = {key_of(point): point.fields for point in folded(records, loop)}
    assert set(expected) <= set(found)
    for key, fields in found.items():
        for name in ("due", "ok", "failed", "events", *(f"outcome_{each}" for each in schema.FAILURES)):
            assert fields.get(name, 0) == expected[key].get(name, 0), name
        for name in ("tokens", "in_flight", "running"):
            assert fields[name] == pytest.approx(expected[key].get(name, 0), abs=1e-5), name


@quick
@given(some_records(), st.sampled_from(["open", "closed"]))
def test_good_are_those_that_the_requests_say(records: list[Record], loop: str) -> None:
    said = points(request_lines(header(loop), table(records)))
    good = Counter(
        (int(p.tags["level"]), p.tags.get("class", ""), int(p.fields.get("end_ns", p.at_ns)) // S)
        for p in said
        if p.fields["good"]
    )
    found: Counter[Key] = Counter()
    for point in folded(records, loop):
        found[key_of(point)] += int(point.fields["good"])
    assert +found == good


def request(number: int, gaps_ms: list[float], **given: Any) -> Record:
    """Due each 100 ms; token events at these gaps from the start."""
    due_ns = T0_NS + number * 100 * MS
    at_ns = array("q", (due_ns + np.rint(np.cumsum(gaps_ms) * MS).astype(np.int64)).tolist())
    fields: dict[str, Any] = {"request_id": number, "worker": 0, "slot": number, "level": 0, "phase": "hold"}
    fields |= {"request_class": "c", "due_ns": due_ns, "start_ns": due_ns, "outcome": Outcome.OK}
    fields |= {"timeline": Timeline(at_ns=at_ns), "end_ns": at_ns[-1] if at_ns else None}
    return Record(**(fields | given))


def random_requests(usage: int | None = None) -> list[Record]:
    random = np.random.default_rng(3)
    gaps = random.lognormal(2, 1, (60, 40)).round(3)
    return [request(number, gaps[number].tolist(), usage=Usage(completion_tokens=usage)) for number in range(60)]


@pytest.mark.parametrize("usage", [None, 97])
def test_quantiles_are_within_their_error(usage: int | None) -> None:
    records = random_requests(usage)
    ttft: dict[int, list[float]] = defaultdict(list)
    itl: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for record in records:
        at_ns = record.timeline.at_ns
        ttft[at_ns[0] // S].append((at_ns[0] - record.due_ns) / MS)
        k = metrics.tokens_per_event(len(at_ns), None, usage)[1:]
        for gap_ns, each, later_ns in zip(metrics.gaps_ns(at_ns), k, at_ns[1:], strict=True):
            itl[later_ns // S].append((gap_ns / each / MS, each))
    found = {point.at_ns // S: point.fields for point in folded(records)}
    assert len(found) > 5
    for second, fields in found.items():
        values, weights = np.array(itl[second]).T
        for name, share in (("p50", 0.5), ("p99", 0.99)):
            exact = tally_weighted(values, weights).quantile(share)
            assert fields[f"itl_{name}_ms"] == pytest.approx(exact, rel=1 / 63)
            if ttft[second]:
                exact = tally(np.array(ttft[second])).quantile(share)
                assert fields[f"ttft_{name}_ms"] == pytest.approx(exact, rel=1 / 63)
            else:
                assert f"ttft_{name}_ms" not in fields


def test_coarse_buckets_hold_what_is_above_one_bound_and_not_above_the_next() -> None:
    gaps_us = {50: 100, 100: 100, 101: 200, 9_000: 9_000, 9_001: 10_000, 10_000: 10_000, 89_999_999: 90_000_000}
    gaps_us |= {90_000_000: 90_000_000, 90_000_001: "inf", 2_000_000_000: "inf"}
    found: Counter[str] = Counter()
    for point in folded([request(0, [5, *(us / 1000 for us in gaps_us)])]):
        found.update({name: int(count) for name, count in point.fields.items() if name.startswith("gap_le_")})
    assert found == Counter(f"gap_le_{bound}" for bound in gaps_us.values())
    (first,) = [point for point in folded([request(0, [5.0])]) if point.fields["events"]]
    assert [name for name in first.fields if name.startswith("ttft_le_")] == ["ttft_le_5000"]
    (late,) = [point for point in folded([request(0, [5.0], due_ns=T0_NS - 1)]) if point.fields["events"]]
    assert [name for name in late.fields if name.startswith("ttft_le_")] == ["ttft_le_6000"]


def test_failed_requests_reach_no_latency_but_their_tokens_count() -> None:
    found = folded([request(0, [50, 20, 20], outcome=Outcome.TRUNCATED)])
    (point,) = found
    assert (point.fields["events"], point.fields["tokens"], point.fields["outcome_truncated"]) == (3, 3.0, 1)
    assert not [name for name in point.fields if "_le_" in name or name.startswith(("ttft_p", "itl_p"))]


def test_load_and_limits_stand_beside_what_they_are_compared_with() -> None:
    (point,) = folded([request(0, [50])])
    assert point.fields["load"] == 4.0
    limits = {name: value for name, value in point.fields.items() if name.startswith("slo_")}
    assert limits == {f"slo_{limit.name}": limit.ms for limit in metrics.limits(SLO)}
    assert set(point.fields) <= set(schema.SECOND.forms)


# --- portions ---------------------------------------------------------------------------------------------------------


@quick
@given(some_records(most=7), st.lists(st.integers(0, 7), max_size=3), st.sampled_from(["open", "closed"]))
def test_portions_do_not_matter(records: list[Record], cuts: list[int], loop: str) -> None:
    """Nor do calls in between, and what was written last is what would have been written at once."""
    parts = Seconds(header(loop))
    latest: dict[tuple[object, ...], Point] = {}
    edges = [0, *sorted(cuts), len(records)]
    for place, (a, b) in enumerate(pairwise(edges)):
        parts.add(table(records[a:b]))
        latest |= {point.key: point for point in points(parts.lines(STAGES[: place % 3]))}
    latest |= {point.key: point for point in points(parts.lines(STAGES))}
    whole = folded(records, loop)
    assert list(latest.values()) == unordered(whole, latest)
    assert len(parts) == len(whole)


def unordered(found: list[Point], like: dict[tuple[object, ...], Point]) -> list[Point]:
    """In the order of the other's keys."""
    by_key = {point.key: point for point in found}
    assert len(by_key) == len(found)
    return [by_key[key] for key in like]


def test_large_batches_are_taken_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = {point.key: point for point in folded(random_requests(97))}
    monkeypatch.setattr(seconds, "PIECE_EVENTS", 64)
    assert {point.key: point for point in folded(random_requests(97))} == whole


def test_only_what_changed_is_given_again() -> None:
    of = Seconds(header())
    of.add(table([request(0, [50]), request(30, [50])]))
    assert (len(of), len(of.lines(STAGES)), len(of.lines(STAGES))) == (2, 2, 0)
    of.add(table([request(31, [50])]))
    (again,) = points(of.lines(STAGES))
    assert (again.at_ns, again.fields["due"]) == (T0_NS + 3 * S, 2)


def test_a_stage_known_late_gives_its_seconds_their_load_once() -> None:
    of = Seconds(header())
    of.add(table([request(0, [50]), request(30, [50], level=1)]))
    assert all("load" not in point.fields for point in points(of.lines()))
    (now,) = points(of.lines([stage(0)]))
    assert (now.tags["level"], now.fields["load"]) == ("0", 4.0)
    assert len(of.lines([stage(0)])) == 0


def test_a_request_that_was_lost_is_in_flight_until_the_drain_was_over() -> None:
    lost = request(0, [], end_ns=None, outcome=Outcome.CENSORED)
    late, early = Seconds(header()), Seconds(header())
    assert len(early.lines([stage(0)])) == 0
    for of in (late, early):
        of.add(table([lost]))
        found = points(of.lines([stage(0)]))
        assert [(point.at_ns, point.fields["in_flight"]) for point in found] == [
            (T0_NS + second * S, 1.0) for second in range(7)
        ]


def test_a_clock_that_was_set_costs_a_day_and_no_more() -> None:
    ages_ns = 10 * 365 * 86_400 * S
    of = Seconds(header())
    of.add(table([request(0, [50], end_ns=T0_NS + ages_ns)]))
    assert len(of) == 86_400 + 1


def test_classes_that_a_tag_cannot_tell_apart_share_their_points() -> None:
    (point,) = folded([request(0, [50], request_class="a\\b"), request(1, [50], request_class="a/b")])
    assert (point.tags["class"], point.fields["due"]) == ("a/b", 2)


def test_nothing_makes_nothing() -> None:
    assert folded([]) == []


# --- buckets ----------------------------------------------------------------------------------------------------------


@given(st.integers(1, 2**31 - 1))
def test_a_fine_bucket_is_at_most_a_64th_off(us: int) -> None:
    (middle,) = buckets.middles(buckets.fine(np.array([us], np.float32)).astype(np.int64))
    assert middle == pytest.approx(us, rel=1 / 64 + 1e-6)


def test_what_is_shorter_than_a_microsecond_is_nothing() -> None:
    assert buckets.fine(np.array([-5, 0, 0.5, 1], np.float32)).tolist() == [0, 0, 0, 1]
    assert buckets.middles(np.array([0])).tolist() == [0.0]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 5)), min_size=1), st.lists(st.integers(0, 9)))
def test_sketches_add_up(one: list[tuple[int, int]], other: list[int]) -> None:
    def sketch(counts: Counter[int]) -> Sketch:
        found = sorted(counts)
        return Sketch(np.array(found, np.int64), np.array([counts[each] for each in found], np.int64))

    a, b = Counter(dict(one)), Counter(other)
    both = sketch(a).merged(sketch(b))
    assert dict(zip(both.buckets.tolist(), both.weights.tolist(), strict=True)) == a + b
