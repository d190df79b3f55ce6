"""One client of the known emitter: its socket, its stream, and what waits for room. I/O (a socket), no clock."""

import socket
import ssl
from array import array
from collections.abc import Callable

from harness.clock import S
from harness.engine.emitter.payload import ending, frame_start, opening, token_head
from harness.engine.emitter.request import Request
from harness.engine.emitter.sent import SentStream

READ_BYTES = 65536
WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Peer:
    """One client's connection and the stream on it. Mutable; there is a stream while `tokens` is not 0."""

    __slots__ = (
        "blocked",
        "close",
        "due_ns",
        "ending",
        "handshaken",
        "head",
        "held_from",
        "inbox",
        "key",
        "last",
        "opened_ns",
        "request_at_ns",
        "rest",
        "send",
        "sent_ns",
        "sock",
        "tokens",
    )

    def __init__(self, sock: socket.socket, *, handshaken: bool) -> None:
        self.sock = sock
        self.send: Callable[[bytes], int] = sock.send
        self.handshaken = handshaken
        self.inbox = b""
        self.rest = b""
        """Bytes that the full socket did not take. While there are any, `send` is `refusal`."""
        self.held_from = 0
        """Index of the first token that is in `rest`."""
        self.close = False
        self.tokens = self.last = self.blocked = 0
        self.key = ""
        self.head = self.ending = b""
        self.due_ns = self.request_at_ns = self.opened_ns = 0
        self.sent_ns = array("q")

    def begin(self, key: str, request: Request, tokens: int, request_at_ns: int) -> bytes:
        """Starts a stream: everything it will send is encoded here. Returns headers and the role-only frame."""
        start = frame_start(key, request_at_ns // S)
        self.key, self.tokens, self.last, self.blocked = key, tokens, tokens - 1, 0
        self.close = request.close
        self.request_at_ns = request_at_ns
        self.head = token_head(start)
        self.ending = ending(start, max(1, request.body_bytes // 4), tokens)
        self.sent_ns = array("q")
        return opening(start)

    def received(self) -> bytes | None:
        """What the client sent; None while there is nothing to read yet, b"" once the client is gone."""
        try:
            if not self.handshaken and isinstance(self.sock, ssl.SSLSocket):
                self.sock.do_handshake()
                self.handshaken = True
            return self.sock.recv(READ_BYTES)
        except WOULD_BLOCK:
            return None
        except OSError:
            return b""

    def sent(self) -> SentStream:
        """What was sent so far; tokens still held in `rest` were not."""
        stamps = self.sent_ns[: self.held_from] if self.rest else self.sent_ns
        return SentStream(
            key=self.key,
            request_at_ns=self.request_at_ns,
            opened_ns=self.opened_ns,
            tokens=self.tokens,
            blocked=self.blocked,
            sent_ns=stamps,
        )


def refusal(_data: bytes) -> int:
    """Stands in for `send` while older bytes wait for room."""
    raise BlockingIOError


def accepted(listener: socket.socket, tls: ssl.SSLContext | None) -> Peer | None:
    """The next client, its TLS handshake still to do; None when it is gone again before its turn."""
    try:
        sock, _ = listener.accept()
    except OSError:
        return None
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if tls is not None:
        try:
            sock = tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        except OSError:
            sock.close()
            return None
    return Peer(sock, handshaken=tls is None)
