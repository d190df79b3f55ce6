"""A run directory beside its log: header and stages. I/O (reads and writes files), no clock."""

from pathlib import Path

import msgspec

from harness.model import RunHeader, Stage

HEADER = "header.json"
STAGES = "stages.jsonl"
ANNOUNCED = "announced.jsonl"
SUMMARY = "summary.json"
"""The Report; written when the run is over, and not before."""


class NoRun(ValueError):
    """The directory is not a run. The message is one line."""


def put(path: Path, data: bytes) -> Path:
    """Write a file whole or not at all; returns its path."""
    unfinished = path.with_name(f".{path.name}")
    unfinished.write_bytes(data)
    return unfinished.replace(path)


def write_header(directory: Path, header: RunHeader) -> None:
    """The first file of a run."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / HEADER).write_bytes(msgspec.json.format(msgspec.json.encode(header)))


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
