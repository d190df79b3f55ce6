"""A run as Locust sees it: a load shape whose one tick lasts as long as the run. I/O, under gevent.

Locust's own shape clock starts before users exist and pauses during ramps, so `tick` hands control to the Conductor and
returns None, "finished", when the plan is done.
"""

from collections.abc import Callable

from locust import LoadTestShape

Conduct = Callable[[], None]


class Run(LoadTestShape):
    """The plan of the scenario: its list of levels, or the knee search."""

    conduct: Conduct
    """One whole run, from start to report; set by the locustfile."""

    def tick(self) -> None:
        """Conduct one run, and be done."""
        type(self).conduct()
