"""Points as a server would read them: every column of the log comes back, every number is that of metrics.py."""

from collections import Counter
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from export_example import MS, SLO, T0_NS, S, header, some_records, stage, table, timelines
from hypothesis import given, settings
from hypothesis import strategies as st
from line_protocol import Point, points, tag_value

from harness import metrics, schema
from harness.export.lines import lines
from harness.export.points import client_lines, engine_lines, event_lines, request_lines, token_lines
from harness.findings import Knee, Ledger, Report, Verdict
from harness.model import Health, Outcome, Record, RunHeader, Stage
from harness.record.columns import RECORDS, SERVER, health_batch
from harness.record.log import records_of

quick = settings(max_examples=25, deadline=None)


def place(head: RunHeader, record: Record) -> dict[str, str]:
    tags = {
        **{"run": head.run_id, "scenario": head.scenario.name, "class": record.request_class},
        **{name: str(getattr(record, name)) for name in ("level", "worker", "slot")},
    }
    return {name: tag_value(value) for name, value in tags.items() if value}


def is_as_the_schema_says(point: Point) -> None:
    """Of a known measurement, with no tag and no field it has not, each of its own type."""
    of = schema.MEASUREMENTS[point.measurement]
    assert set(point.tags) <= set(of.tags)
    kinds = {"int": int, "float": float, "text": str}
    assert {name: type(value) for name, value in point.fields.items()} == {
        name: kinds[of.forms[name]] for name in point.fields
    }


# --- requests ---------------------------------------------------------------------------------------------------------


@quick
@given(some_records(), st.sampled_from(["open", "closed"]))
def test_every_column_of_a_request_comes_back(records: list[Record], loop: str) -> None:
    head, rows = header(loop), table(records)
    found = points(request_lines(head, rows))
    assert len({point.key for point in found}) == len(found) == len(records)
    by_request = {point.fields["request"]: point for point in found}
    lists = {"gaps_us", "k"}
    tagged = {"request_class", "level", "worker", "slot", "due_ns", "request_id"}
    for row, record in zip(rows.to_pylist(), records, strict=True):
        point = by_request[record.request_id]
        is_as_the_schema_says(point)
        assert point.tags == place(head, record)
        assert point.at_ns == record.due_ns
        for name in set(RECORDS.names) - lists - tagged:
            assert point.fields.get(name) == (None if row[name] == "" else row[name]), name


@quick
@given(some_records(), st.sampled_from(["open", "closed"]))
def test_numbers_of_a_request_are_those_of_metrics(records: list[Record], loop: Any) -> None:
    rows = table(records)
    by_request = {point.fields["request"]: point.fields for point in points(request_lines(header(loop), rows))}
    for record in records_of(rows):
        fields, expected = by_request[record.request_id], metrics.measures(record, loop)
        for name in ("lag", "ttft", "ttfat", "ttfb", "tpot", "e2e", "worst_gap"):
            value_ns = getattr(expected, f"{name}_ns")
            assert fields.get(f"{name}_ms") == (None if value_ns is None else value_ns / MS), name
        assert fields.get("connect_ms") == (None if record.connect_ns is None else record.connect_ns / MS)
        assert (fields["tokens"], fields["events"]) == (expected.tokens, len(record.timeline.at_ns))
        assert fields["ok"] == (record.outcome is Outcome.OK)
        assert fields["good"] == is_good(record, loop)


def is_good(record: Record, loop: metrics.Loop) -> bool:
    """`metrics.is_good`, with the request's own ITL quantile counted out token by token."""
    of, line = metrics.measures(record, loop), record.timeline
    values = {f"{name}_ms": getattr(of, f"{name}_ns") for name in ("ttft", "tpot", "e2e")}
    values = {name: None if value is None else value / MS for name, value in values.items()}
    (limit,) = [each for each in metrics.request_limits(SLO) if each.metric == "itl_ms"]
    weights = metrics.tokens_per_event(len(line.at_ns), line.k, record.usage.completion_tokens)[1:]
    itl_ms = metrics.itl(metrics.gaps_ns(line.at_ns) / MS, weights)
    order = np.argsort(itl_ms)
    upto = np.cumsum(weights[order])
    own = itl_ms[order][np.searchsorted(upto, limit.quantile * upto[-1] * (1 - 1e-6))] if len(upto) else None
    return metrics.is_good(record.outcome is Outcome.OK, values | {"itl_ms": own}, metrics.request_limits(SLO))


def test_no_requests_make_no_points() -> None:
    assert len(request_lines(header(), table([]))) == len(token_lines(header(), table([]))) == 0


# --- tokens -----------------------------------------------------------------------------------------------------------


