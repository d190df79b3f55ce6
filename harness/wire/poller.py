"""One epoll for all streams of a worker: the hub wakes once and every ready socket is read in a plain loop. I/O.

A greenlet switch for each token costs twice as much as the read itself, and a libev watcher for each socket a third
more; one watcher on an epoll of our own costs neither. Callbacks run in the hub and must not block.
"""

import select
import sys
from collections.abc import Callable
from typing import Any

import gevent
from gevent import monkey

MOST_EVENTS = 512
"""Ready sockets taken per turn, so that other greenlets get theirs."""
READ = 1


class EpollPoller:
    """fd → callback. Make it after a fork, in the process that uses it."""

    def __init__(self) -> None:
        self._epoll: Any = monkey.get_original("select", "epoll")()  # gevent hides it: it has no cooperative form
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._watcher = gevent.get_hub().loop.io(self._epoll.fileno(), READ)
        self._watcher.start(self._turn)

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
        self._watcher.stop()
        self._watcher.close()
        self._epoll.close()

    def _turn(self) -> None:
        callbacks = self._callbacks
        for fd, _ in self._epoll.poll(0, MOST_EVENTS):
            callback = callbacks.get(fd)
            if callback is not None:  # an earlier callback of this turn may have removed it
                callback()


class WatcherPoller:
    """The same with one libev watcher a socket, where there is no epoll."""

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
