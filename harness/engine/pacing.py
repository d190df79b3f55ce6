"""An asyncio loop whose timers are good to some ten microseconds. I/O: a selector."""

import asyncio
import select
import selectors
from collections.abc import Callable

from harness import clock

_FD_SETSIZE = 1024


class FineSelector(selectors.EpollSelector):
    """epoll counts its timeout in whole milliseconds, rounded up; an epoll set can itself be waited for by select,
    which counts microseconds. Then epoll is asked without waiting."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout > 0 and self.fileno() < _FD_SETSIZE:
            select.select([self.fileno()], [], [], timeout)
            timeout = 0
        return super().select(timeout)


def fine_loop() -> asyncio.AbstractEventLoop:
    """A new event loop on a FineSelector."""
    return asyncio.SelectorEventLoop(FineSelector())


class Pace:
    """Absolute instants for steps of given lengths: a late wake-up shortens the next wait, so lateness does not add up.

    Lateness beyond `most_late_s` is not caught up, which would make later steps faster than the engine: it is `slip`.
    """

    def __init__(self, most_late_s: float, slip: Callable[[float], None]) -> None:
        self._most_late_ns = round(most_late_s * clock.S)
        self._slip = slip
        self._at_ns = clock.mono_ns()

    def restart(self) -> None:
        """The next step begins now."""
        self._at_ns = clock.mono_ns()

    async def passed(self, duration_s: float) -> None:
        """Return when a step of this length that began at the last instant ends. Lets I/O happen in any case."""
        self._at_ns += round(duration_s * clock.S)
        await asyncio.sleep(max(0.0, (self._at_ns - clock.mono_ns()) / clock.S))
        earliest_ns = clock.mono_ns() - self._most_late_ns
        if self._at_ns < earliest_ns:
            self._slip((earliest_ns - self._at_ns) / clock.S)
            self._at_ns = earliest_ns
