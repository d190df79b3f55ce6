"""The climb: level after level, until two are untrue, the emitter cannot keep up, or time is up. I/O."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from harness import clock
from harness.calibrate.level import header, measured
from harness.calibrate.rung import Calibration, Rung, highest_true, reason_to_stop
from harness.calibrate.trial import Trial, split_cores

Stopped = Literal["untrue", "emitter", "top", "time"]


class Climb(Struct, frozen=True, kw_only=True):
    """What to climb, and how long it may take."""

    streams: tuple[int, ...] = (100, 400, 800, 1200, 1600, 2000, 2500, 3000, 4000, 5000)
    trial: Trial = Trial(streams=1)
    """Every level is this one with its own number of streams."""
    limit_s: float = 50.0
    """No level begins later than this."""


FULL = Climb()
QUICK = Climb(streams=(200, 1000, 2000), trial=Trial(streams=1, hold_s=1.5), limit_s=9.0)


def calibrate(
    processes: int = 1, quick: bool = False, notice: Callable[[Rung], None] = lambda rung: None
) -> Calibration:
    """Up to a minute (quick: a quarter of one) of load on the loopback device. `notice` hears of every level measured.

    Raises ValueError, one line, when a level cannot be run.
    """
    return climbed(QUICK if quick else FULL, processes, notice)


def climbed(climb: Climb, processes: int, notice: Callable[[Rung], None]) -> Calibration:
    """As `calibrate`, with levels of one's own."""
    trial = replace(climb.trial, processes=processes, cores=split_cores(processes))
    give_up_ns = clock.mono_ns() + int(climb.limit_s * clock.S)
    rungs: list[Rung] = []
    stopped: Stopped = "top"
    with tempfile.TemporaryDirectory(prefix="tokenswarm-") as folder:
        for streams in climb.streams:
            if rungs and clock.mono_ns() > give_up_ns:
                stopped = "time"
                break
            rungs.append(measured(replace(trial, streams=streams), Path(folder) / f"{streams}"))
            notice(rungs[-1])
            if reason := reason_to_stop(rungs):
                stopped = reason
                break
        machine = dict(header(Path(folder) / f"{rungs[0].streams}").machine)
    best = highest_true(rungs)
    return Calibration(
        machine=machine,
        processes=processes,
        cores=str(trial.cores),
        rungs=rungs,
        true_per_s=best.tokens_per_s if best else None,
        true_streams=best.streams if best else None,
        stopped=stopped,
    )
