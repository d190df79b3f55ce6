"""Batches to encapsulated Arrow messages, and where a message ends. No clock, no I/O."""

import struct

import pyarrow as pa
from pyarrow import ipc

from harness.record.columns import SCHEMAS

_MARKER = b"\xff\xff\xff\xff"
_MAX_METADATA_BYTES = 1 << 20
_END_BYTES = 8


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
