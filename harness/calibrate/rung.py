"""What a calibration finds: Compared, Emitting, Rung, Calibration, and when a level is true. No clock, no I/O.

True means: P50 and P99 of TTFT and of the gap between tokens, as a run would report them, each lie within 1 % or
0.2 ms (whichever is more) of what the emitter sent. A gap is an ITL here: the emitter puts one token into a frame.
"""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

ERROR_SHARE = 0.01
ERROR_MS = 0.2
UNTRUE_ENOUGH = 2
"""The climb stops after so many untrue levels in a row: one may be an accident."""
QUEUED_EMITTER = 0.02
QUEUED_CLIENT = 0.05
STOLEN = 0.01
"""Shares of time a process waited for a core that something else used, or that a hypervisor had taken. Above these, a
row describes the neighbours."""
LATE_GAPS = 0.25
"""The emitter keeps up while the P99 of its lateness is at most this part of a gap."""


class Times(Struct, frozen=True, kw_only=True):
    """Two quantiles of one metric, in ms; linear between order statistics."""

    p50_ms: float
    p99_ms: float


class Compared(Struct, frozen=True, kw_only=True):
    """One metric of the same requests, twice: as a run reports it, and as it was sent."""

    reported: Times
    sent: Times

    @property
    def error(self) -> Times:
        """Reported − sent."""
        return Times(
            p50_ms=self.reported.p50_ms - self.sent.p50_ms,
            p99_ms=self.reported.p99_ms - self.sent.p99_ms,
        )

    def faults(self, metric: str) -> list[str]:
        """The quantiles that are not true, in words."""
        pairs = {"P50": (self.reported.p50_ms, self.sent.p50_ms), "P99": (self.reported.p99_ms, self.sent.p99_ms)}
        return [
            f"{quantile} of {metric} {reported:.2f} ms, sent {sent:.2f} ms"
            for quantile, (reported, sent) in pairs.items()
            if not is_true(reported, sent)
        ]


class Emitting(Struct, frozen=True, kw_only=True):
    """How the emitter itself fared on a level."""

    queued: float
    """Share of its time in which it was ready to run and had no core."""
    late_p99_ms: float
    """P99 of sent − due over the tokens of the hold."""
    blocked: int
    """Sends that found the socket full: the client had not read for long."""


class Rung(Struct, frozen=True, kw_only=True):
    """One level of the climb, measured in its hold. None: nothing arrived in it."""

    streams: int
    asked_per_s: float
    """Tokens a second, had the emitter and the client lost no time."""
    tokens_per_s: float
    """Tokens that arrived in the hold / hold."""
    requests: int
    """Requests due in the hold that ended ok: TTFT is made of these."""
    failed: int
    """All requests of the level that did not end ok."""
    ttft: Compared | None
    gap: Compared | None
    coalesced: float
    """Share of token events whose arrival is hidden behind a late read."""
    cpu: float
    """Cores that the load-making processes used together."""
    queued: float
    """Share of time in which the most starved of them was ready to run and had no core."""
    emitting: Emitting
    stolen: float = 0.0
    """Share of the time in which a core was wanted that a hypervisor took, of the core that fared worst."""
    gap_ms: float = 20.0
    """What the emitter was told to leave between two tokens."""

    @property
    def cpu_us_per_token(self) -> float | None:
        """CPU time of the client a token, everything included, in µs."""
        return self.cpu * 1e6 / self.tokens_per_s if self.tokens_per_s else None

    @property
    def faults(self) -> list[str]:
        """Why this level is not true; empty when it is."""
        if self.ttft is None or self.gap is None:
            return ["no request of the hold was whole"]
        lost = [f"{self.failed} requests failed"] if self.failed else []
        return lost + self.ttft.faults("TTFT") + self.gap.faults("ITL")

    @property
    def kept_up(self) -> bool:
        """The emitter sent in time, or was kept from it: then a higher level does not ask more than it can give."""
        kept_from_it = self.emitting.queued > QUEUED_EMITTER or self.stolen > STOLEN
        return self.emitting.late_p99_ms <= LATE_GAPS * self.gap_ms or kept_from_it

    @property
    def disturbed(self) -> str:
        """Who took the cores from us, in words; "" when nobody did for long."""
        shares = {
            "emitter queued": (self.emitting.queued, QUEUED_EMITTER),
            "client queued": (self.queued, QUEUED_CLIENT),
            "host took": (self.stolen, STOLEN),
        }
        return ", ".join(f"{who} {share:.0%}" for who, (share, limit) in shares.items() if share > limit)


class Calibration(Struct, frozen=True, kw_only=True):
    """The whole climb and its answer."""

    machine: dict[str, str]
    processes: int
    cores: str
    """Which cores the emitter and the client had."""
    rungs: list[Rung]
    true_per_s: float | None
    """Highest token rate at which all four quantiles are true; None: not even the first level was."""
    true_streams: int | None
    stopped: Literal["untrue", "emitter", "top", "time"]
    """Why the climb ended: two untrue levels, an emitter that could not keep up, no higher level, or no time left."""

    @property
    def at_least(self) -> bool:
        """The answer is a lower bound: the climb ended before the client's own limit."""
        return self.stopped != "untrue"


def is_true(reported_ms: float, sent_ms: float) -> bool:
    """Within 1 % or 0.2 ms of what was sent, whichever is more."""
    return abs(reported_ms - sent_ms) <= max(ERROR_SHARE * sent_ms, ERROR_MS)


def highest_true(rungs: Sequence[Rung]) -> Rung | None:
    """The level with the highest token rate of those without a fault."""
    return max((rung for rung in rungs if not rung.faults), key=lambda rung: rung.tokens_per_s, default=None)


def reason_to_stop(rungs: Sequence[Rung]) -> Literal["untrue", "emitter"] | None:
    """Whether the climb is over after these levels, and why."""
    last = rungs[-UNTRUE_ENOUGH:]
    if len(last) == UNTRUE_ENOUGH and all(rung.faults for rung in last):
        return "untrue"
    return None if rungs[-1].kept_up else "emitter"
