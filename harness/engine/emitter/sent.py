"""What the known emitter truly sent: a stream of it, and the truth file that keeps them. I/O only in `read_truth`.

Truth file: the 8 bytes `TSTRUTH1`, then one row a stream, in the order of their ends. A row is `=HqqIII` (bytes of the
key, request read at ns, opened at ns, tokens asked, sends that found the socket full, tokens sent), the key, and one
signed 64-bit stamp in ns a token. Byte order is that of the machine. A last row cut short by a kill is left out.
"""

import struct
from array import array
from pathlib import Path

from msgspec import Struct

MAGIC = b"TSTRUTH1"
ROW = struct.Struct("=HqqIII")


class SentStream(Struct, frozen=True, kw_only=True):
    """What was sent on one stream. Instants are CLOCK_REALTIME in ns, each right before its `send`."""

    key: str
    """The request's X-Request-Id, or its number in order of arrival; frames carry it as `chatcmpl-KEY`."""
    request_at_ns: int
    """Right after the read that returned the last byte of the request."""
    opened_ns: int
    """Headers and the role-only frame."""
    tokens: int
    """Asked for; `sent_ns` is shorter when the client went away or the emitter was stopped."""
    blocked: int
    """Sends that found the socket full."""
    sent_ns: "array[int]"


def row(stream: SentStream) -> bytes:
    """One stream as a row of the truth file."""
    key = stream.key.encode()
    counts = (stream.tokens, stream.blocked, len(stream.sent_ns))
    return ROW.pack(len(key), stream.request_at_ns, stream.opened_ns, *counts) + key + stream.sent_ns.tobytes()


def read_truth(path: Path | str) -> list[SentStream]:
    """All whole rows of a truth file, in the order in which the streams ended.

    Raises ValueError if the file does not begin like a truth file.
    """
    data = Path(path).read_bytes()
    if not data.startswith(MAGIC):
        raise ValueError(f"{path}: not a truth file: begins with {data[:8]!r}, expected {MAGIC!r}")
    streams, at = [], len(MAGIC)
    while (parsed := _row_at(data, at)) is not None:
        stream, at = parsed
        streams.append(stream)
    return streams


def _row_at(data: bytes, at: int) -> tuple[SentStream, int] | None:
    """The row that begins there and where the next one does; None at the end or where the file was cut."""
    if at + ROW.size > len(data):
        return None
    key_bytes, request_at_ns, opened_ns, tokens, blocked, sent = ROW.unpack_from(data, at)
    key_at = at + ROW.size
    stamps_at = key_at + key_bytes
    end = stamps_at + 8 * sent
    if end > len(data):
        return None
    stream = SentStream(
        key=data[key_at:stamps_at].decode(),
        request_at_ns=request_at_ns,
        opened_ns=opened_ns,
        tokens=tokens,
        blocked=blocked,
        sent_ns=array("q", data[stamps_at:end]),
    )
    return stream, end
