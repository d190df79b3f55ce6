"""Messages between the master and its workers, over Locust's own channel. I/O, under gevent.

In a run of one process the same messages go from the process to itself: there is one path, not two. Locust logs and
swallows what a listener raises; here that ends the run instead.
"""

import traceback
from collections.abc import Callable
from typing import Any

import gevent
import msgspec
from locust.env import Environment
from locust.runners import LocalRunner, MasterRunner
from msgspec import Struct

from harness.model import RunHeader, Stage
from harness.record.log import Batch

PREFIX = "tokenswarm."


class Begin(Struct, frozen=True, kw_only=True):
    """Master → workers: a run starts, or goes on."""

    header: RunHeader
    numbers_from: int = 0
    """What a worker adds to its index for its number in the log: one that was interrupted has workers already."""


class Open(Struct, frozen=True, kw_only=True):
    """Master → workers: a stage starts. `places` ranks the workers that take part: worker index → 0 … n−1."""

    stage: Stage
    places: dict[int, int]


class End(Struct, frozen=True, kw_only=True):
    """Master → workers: the run is over; end what runs and ship what is left."""


class Shipped(Struct, frozen=True, kw_only=True):
    """Worker → master: a batch of the record log."""

    batch: Batch


class Taken(Struct, frozen=True, kw_only=True):
    """Master → one worker: these batches (kind, seq) are on the master's disk."""

    worker: int
    kind: str
    seq: int


class Drained(Struct, frozen=True, kw_only=True):
    """Worker → master: nothing of this level is running here, and every record of it has been sent before this."""

    worker: int
    level: int


class Ended(Struct, frozen=True, kw_only=True):
    """Worker → master: everything has been sent."""

    worker: int


Message = Begin | Open | End | Shipped | Taken | Drained | Ended


class Link:
    """Sends and receives messages on one Locust environment."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._runner: Any = environment.runner

    def on(self, kind: type[Struct], listener: Callable[[Any], None]) -> None:
        """Call the listener, in a greenlet of its own, for every message of this kind."""
        decoder = msgspec.msgpack.Decoder(kind)

        def receive(environment: Environment, msg: Any) -> None:
            gevent.spawn(self._guarded, listener, decoder.decode(msg.data))

        self._runner.register_message(PREFIX + kind.__name__.lower(), receive)

    def on_in_order(self, kind: type[Struct], listener: Callable[[Any], None]) -> None:
        """As `on`, but called before the next message is received; the listener must not wait."""
        decoder = msgspec.msgpack.Decoder(kind)

        def receive(environment: Environment, msg: Any) -> None:
            self._guarded(listener, decoder.decode(msg.data))

        self._runner.register_message(PREFIX + kind.__name__.lower(), receive)

    def send(self, message: Message) -> None:
        """To the master (from a worker) or to all workers (from the master)."""
        self._runner.send_message(PREFIX + type(message).__name__.lower(), msgspec.msgpack.encode(message))

    def workers(self) -> list[int]:
        """Indices of the workers that are connected now."""
        if isinstance(self._runner, MasterRunner):
            clients = self._runner.clients
            present = clients.ready + clients.spawning + clients.running
            return sorted(self._runner.get_worker_index(client.id) for client in present)
        return [0]

    @property
    def is_local(self) -> bool:
        """One process is master and worker."""
        return isinstance(self._runner, LocalRunner)

    def _guarded(self, listener: Callable[[Any], None], message: Any) -> None:
        try:
            listener(message)
        except gevent.GreenletExit:
            raise
        except Exception:
            traceback.print_exc()
            self._environment.process_exit_code = 2
            self._runner.quit()
