"""One load looked at for long: every clause of an SLO, the running batch and the rate, simulated. Pure, seeded."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from harness.metrics import Limit
from harness.twin.fast import run
from harness.twin.misses import Misses, misses
from harness.twin.scatter import EXACT, Scatter
from harness.twin.server import Server
from harness.twin.trace import Lives, Trace
from harness.twin.traffic import Traffic

Loop = Literal["closed", "open"]
HISTORY = 50_000
"""Requests of one history, where there are enough for two; far longer than an episode of congestion."""
MOST_HISTORIES = 8
MOST_WARMUP = 2_000
"""Requests dropped at the start of a history, at most; a tenth of a short one. The server is empty then."""
PER_USER = 20
"""Least requests of each user in a closed loop; three of them are dropped with the warm-up, because users who began
together are still in step."""
SHARES = (0.5, 0.99, 0.999, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches:
    """The running batch over time: sizes not passed for half, 99 %, 99.9 % and all of the time."""

    p50: float
    p99: float
    p999: float
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What was seen at one load: requests a second, or users."""

    load: float
    clauses: list[Misses]
    batches: Batches
    rps: float
    """Requests a second of the judged part."""
    requests: int
    """Judged."""

    @property
    def binding(self) -> Misses:
        """The clause that is broken most, or nearest to it."""
        return max(self.clauses, key=lambda clause: clause.excess)

    @property
    def excess(self) -> float:
        """Above 0: some clause is broken."""
        return self.binding.excess


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A server under some traffic, against some limits, in one loop. Equal seeds are equal histories at every load."""

    server: Server
    traffic: Traffic
    limits: Sequence[Limit]
    loop: Loop
    seed: int
    scatter: Scatter = EXACT
    """Of what is measured about what the server says."""

    def look(self, load: float, requests: int) -> Look:
        """That load, over so many requests in all."""
        count = min(max(requests // HISTORY, 1), MOST_HISTORIES)
        traces = [self._trace(load, requests // count, history) for history in range(count)]
        lives = [run(self.server, trace) for trace in traces]
        judged = [_judged(trace) for trace in traces]
        spans_s = [_span_s(life, part) for life, part in zip(lives, judged, strict=True)]
        counted = sum(part.stop - part.start for part in judged)
        return Look(
            load=load,
            clauses=[misses(limit, lives, judged, self.scatter) for limit in self.limits],
            batches=_batches(lives, spans_s),
            rps=counted / sum(until_s - since_s for since_s, until_s in spans_s),
            requests=counted,
        )

    def _trace(self, load: float, n: int, history: int) -> Trace:
        seed = (self.seed, history)
        if self.loop == "closed":
            return self.traffic.closed(int(load), max(n, PER_USER * int(load)), seed)
        return self.traffic.trace(load, n, seed)


def saturation_rps(server: Server, traffic: Traffic, *, seed: int, requests: int) -> float:
    """Requests a second with twice as many users as seats, none of whom thinks."""
    traffic = Traffic(lengths=traffic.lengths)
    question = Question(server=server, traffic=traffic, limits=(), loop="closed", seed=seed)
    return question.look(2 * server.max_num_seqs, requests).rps


def _judged(trace: Trace) -> slice:
    """All but the warm-up and the last answers, which fewer others disturb."""
    n, users = len(trace), trace.users
    return slice(min(n // 10, MOST_WARMUP) + 3 * users, n - max(users, min(n // 50, 200)))


def _span_s(lives: Lives, judged: slice) -> tuple[float, float]:
    """From the first judged arrival to the first that is no longer judged, or to the last end."""
    until = lives.arrived_s[judged.stop] if judged.stop < len(lives) else lives.last_s.max()
    return float(lives.arrived_s[judged.start]), float(until)


def _batches(lives: Sequence[Lives], spans_s: Sequence[tuple[float, float]]) -> Batches:
    """Means of the histories' quantiles, and the most of all."""
    each = [
        life.steps.batch_quantiles(SHARES, since_s=since_s, until_s=until_s)
        for life, (since_s, until_s) in zip(lives, spans_s, strict=True)
    ]
    p50, p99, p999, _ = np.mean(each, axis=0).tolist()
    return Batches(p50=p50, p99=p99, p999=p999, most=int(max(quantiles[-1] for quantiles in each)))
