"""One epoll for all streams of a worker: the hub wakes once and every ready socket is read in a plain loop. I/O.

A greenlet switch for each token costs twice as much as the read itself, and a libev watcher for each socket a third
more; one watcher on an epoll of our own costs neither. Where wake-ups come thick, the poller naps between them: the
kernel's stamps stay true, each wake-up serves many sockets, and the sender is not slowed by waking us for every token.
Callbacks run in the hub and must not block.
"""

import select
import sys
from collections.abc import Callable
from typing import Any

import gevent
from gevent import monkey

from harness import clock

MOST_EVENTS = 512
"""Ready sockets taken per turn, so that other greenlets get theirs."""
READ = 1
THICK_NS = 200_000
"""Wake-ups closer together than this are too many."""
NAP_S = 0.001
"""Shorter than any gap worth measuring between two tokens of one stream; an end of stream is seen this much later."""


class EpollPoller:
    """fd → callback. Make it after a fork, in the process that uses it."""

    def __init__(self) -> None:
        self.clear_ns = 0
        """Whatever is read now arrived after this instant: every socket was looked at then. 0: not known."""
        self._epoll: Any = monkey.get_original("select", "epoll")()  # gevent hides it: it has no cooperative form
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._watcher = gevent.get_hub().loop.io(self._epoll.fileno(), READ)
        self._watcher.start(self._turn)
        self._nap = gevent.get_hub().loop.timer(NAP_S, NAP_S)  # a one-shot timer fires at once when started again
        self._last_ns = 0

    def add(self, fd: int, callback: Callable[[], None]) -> None:
        """Call back, in the hub, whenever this fd is readable, until `remove`."""
        self._callbacks[fd] = callback
        self._epoll.register(fd, select.POLLIN)

    def remove(self, fd: int) -> None:
        """Forget this fd; call it before the fd is closed."""
        if self._callbacks.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def close(self) -> None:
        """Stop watching."""
        for watcher in (self._watcher, self._nap):
            watcher.stop()
            watcher.close()
        self._epoll.close()

    def _turn(self) -> None:
        self._drain()
        now_ns = clock.mono_ns()
        if now_ns - self._last_ns < THICK_NS:
            self._watcher.stop()
            self._nap.again(self._wake, update=True)
        self._last_ns = now_ns

    def _wake(self) -> None:
        """The nap is over: serve what came meanwhile, and nap again if that was much."""
        if self._drain() <= 1:
            self._nap.stop()
            self._watcher.start(self._turn)

    def _drain(self) -> int:
        callbacks = self._callbacks
        looked_ns = clock.wall_ns()
        ready = self._epoll.poll(0, MOST_EVENTS)
        for fd, _ in ready:
            callback = callbacks.get(fd)
            if callback is not None:  # an earlier callback of this turn may have removed it
                callback()
        if len(ready) < MOST_EVENTS:
            self.clear_ns = looked_ns
        return len(ready)


class WatcherPoller:
    """The same with one libev watcher a socket, where there is no epoll."""

    clear_ns = 0

    def __init__(self) -> None:
        self._watchers: dict[int, Any] = {}

    def add(self, fd: int, callback: Callable[[], None]) -> None:
        """Call back, in the hub, whenever this fd is readable, until `remove`."""
        watcher = self._watchers[fd] = gevent.get_hub().loop.io(fd, READ)
        watcher.start(callback)

    def remove(self, fd: int) -> None:
        """Forget this fd; call it before the fd is closed."""
        watcher = self._watchers.pop(fd, None)
        if watcher is not None:
            watcher.stop()
            watcher.close()

    def close(self) -> None:
        """Stop watching."""
        for fd in list(self._watchers):
            self.remove(fd)


Poller = EpollPoller | WatcherPoller


def poller() -> Poller:
    """The best this system has."""
    return EpollPoller() if sys.platform.startswith("linux") else WatcherPoller()
