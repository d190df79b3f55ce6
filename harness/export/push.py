"""One export from start to end: which database, who holds the run, when to stop. I/O; a process of its own."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from harness import clock
from harness.export.command import named_by
from harness.export.exporter import Exporter, Source, Stopped, confirm
from harness.export.influx.database import Database
from harness.export.influx.influxql import QueryError
from harness.export.influx.target import Target
from harness.export.influx.writer import Refused, Writer
from harness.export.state import Busy, State, alone, read_state, state_path, write_state
from harness.model import INFLUX_ORG, INFLUX_URL, Influx
from harness.record.directory import SUMMARY, read_header

TOKEN, USER, PASSWORD = "TOKENSWARM_INFLUX_TOKEN", "TOKENSWARM_INFLUX_USER", "TOKENSWARM_INFLUX_PASSWORD"
LINGER_NS = 5 * clock.S
"""After the run was killed: longer than anything beside it keeps to itself."""


class NotPushed(ValueError):
    """The user's fault; the message is one line."""


def influx_of(scenario: Influx | None, options: Mapping[str, Any], environ: Mapping[str, str]) -> Influx:
    """Options first, then the scenario, then the environment. Raises NotPushed when none names a database."""
    found = scenario or named_by(environ)
    if url := options.get("influx"):
        found = found if found and found.url == url else Influx(url=url, org=environ.get(INFLUX_ORG, ""))
    if found is None:
        raise NotPushed(f"which database? give --influx http://HOST:8086/DATABASE, or set {INFLUX_URL}")
    version = options.get("influx_version")
    return replace(
        found,
        org=options.get("influx_org") or found.org,
        version=found.version if version is None else "auto" if version == "auto" else int(version),
        token_points=options.get("token_points") or found.token_points,
    )


def target_of(influx: Influx, environ: Mapping[str, str]) -> Target:
    """With the secrets of the environment. Raises ValueError, one line."""
    return Target.parse(
        influx.url,
        version=str(influx.version),
        org=influx.org,
        token=environ.get(TOKEN, ""),
        user=environ.get(USER, ""),
        password=environ.get(PASSWORD, ""),
    )


def every_of(token_points: str) -> int:
    """Token points of every Nth request; 0: none. Raises NotPushed."""
    name, _, number = token_points.partition("=")
    if token_points in ("all", "none"):
        return int(token_points == "all")
    if name == "sample" and number.isdigit() and int(number) > 0:
        return int(number)
    raise NotPushed(f'--token-points: got "{token_points}"; expected all, none, or sample=N')


def push(directory: Path, influx: Influx, environ: Mapping[str, str], *, follow: bool) -> State:
    """Export what is not exported yet; returns where that ended. SIGTERM and Ctrl-C stop it in order.

    Raises ValueError, one line: no run, no database named, or somebody else is at it.
    """
    path, every = state_path(directory, influx), every_of(influx.token_points)
    target = target_of(influx, environ)
    stop = _stopped_by_signals()
    try:
        with alone(path):
            state = read_state(path, influx)
            watching = not follow and sys.stderr.isatty()
            source = Source(
                directory=directory,
                every=every,
                is_over=_over(directory) if follow else lambda: True,
                told=_painted if watching else lambda state: None,
            )
            _export(source, state, path, target, stop)
            return state
    except Busy as error:
        raise NotPushed(str(error)) from None


def _export(source: Source, state: State, path: Path, target: Target, stop: threading.Event) -> None:
    header = read_header(source.directory)

    def trouble(text: str) -> None:
        state.trouble = text
        write_state(path, state)
        source.told(state)

    def sleep(seconds: float) -> bool:
        return not stop.wait(seconds)

    def wanted() -> bool:
        return not stop.is_set()

    writer = Writer(Database(target), source.directory / "set-aside.lp", wanted=wanted, notice=trouble)
    try:
        for _ in range(2):
            Exporter(source, state, path, writer).run(sleep)
            confirm(state, Database(target), header)
            if not state.pending:
                break
            # It lost what it had taken: all of it once more. influxd 1.6.7 does so in one of 40 storms of kill -9.
            state.positions, state.written, state.set_aside = {}, {}, 0
        state.trouble = ""
    except Stopped:
        pass
    except (Refused, QueryError) as error:
        state.trouble = str(error)
        sys.stderr.write(f"influx: {error}\n")
    write_state(path, state)


def _painted(state: State) -> None:
    """Where it is, on a terminal."""
    left = "" if state.done else state.trouble or f"{state.behind_bytes / 1e6:.1f} MB of log left"
    sys.stderr.write(f"\r{sum(state.points.values()):,} points  {left}"[:118].ljust(119) + ("\r" if state.done else ""))
    sys.stderr.flush()


def _stopped_by_signals() -> threading.Event:
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop


def _over(directory: Path) -> Callable[[], bool]:
    """The report is written last. A run that was killed writes none, but its scraper may still have something."""
    parent, gone_ns = os.getppid(), [0]

    def is_over() -> bool:
        if os.getppid() != parent and not gone_ns[0]:
            gone_ns[0] = clock.mono_ns()
        return (directory / SUMMARY).exists() or 0 < gone_ns[0] < clock.mono_ns() - LINGER_NS

    return is_over


def database_of(influx: Influx, environ: Mapping[str, str]) -> Database:
    """To read from. Raises ValueError, one line."""
    return Database(target_of(influx, environ))
