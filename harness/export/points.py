"""Tables of the record log to the points of `schema.MEASUREMENTS`, as lines. No clock, no I/O.

A point is found again by its measurement, tags and stamp, and all of them come from the log: the same rows make the
same points however often and in whatever portions they are exported. A request is due once on its worker in its slot,
and no two requests of a slot overlap, so neither do their tokens.
"""

from collections.abc import Sequence

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from numpy.typing import NDArray

from harness.clock import US
from harness.export.lines import TEXT, Tag, field_text, head_text, joined, lines
from harness.export.measured import measured
from harness.findings import Report
from harness.model import RunHeader, Stage
from harness.schema import CLIENT, ENGINE, EVENT, REQUEST, TOKEN

COUNT_BITS = 40
"""Of a request's number: its count on its worker."""

Ints = NDArray[np.int64]


def request_lines(header: RunHeader, table: pa.Table) -> pa.Array:
    """One `request` point a row. `table`: rows that stand, with the columns of `record.columns.RECORDS`."""
    of = measured(header, table)
    logged, rows = of.logged, of.frame.rows
    values = {name: whole(logged, name) for name in REQUEST.forms if name in logged.column_names}
    values |= {name: pa.array(ms) for name, ms in of.ms.items()}
    values |= {
        "request": whole(logged, "request_id"),
        "ok": pa.array(of.ok),
        "good": pa.array(of.good),
        "tokens": pa.array(rows["tokens"].to_numpy(dtype=np.float64)),
        "events": pa.array(rows["events"].to_numpy()),
    }
    return lines(REQUEST, _place(header, logged), values, whole(logged, "due_ns"))


def token_lines(header: RunHeader, table: pa.Table, every: int = 1) -> pa.Array:
    """One `token` point a token event, of every Nth request of each worker; about 160 bytes each.

    Stamps rise strictly within a request: at'_j = max(at_j, at'_{j−1} + 1 ns), where `at` is to the microsecond, as in
    the log.
    """
    if every > 1:
        counts = pc.bit_wise_and(table["request_id"], (1 << COUNT_BITS) - 1).to_numpy()
        table = table.filter(pa.array(counts % every == 0))
    gaps_us = whole(table, "gaps_us")
    events = pc.list_value_length(gaps_us).to_numpy().astype(np.int64)
    rows = np.repeat(np.arange(len(events)), events)
    index = np.arange(len(rows)) - np.repeat(np.cumsum(events) - events, events)
    request = field_text("request", "int", whole(table, "request_id"))
    heads = joined(head_text(TOKEN.name, _place(header, table)), " ", request, ",index=")
    gaps = gaps_us.flatten()
    stamps = pa.array(_stamps_ns(table, gaps.to_numpy(), events))
    parts = [heads.take(pa.array(rows)), _text(pa.array(index)), "i,gap_us=", _text(gaps), "i", *_k(table, events)]
    return joined(*parts, " ", _text(stamps), "\n").cast(pa.large_binary())


def client_lines(header: RunHeader, health: pa.Table) -> pa.Array:
    """One `client` point a beat. `health`: the columns of `record.columns.HEALTH`."""
    tags = _tags(header) | {name: whole(health, name) for name in ("level", "worker")}
    values = {name: whole(health, name) for name in health.column_names if name not in {"level", "worker", "at_ns"}}
    return lines(CLIENT, tags, values, whole(health, "at_ns"))


def engine_lines(header: RunHeader, server: pa.Table, stages: Sequence[Stage]) -> pa.Array:
    """One `engine` point a look at a server. Its level is that of the stage last begun, or -1 before the first."""
    stages = sorted(stages, key=lambda stage: stage.warmup_at_ns)
    begun = np.searchsorted([stage.warmup_at_ns for stage in stages], whole(server, "at_ns").to_numpy(), side="right")
    levels = np.array([-1, *(stage.level for stage in stages)], np.int64)[begun]
    tags = _tags(header) | {"level": pa.array(levels), "server": whole(server, "server")}
    values = {name: whole(server, name) for name in server.column_names if name not in {"level", "server", "at_ns"}}
    values["told"] = pa.array(sum(column.is_valid().to_numpy(zero_copy_only=False) for column in values.values()))
    return lines(ENGINE, tags, values, whole(server, "at_ns"))


class Mark(Struct, frozen=True, kw_only=True):
    """One `event` point, less what is the same for all of a run."""

    kind: str
    at_ns: int
    title: str
    end_ns: int | None = None
    value: str = ""


