"""Look, keep, look again; and when to end. I/O: files, signals, sleep, and what it is given to call."""

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from harness import clock
from harness.record.log import Recorder, RunLog, Vitals, claimed
from harness.scrape.look import Trouble

FLUSH_S = 3.0
"""How much of what was seen a kill -9 can cost."""


class Ended(Exception):
    """Told to end, or the parent has died, while nothing was being written."""


class Life:
    """Lasts until SIGTERM, SIGINT or the death of the parent. Mutable; one in a process, in its main thread."""

    def __init__(self) -> None:
        self._parent = os.getppid()
        self._over = False
        self._waits = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._end)

    def _end(self, number: int, frame: FrameType | None) -> None:
        at_once = self._waits and not self._over
        self._over = True
        if at_once:
            raise Ended

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Only what is done in here is cut short by the end: Ended."""
        self._waits = True
        try:
            if self._over or os.getppid() != self._parent:
                raise Ended
            yield
        finally:
            self._waits = False

    def ticks(self, every_s: float) -> Iterator[None]:
        """Now, then every so often on a fixed grid; what was missed is left out. Ends by Ended."""
        every_ns = int(every_s * clock.S)
        due_ns = clock.mono_ns()
        while True:
            yield
            due_ns += (max(0, clock.mono_ns() - due_ns) // every_ns + 1) * every_ns
            while (left_ns := due_ns - clock.mono_ns()) > 0:
                with self.waiting():
                    time.sleep(min(left_ns / clock.S, 1.0))  # in short pieces, or an orphan would notice late


class Kept:
    """What was seen, on its way to disk: a log file of its own from the first Vitals on. Mutable."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._log = RunLog(directory)
        self._recorder: Recorder | None = None
        self._seen: list[Vitals] = []

    def look(self, seen: Vitals) -> None:
        """Keep it, and write what has waited for long enough. OSError: not written; it stays for the next time."""
        self._seen.append(seen)
        if seen.at_ns - self._seen[0].at_ns >= FLUSH_S * clock.S:
            self.flush()

    def flush(self) -> None:
        """Write what is not written yet. OSError as above."""
        if self._recorder is None:
            if not self._seen:
                return
            self._recorder = Recorder(claimed(self._directory, "server"), self._log.append)
        for seen in self._seen:
            self._recorder.look(seen)
        self._seen.clear()
        self._recorder.flush()


def watch(look: Callable[[], Vitals | Trouble], ticks: Iterable[None], kept: Kept, say: Callable[[str], None]) -> None:
    """Look at every tick and keep what is seen, until looking is of no use. The same trouble is said once."""
    said: set[str] = set()

    def complain(text: str) -> None:
        if text not in said:
            said.add(text)
            say(text)

    for _ in ticks:
        seen = look()
        try:
            if isinstance(seen, Vitals):
                kept.look(seen)
            else:
                complain(seen.text)
                kept.flush()
        except OSError as error:
            complain(f"server metrics cannot be written: {error}; still trying")
        if isinstance(seen, Trouble) and seen.final:
            return
