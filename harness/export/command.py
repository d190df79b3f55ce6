"""`tokenswarm push` as others see it: its command line, what it did, and how to finish it. I/O (reads its state)."""

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from harness.export.state import line, read_state, state_path
from harness.model import INFLUX_ORG, INFLUX_URL, Influx

FEW_BYTES = 200_000
"""Of log, a second or two of much load: no news."""


def named_by(environ: Mapping[str, str]) -> Influx | None:
    """The database that the environment names."""
    url = environ.get(INFLUX_URL)
    return Influx(url=url, org=environ.get(INFLUX_ORG, "")) if url else None


def command(directory: Path) -> list[str]:
    """The exporter of a run under way, as its header says. Secrets travel in the environment."""
    return [sys.executable, "-m", "harness.cli", "push", str(directory), "--follow"]


def said(directory: Path, influx: Influx) -> str:
    """One line: what is in the database, what is not, and how to finish."""
    return line(read_state(state_path(directory, influx), influx), finish(directory, influx))


def behind(directory: Path, influx: Influx) -> str:
    """While the run goes on: how much of its log is not in the database yet, and why; "" when that is nothing much."""
    state = read_state(state_path(directory, influx), influx)
    if state.behind_bytes < FEW_BYTES and not state.trouble:
        return ""
    return f"influx {state.behind_bytes / 1e6:.1f} MB behind{': ' if state.trouble else ''}{state.trouble}"


def finish(directory: Path, influx: Influx) -> str:
    """What a person types to push what is left."""
    org = f" --influx-org {shlex.quote(influx.org)}" if influx.org else ""
    return f"tokenswarm push {shlex.quote(str(directory))} --influx {shlex.quote(influx.url)}{org}"
