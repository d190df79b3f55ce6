"""The append-only record log: RunLog in the run directory, and by name all that the log offers. I/O, no clock.

Each worker has two files, `records-<worker>.arrows` and `health-<worker>.arrows`, and each process that looks at the
server's metrics a `server-<number>.arrows`: Arrow IPC streams without an end mark, so that any Arrow reader opens them
and a crash costs at most the message that was being written.

In the order in which a row passes through: `recorder` gathers in the worker, `columns` and `messages` encode, a
`batch` travels, this file appends, `stored` maps a file back, `rows` settles what stands, `reading` gives tables.
"""

import errno
import os
from pathlib import Path

from harness.record.batch import Batch
from harness.record.columns import SCHEMAS
from harness.record.messages import message_bytes, schema_message
from harness.record.reading import lost_records, read_health, read_records, read_server, stored_batches
from harness.record.recorder import Recorder
from harness.record.rows import records_of
from harness.record.stored import LogError, Stored, claimed, free_above, path_of, paths_of
from harness.record.vitals import Vitals

__all__ = [
    "Batch",
    "LogError",
    "Recorder",
    "RunLog",
    "Vitals",
    "claimed",
    "free_above",
    "lost_records",
    "read_health",
    "read_records",
    "read_server",
    "records_of",
    "stored_batches",
]


class RunLog:
    """The files of a run, or of a worker's spool. Mutable; opens a file at its first batch; one thread at a time."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._directory = Path(directory)
        self._directory.mkdir(parents=True, exist_ok=True)
        self._tails: dict[tuple[str, int], _Tail] = {}

    def append(self, batch: Batch) -> None:
        """Store a batch in one write; nothing happens if it is stored already. LogError: it or its file is no log.
        OSError: it could not be written whole, and nothing of it stays."""
        _check_batch(batch)
        place = (batch.kind, batch.worker)
        if place not in self._tails:
            self._tails[place] = _Tail(path_of(self._directory, *place), batch.kind)
        self._tails[place].append(batch)

    def close(self) -> None:
        """Close all files; a later batch opens its file again."""
        for tail in self._tails.values():
            tail.close()
        self._tails.clear()

    def remove(self) -> None:
        """Delete the log files, and the directory if nothing else lies in it: for a spool that was acknowledged."""
        self.close()
        for kind in SCHEMAS:
            for path in paths_of(self._directory, kind):
                path.unlink()
        if not any(self._directory.iterdir()):
            self._directory.rmdir()


def _check_batch(batch: Batch) -> None:
    """A file must never get what would end its readability."""
    try:
        whole = batch.kind in SCHEMAS and message_bytes(batch.data, 0) == len(batch.data)
    except ValueError:
        whole = False
    if not whole:
        raise LogError(f"{batch.kind} batch {batch.seq} of worker {batch.worker}: not one whole message; send it again")


class _Tail:
    """The end of one open file, always between two messages. Mutable."""

    def __init__(self, path: Path, kind: str) -> None:
        stored = Stored.opened(path, kind) if path.exists() else None
        self._path = path
        self._end = stored.bounds[-1] if stored else 0
        self._seqs = {seq for _, seq in stored.messages([0])} if stored else set()
        del stored  # unmap before the file is cut
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.ftruncate(self._fd, self._end)

    def append(self, batch: Batch) -> None:
        if batch.seq in self._seqs:
            return
        data = batch.data if self._end else schema_message(batch.kind) + batch.data
        written = os.write(self._fd, data)
        if written < len(data):
            os.ftruncate(self._fd, self._end)
            raise OSError(errno.ENOSPC, "no room for the batch: free space or raise the file limit", str(self._path))
        self._end += written
        self._seqs.add(batch.seq)

    def close(self) -> None:
        os.close(self._fd)
