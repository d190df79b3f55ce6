"""What a load-making process does with the master's messages. I/O, under gevent."""

import contextlib
import logging
from collections.abc import Callable

import gevent
from locust.env import Environment

from harness.model import RunHeader, Stage
from harness.record.log import Batch, RunLog
from harness.run.link import Begin, Drained, End, Ended, Link, Open, Shipped, Taken
from harness.run.requests import Requests
from harness.run.spool import spool_of
from harness.run.worker import Tap, Worker
from harness.wire.client import Client

ACKNOWLEDGED_S = 5.0
"""How long a finished worker waits for the master to say that everything is on its disk."""

log = logging.getLogger("tokenswarm")

Outfit = Callable[[RunHeader], tuple[Requests, Client]]
"""Makes what talks to the server, in this process: it knows the API key, which travels in no message."""


class Process:
    """Joins a Worker to the master. Away from the master's own process, batches are spooled until it has them."""

    def __init__(self, environment: Environment, outfit: Outfit, tap: Tap) -> None:
        self._link = Link(environment)
        self._runner = environment.runner
        self._outfit = outfit
        self._tap = tap
        self._index = 0
        """Of this process among those connected; its worker's number in the log may be higher."""
        self._spool: RunLog | None = None
        self._unacknowledged: set[tuple[str, int]] = set()
        self.worker = Worker(0, self._deliver, tap)
        self._link.on_in_order(Begin, self._begin)
        self._link.on_in_order(Open, self._open)
        self._link.on(End, lambda message: self.end())
        self._link.on_in_order(Taken, self._taken)

    def end(self) -> None:
        """Ship everything, say so, and drop the spool once the master has it all. Harmless when nothing runs."""
        if not self.worker.begun:
            return
        self.worker.end()
        self._link.send(Ended(worker=self._index))
        self._settle()

    def _begin(self, message: Begin) -> None:
        header = message.header
        self._index = max(0, getattr(self._runner, "worker_index", 0))
        self.worker.index = message.numbers_from + self._index
        if not self._link.is_local:
            self._spool = RunLog(spool_of(header, self.worker.index))
        self._header = header
        self._unacknowledged.clear()
        self.worker.begin(header, *self._outfit(header))

    def _open(self, message: Open) -> None:
        place = message.places.get(self._index)
        if place is not None and self.worker.begun:
            self.worker.open(message.stage, place)
            gevent.spawn(self._drain, message.stage)

    def _drain(self, stage: Stage) -> None:
        self.worker.drain(stage)
        self._link.send(Drained(worker=self._index, level=stage.level))

    def _deliver(self, batch: Batch) -> None:
        if self._spool is not None:
            self._spool.append(batch)
            self._unacknowledged.add((batch.kind, batch.seq))
        self._link.send(Shipped(batch=batch))

    def _taken(self, message: Taken) -> None:
        if message.worker == self.worker.index:
            self._unacknowledged.discard((message.kind, message.seq))

    def _settle(self) -> None:
        spool, self._spool = self._spool, None
        if spool is None:
            return
        with gevent.Timeout(ACKNOWLEDGED_S, False):
            while self._unacknowledged:
                gevent.sleep(0.05)
        if self._unacknowledged:
            spool.close()
            log.warning(
                "the master did not take %d batches; they are kept in %s: copy its files into the run directory",
                len(self._unacknowledged),
                spool_of(self._header, self.worker.index),
            )
        else:
            spool.remove()
            with contextlib.suppress(OSError):  # another worker's still lies there
                spool_of(self._header, self.worker.index).parent.rmdir()
