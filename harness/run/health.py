"""Was the client itself in the way? One Health row a second from each worker process. I/O, under gevent."""

import gevent

from harness import clock
from harness.model import Health, Record
from harness.record.log import Recorder

BEAT_S = 1.0
PROBE_S = 0.02
"""A timer as often as this shows how late the hub answers."""


class Pulse:
    """Watches this process: CPU, time without a CPU, hub delay, lateness of requests, coalesced events."""

    def __init__(self, worker: int, recorder: Recorder) -> None:
        self.level = -1
        self._worker = worker
        self._recorder = recorder
        self._greenlets: list[gevent.Greenlet] = []
        self._lag_ns = self._hub_delay_ns = self._token_events = self._coalesced = 0
        self._clear()

    def start(self) -> None:
        """Begin to beat."""
        self._clear()
        self._greenlets = [gevent.spawn(self._probe), gevent.spawn(self._beat_for_ever)]

    def stop(self) -> None:
        """One last beat, then silence."""
        if self._greenlets:
            self.beat()
        gevent.killall(self._greenlets)
        self._greenlets = []

    def saw(self, record: Record) -> None:
        """A request ended."""
        if record.start_ns is not None:
            self._lag_ns = max(self._lag_ns, record.start_ns - record.due_ns)
        self._token_events += len(record.timeline.at_ns)
        self._coalesced += record.timeline.coalesced

    def beat(self) -> None:
        """Write what happened since the last beat; nothing when that was a moment ago."""
        span_ns = clock.mono_ns() - self._since_ns
        if span_ns < 50 * clock.MS:
            return
        recorder = self._recorder
        recorder.beat(
            Health(
                worker=self._worker,
                level=self.level,
                at_ns=clock.wall_ns(),
                span_ns=span_ns,
                cpu=(clock.cpu_ns() - self._cpu_ns) / span_ns,
                runnable=(clock.runnable_ns() - self._runnable_ns) / span_ns,
                stolen=(clock.stolen_ns() - self._stolen_ns) / span_ns,
                hub_delay_ns=self._hub_delay_ns,
                lag_ns=self._lag_ns,
                due=recorder.due,
                ended=recorder.ended,
                in_flight=recorder.in_flight,
                token_events=self._token_events,
                coalesced=self._coalesced,
                wall_minus_mono_ns=clock.wall_ns() - clock.mono_ns(),
            )
        )
        self._clear()

    def _clear(self) -> None:
        self._since_ns = clock.mono_ns()
        self._cpu_ns = clock.cpu_ns()
        self._runnable_ns = clock.runnable_ns()
        self._stolen_ns = clock.stolen_ns()
        self._hub_delay_ns = 0
        self._lag_ns = 0
        self._token_events = 0
        self._coalesced = 0

    def _probe(self) -> None:
        while True:
            asked_ns = clock.mono_ns()
            gevent.sleep(PROBE_S)
            late_ns = clock.mono_ns() - asked_ns - int(PROBE_S * clock.S)
            self._hub_delay_ns = max(self._hub_delay_ns, late_ns)

    def _beat_for_ever(self) -> None:
        while True:
            gevent.sleep(BEAT_S)
            self.beat()
