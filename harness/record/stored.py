"""One file of the log as it lies on disk: its whole messages, checked. I/O (maps files into memory), no clock."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pyarrow as pa
from pyarrow import ipc

from harness.record.columns import SCHEMAS
from harness.record.messages import message_bytes


class LogError(ValueError):
    """A log that cannot be read or appended to. One line: which file, what is wrong with it, what to do."""


@dataclass(frozen=True, slots=True)
class Stored:
    """The whole messages of one file, mapped into memory, as they were when it was opened."""

    path: Path
    buffer: pa.Buffer
    bounds: list[int]
    """Where messages begin and end: 0, end of the schema, end of the first batch … A torn tail lies after the last."""

    @classmethod
    def opened(cls, path: Path, kind: str) -> "Stored":
        """LogError: what lies there is no log of this kind."""
        with pa.memory_map(str(path)) as file:
            buffer = file.read_buffer()
        bounds = [0]
        while size := _next_bytes(path, memoryview(buffer), bounds[-1]):
            if bounds == [0]:
                _check_schema(path, buffer, kind)
            bounds.append(bounds[-1] + size)
        return cls(path, buffer, bounds)

    def messages(self, columns: Sequence[int] | None = None) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Its batches, checked, with their seq; only these columns, where given: others are not even decompressed."""
        if len(self.bounds) < 3:
            return
        options = ipc.IpcReadOptions(included_fields=None if columns is None else list(columns))
        stream = ipc.open_stream(self.buffer.slice(0, self.bounds[-1]), options=options)
        for at in self.bounds[1:-1]:
            try:
                read = stream.read_next_batch_with_custom_metadata()
                read.batch.validate(full=True)  # a flipped bit in an offset would otherwise end this process later
            except (pa.ArrowException, OSError) as error:
                raise LogError(damage(self.path, at, str(error).splitlines()[0])) from error
            seq = dict(read.custom_metadata or {}).get(b"seq", b"")
            if not seq.isdigit():
                raise LogError(damage(self.path, at, "a batch without a sequence number"))
            yield read.batch, int(seq)


def path_of(directory: Path, kind: str, worker: int) -> Path:
    """Where one worker's log lies."""
    return directory / f"{kind}-{worker}.arrows"


def claimed(directory: Path, kind: str) -> int:
    """The lowest number under which no log of this kind lies there; from now on one does, empty. For a process that
    nobody numbers: a second one, or the same started again, gets a file of its own. OSError: it cannot be made."""
    for number in count():
        try:
            os.close(os.open(path_of(directory, kind, number), os.O_CREAT | os.O_EXCL, 0o644))
        except FileExistsError:
            continue
        break
    return number


def free_above(directory: Path) -> int:
    """The lowest number above those of all logs that lie there."""
    return max((worker_of(path) + 1 for kind in SCHEMAS for path in paths_of(directory, kind)), default=0)


def paths_of(directory: Path, kind: str) -> list[Path]:
    """All logs of this kind that lie there, by worker. LogError: one of them is named otherwise."""
    return sorted(directory.glob(f"{kind}-*.arrows"), key=worker_of)


def worker_of(path: Path) -> int:
    """Whose log it is, by its name. LogError: none."""
    found = re.fullmatch(rf"(?:{'|'.join(SCHEMAS)})-(\d+)\.arrows", path.name)
    if found is None:
        raise LogError(f"{path}: not a file of this log; expected KIND-WORKER.arrows; move it out of the run directory")
    return int(found[1])


def _next_bytes(path: Path, data: memoryview, at: int) -> int | None:
    try:
        return message_bytes(data, at)
    except ValueError as error:
        raise LogError(damage(path, at, str(error))) from error


def _check_schema(path: Path, buffer: pa.Buffer, kind: str) -> None:
    try:
        found = ipc.read_schema(buffer)
        names = sorted({repr(field.name) for field in set(found) ^ set(SCHEMAS[kind])})
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise LogError(damage(path, 0, str(error).splitlines()[0])) from error
    if not found.equals(SCHEMAS[kind]):
        raise LogError(
            f"{path}: not {kind} of this version; columns that differ: {', '.join(names) or 'their order'}; "
            "read it with the version that wrote it, or move it out of the run directory"
        )


def damage(path: Path, at: int, why: str) -> str:
    """What a LogError says of a file that is no log, or is one no longer from byte `at` on."""
    if at == 0:
        return f"{path}: not a record log: {why}; move it out of the run directory"
    return (
        f"{path}: damaged at byte {at}: {why}; what lies before is whole: to keep just that, `truncate -s {at}` a copy"
    )
