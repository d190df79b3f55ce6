"""Drives an Exchange over a connection: sends, reads stamped bytes, watches four timeouts. I/O, under gevent."""

import ssl

import gevent
from gevent.hub import Waiter
from msgspec import Struct

from harness import clock
from harness.model import Outcome, Timeouts
from harness.protocol.exchange import Exchange
from harness.protocol.refrain import Refrain
from harness.wire.connection import READ_BYTES, Connection, NotConnected, connect
from harness.wire.endpoint import Endpoint
from harness.wire.poller import Poller, poller
from harness.wire.stamps import ANCILLARY_BYTES, timespec

SWEEP_S = 0.1
"""How often timeouts are looked at: their precision."""
AFTER_DONE_NS = 2 * clock.S
"""How long a stream may stay open after [DONE]."""


class Wiring(Struct, frozen=True, kw_only=True):
    """What a client needs to know."""

    endpoint: Endpoint
    timeouts: Timeouts
    tls: ssl.SSLContext | None = None
    keep_alive: bool = True


class Client:
    """Connections to one endpoint, and the exchanges running over them. Make it after a fork."""

    def __init__(self, wiring: Wiring) -> None:
        self.wiring = wiring
        self._poller = poller()
        self._kept: list[Connection] = []
        self._reading: set[Reading] = set()
        self._sweeper = gevent.get_hub().loop.timer(SWEEP_S, SWEEP_S)
        self._sweeper.start(self._sweep)

    def perform(self, exchange: Exchange, request: bytes) -> None:
        """Carry the exchange to its end; returns when it is over, whatever happened.

        A kept connection may turn out closed by the server: before any byte of an answer that is not the server's
        failure, so the request is sent once more on a fresh one, and the record says so.
        """
        try:
            connection = self._kept_connection()
            if connection is None or not self._converse(connection, exchange, request):
                self._converse(self._fresh_connection(), exchange, request)
        except NotConnected as error:
            outcome = Outcome.NOT_SENT if error.ours else Outcome.UNREACHABLE
            exchange.fail(outcome, str(error), clock.wall_ns())
        except TimeoutError as error:
            exchange.fail(Outcome.TIMEOUT_CONNECT, str(error), clock.wall_ns())
        except gevent.GreenletExit:
            exchange.fail(Outcome.CENSORED, "stopped while running", clock.wall_ns())
            raise

    def censor(self, detail: str) -> int:
        """End everything that is still running as censored; returns how many."""
        running = list(self._reading)
        for reading in running:
            reading.give_up(Outcome.CENSORED, detail)
        return len(running)

    def close(self) -> None:
        """Close kept connections and stop the sweeper."""
        self._sweeper.stop()
        while self._kept:
            self._kept.pop().close()
        self._poller.close()

    def _fresh_connection(self) -> Connection:
        wiring = self.wiring
        return connect(wiring.endpoint, wiring.tls, wiring.timeouts.connect_s)

    def _kept_connection(self) -> Connection | None:
        while self._kept:
            connection = self._kept.pop()
            if not connection.is_stale():
                return connection
            connection.close()
        return None

    def _converse(self, connection: Connection, exchange: Exchange, request: bytes) -> bool:
        """False: the kept connection was closed before it gave an answer."""
        reading = Reading(connection, exchange, self.wiring.timeouts, self._poller)
        self._reading.add(reading)
        reusable = False
        try:
            served = reading.run(request)
            reusable = served and exchange.over and self._reusable(exchange)
        finally:
            self._reading.discard(reading)
            self._poller.remove(connection.fd)
            if reusable:
                connection.used = True
                self._kept.append(connection)
            else:
                connection.close()
        return served

    def _reusable(self, exchange: Exchange) -> bool:
        response = exchange.response
        return self.wiring.keep_alive and response.complete and response.keep_alive and not response.surplus

    def _sweep(self) -> None:
        now_ns = clock.mono_ns()
        for reading in list(self._reading):
            reading.check(now_ns)


