"""Bytes to server-sent events. No clock, no I/O. The framing of the WHATWG HTML standard, "Server-sent events"."""

import re
from collections.abc import Iterator

MAX_EVENT_BYTES = 4 * 1024 * 1024

_LINE_END = re.compile(rb"[\r\n]")


class FrameError(Exception):
    """The stream cannot be framed: an event without end."""


class Framer:
    """Splits a byte stream into events, whatever its cuts.

    `feed` yields (event type, data) when the byte that ends the event is there. A CR ends a line at once; an LF after
    it is skipped, not awaited. Comments and unknown fields yield nothing. An event may not exceed `limit` bytes.
    """

    __slots__ = ("_data", "_first", "_limit", "_line", "_size", "_skip_lf", "_type", "idle")

    def __init__(self, limit: int = MAX_EVENT_BYTES) -> None:
        self._limit = limit
        self._line = b""
        self._data: list[bytes] = []
        self._size = 0
        self._type = b""
        self._skip_lf = False
        self._first = True
        self.idle = False
        """Nothing of an event has been seen yet and the next byte starts a line."""

    def feed(self, piece: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield every event that ends in this piece. Raises FrameError on an event over the limit."""
        start = 0
        if self._skip_lf and piece:
            start = 1 if piece[:1] == b"\n" else 0
            self._skip_lf = False
        while end := _LINE_END.search(piece, start):
            line = self._line + piece[start : end.start()]
            self._line = b""
            start = end.end()
            if end.group() == b"\r":
                if start < len(piece):
                    start += piece[start : start + 1] == b"\n"
                else:
                    self._skip_lf = True
            event = self._take(line)
            if event:
                yield event
        self._line += piece[start:]
        self.idle = not (self._line or self._data or self._type or self._first or self._skip_lf)
        if len(self._line) + self._size > self._limit:
            raise FrameError(f"an event over {self._limit} bytes")

    def _take(self, line: bytes) -> tuple[bytes, bytes] | None:
        if self._first:
            line = line.removeprefix(b"\xef\xbb\xbf")
            self._first = False
        if not line:
            return self._dispatch()
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
            self._size += len(value)
        elif name == b"event":
            self._type = value
        return None

    def _dispatch(self) -> tuple[bytes, bytes] | None:
        event = (self._type, b"\n".join(self._data)) if self._data else None
        self._data = []
        self._size = 0
        self._type = b""
        return event
