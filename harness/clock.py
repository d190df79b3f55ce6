"""The only file that reads a clock. Wall time is what the kernel stamps with, so due times and stamps share it."""

import os
import resource
import time

S = 1_000_000_000
MS = 1_000_000
US = 1_000


def wall_ns() -> int:
    """CLOCK_REALTIME in ns: the clock of `SO_TIMESTAMPNS`, of due times and of every stamp in the record log."""
    return time.time_ns()


def mono_ns() -> int:
    """CLOCK_MONOTONIC in ns: for durations on one machine, and to notice that the wall clock stepped."""
    return time.monotonic_ns()


def cpu_ns() -> int:
    """CPU time this process has spent, user and system, in ns."""
    return time.process_time_ns()


def runnable_ns() -> int:
    """Time this process was ready to run and had no CPU, in ns; 0 where the system does not tell."""
    try:
        with open("/proc/self/schedstat", encoding="ascii") as stat:
            return int(stat.read().split()[1])
    except (OSError, IndexError, ValueError):
        return 0


def stolen_ns() -> int:
    """CPU time the host of this virtual machine gave to others while one of our cores had work, in ns, averaged over
    the cores; 0 where the system does not tell."""
    try:
        with open("/proc/stat", encoding="ascii") as stat:
            ticks = int(stat.readline().split()[8])
        return ticks * S // (os.sysconf("SC_CLK_TCK") * (os.cpu_count() or 1))
    except (OSError, IndexError, ValueError):
        return 0


def peak_rss_bytes() -> int:
    """Largest resident set of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def iso(at_ns: int) -> str:
    """A wall instant as ISO 8601 in UTC, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at_ns // S))
