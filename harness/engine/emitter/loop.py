"""The one thread of the known emitter: sends what is due, and looks at the sockets in between. I/O."""

import select
import socket
import ssl
from collections import deque
from collections.abc import Callable
from typing import IO

from harness.clock import MS, S, wall_ns
from harness.engine.emitter.beat import Beat
from harness.engine.emitter.payload import MODELS, reply, token_tails
from harness.engine.emitter.peer import WOULD_BLOCK, Peer, accepted, refusal
from harness.engine.emitter.request import Request, Unreadable, parsed_request
from harness.engine.emitter.sent import MAGIC, row

BATCH = 16  # tokens between two looks at the sockets: about 0.1 ms
EVENTS = 4  # sockets served in one look, so that accepting and reading never hold up sends for long
FAR_NS = S // 10  # nothing is due: how long to wait before looking whether to stop


class Emitter:
    """The server. `run` returns after `stop`; rows of the truth file are written as streams end."""

    def __init__(
        self, beat: Beat, listener: socket.socket, truth: IO[bytes], tls: ssl.SSLContext | None = None
    ) -> None:
        self.first_ns, self.gap_ns = round(beat.first_ms * MS), round(beat.gap_ms * MS)
        self.beat = beat
        self.tls = tls
        self.truth = truth
        self.tails = token_tails(beat.tokens_cap)
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
            peer.send = refusal
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
        peer = accepted(self.listener, self.tls)
        if peer is not None:
            self.peers[peer.sock.fileno()] = peer
            self.epoll.register(peer.sock, select.EPOLLIN)

    def _read(self, peer: Peer) -> None:
        data = peer.received()
        if data is None:
            return
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
                self._put(peer, reply(b"400 Bad Request", b"text/plain", str(error).encode()))
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
        headers = peer.begin(key, request, tokens, request_at_ns)
        peer.due_ns = request_at_ns + self.first_ns
        self.opening.append(peer)
        peer.opened_ns = wall_ns()
        self._put(peer, headers)

    def _put(self, peer: Peer, data: bytes) -> None:
        """Sends something that is not a token."""
        try:
            if (taken := peer.send(data)) != len(data):
                self._hold(peer, data[taken:], 0)
        except WOULD_BLOCK:
            self._hold(peer, data, 0)
        except OSError:
            self._lose(peer)