def event_lines(
    header: RunHeader, announced: Sequence[Stage], ended: Sequence[Stage], report: Report | None = None
) -> pa.Array:
    """What happened, as far as it is known: the run, each stage that began, knee and verdict of the report.

    A stage has its `value` once it was run to its end; that adds a field to the same point.
    """
    over_ns = max((stage.end_at_ns for stage in (*announced, *ended)), default=header.started_ns)
    begun = {stage.warmup_at_ns: stage for stage in (*announced, *ended)}
    marks = [Mark(kind="run", at_ns=header.started_ns, title=_run_title(header), value=_json(header))]
    marks += [_stage_mark(header, stage, stage in ended) for _, stage in sorted(begun.items())]
    if report is not None and report.knee is not None:
        marks.append(Mark(kind="knee", at_ns=over_ns, title=report.knee.text, value=_json(report.knee)))
    if report is not None:
        marks.append(Mark(kind="verdict", at_ns=over_ns, title=report.verdict.text, value=_json(report.verdict)))
    return mark_lines(header, marks)


def mark_lines(header: RunHeader, marks: Sequence[Mark]) -> pa.Array:
    """One `event` point a mark."""
    values = {
        "title": pa.array([mark.title for mark in marks], TEXT),
        "end_ns": pa.array([mark.end_ns for mark in marks], pa.int64()),
        "value": pa.array([mark.value for mark in marks], TEXT),
    }
    tags = _tags(header) | {"kind": pa.array([mark.kind for mark in marks], TEXT)}
    return lines(EVENT, tags, values, pa.array([mark.at_ns for mark in marks], pa.int64()))


def whole(table: pa.Table, name: str) -> pa.Array:
    """A column as one array."""
    return table[name].combine_chunks()


def _tags(header: RunHeader) -> dict[str, Tag]:
    return {"run": header.run_id, "scenario": header.scenario.name}


def _place(header: RunHeader, rows: pa.Table) -> dict[str, Tag]:
    place = {name: whole(rows, name) for name in ("level", "worker", "slot")}
    return _tags(header) | {"class": whole(rows, "request_class")} | place


def _text(numbers: pa.Array) -> pa.Array:
    return numbers.cast(TEXT)


def _stamps_ns(table: pa.Table, gaps_us: NDArray[np.int32], events: Ints) -> Ints:
    """When each event arrived, counted as the log counts: from the start, or the due time where no start was noted."""
    origin_ns = pc.coalesce(table["start_ns"], table["due_ns"]).to_numpy()
    upto_us = np.cumsum(gaps_us, dtype=np.int64)
    ends = np.cumsum(events)
    before_us = np.concatenate(([0], upto_us))[ends - events]
    stamps_ns: Ints = upto_us * US + np.repeat(origin_ns - before_us * US, events)
    _part(stamps_ns, ends)
    return stamps_ns


def _part(stamps_ns: Ints, ends: Ints) -> None:
    """Make stamps rise strictly within each request, in place: b_j = at_j − j must not fall."""
    starts = np.concatenate(([0], ends))
    close = np.diff(stamps_ns, prepend=stamps_ns[:1] - 1) <= 0
    close[starts[:-1][ends > starts[:-1]]] = False
    for row in np.unique(np.searchsorted(ends, np.flatnonzero(close), side="right")):
        part = stamps_ns[starts[row] : ends[row]]
        turns = np.arange(len(part))
        part[:] = np.maximum.accumulate(part - turns) + turns


def _k(table: pa.Table, events: Ints) -> list[pa.Array]:
    """`,k=…` of each event, "" where its request does not say; nothing at all where none does."""
    k = whole(table, "k")
    stated = k.is_valid().to_numpy(zero_copy_only=False)
    if not stated.any():
        return []
    said = np.repeat(stated, events)
    values = np.zeros(len(said), np.int32)
    values[said] = k.drop_null().flatten().to_numpy()
    texts = joined(",", field_text("k", "int", pa.array(values, mask=~said)))
    return [pc.fill_null(texts, "")]


def _run_title(header: RunHeader) -> str:
    return f"{header.scenario.name}: {header.model} at {header.host}"


def _stage_mark(header: RunHeader, stage: Stage, ended: bool) -> Mark:
    unit = "users" if header.scenario.load.loop == "closed" else "requests/s"
    title = f"level {stage.level}: {stage.load:g} {unit}"
    value = _json(stage) if ended else ""
    return Mark(kind="stage", at_ns=stage.warmup_at_ns, title=title, end_ns=stage.end_at_ns, value=value)


def _json(value: Struct) -> str:
    return msgspec.json.encode(value).decode()