class Reading:
    """One exchange on one connection. `readable` is the hot path: one read, stamped, handed to the exchange."""

    __slots__ = (
        "_alive",
        "_began_ns",
        "_connection",
        "_exchange",
        "_last_ns",
        "_poller",
        "_read",
        "_recvmsg",
        "_refrain",
        "_served",
        "_take",
        "_timeouts",
        "_waiter",
        "_waiting",
    )

    def __init__(self, connection: Connection, exchange: Exchange, timeouts: Timeouts, poller: Poller) -> None:
        self._connection = connection
        self._exchange = exchange
        self._timeouts = timeouts
        self._poller = poller
        self._recvmsg = connection.recvmsg
        self._read = connection.read
        self._take = exchange.take
        self._waiter: Waiter[bool] = Waiter()
        self._waiting = False
        self._served = True
        self._began_ns = clock.mono_ns()
        self._last_ns = self._began_ns
        self._refrain: Refrain | None = None
        self._alive = False
        """Something was read since the last check."""

    def run(self, request: bytes) -> bool:
        """Send and wait for the end. False: nothing came back and the connection was a kept one."""
        exchange, connection = self._exchange, self._connection
        exchange.stamp_source = "kernel" if connection.kernel_stamps else "user"
        exchange.sent(clock.wall_ns(), None if connection.used else connection.connect_ns)
        try:
            connection.send(request, lambda: not exchange.over)
        except OSError as error:
            self._lost(error)
        if not self._is_over():
            plain = connection.tls is None and connection.kernel_stamps
            self._poller.add(connection.fd, self.readable_plain if plain else self.readable)
            self._waiting = True
            self._waiter.get()
        return self._served

    def readable(self) -> None:
        """Called in the hub: one read."""
        try:
            at_ns, data = self._read()
        except OSError as error:
            self._unread(error)
            return
        self._got(at_ns, data)

    def readable_plain(self) -> None:
        """`readable` for a plain socket with kernel stamps, written out: called for nearly every token there is."""
        try:
            data, ancillary, _, _ = self._recvmsg(READ_BYTES, ANCILLARY_BYTES)
        except OSError as error:
            self._unread(error)
            return
        if not ancillary:  # end of file carries no stamp
            self._got(clock.wall_ns(), data)
            return
        seconds, nanoseconds = timespec(ancillary[0][2])
        at_ns = seconds * 1_000_000_000 + nanoseconds
        refrain = self._refrain
        if refrain is None or not refrain.took(at_ns, data):
            self._got(at_ns, data)
        else:
            self._alive = True

    def _got(self, at_ns: int, data: bytes) -> None:
        self._alive = True
        if data or self._is_ours_to_judge():
            self._take(at_ns, data, self._poller.clear_ns)
            self._refrain = self._exchange.refrain
        if self._is_over():
            self._wake()

    def check(self, now_ns: int) -> None:
        """Timeouts. Keep-alive comments are life (they reset the idle limit) but not a first token."""
        if self._alive:
            self._alive, self._last_ns = False, now_ns
        if self._is_over():
            return
        for limit_s, since_ns, outcome in self._limits():
            if now_ns - since_ns > limit_s * clock.S:
                self.give_up(outcome, f"{outcome.value.removeprefix('timeout_')} over {limit_s:g} s")
                return
        if self._exchange.done and now_ns - self._last_ns > AFTER_DONE_NS:
            self.give_up(Outcome.TIMEOUT_BETWEEN_TOKENS, "left open")

    def give_up(self, outcome: Outcome, detail: str) -> None:
        """End the exchange from outside."""
        self._exchange.fail(outcome, detail, clock.wall_ns())
        self._wake()

    def _limits(self) -> list[tuple[float, int, Outcome]]:
        timeouts = self._timeouts
        limits = [(timeouts.total_s, self._began_ns, Outcome.TIMEOUT_TOTAL)]
        if not self._exchange.has_token:
            limits.append((timeouts.first_token_s, self._began_ns, Outcome.TIMEOUT_FIRST_TOKEN))
        else:
            limits.append((timeouts.between_tokens_s, self._last_ns, Outcome.TIMEOUT_BETWEEN_TOKENS))
        return limits

    def _unread(self, error: OSError) -> None:
        if not isinstance(error, BlockingIOError):
            self._lost(error)
            self._wake()

    def _lost(self, error: OSError) -> None:
        if self._is_ours_to_judge():
            self._exchange.fail(Outcome.RESET, error.strerror or str(error), clock.wall_ns())

    def _is_ours_to_judge(self) -> bool:
        """False, and not served: a kept connection ended before any answer, which is not the server's failure."""
        if self._connection.used and not self._exchange.answered:
            self._served = False
        return self._served

    def _is_over(self) -> bool:
        return self._exchange.over or not self._served

    def _wake(self) -> None:
        """Only the hub may switch to a waiter; elsewhere it is asked to."""
        if self._waiting:
            self._waiting = False
            hub = gevent.get_hub()
            if gevent.getcurrent() is hub:
                self._waiter.switch(True)
            else:
                hub.loop.run_callback(self._waiter.switch, True)
