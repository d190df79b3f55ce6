"""What Locust's own page sees of a record: a tap after the record is safe, never the measurement. I/O, under gevent."""

from collections.abc import Callable
from typing import Any

from locust.env import Environment

from harness import clock
from harness.model import Outcome, Record


class NotOk(Exception):
    """How a request ended when it did not end ok; Locust counts these by their text."""


def quiet(record: Record) -> None:
    """The tap where nobody looks."""


def tap(environment: Environment) -> Callable[[Record], None]:
    """A function that fires Locust's request event: one row for whole answers, one for the time to the first token."""
    fire: Any = environment.events.request.fire

    def tell(record: Record) -> None:
        start_ns, end_ns = record.start_ns or record.due_ns, record.end_ns or record.due_ns
        failed = None if record.outcome is Outcome.OK else NotOk(record.outcome.value)
        fire(
            request_type="POST",
            name=record.request_class,
            response_time=(end_ns - start_ns) / clock.MS,
            response_length=record.response_bytes,
            exception=failed,
            context={},
        )
        if record.timeline.at_ns:
            fire(
                request_type="TTFT",
                name=record.request_class,
                response_time=(record.timeline.at_ns[0] - start_ns) / clock.MS,
                response_length=0,
                exception=None,
                context={},
            )

    return tell
