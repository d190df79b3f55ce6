"""The columns of the log, and records, health and vitals put into them. No clock, no I/O.

A token costs four bytes before compression: `gaps_us[0]` is floor((c_1 − start) / 1000) and `gaps_us[j]` the difference
of two such floors, so the running sum gives every stamp to the microsecond, without drift.
"""

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from harness.model import OPEN, Arrival, Health, Outcome, Record, Usage
from harness.record.vitals import TOLD, Vitals

RECORDS = pa.schema(
    [
        pa.field("request_id", pa.int64(), nullable=False),
        pa.field("worker", pa.int32(), nullable=False),
        pa.field("slot", pa.int32(), nullable=False),
        pa.field("level", pa.int32(), nullable=False),
        pa.field("phase", pa.string(), nullable=False),
        pa.field("request_class", pa.string(), nullable=False),
        pa.field("due_ns", pa.int64(), nullable=False),
        pa.field("start_ns", pa.int64()),
        pa.field("headers_ns", pa.int64()),
        pa.field("first_byte_ns", pa.int64()),
        pa.field("end_ns", pa.int64()),
        pa.field("connect_ns", pa.int64()),
        pa.field("outcome", pa.string(), nullable=False),
        pa.field("detail", pa.string(), nullable=False),
        pa.field("status", pa.int32()),
        pa.field("retried", pa.bool_(), nullable=False),
        pa.field("stamp_source", pa.string(), nullable=False),
        pa.field("gaps_us", pa.list_(pa.int32()), nullable=False),
        pa.field("k", pa.list_(pa.int32())),
        pa.field("first_answer", pa.int32()),
        pa.field("coalesced", pa.int32(), nullable=False),
        pa.field("finish_reason", pa.string(), nullable=False),
        pa.field("prompt_tokens_asked", pa.int32(), nullable=False),
        pa.field("output_tokens_asked", pa.int32(), nullable=False),
        pa.field("usage_prompt_tokens", pa.int32()),
        pa.field("usage_completion_tokens", pa.int32()),
        pa.field("usage_reasoning_tokens", pa.int32()),
        pa.field("usage_cached_tokens", pa.int32()),
        pa.field("usage_source", pa.string(), nullable=False),
        pa.field("response_bytes", pa.int64(), nullable=False),
    ]
)

HEALTH = pa.schema(
    [
        pa.field(field.name, pa.float64() if field.type is float else pa.int64(), nullable=False)
        for field in msgspec.structs.fields(Health)
    ]
)

SERVER = pa.schema(
    [
        pa.field("at_ns", pa.int64(), nullable=False),
        pa.field("level", pa.int32(), nullable=False),
        pa.field("server", pa.string(), nullable=False),
        *(pa.field(name, pa.float64()) for name in TOLD),
    ]
)

SCHEMAS = {"records": RECORDS, "health": HEALTH, "server": SERVER}

_PLACES = {f"usage_{name}": f"usage.{name}" for name in Usage.__struct_fields__} | {
    "first_answer": "timeline.first_answer",
    "coalesced": "timeline.coalesced",
}
"""Where a column's value stands in a Record, when not in the field of that name."""

_INT32 = np.iinfo(np.int32)


def records_batch(ended: Sequence[Record], still_open: Sequence[Record] = ()) -> pa.RecordBatch:
    """Rows of requests that ended, then rows of those that did not, with outcome OPEN."""
    rows = [*ended, *still_open]
    columns = {
        "outcome": pa.array([*(record.outcome for record in ended), *(OPEN for _ in still_open)], pa.string()),
        "gaps_us": _gaps_us(rows),
        "k": _k(rows),
    }
    for field in RECORDS:
        if field.name not in columns:
            value = attrgetter(_PLACES.get(field.name, field.name))
            columns[field.name] = _array([value(row) for row in rows], field)
    return pa.record_batch([columns[name] for name in RECORDS.names], schema=RECORDS)


def health_batch(beats: Sequence[Health]) -> pa.RecordBatch:
    """One row per beat."""
    return _rows_batch(beats, HEALTH)


def server_batch(looks: Sequence[Vitals]) -> pa.RecordBatch:
    """One row per look at a server."""
    return _rows_batch(looks, SERVER)


def open_record(arrival: Arrival, worker: int, start_ns: int | None) -> Record:
    """What is known of a request while it runs. Its outcome stands here for "none yet"; its row says OPEN."""
    return Record(
        request_id=arrival.request_id,
        worker=worker,
        slot=arrival.slot,
        level=arrival.level,
        phase=arrival.phase,
        request_class=arrival.spec.request_class,
        due_ns=arrival.due_ns,
        start_ns=start_ns,
        outcome=Outcome.CENSORED,
        prompt_tokens_asked=arrival.spec.prompt_tokens,
        output_tokens_asked=arrival.spec.output_tokens,
    )


def _rows_batch(rows: Sequence[Health] | Sequence[Vitals], schema: pa.Schema) -> pa.RecordBatch:
    columns = [_array([getattr(row, field.name) for row in rows], field) for field in schema]
    return pa.record_batch(columns, schema=schema)


def _array(values: list[Any], field: pa.Field) -> pa.Array:
    try:
        return pa.array(values, field.type)
    except (ValueError, OverflowError):  # servers send absurd counts and halves of characters: no reason to lose a row
        return pa.array([_storable(value, field.type) for value in values], field.type)


def _storable(value: Any, kind: pa.DataType) -> Any:
    """An integer pulled into the range of its column, a text with `?` for what UTF-8 cannot hold."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, int) and pa.types.is_integer(kind):
        high = (1 << (kind.bit_width - 1)) - 1
        return min(max(value, -high - 1), high)
    return value


def _gaps_us(rows: Sequence[Record]) -> pa.Array:
    """`gaps_us` of all rows in one stroke. A gap beyond ±35 minutes is stored as that."""
    counts = np.array([len(row.timeline.at_ns) for row in rows], np.int64)
    stamps_ns = np.frombuffer(b"".join(row.timeline.at_ns for row in rows), np.int64)
    since_us = (stamps_ns - np.repeat(np.array([_origin_ns(row) for row in rows], np.int64), counts)) // 1000
    offsets = _offsets(counts)
    gaps_us = np.diff(since_us, prepend=0)
    firsts = offsets[:-1][counts > 0]
    gaps_us[firsts] = since_us[firsts]
    return pa.ListArray.from_arrays(offsets, _int32(gaps_us))


def _origin_ns(row: Record) -> int:
    """What stamps are counted from: the start, or the due time where no start was noted."""
    return row.due_ns if row.start_ns is None else row.start_ns


def _k(rows: Sequence[Record]) -> pa.Array:
    stated = [row.timeline.k for row in rows]
    offsets = _offsets(np.array([0 if k is None else len(k) for k in stated], np.int64))
    values = [np.asarray(k, np.int64) for k in stated if k is not None]
    flat = np.concatenate(values) if values else np.empty(0, np.int64)
    return pa.ListArray.from_arrays(offsets, _int32(flat), mask=pa.array([k is None for k in stated], pa.bool_()))


def _offsets(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    return np.concatenate(([0], np.cumsum(counts))).astype(np.int32)


def _int32(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    return np.clip(values, _INT32.min, _INT32.max).astype(np.int32)
