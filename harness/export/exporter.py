"""Record log to database, as it grows or all at once: tail → points → lines → writer. I/O; a process of its own.

The log is the truth and is only read. A portion's points are written first and its position committed after, so a
process that is killed in between writes them again: every point has a key of its own, so nothing is doubled.
"""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from msgspec import Struct

from harness.export import points
from harness.export.influx.database import Database
from harness.export.influx.writer import Writer
from harness.export.lines import tag_value
from harness.export.seconds import Seconds
from harness.export.state import State, write_state
from harness.findings import Report
from harness.model import OPEN, RunHeader, Stage
from harness.record.directory import SUMMARY, read_announced, read_header, read_stages
from harness.record.log import lost_records
from harness.record.tail import Tail
from harness.report import document

IDLE_S = 0.5
"""Between two looks at a log in which nothing was new."""
KINDS = ("records", "health", "server")


class Stopped(Exception):
    """Asked to stop before all was written; what was committed stays."""


class Source(Struct, frozen=True, kw_only=True):
    """The run to export. `every`: token points of every Nth request; 0: none. `is_over`: nothing more will come.
    `told` hears of every commit."""

    directory: Path
    every: int
    is_over: Callable[[], bool]
    told: Callable[[State], None]


class Exporter:
    """One export of one run. `state` is committed to `path` after every portion."""

    def __init__(self, source: Source, state: State, path: Path, writer: Writer) -> None:
        self._source = source
        self._state = state
        self._path = path
        self._writer = writer
        self._header = read_header(source.directory)
        self._tails = {kind: Tail(source.directory, kind, state.positions.get(kind)) for kind in KINDS}
        self._seconds = Seconds(self._header)
        self._told: list[Stage] = []
        self._is_last = False

    def run(self, sleep: Callable[[float], bool]) -> None:
        """Until the run is over and all of it is written. `sleep` returns False when it is time to stop: Stopped."""
        self._state.done = False
        self._remember()
        while True:
            over = self._source.is_over()  # asked before the look: what was written until then is found by it
            moved = [self._portion(kind) for kind in KINDS]
            self._whole()
            self._state.trouble = ""
            self._commit()
            if over and not any(moved):
                break
            if not any(moved) and not sleep(IDLE_S):
                raise Stopped
        self._last()

    # --- portions -----------------------------------------------------------------------------------------------------

    def _remember(self) -> None:
        """Seconds are folded from all records: take those that a former process has exported."""
        before = self._state.positions.get("records", {})
        tail = Tail(self._source.directory, "records")
        while any(tail.position.get(name, 0) < at for name, at in before.items()):
            rows = tail.more(before)
            if rows is None:
                break
            self._seconds.add(_ended(rows))

    def _portion(self, kind: str) -> bool:
        """Export the next portion of one kind, and commit it; False: there was none."""
        tail = self._tails[kind]
        rows = tail.more()
        if rows is None:
            return False
        if kind == "records":
            taken = self._requests(_ended(rows))
        elif kind == "health":
            taken = self._taken({"client": points.client_lines(self._header, rows)})
        else:
            stages = read_announced(self._source.directory)
            taken = self._taken({"engine": points.engine_lines(self._header, rows, stages)})
        written = self._state.written
        written.update({name: written.get(name, 0) + count for name, count in taken.items()})
        self._state.positions[kind] = dict(tail.position)
        self._commit()
        return True

    def _requests(self, rows: pa.Table) -> dict[str, int]:
        """Points of requests, whether they have come to an end or never will; how many, by measurement."""
        self._seconds.add(rows)
        lines = {"request": points.request_lines(self._header, rows)}
        if self._source.every:
            lines["token"] = points.token_lines(self._header, rows, self._source.every)
        return self._taken(lines)

    def _whole(self) -> None:
        """What can be said only of the whole so far, and is written anew: seconds that changed, and what happened."""
        directory = self._source.directory
        announced, ended = read_announced(directory), read_stages(directory)
        if self._taken({"second": self._seconds.lines(announced)}):
            self._state.written["second"] = len(self._seconds)
        told = [*announced, *ended]
        if told != self._told or self._is_last:
            lines = points.event_lines(self._header, announced, ended, self._report())
            self._state.written |= self._taken({"event": lines})
            self._told = told

    def _report(self) -> Report | None:
        path = self._source.directory / SUMMARY
        return document.read(path.read_bytes()) if path.exists() else None

    def _last(self) -> None:
        """The run is over: requests without an end are lost, and the verdict is known."""
        self._is_last = True
        self._state.lost = self._requests(lost_records(self._source.directory))
        self._whole()
        self._state.done = True
        self._commit()

    # --- writing ------------------------------------------------------------------------------------------------------

    def _taken(self, lines: dict[str, pa.Array]) -> dict[str, int]:
        """Write all of it; points taken, by measurement. Stopped: not all, so none of it is counted yet."""
        written = {name: self._writer.write(some) for name, some in lines.items() if len(some)}
        if any(each.pending for each in written.values()):
            raise Stopped
        self._state.set_aside += sum(each.set_aside for each in written.values())
        return {name: each.accepted for name, each in written.items()}

    def _commit(self) -> None:
        self._state.behind_bytes = sum(tail.unread_bytes for tail in self._tails.values())
        write_state(self._path, self._state)
        self._source.told(self._state)


def confirm(state: State, database: Database, header: RunHeader) -> None:
    """Ask the database how many points of this run it has."""
    run = tag_value(header.run_id).as_py()
    counts = {name: database.count(name, run) for name in state.points}
    known = {name: count for name, count in counts.items() if count is not None}
    state.confirmed = known if len(known) == len(counts) else None


def _ended(rows: pa.Table) -> pa.Table:
    """Requests that ended; the others come again with their end, or are found lost when the run is over."""
    return rows.filter(pa.compute.not_equal(rows["outcome"], OPEN))
