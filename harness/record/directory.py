"""A run directory beside its log: header and stages. I/O (reads and writes files), no clock."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from harness.model import RunHeader, Stage

HEADER = "header.json"
STAGES = "stages.jsonl"
ANNOUNCED = "announced.jsonl"
SUMMARY = "summary.json"
"""The Report; written when the run is over, and not before."""


class Held(ValueError):
    """Another process is writing there. The message is one line."""


class NoRun(ValueError):
    """The directory is not a run. The message is one line."""


def put(path: Path, data: bytes) -> Path:
    """Write a file whole or not at all; returns its path."""
    unfinished = path.with_name(f".{path.name}")
    unfinished.write_bytes(data)
    return unfinished.replace(path)


@contextlib.contextmanager
def held(directory: Path) -> Iterator[None]:
    """Make the directory; while it is held nobody else can. Raises Held. A killed process holds nothing."""
    directory.mkdir(parents=True, exist_ok=True)
    handle = os.open(directory, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Held(f"{directory}: a run is under way there; wait for its end, or choose another") from None
        yield
    finally:
        os.close(handle)


def write_header(directory: Path, header: RunHeader) -> None:
    """The first file of a run. Of a run that goes on: its summary is out of date, and it is over no longer."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / SUMMARY).unlink(missing_ok=True)
    put(directory / HEADER, msgspec.json.format(msgspec.json.encode(header)))


def read_header(directory: Path) -> RunHeader:
    """Raises NoRun."""
    try:
        return msgspec.json.decode((directory / HEADER).read_bytes(), type=RunHeader)
    except OSError:
        raise NoRun(f"{directory}: not a run directory (no {HEADER}); runs are written below runs/") from None
    except msgspec.DecodeError as error:
        raise NoRun(f"{directory / HEADER}: {error}") from None


def announce_stage(directory: Path, stage: Stage) -> None:
    """Note a stage that is about to begin."""
    _append(directory / ANNOUNCED, stage)


def append_stage(directory: Path, stage: Stage) -> None:
    """Note a stage that was run to its end."""
    _append(directory / STAGES, stage)


def read_announced(directory: Path) -> list[Stage]:
    """Stages that were begun, whether or not they came to their end."""
    return _stages(directory / ANNOUNCED)


def read_stages(directory: Path) -> list[Stage]:
    """Stages that were run to their end."""
    return _stages(directory / STAGES)


def _append(path: Path, stage: Stage) -> None:
    with open(path, "ab") as stages:
        stages.write(msgspec.json.encode(stage) + b"\n")


def _stages(path: Path) -> list[Stage]:
    """A torn last line is left out."""
    lines = path.read_bytes().split(b"\n") if path.exists() else []
    return [msgspec.json.decode(line, type=Stage) for line in lines[:-1] if line]
