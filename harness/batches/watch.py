"""While a search runs: did its server die, or were we told to stop? I/O: signals; main thread only."""

import signal
import subprocess
from types import FrameType, TracebackType
from typing import Any

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Watch:
    """A context in which the death of a server ends the search as Ctrl-C does, which ends it in order. Mutable.

    The search waits for a process of its own and swallows what ended it: who asks afterwards is told here.
    """

    def __init__(self, server: "subprocess.Popen[bytes] | None") -> None:
        self._server = server
        self._before: dict[int, Any] = {}
        self.died = False
        self.told_to_stop = False

    def __enter__(self) -> "Watch":
        for number in STOPPING:
            self._before[number] = signal.signal(number, self._stop)
        self._before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, self._child)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
        self.died = self.died or self._is_dead()

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.told_to_stop = True
        raise KeyboardInterrupt

    def _child(self, number: int, frame: FrameType | None) -> None:
        if not self.died and self._is_dead():
            self.died = True
            raise KeyboardInterrupt

    def _is_dead(self) -> bool:
        return self._server is not None and self._server.poll() is not None
