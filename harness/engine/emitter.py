"""A known emitter: answers every POST with token frames of known timing and writes down when it truly sent each. I/O.

It is what a client is measured against, so it does as little as it can: one thread, one epoll, every payload encoded
before it is due, one clock reading and one `send` a token. A stream that started at s owes token k (from 0) at
s + first + k·gap, s being the instant at which the last byte of its request was read; a late token does not move the
ones after it. First gap and later gaps are the same for all, so streams come due in the order in which they queue: two
deques stand for a heap. It takes as much of one core as there is whenever something is due within a millisecond.

A stamp is CLOCK_REALTIME right *before* the `send` that carries the token: on the loopback device the receiving socket
gets the bytes, and their arrival stamp, within that call, so a stamp taken after it could lie behind the arrival.
A token that found the socket full is stamped when the last of what had to wait was handed over.

Truth file: the 8 bytes `TSTRUTH1`, then one row a stream, in the order of their ends. A row is `=HqqIII` (bytes of the
key, request read at ns, opened at ns, tokens asked, sends that found the socket full, tokens sent), the key, and one
signed 64-bit stamp in ns a token. Byte order is that of the machine. A last row cut short by a kill is left out.
"""

import argparse
import gc
import re
import resource
import select
import signal
import socket
import ssl
import struct
import sys
from array import array
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import IO, Annotated

from msgspec import Meta, Struct

from harness.clock import MS, S, wall_ns

MAGIC = b"TSTRUTH1"
ROW = struct.Struct("=HqqIII")
BATCH = 16  # tokens between two looks at the sockets: about 0.1 ms
EVENTS = 4  # sockets served in one look, so that accepting and reading never hold up sends for long
FAR_NS = S // 10  # nothing is due: how long to wait before looking whether to stop
READ_BYTES = 65536
HEAD_BYTES = 65536
MOST_MS = 3_600_000
MOST_TOKENS = 100_000  # the number of a token has five digits
WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Beat(Struct, frozen=True, kw_only=True):
    """When tokens are due and how many there are. `tokens` holds for requests that do not say `max_tokens`."""

    first_ms: Annotated[float, Meta(ge=0)] = 50.0
    gap_ms: Annotated[float, Meta(ge=0)] = 20.0
    tokens: Annotated[int, Meta(ge=1)] = 100
    tokens_cap: Annotated[int, Meta(ge=1, le=MOST_TOKENS)] = 16_384
    """No stream is longer, whatever its request asks for."""


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


class Request(Struct, frozen=True, kw_only=True):
    """One whole HTTP request, as far as the emitter reads it."""

    post: bool
    key: str | None
    max_tokens: int | None
    body_bytes: int
    close: bool
    """The client asked for the connection to be closed after the answer."""
    size: int
    """Bytes it took of what was received."""


class Unreadable(ValueError):
    """The client sent something that is not a request the emitter can answer."""


# --- truth on disk ----------------------------------------------------------------------------------------------------


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


# --- requests and frames ----------------------------------------------------------------------------------------------

_LENGTH = re.compile(rb"(?i)\r\ncontent-length:[ \t]*(\d{1,12})[ \t]*\r\n")
_CHUNKED = re.compile(rb"(?i)\r\ntransfer-encoding:")
_CLOSE = re.compile(rb"(?i)\r\nconnection:[ \t]*close[ \t]*\r\n")
_KEY = re.compile(rb"(?i)\r\nx-request-id:[ \t]*([!#-\[\]-~]{1,128})[ \t]*\r\n")  # what needs no escape in JSON
_MAX_TOKENS = re.compile(rb'"max_(?:completion_)?tokens"\s*:\s*(\d{1,9})')


