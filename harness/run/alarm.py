"""Wakes a greenlet at an instant of the wall clock, to tens of microseconds. I/O, under gevent.

libev's timers are a millisecond coarse, and spinning through the last one costs a whole core at a few hundred requests
a second. A Linux timerfd, watched by the hub, costs nothing; elsewhere we sleep coarsely and yield through the rest.

A core that had nothing to do sleeps too, and that of a virtual machine comes back up to milliseconds late. So before an
instant that was long in coming, the waiter is up `EARLY_NS` sooner, and yields until it is due.
"""

import ctypes
import os
import sys

import gevent

from harness import clock

CLOCK_REALTIME = 0
TFD_TIMER_ABSTIME = 1
COARSE_S = 0.002
EARLY_NS = clock.MS
SELDOM_NS = 10 * EARLY_NS
"""An instant that is farther away than this is worth being early for: at most a tenth of a core goes into it."""
READ = 1
YIELD_S = 1e-6
"""A turn for everybody, sockets included: `sleep(0)` lets only greenlets run, and I/O would wait for milliseconds."""


class _Itimerspec(ctypes.Structure):
    """struct itimerspec: an interval we do not use, and the instant."""

    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("at_s", ctypes.c_long),
        ("at_ns", ctypes.c_long),
    )


class TimerfdAlarm:
    """For one waiting greenlet at a time."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd: int = self._libc.timerfd_create(CLOCK_REALTIME, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._watcher = gevent.get_hub().loop.io(self._fd, READ)

    def wait_until(self, at_ns: int) -> None:
        """Return at that instant, or after letting others run when it has passed."""
        if at_ns <= clock.wall_ns():
            gevent.sleep(YIELD_S)
            return
        seconds, nanoseconds = divmod(at_ns, clock.S)
        at = _Itimerspec(0, 0, seconds, nanoseconds)
        if self._libc.timerfd_settime(self._fd, TFD_TIMER_ABSTIME, ctypes.byref(at), None) != 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime")
        gevent.get_hub().wait(self._watcher)
        os.read(self._fd, 8)

    def close(self) -> None:
        """Give the descriptor back."""
        self._watcher.close()
        os.close(self._fd)


class YieldingAlarm:
    """The same where there is no timerfd."""

    def wait_until(self, at_ns: int) -> None:
        """Return at that instant, or after letting others run when it has passed."""
        gevent.sleep(YIELD_S)
        while (left_s := (at_ns - clock.wall_ns()) / clock.S) > 0:
            gevent.sleep(left_s - COARSE_S if left_s > 2 * COARSE_S else 0)

    def close(self) -> None:
        """Nothing to give back."""


def early_ns(at_ns: int) -> int:
    """When to wake for that instant."""
    return at_ns - EARLY_NS if at_ns - clock.wall_ns() > SELDOM_NS else at_ns


def yield_until(at_ns: int) -> None:
    """Let others run until that instant, awake."""
    while clock.wall_ns() < at_ns:
        gevent.sleep(YIELD_S)


Alarm = TimerfdAlarm | YieldingAlarm


def alarm() -> Alarm:
    """The best this system has."""
    return TimerfdAlarm() if sys.platform.startswith("linux") else YieldingAlarm()
