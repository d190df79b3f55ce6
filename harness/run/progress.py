"""The line that moves while a run works, on stderr: on a terminal in place, elsewhere one line a level. I/O."""

from collections.abc import Callable
from typing import Literal, TextIO

import gevent

from harness import clock
from harness.findings import Level
from harness.knee.verdict import load_words
from harness.model import Load, Stage
from harness.run.live import Live
from harness.run.worker import phase_left

EVERY_S = 0.5


class Progress:
    """Says where the run is."""

    def __init__(self, out: TextIO, load: Load) -> None:
        self._out = out
        self._axis: Literal["users", "rate"] = "users" if load.loop == "closed" else "rate"
        self._terminal = out.isatty()
        self._began_ns = clock.mono_ns()
        self._width = 0
        self.live: Live | None = None
        self.beside: Callable[[], str] = str
        """What companions of the run have to say meanwhile."""

    def beat(self) -> None:
        """Repaint for ever; kill it when done."""
        while True:
            if self._terminal and self.live is not None:
                self._paint(self._line(self.live))
            gevent.sleep(EVERY_S)

    def level_begins(self, stage: Stage) -> None:
        """Announce, where nothing moves."""
        if not self._terminal:
            seconds = (stage.end_at_ns - stage.warmup_at_ns) / clock.S
            self._say(f"level {stage.level + 1}: {load_words(stage.load, self._axis)}, {seconds:g} s")

    def level_ends(self, level: Level) -> None:
        """One line that stays."""
        ttft, itl = level.metrics["ttft_ms"].p99, level.metrics["itl_ms"].p99
        self._say(
            f"level {level.index + 1}: {load_words(level.load, self._axis):>14}  {level.output_tps:8.0f} tokens/s  "
            f"P99 TTFT {_ms(ttft)}  ITL {_ms(itl)}  {level.held}{': ' + level.why if level.why else ''}"
        )

    def clear(self) -> None:
        """Wipe the moving line."""
        self._paint("")

    def _line(self, live: Live) -> str:
        now_ns = clock.wall_ns()
        stage = live.stage
        phase, left_s = phase_left(stage, now_ns)
        failed = f", {live.failed} failed" if live.failed else ""
        return (
            f"level {stage.level + 1}  {load_words(stage.load, self._axis)}  {phase} {left_s:.0f} s left  "
            f"{live.tokens_per_s:.0f} tokens/s  P99 TTFT {_ms(live.ttft.quantile_ms(0.99))} "
            f"ITL {_ms(live.gaps.quantile_ms(0.99))}  {live.ended} done{failed}  "
            f"{(clock.mono_ns() - self._began_ns) / clock.S:.0f} s  {self.beside()}"
        )

    def _paint(self, line: str) -> None:
        if self._terminal:
            self._out.write("\r" + line[:119].ljust(self._width) + ("\r" if not line else ""))
            self._width = len(line[:119])
            self._out.flush()

    def _say(self, line: str) -> None:
        self.clear()
        self._out.write(line + "\n")
        self._out.flush()


def _ms(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g} ms"