def parsed_request(data: bytes) -> Request | None:
    """The first request in these bytes; None while it is not whole. Raises Unreadable."""
    head_end = data.find(b"\r\n\r\n")
    if head_end < 0:
        if len(data) > HEAD_BYTES:
            raise Unreadable(f"request head longer than {HEAD_BYTES} bytes")
        return None
    head = data[: head_end + 2]
    if b" HTTP/1." not in head[: head.find(b"\r\n")]:
        raise Unreadable("not an HTTP/1.x request line")
    if _CHUNKED.search(head):
        raise Unreadable("request body without Content-Length")
    length, key = _LENGTH.search(head), _KEY.search(head)
    body_at = head_end + 4
    size = body_at + (int(length[1]) if length else 0)
    if len(data) < size:
        return None
    asked = _MAX_TOKENS.search(data, body_at, size)
    return Request(
        post=head.startswith(b"POST "),
        key=key[1].decode() if key else None,
        max_tokens=int(asked[1]) if asked else None,
        body_bytes=size - body_at,
        close=_CLOSE.search(head) is not None,
        size=size,
    )


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _reply(status: bytes, kind: bytes, body: bytes) -> bytes:
    return b"HTTP/1.1 %b\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n%b" % (status, kind, len(body), body)


HEADERS = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-cache\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
MODELS = _reply(b"200 OK", b"application/json", b'{"object":"list","data":[{"id":"known","object":"model"}]}')
FRAME = b'data: {"id":"chatcmpl-%b","object":"chat.completion.chunk","created":%d,"model":"known","choices":'
ROLE = b'[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}\n\n'
TOKEN = b'[{"index":0,"delta":{"content":" %05d"},"logprobs":null,"finish_reason":null,"token_ids":null}]}\n\n'
FINISH = b'[{"index":0,"delta":{},"logprobs":null,"finish_reason":"length","token_ids":null}]}\n\n'
USAGE = b'[],"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d}}\n\n'
TOKEN_BYTES = len(TOKEN % 0)


def _ending(frame: bytes, prompt_tokens: int, tokens: int) -> bytes:
    """All that follows the last token, to be sent together with it: finish, usage, [DONE] and the end of the body."""
    usage = USAGE % (prompt_tokens, prompt_tokens + tokens, tokens)
    return _chunk(frame + FINISH) + _chunk(frame + usage) + _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"