@quick
@given(some_records())
def test_every_token_event_comes_back(records: list[Record]) -> None:
    head, rows = header(), table(records)
    found = points(token_lines(head, rows))
    assert len({point.key for point in found}) == len(found)
    for row, record in zip(rows.to_pylist(), records, strict=True):
        mine = [point for point in found if point.fields["request"] == record.request_id]
        assert [point.fields["index"] for point in mine] == list(range(len(mine)))
        assert [point.fields["gap_us"] for point in mine] == row["gaps_us"]
        assert [point.fields.get("k") for point in mine] == (row["k"] or [None] * len(mine))
        for point in mine:
            is_as_the_schema_says(point)
            assert point.tags == place(head, record)


@quick
@given(some_records())
def test_stamps_rise_strictly_and_stay_close_to_the_arrivals(records: list[Record]) -> None:
    rows = table(records)
    found = points(token_lines(header(), rows))
    for record in records_of(rows):
        stamps_ns = [point.at_ns for point in found if point.fields["request"] == record.request_id]
        expected: list[int] = []
        for at_ns in record.timeline.at_ns:
            expected.append(max(at_ns, expected[-1] + 1) if expected else at_ns)
        assert stamps_ns == expected


@quick
@given(st.data())
def test_stamps_rise_strictly_through_all_requests_of_a_slot(data: st.DataObject) -> None:
    records, at_ns = [], T0_NS
    for number in range(3):
        line, last_ns = data.draw(timelines(at_ns + 20_000))  # what it takes to send the next is more than the shifts
        records.append(request(number, due_ns=at_ns, start_ns=at_ns + 20_000, end_ns=last_ns, timeline=line))
        at_ns = last_ns
    stamps_ns = [point.at_ns for point in points(token_lines(header(), table(records)))]
    assert all(later > earlier for earlier, later in pairwise(stamps_ns))
    assert len(stamps_ns) == sum(len(record.timeline.at_ns) for record in records)


def request(number: int, **given: Any) -> Record:
    fields: dict[str, Any] = {"request_id": number, "worker": 0, "slot": 0, "level": 0, "phase": "hold"}
    fields |= {
        "request_class": "chat",
        "due_ns": T0_NS + number * S,
        "outcome": Outcome.OK,
        "start_ns": T0_NS + number * S,
    }
    return Record(**(fields | given))


def test_a_clock_that_steps_back_makes_no_two_points_one() -> None:
    stepped = pa.Table.from_pylist(
        [table([request(0)]).to_pylist()[0] | {"gaps_us": [5000, -3, 1, 1, 0, 7]}], schema=RECORDS
    )
    stamps_ns = [point.at_ns - T0_NS for point in points(token_lines(header(), stepped))]
    assert stamps_ns == [5000_000, 5000_001, 5000_002, 5000_003, 5000_004, 5006_000]


@given(some_records(most=8), st.integers(2, 4))
@quick
def test_a_sample_is_every_nth_request_of_a_worker(records: list[Record], every: int) -> None:
    rows = table(records)
    whole, some = (points(token_lines(header(), rows, each)) for each in (1, every))
    assert some == [point for point in whole if int(point.fields["request"]) % 2**40 % every == 0]


def test_portions_make_the_same_points_as_the_whole() -> None:
    records = [request(number, slot=number) for number in range(6)]
    rows, head = table(records), header()
    for made in (request_lines, token_lines):
        parts = [line for at in (0, 2) for line in made(head, rows.slice(at, at * 2 + 2)).to_pylist()]
        assert Counter(parts) == Counter(made(head, rows).to_pylist())


# --- health, engine and events ----------------------------------------------------------------------------------------


def test_a_beat_comes_back() -> None:
    numbers = {name: index for index, name in enumerate(Health.__struct_fields__)}
    beat = Health(**(numbers | {"cpu": 1.0, "runnable": 0.25, "stolen": 0.0, "at_ns": T0_NS}))
    (point,) = points(client_lines(header(), pa.Table.from_batches([health_batch([beat])])))
    is_as_the_schema_says(point)
    rest = {name: getattr(beat, name) for name in Health.__struct_fields__ if name not in {"worker", "level", "at_ns"}}
    assert point.fields == rest
    assert point.tags == {"run": "r,1 x", "scenario": "demo", "level": str(beat.level), "worker": str(beat.worker)}
    assert point.at_ns == T0_NS


def test_a_look_at_the_engine_belongs_to_the_stage_last_begun() -> None:
    columns = {
        "at_ns": [T0_NS - 1, T0_NS, T0_NS + 9 * S, T0_NS + 30 * S],
        "level": [-1] * 4,
        "server": ["http://h:1"] * 4,
    }
    rows = pa.table(
        columns | {"running": [1.0, None, 3.0, None], "kv_usage": pa.array([0.5, 0.0, None, None], pa.float64())}
    )
    found = points(engine_lines(header(), rows, [stage(1, 10), stage(0)]))
    assert [(point.tags["level"], point.fields) for point in found] == [
        ("-1", {"told": 2, "running": 1.0, "kv_usage": 0.5}),
        ("0", {"told": 1, "kv_usage": 0.0}),
        ("0", {"told": 1, "running": 3.0}),
        ("1", {"told": 0}),
    ]
    assert {point.tags["server"] for point in found} == {"http://h:1"}


