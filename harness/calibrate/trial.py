"""One closed-loop level to measure: its load, its timing, its cores. No I/O but asking which cores there are."""

import os
from pathlib import Path

from msgspec import Struct

from harness.engine.emitter import Beat
from harness.model import Fixed, Load, Phases, Scenario, Target, Timeouts

PROMPT_TOKENS = 32


class Cores(Struct, frozen=True, kw_only=True):
    """Which cores the two sides have. Empty: any, where the system does not let us choose or has only one."""

    emitter: frozenset[int] = frozenset()
    client: frozenset[int] = frozenset()

    def __str__(self) -> str:
        if not self.emitter:
            return "emitter and client share all cores"
        return f"emitter on core {_listed(self.emitter)}, client on {_listed(self.client)}"


class Trial(Struct, frozen=True, kw_only=True):
    """One closed-loop level to measure."""

    streams: int
    tokens: int = 100
    """Of every answer."""
    beat: Beat = Beat()
    ramp_s: float = 1.0
    warmup_s: float = 1.2
    hold_s: float = 2.5
    processes: int = 1
    cores: Cores = Cores()
    tls: tuple[Path, Path, Path] | None = None
    """Certificate, its key, and the CA the client is to trust; None: no TLS."""

    @property
    def stream_s(self) -> float:
        """How long one answer takes."""
        return (self.beat.first_ms + (self.tokens - 1) * self.beat.gap_ms) / 1000

    @property
    def asked_per_s(self) -> float:
        """Tokens a second of all streams, if nothing cost time."""
        return self.streams * self.tokens / self.stream_s


class NoTrial(ValueError):
    """A level could not be run; the message is one line."""


def split_cores(processes: int = 1) -> Cores:
    """One core for the emitter, the others for the client (at most one a process), of those this process may use."""
    if not hasattr(os, "sched_setaffinity"):
        return Cores()
    mine = sorted(os.sched_getaffinity(0))
    return Cores() if len(mine) < 2 else Cores(emitter=frozenset(mine[:1]), client=frozenset(mine[1 : 1 + processes]))


def scenario_of(trial: Trial, host: str) -> Scenario:
    """The level as a scenario: no SLO, every answer of the same length."""
    return Scenario(
        name=f"calibrate-{trial.streams}",
        target=Target(
            host=host,
            model="known",
            metrics="",
            ca_file=str(trial.tls[2]) if trial.tls else None,
            timeouts=Timeouts(total_s=60.0 + trial.stream_s),
        ),
        load=Load(loop="closed", levels=[float(trial.streams)]),
        phases=Phases(
            warmup_s=trial.warmup_s, ramp_s=trial.ramp_s, hold_s=trial.hold_s, drain_s=2 * trial.stream_s + 1.0
        ),
        prompt_tokens=Fixed(tokens=PROMPT_TOKENS),
        output_tokens=Fixed(tokens=trial.tokens),
    )


def _listed(cores: frozenset[int]) -> str:
    return ",".join(str(core) for core in sorted(cores))
