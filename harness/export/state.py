"""What an export has done, on disk: committed position, counts, one line about it. I/O (one small file), no clock."""

import fcntl
import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from harness.model import Influx
from harness.record.directory import put


class Busy(Exception):
    """Another process exports this run to the same database."""


class State(Struct, kw_only=True):
    """One export of one run. Mutable; on disk after every portion that the database has taken."""

    url: str
    token_points: str
    positions: dict[str, dict[str, int]] = {}
    """Log kind → file → bytes whose points are in the database."""
    written: dict[str, int] = {}
    """Points by measurement, each counted once however often it was sent."""
    lost: dict[str, int] = {}
    """The same of requests without an end, which are known when the run is over; written again by every later push."""
    set_aside: int = 0
    """Points the database would not have; they lie in `set-aside.lp`."""
    confirmed: dict[str, int] | None = None
    """Points the database counts itself; None: not asked yet, or it cannot count."""
    done: bool = False
    """The run was over and every point of it was taken."""
    behind_bytes: int = 0
    """Of log not exported yet."""
    trouble: str = ""
    """What the database last refused or failed with; "" while it is well."""

    @property
    def points(self) -> dict[str, int]:
        """Points that the database took, by measurement."""
        return {name: self.written.get(name, 0) + self.lost.get(name, 0) for name in {**self.written, **self.lost}}

    @property
    def pending(self) -> int:
        """Of these, points not found there by its own count."""
        found = self.confirmed
        return 0 if found is None else sum(max(0, count - found.get(name, 0)) for name, count in self.points.items())


def state_path(directory: Path, influx: Influx) -> Path:
    """One file for each database that a run is exported to."""
    where = hashlib.sha256(f"{influx.url}\n{influx.org}".encode()).hexdigest()[:8]
    return directory / f"export-{where}.json"


def read_state(path: Path, influx: Influx) -> State:
    """As it was committed; a fresh one where there is none, or where other token points are wanted now."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=State)
    except (OSError, msgspec.DecodeError):
        found = None
    if found is None or found.token_points != influx.token_points:
        return State(url=influx.url, token_points=influx.token_points)
    return found


def write_state(path: Path, state: State) -> None:
    """Whole or not at all."""
    put(path, msgspec.json.format(msgspec.json.encode(state)))


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Raises Busy while another process holds this state; a killed one holds nothing.

    The file stays: whoever removed it could take it from under one who has just opened it.
    """
    with open(path.with_suffix(".lock"), "wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Busy(f"{path.parent}: is being exported to this database already; wait for that to end") from None
        yield


def line(state: State, finish: str) -> str:
    """One line: written, confirmed and pending points by measurement, and how to finish what is left."""
    counts = ", ".join(_count(name, number, state.confirmed) for name, number in sorted(state.points.items()))
    said = f"{state.url}: {counts or 'nothing written'}"
    if state.set_aside:
        said += f"; {state.set_aside:,} set aside in set-aside.lp"
    if not state.done:
        why = f" ({state.trouble})" if state.trouble else ""
        return f"{said}; not finished{why}; finish it with: {finish}"
    if state.confirmed is None:
        return f"{said}; all taken, and the database cannot count"
    if state.pending:
        return f"{said}; {state.pending:,} pending; push again with: {finish}"
    return f"{said}; confirmed by count, nothing pending"


def _count(name: str, number: int, confirmed: Mapping[str, int] | None) -> str:
    """More may be there: the verdict of a run that was interrupted and then went on stays as an event."""
    there = number if confirmed is None else confirmed.get(name, 0)
    return f"{name} {number:,}" if there >= number else f"{name} {there:,} of {number:,}"