def reported() -> Report:
    knee = Knee(found="bracket", axis="rate", holds=4.0, breaks=5.0, text='between 4 and 5 "r/s"')
    ledger = Ledger(due=1, outcomes={"ok": 1}, lost=0, balanced=True)
    return Report(
        header=header(), levels=[], ledger=ledger, knee=knee, verdict=Verdict(held="held", text="h", exit_code=0)
    )


def test_events_grow_with_the_run_and_never_move() -> None:
    head = header()
    begun = points(event_lines(head, [stage(0)], []))
    over = points(event_lines(head, [stage(0), stage(1, 10)], [stage(0), stage(1, 10)], reported()))
    for point in [*begun, *over]:
        is_as_the_schema_says(point)
    assert {point.key for point in begun} < {point.key for point in over}
    kinds = {point.tags["kind"]: point for point in over}
    assert [point.tags["kind"] for point in over] == ["run", "stage", "stage", "knee", "verdict"]
    assert "value" not in begun[1].fields, "not run to its end yet"
    assert msgspec.json.decode(str(kinds["run"].fields["value"]), type=RunHeader) == head
    assert [msgspec.json.decode(str(p.fields["value"]), type=Stage) for p in over[1:3]] == [stage(0), stage(1, 10)]
    assert msgspec.json.decode(str(kinds["knee"].fields["value"]), type=Knee) == reported().knee
    assert (kinds["knee"].fields["title"], kinds["verdict"].at_ns) == ('between 4 and 5 "r/s"', T0_NS + 15 * S)


# --- lines ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [float("inf"), float("-inf")])
def test_an_infinity_is_refused(value: float) -> None:
    place = {"run": "r", "scenario": "s", "level": 0, "worker": 0}
    with pytest.raises(ValueError, match="cpu: infinite in row 1"):
        lines(schema.CLIENT, place, {"cpu": pa.array([1.0, value])}, pa.array([1, 2]))


def test_what_the_schema_has_not_is_refused() -> None:
    place = {"run": "r", "scenario": "s", "level": 0}
    with pytest.raises(ValueError, match=r"client points with time, worker: not as schema\.MEASUREMENTS has them"):
        lines(schema.CLIENT, place, {"time": pa.array([1])}, pa.array([1]))


@given(st.lists(st.floats(allow_infinity=False), min_size=1, max_size=6))
def test_a_float_reads_back_as_the_same_float(values: list[float]) -> None:
    place = {"run": "r", "scenario": "s", "level": 0, "worker": pa.array(range(len(values)))}
    found = points(lines(schema.CLIENT, place, {"cpu": pa.array(values)}, pa.array([1] * len(values))))
    assert [point.fields["cpu"] for point in found] == [value for value in values if value == value]


@given(st.text(max_size=8), st.text(max_size=8))
def test_any_text_stays_within_its_tag_or_field(tag: str, text: str) -> None:
    place = {"run": tag, "scenario": "s", "kind": pa.array(["run", "knee"])}
    found = points(lines(schema.EVENT, place, {"title": pa.array([text, None])}, pa.array([1, 2])))
    assert [point.fields for point in found] == ([{"title": text}] if text else [])
    for point in found:
        assert point.tags.get("run", "") == tag_value(tag)


# --- the table --------------------------------------------------------------------------------------------------------


def test_no_name_is_both_a_tag_and_a_field_and_none_is_time() -> None:
    for of in schema.MEASUREMENTS.values():
        assert not set(of.tags) & set(of.forms)
        assert "time" not in {*of.tags, *of.forms}
        assert len(of.forms) == sum(len(value.each or (value.name,)) for value in of.values)


def test_the_table_knows_every_outcome_clause_and_column() -> None:
    assert set(schema.FAILURES) == {outcome.value for outcome in Outcome} - {"ok"}
    asked = {name for name in type(SLO).__struct_fields__ if name.endswith("_ms")}
    assert set(schema.SLO_CLAUSES) == asked
    assert set(schema.ENGINE.forms) == set(SERVER.names) - {"at_ns", "level", "server"} | {"told"}
    assert set(schema.CLIENT.forms) == set(Health.__struct_fields__) - {"worker", "level", "at_ns"}
    assert set(schema.LEVEL_METRICS) - {"itl_ms", "gap_ms"} <= set(schema.REQUEST.forms)
