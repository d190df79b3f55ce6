"""HTTP/1.1 on the server's side: one connection, its requests in order, its bytes out. I/O: an asyncio protocol."""

import asyncio
import socket
import struct
from collections import deque
from collections.abc import Callable
from email.utils import formatdate
from http import HTTPStatus

import httptools
from msgspec import Struct

from harness import clock
from harness.engine.asks import error_body

MAX_PIPELINED = 64
LINGER_S = 1.0


class Request(Struct, frozen=True, kw_only=True):
    """One request, complete."""

    method: str
    path: str
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes
    received_ns: int
    """CLOCK_REALTIME when its last byte had been read."""
    received_mono_ns: int
    keep_alive: bool


class Limits(Struct, frozen=True, kw_only=True):
    """What one connection may ask for."""

    max_body_bytes: int = 16 * 1024 * 1024
    idle_s: float | None = None
    """A kept connection is closed when nothing came for so long. None: never."""


Answerer = Callable[["Connection", Request], None]


class Connection(asyncio.Protocol):
    """Hands one request at a time to `answer`; the answer calls `done` when it is over, and sets `on_lost` if it cares.

    Each `write` is one send, and so one TCP segment, as long as the kernel's buffer has room.
    """

    def __init__(self, answer: Answerer, limits: Limits, open_connections: set["Connection"]) -> None:
        self.on_lost: Callable[[], None] | None = None
        self._answer = answer
        self._limits = limits
        self._open = open_connections
        self._parser = httptools.HttpRequestParser(self)
        self._queue: deque[Request] = deque()
        self._current: Request | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._broken = False
        self._fresh()

    # --- asyncio --------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._open.add(self)
        self._watch_idle()

    def connection_lost(self, exc: Exception | None) -> None:
        self._open.discard(self)
        self._broken = True
        self._queue.clear()
        self._watch_idle()
        lost, self.on_lost = self.on_lost, None
        if lost is not None:
            lost()

    def data_received(self, data: bytes) -> None:
        if self._broken:
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._refuse(400, "Unsupported upgrade request.")
        except httptools.HttpParserError:
            if not self._broken:
                self._refuse(400, "Invalid HTTP request received.")

    # --- httptools ------------------------------------------------------------------------------------------------

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        length = self._headers.get("content-length", "0")
        if length.isdigit() and int(length) > self._limits.max_body_bytes:
            self._too_large()
        elif self._headers.get("expect", "").lower() == "100-continue":
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        if self._broken:
            return
        self._size += len(body)
        if self._size > self._limits.max_body_bytes:
            self._too_large()
        else:
            self._body.append(body)

    def on_message_complete(self) -> None:
        if self._broken:
            return
        request = Request(
            method=self._parser.get_method().decode("ascii"),
            path=self._url.decode("latin-1").partition("?")[0],
            headers=self._headers,
            body=b"".join(self._body),
            received_ns=clock.wall_ns(),
            received_mono_ns=clock.mono_ns(),
            keep_alive=self._parser.should_keep_alive(),
        )
        self._fresh()
        self._queue.append(request)
        if len(self._queue) > MAX_PIPELINED:
            self._refuse(400, "Too many requests before their answers.")
        elif self._current is None:
            self._next()

    # --- for answers ----------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> bool:
        """Send now; True when the kernel did not take all of it at once. Nothing happens on a lost connection."""
        self.transport.write(data)
        return self.transport.get_write_buffer_size() > 0

    def reply(self, status: int, body: bytes, kind: str = "application/json", **headers: str) -> None:
        """A whole response; underscores in header names stand for hyphens."""
        extra = {name.replace("_", "-"): value for name, value in headers.items()}
        head = response_head(status, {"content-length": str(len(body)), "content-type": kind, **extra}, self.closing)
        self.write(head + body)
        self.done()

    @property
    def closing(self) -> bool:
        """The connection ends with the current answer."""
        return self._current is None or not self._current.keep_alive

    def done(self) -> None:
        """The current answer is complete: close if that was agreed, else take the next request."""
        self.on_lost = None
        closing, self._current = self.closing, None
        if closing:
            self.close()
        elif not self._broken:
            self._next()

    def close(self) -> None:
        """End the connection with a FIN once everything written is sent."""
        self._broken = True
        self.on_lost = None
        self.transport.close()

    def reset(self) -> None:
        """End the connection with an RST."""
        raw: socket.socket = self.transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._broken = True
        self.on_lost = None
        self.transport.abort()

    # --- inside ---------------------------------------------------------------------------------------------------

    def _fresh(self) -> None:
        self._url = b""
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._size = 0

    def _next(self) -> None:
        if self._queue:
            self._current = self._queue.popleft()
            self._watch_idle()
            self._answer(self, self._current)
        else:
            self._watch_idle()

    def _watch_idle(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        if self._limits.idle_s is not None and self._current is None and not self._broken:
            self._idle = asyncio.get_running_loop().call_later(self._limits.idle_s, self.close)

    def _too_large(self) -> None:
        self._refuse(413, f"Request body over {self._limits.max_body_bytes} bytes.")

    def _refuse(self, status: int, message: str) -> None:
        """The request cannot be read, so nothing after it can: answer and close."""
        body = error_body(status, message, kind="Bad Request")
        headers = {"content-length": str(len(body)), "content-type": "application/json"}
        self.transport.write(response_head(status, headers, closing=True) + body)
        self._linger()

    def _linger(self) -> None:
        """Close, but read on for a while: closing on unread bytes would send an RST that eats the response."""
        self._broken = True
        self._queue.clear()
        self.transport.write_eof()
        asyncio.get_running_loop().call_later(LINGER_S, self.transport.close)


def response_head(status: int, headers: dict[str, str], closing: bool) -> bytes:
    """Status line and headers, up to and including the empty line."""
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"]
    lines += [f"date: {formatdate(clock.wall_ns() // clock.S, usegmt=True)}", "server: tokenswarm"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if closing:
        lines.append("connection: close")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