# --- the server -------------------------------------------------------------------------------------------------------


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
        """Bytes that the full socket did not take. While there are any, `send` is `_refusal`."""
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
        frame = FRAME % (key.encode(), request_at_ns // S)
        self.key, self.tokens, self.last, self.blocked = key, tokens, tokens - 1, 0
        self.close = request.close
        self.request_at_ns = request_at_ns
        self.head = b"%x\r\n%b" % (len(frame) + TOKEN_BYTES, frame)
        self.ending = _ending(frame, max(1, request.body_bytes // 4), tokens)
        self.sent_ns = array("q")
        return HEADERS + _chunk(frame + ROLE)

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


def _refusal(_data: bytes) -> int:
    """Stands in for `send` while older bytes wait for room."""
    raise BlockingIOError


class Emitter:
    """The server. `run` returns after `stop`; rows of the truth file are written as streams end."""

    def __init__(
        self, beat: Beat, listener: socket.socket, truth: IO[bytes], tls: ssl.SSLContext | None = None
    ) -> None:
        self.first_ns, self.gap_ns = round(beat.first_ms * MS), round(beat.gap_ms * MS)
        self.beat = beat
        self.tls = tls
        self.truth = truth
        self.tails = [TOKEN % k + b"\r\n" for k in range(beat.tokens_cap)]
        self.opening: deque[Peer] = deque()
        """Streams before their first token, by due time; `running` has those after it."""
        self.running: deque[Peer] = deque()
        self.peers: dict[int, Peer] = {}
        self.begun = 0
        self.stopping = False
        self.listener = listener
        listener.setblocking(False)
        self.epoll = select.epoll()
        self.epoll.register(listener, select.EPOLLIN)

    def stop(self) -> None:
        """Asks `run` to return; safe in a signal handler and from another thread."""
        self.stopping = True

    def run(self, ready: Callable[[int], None]) -> None:
        """Serves until `stop`, then writes down the streams cut short. `ready` is called once with the port."""
        self.truth.write(MAGIC)
        ready(self.listener.getsockname()[1])
        while not self.stopping:
            until_due_ns = self._send_due()
            # epoll sleeps in whole ms and wakes late: sleep to within 1 to 2 ms of the next token, then spin.
            self._serve(max(0, until_due_ns // MS - 1) / 1000)
        for peer in (*self.opening, *self.running, *self.peers.values()):
            self._lose(peer)
            self._end(peer)
        self.listener.close()
        self.epoll.close()
        self.truth.flush()

    def _send_due(self) -> int:
        """Sends the tokens that are due, at most BATCH. Returns ns until the next one, ≤ 0 if more are due."""
        opening, running, tails, gap_ns = self.opening, self.running, self.tails, self.gap_ns
        for _ in range(BATCH):
            queue = running
            if opening and (not running or opening[0].due_ns < running[0].due_ns):
                queue = opening
            elif not running:
                return FAR_NS
            peer = queue[0]
            now_ns = wall_ns()
            if now_ns < peer.due_ns:
                return min(FAR_NS, peer.due_ns - now_ns)
            queue.popleft()
            k = len(peer.sent_ns)
            peer.sent_ns.append(now_ns)
            frame = peer.head + tails[k]
            if k != peer.last:
                peer.due_ns += gap_ns
                running.append(peer)
            else:
                frame += peer.ending
            try:
                if (taken := peer.send(frame)) != len(frame):
                    self._hold(peer, frame[taken:], k)
            except WOULD_BLOCK:
                self._hold(peer, frame, k)
            except OSError:
                self._vanish(peer, k)
                continue
            if k == peer.last and not peer.rest:
                self._end(peer)
        return 0

    def _hold(self, peer: Peer, rest: bytes, first_held: int) -> None:
        """Keeps what the socket did not take; epoll says when there is room."""
        peer.blocked += 1
        if not peer.rest:
            peer.held_from = first_held
            peer.send = _refusal
            self.epoll.modify(peer.sock, select.EPOLLIN | select.EPOLLOUT)
        peer.rest += rest

    def _flush(self, peer: Peer) -> None:
        """Hands over what waited. Once all of it went, the tokens in it get their stamp."""
        now_ns = wall_ns()
        try:
            peer.rest = peer.rest[peer.sock.send(peer.rest) :]
        except WOULD_BLOCK:
            return
        except OSError:
            self._lose(peer)
            return
        if peer.rest:
            return
        for k in range(peer.held_from, len(peer.sent_ns)):
            peer.sent_ns[k] = now_ns
        peer.send = peer.sock.send
        self.epoll.modify(peer.sock, select.EPOLLIN)
        if peer.tokens and len(peer.sent_ns) == peer.tokens:
            self._end(peer)

    def _vanish(self, peer: Peer, k: int) -> None:
        """Token k could not be sent because the client is gone: takes its stamp back and ends the stream."""
        peer.sent_ns.pop()
        if k != peer.last:
            self.running.pop()
        self._lose(peer)
        self._end(peer)

    def _lose(self, peer: Peer) -> None:
        """Closes the connection. A stream still in a queue ends when its next send fails: no search through queues."""
        if self.peers.pop(peer.sock.fileno(), None) is None:
            return
        peer.sock.close()
        peer.send = peer.sock.send
        if peer.tokens and len(peer.sent_ns) == peer.tokens:
            self._end(peer)

    def _end(self, peer: Peer) -> None:
        """Writes the stream down and turns to the next request on the connection, if any."""
        if peer.tokens:
            self.truth.write(row(peer.sent()))
        peer.tokens = 0
        if peer.close:
            self._lose(peer)
        elif peer.inbox and peer.sock.fileno() >= 0:
            self._answer(peer, wall_ns())

    def _serve(self, timeout_s: float) -> None:
        for fd, mask in self.epoll.poll(timeout_s, EVENTS):
            peer = self.peers.get(fd)
            if peer is None:
                self._accept()
            elif mask & select.EPOLLOUT:
                self._flush(peer)
            else:
                self._read(peer)

    def _accept(self) -> None:
        try:
            sock, _ = self.listener.accept()
        except OSError:  # gone again before it was its turn
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.tls is not None:
            try:
                sock = self.tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
            except OSError:
                sock.close()
                return
        self.peers[sock.fileno()] = Peer(sock, handshaken=self.tls is None)
        self.epoll.register(sock, select.EPOLLIN)

    def _read(self, peer: Peer) -> None:
        try:
            if not peer.handshaken and isinstance(peer.sock, ssl.SSLSocket):
                peer.sock.do_handshake()
                peer.handshaken = True
            data = peer.sock.recv(READ_BYTES)
        except WOULD_BLOCK:
            return
        except OSError:
            data = b""
        if not data:
            self._lose(peer)
            return
        peer.inbox += data
        if not peer.tokens:
            self._answer(peer, wall_ns())

    def _answer(self, peer: Peer, request_at_ns: int) -> None:
        """Starts the stream for the request in the inbox, if that is whole. What is no POST gets the list of models."""
        while not peer.tokens:
            try:
                request = parsed_request(peer.inbox)
            except Unreadable as error:
                self._put(peer, _reply(b"400 Bad Request", b"text/plain", str(error).encode()))
                self._lose(peer)
                return
            if request is None:
                return
            peer.inbox = peer.inbox[request.size :]
            if request.post:
                self._open(peer, request, request_at_ns)
            else:
                self._put(peer, MODELS)
                if request.close:
                    self._lose(peer)

    def _open(self, peer: Peer, request: Request, request_at_ns: int) -> None:
        """Sends headers and the role-only frame, and queues the first token."""
        key = request.key or f"{self.begun:06d}"
        self.begun += 1
        tokens = max(1, min(request.max_tokens or self.beat.tokens, self.beat.tokens_cap))
        opening = peer.begin(key, request, tokens, request_at_ns)
        peer.due_ns = request_at_ns + self.first_ns
        self.opening.append(peer)
        peer.opened_ns = wall_ns()
        self._put(peer, opening)

    def _put(self, peer: Peer, data: bytes) -> None:
        """Sends something that is not a token."""
        try:
            if (taken := peer.send(data)) != len(data):
                self._hold(peer, data[taken:], 0)
        except WOULD_BLOCK:
            self._hold(peer, data, 0)
        except OSError:
            self._lose(peer)


# --- the command ------------------------------------------------------------------------------------------------------


def tls_context(cert: str, key: str) -> ssl.SSLContext:
    """A server's context from PEM files. Raises OSError when they cannot be read or do not fit each other."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context


def _announce(port: int) -> None:
    sys.stdout.write(f"port {port}\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m harness.engine.emitter", description="A known emitter.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0: any free one; announced on stdout as `port N`")
    parser.add_argument("--truth", required=True, help="file that gets what was truly sent")
    parser.add_argument("--first-ms", type=float, default=50.0)
    parser.add_argument("--gap-ms", type=float, default=20.0)
    parser.add_argument("--tokens", type=int, default=100, help="for requests without max_tokens")
    parser.add_argument("--tls-cert", help="PEM file; with --tls-key: serve HTTPS")
    parser.add_argument("--tls-key")
    return parser


def main(argv: list[str] | None = None) -> None:
    """Serves until SIGTERM or SIGINT, then leaves a whole truth file behind. Wrong arguments: one line, exit 2."""
    parser = _parser()
    args = parser.parse_args(argv)
    if bool(args.tls_cert) != bool(args.tls_key):
        parser.error("--tls-cert and --tls-key go together: got one of them, expected both or neither")
    if not (0 <= args.first_ms <= MOST_MS and 0 <= args.gap_ms <= MOST_MS and 1 <= args.tokens <= MOST_TOKENS):
        got = f"got {args.first_ms:g}, {args.gap_ms:g} and {args.tokens}"
        expected = f"expected 0 to {MOST_MS} ms and 1 to {MOST_TOKENS} tokens"
        parser.error(f"--first-ms, --gap-ms and --tokens are out of range: {got}, {expected}")
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    try:
        tls = tls_context(args.tls_cert, args.tls_key) if args.tls_cert else None
        listener = socket.create_server((args.host, args.port), backlog=4096)
        truth = open(args.truth, "wb", buffering=65536)  # noqa: SIM115 - closed below, together with the listener
    except OSError as error:
        parser.error(f"cannot start on {args.host}:{args.port} with truth file {args.truth}: {error}")
    cap = max(args.tokens, Beat().tokens_cap)
    beat = Beat(first_ms=args.first_ms, gap_ms=args.gap_ms, tokens=args.tokens, tokens_cap=cap)
    with listener, truth:
        emitter = Emitter(beat, listener, truth, tls)
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, lambda _signum, _frame: emitter.stop())
        gc.disable()  # nothing here grows in cycles while streams run, and a collection would make tokens late
        emitter.run(_announce)


if __name__ == "__main__":
    main()
