"""The master's side of a run: level after level, until the plan has no next one. I/O, under gevent."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gevent
from gevent.event import Event
from locust.env import Environment
from msgspec import Struct

from harness import clock
from harness.knee.plan import Seen, hold_s
from harness.knee.search import Probe, Stop
from harness.model import RunHeader, Stage
from harness.record.directory import announce_stage, append_stage
from harness.record.log import RunLog
from harness.run.before import Before
from harness.run.link import Begin, Drained, End, Ended, Link, Open, Shipped, Taken
from harness.run.live import Live

LEAD_LOCAL_NS = 20 * clock.MS
LEAD_DISTRIBUTED_NS = 300 * clock.MS
"""A stage is announced this long before it begins, so that every worker knows it in time."""
LATE_S = 10.0
"""How long a worker may take, beyond the drain, to say that it has drained; then it counts as lost."""

Judge = Callable[[Path, Stage], Seen]
NextProbe = Callable[[Sequence[Seen]], Probe | Stop]
Notice = Callable[[Stage | None, Sequence[Seen]], None]


class Job(Struct, frozen=True, kw_only=True):
    """One run to conduct. `notice` hears of every stage begun, and with None of every level judged."""

    header: RunHeader
    directory: Path
    before: Before = Before()
    next_probe: NextProbe
    judge: Judge
    notice: Notice


class Conductor:
    """Runs the levels that `next_probe` asks for. Every level is drained and judged before the next one is chosen.

    One of these lives as long as the Locust environment; `run` may be called again for the next run.
    """

    def __init__(self, environment: Environment) -> None:
        self._runner: Any = environment.runner
        self._link = Link(environment)
        self._job: Job
        self._log: RunLog | None = None
        self._drained: set[int] = set()
        self._ended: set[int] = set()
        self._level = -1
        self._news = Event()
        self.live: Live | None = None
        self._link.on_in_order(Shipped, self._take)
        self._link.on_in_order(Drained, self._on_drained)
        self._link.on_in_order(Ended, self._on_ended)
        for name in ("locust.runners", "root"):
            logging.getLogger(name).addFilter(_is_worth_saying)

    def workers(self) -> int:
        """How many processes make load."""
        return len(self._link.workers())

    def run(self, job: Job) -> str:
        """Until the plan stops; returns why it did. Stopped from outside, it still collects what workers hold."""
        self._job = job
        self._log = RunLog(job.directory)
        self._level = job.before.levels - 1
        history = list(job.before.history)
        self._ended.clear()
        self._link.send(Begin(header=job.header, numbers_from=job.before.workers))
        try:
            while not isinstance(step := self._next(history), Stop):
                stage = self._stage(step, history)
                self.live = Live(stage, job.header.scenario.load.loop)
                job.notice(stage, history)
                self._run_stage(stage)
                history.append(job.judge(job.directory, stage))
                self.live = None
                job.notice(None, history)
            return step.why
        finally:
            self._finish()

    def _next(self, history: Sequence[Seen]) -> Probe | Stop:
        """A search may simulate for many seconds: in a thread, so that heartbeats and companions go on."""
        step: Probe | Stop = gevent.get_hub().threadpool.apply(self._job.next_probe, (history,))
        return step

    def _stage(self, probe: Probe, history: Sequence[Seen]) -> Stage:
        """Bring the users up to this load and fix the stage's instants."""
        load = probe.load
        workers = self._link.workers()
        scenario = self._job.header.scenario
        self._bring_users(int(load) if scenario.load.loop == "closed" else len(workers))
        phases = scenario.phases
        self._level += 1
        starts_ns = clock.wall_ns() + (LEAD_LOCAL_NS if self._link.is_local else LEAD_DISTRIBUTED_NS)
        hold_at_ns = starts_ns + int(phases.warmup_s * clock.S)
        end_at_ns = hold_at_ns + int(hold_s(probe, history, phases.hold_s, scenario.load.loop) * clock.S)
        return Stage(
            level=self._level,
            load=load,
            warmup_at_ns=starts_ns,
            hold_at_ns=hold_at_ns,
            end_at_ns=end_at_ns,
            drained_by_ns=end_at_ns + int(phases.drain_s * clock.S),
            workers=len(workers),
            why=probe.why,
        )

    def _bring_users(self, users: int) -> None:
        """Exactly so many Locust users; they wait at the gate. All at once: the stage staggers their first requests."""
        self._runner.start(users, spawn_rate=max(users, 1))
        with gevent.Timeout(30, RuntimeError(f"Locust did not bring up {users} users within 30 s")):
            while self._runner.user_count != users or self._runner.state != "running":
                if self._runner.state == "spawning" and self._runner.user_count == users and not self._link.is_local:
                    break  # a master stays in "spawning" until the next heartbeat
                gevent.sleep(0.005)

    def _run_stage(self, stage: Stage) -> None:
        workers = self._link.workers()
        announce_stage(self._job.directory, stage)
        self._drained.clear()
        self._link.send(Open(stage=stage, places={index: place for place, index in enumerate(workers)}))
        gevent.sleep(max(0.0, (stage.end_at_ns - clock.wall_ns()) / clock.S))
        self._wait(lambda: self._drained >= set(workers) & set(self._link.workers()), stage)
        append_stage(self._job.directory, stage)

    def _wait(self, reached: Callable[[], bool], stage: Stage) -> None:
        give_up_ns = stage.drained_by_ns + int(LATE_S * clock.S)
        while not reached() and clock.wall_ns() < give_up_ns:
            self._news.clear()
            self._news.wait(0.2)

    def _finish(self) -> None:
        workers = set(self._link.workers())
        self._link.send(End())
        waits = 0
        while not self._ended >= workers & set(self._link.workers()) and waits < LATE_S / 0.1:
            gevent.sleep(0.1)
            waits += 1
        if self._log is not None:
            self._log.close()
        self._log = None

    # --- what workers say ---------------------------------------------------------------------------------------------

    def _take(self, message: Shipped) -> None:
        batch = message.batch
        if self._log is None:  # after the end of the run: the worker keeps its spool
            return
        self._log.append(batch)
        if self.live is not None:
            self.live.saw(batch)
        self._link.send(Taken(worker=batch.worker, kind=batch.kind, seq=batch.seq))

    def _on_drained(self, message: Drained) -> None:
        if message.level == self._level:
            self._drained.add(message.worker)
            self._news.set()

    def _on_ended(self, message: Ended) -> None:
        self._ended.add(message.worker)


def _is_worth_saying(record: logging.LogRecord) -> bool:
    """Locust warns of users that start all at once; ours do not: the stage staggers their first requests. And of CPU
    that is spent between levels, on judging them; what a level had is judged of each level."""
    said = str(record.msg)
    return "spawn rate is very high" not in said and "CPU usage above" not in said
