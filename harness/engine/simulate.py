"""Drives the engine's core in virtual time: arrivals in, finished jobs out. No clock, no I/O."""

from array import array
from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush
from random import Random

from msgspec import Struct

from harness.engine.core import Engine, Job, StepResult
from harness.engine.profile import Profile

Arriving = tuple[float, Job]
"""When a job arrives, in seconds, and the job."""


class Finished(Struct, kw_only=True):
    """One job's life in virtual seconds. Grows while the job runs; complete once handed out."""

    job: Job
    arrived_s: float
    at_s: "array[float]"
    """End of every step that gave it tokens: the arrival times of its frames."""
    tokens: "array[int]"
    """Tokens of each of those frames."""

    @property
    def ttft_s(self) -> float:
        """First frame − arrival."""
        return self.at_s[0] - self.arrived_s

    @property
    def e2e_s(self) -> float:
        """Last frame − arrival."""
        return self.at_s[-1] - self.arrived_s

    @property
    def tpot_s(self) -> float | None:
        """(last − first frame) / tokens after the first frame; None when there are none."""
        later = self.job.output_tokens - self.tokens[0]
        return (self.at_s[-1] - self.at_s[0]) / later if later else None


def simulate(profile: Profile, arrivals: Iterable[Arriving], *, rng: Random | None = None) -> list[Finished]:
    """Open loop: every job arrives at its time, whatever the engine does. In order of finishing."""
    return list(_driven(Engine(profile, rng), list(arrivals), lambda now_s: None))


def simulate_closed(
    profile: Profile, jobs: Iterable[Job], *, users: int, think_s: float = 0.0, rng: Random | None = None
) -> list[Finished]:
    """Closed loop: so many users take the jobs in order; each starts its next one `think_s` after an answer."""
    queue = iter(jobs)
    first = [(0.0, job) for _, job in zip(range(users), queue, strict=False)]

    def follower(now_s: float) -> Arriving | None:
        job = next(queue, None)
        return None if job is None else (now_s + think_s, job)

    return list(_driven(Engine(profile, rng), first, follower))


def _driven(
    engine: Engine, arrivals: list[Arriving], follower: Callable[[float], Arriving | None]
) -> Iterator[Finished]:
    """Run to the end. A job that arrives during a step is seen when the step ends."""
    due = [(at_s, order, job) for order, (at_s, job) in enumerate(arrivals)]
    heapify(due)
    order, now_s = len(due), 0.0
    lives: dict[int, Finished] = {}
    while due or not engine.idle:
        if engine.idle:
            now_s = max(now_s, due[0][0])
        while due and due[0][0] <= now_s:
            at_s, _, job = heappop(due)
            engine.submit(job)
            lives[job.job_id] = Finished(job=job, arrived_s=at_s, at_s=array("d"), tokens=array("q"))
        step = engine.step()
        now_s += step.duration_s
        for done in _noted(step, now_s, lives):
            yield done
            follow = follower(now_s)
            if follow is not None:
                heappush(due, (follow[0], order, follow[1]))
                order += 1


def _noted(step: StepResult, now_s: float, lives: dict[int, Finished]) -> Iterator[Finished]:
    for emitted in step.emitted:
        life = lives[emitted.job_id]
        life.at_s.append(now_s)
        life.tokens.append(emitted.tokens)
        if emitted.finished:
            yield lives.pop(emitted.job_id)
