"""Records and health to Arrow columns and messages, and back. No clock, no I/O.

A token costs four bytes before compression: `gaps_us[0]` is floor((c_1 − start) / 1000) and `gaps_us[j]` the difference
of two such floors, so the running sum gives every stamp to the microsecond, without drift.
"""

import struct
from array import array
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import ipc

from harness.model import OPEN, Arrival, Health, Outcome, Phase, Record, Timeline, Usage

LOST = "no end recorded: its worker process was lost"

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

SCHEMAS = {"records": RECORDS, "health": HEALTH}

_PLACES = {f"usage_{name}": f"usage.{name}" for name in Usage.__struct_fields__} | {
    "first_answer": "timeline.first_answer",
    "coalesced": "timeline.coalesced",
}
"""Where a column's value stands in a Record, when not in the field of that name."""

_INT32 = np.iinfo(np.int32)
_MARKER = b"\xff\xff\xff\xff"
_MAX_METADATA_BYTES = 1 << 20
_END_BYTES = 8


# --- values to columns ------------------------------------------------------------------------------------------------


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
    return pa.record_batch(
        [_array([getattr(row, field.name) for row in beats], field) for field in HEALTH], schema=HEALTH
    )


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


# --- columns to messages ----------------------------------------------------------------------------------------------


def message(batch: pa.RecordBatch, seq: int) -> bytes:
    """The batch as one encapsulated Arrow message, zstd inside, without its schema; `seq` travels in its metadata."""
    sink = pa.BufferOutputStream()
    options = ipc.IpcWriteOptions(compression="zstd", use_threads=False)  # threads would compete with the measurement
    with ipc.new_stream(sink, batch.schema, options=options) as stream:
        stream.write_batch(batch, custom_metadata={"seq": str(seq)})
    stream_bytes: bytes = sink.getvalue().to_pybytes()
    return stream_bytes[message_bytes(stream_bytes, 0) : -_END_BYTES]


def schema_message(kind: str) -> bytes:
    """What a file of this kind begins with."""
    encoded: bytes = SCHEMAS[kind].serialize().to_pybytes()
    return encoded


def message_bytes(data: bytes | memoryview, at: int) -> int | None:
    """Size of the message at byte `at`; None when the data end inside it. ValueError: no message is there.

    Arrow columnar format, "encapsulated message format": marker, size of metadata, metadata (a flatbuffer that states
    the size of the body), body.
    """
    head = bytes(data[at : at + 8])
    if not _MARKER.startswith(head[:4]):
        raise ValueError(f"it begins with {head!r} where an Arrow message should begin")
    if len(head) < 8:
        return None
    metadata_bytes = int.from_bytes(head[4:], "little")
    if metadata_bytes == 0:
        raise ValueError("the Arrow stream was ended there, which this log never does")
    if metadata_bytes > _MAX_METADATA_BYTES:
        raise ValueError(f"an Arrow message states {metadata_bytes} bytes of metadata")
    if at + 8 + metadata_bytes > len(data):
        return None
    size = 8 + metadata_bytes + _body_bytes(bytes(data[at + 8 : at + 8 + metadata_bytes]))
    return size if at + size <= len(data) else None


def _body_bytes(metadata: bytes) -> int:
    """`bodyLength`, the fourth field of the flatbuffer table `Message`; absent means 0."""
    try:
        (table,) = struct.unpack_from("<I", metadata)
        vtable = table - struct.unpack_from("<i", metadata, table)[0]
        (vtable_bytes,) = struct.unpack_from("<H", metadata, vtable)
        (place,) = struct.unpack_from("<H", metadata, vtable + 10) if vtable_bytes > 10 else (0,)
        size = int(struct.unpack_from("<q", metadata, table + place)[0]) if place else 0
    except struct.error as error:
        raise ValueError("the metadata of an Arrow message are garbage") from error
    if size < 0:
        raise ValueError(f"an Arrow message states a body of {size} bytes")
    return size


# --- columns to values ------------------------------------------------------------------------------------------------


def final_rows(request_ids: npt.NDArray[np.int64], is_open: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Which rows stand: of each request the row last written, and an OPEN one only when there is no other."""
    order = np.lexsort((~is_open, request_ids))  # stable: rows of one request stay as written, OPEN ones first
    ordered = request_ids[order]
    stands = np.zeros(len(order), np.bool_)
    stands[order[np.append(ordered[1:] != ordered[:-1], True)[: len(order)]]] = True
    return stands


def settled(batch: pa.RecordBatch, stands: npt.NDArray[np.bool_]) -> pa.RecordBatch:
    """The rows that stand, with OPEN turned into censored. Where all stand and none is OPEN, nothing is copied."""
    kept = batch if stands.all() else batch.filter(pa.array(stands))
    lost = pc.equal(kept.column("outcome"), OPEN)
    if not pc.any(lost).as_py():
        return kept
    for name, value in (("outcome", Outcome.CENSORED.value), ("detail", LOST)):
        place = RECORDS.get_field_index(name)
        kept = kept.set_column(place, RECORDS.field(place), pc.if_else(lost, value, kept.column(name)))
    return kept


def records_of(table: pa.Table) -> Iterator[Record]:
    """Rows as Records, row by row: for tests and samples. Stamps come back as start + whole microseconds."""
    for batch in table.to_batches():
        yield from map(_record, batch.to_pylist())


def _record(row: dict[str, Any]) -> Record:
    origin_ns = row["due_ns"] if row["start_ns"] is None else row["start_ns"]
    stamps_ns = origin_ns + np.cumsum(row.pop("gaps_us"), dtype=np.int64) * 1000
    k = row.pop("k")
    timeline = Timeline(
        at_ns=array("q", stamps_ns.tobytes()),
        k=None if k is None else array("q", k),
        first_answer=row.pop("first_answer"),
        coalesced=row.pop("coalesced"),
    )
    usage = Usage(**{name: row.pop(f"usage_{name}") for name in Usage.__struct_fields__})
    row |= {"phase": Phase(row["phase"]), "outcome": Outcome(row["outcome"])}
    return Record(timeline=timeline, usage=usage, **row)
