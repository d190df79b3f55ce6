"""Locust's users: each takes Arrivals, drives Exchanges over the wire and puts the Records. I/O, under gevent."""

from typing import Any, ClassVar

from locust import User, task

from harness.run.worker import Worker


class StreamUser(User):
    """Closed loop: one slot, always one request under way. Open loop: one pacer a worker, starting every arrival."""

    worker: ClassVar[Worker]
    """Of this process; set by the locustfile before any user starts."""

    def __init__(self, environment: Any) -> None:
        super().__init__(environment)
        self.slot = self.worker.slot_number()

    @task
    def next_request(self) -> None:
        """One turn: waits at the gate while no level is open."""
        self.worker.turn(self.slot)

    def on_stop(self) -> None:
        """Free the slot number, so that numbers of the running slots stay 0 … n−1."""
        self.worker.free_slot(self.slot)
