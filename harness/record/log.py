"""The append-only record log: Recorder in the worker, RunLog in the run directory, and reading it back. I/O, no clock.

Each worker has two files, `records-<worker>.arrows` and `health-<worker>.arrows`, both Arrow IPC streams without an
end mark, so that any Arrow reader opens them and a crash costs at most the message that was being written.
"""

import errno
import os
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from pyarrow import ipc

from harness.model import OPEN, Arrival, Health, Record
from harness.record.columns import (
    HEALTH,
    RECORDS,
    SCHEMAS,
    final_rows,
    health_batch,
    message,
    message_bytes,
    open_record,
    records_batch,
    records_of,
    schema_message,
    settled,
)

__all__ = ["Batch", "LogError", "Recorder", "RunLog", "read_health", "read_records", "records_of", "stored_batches"]

Kind = Literal["records", "health"]


class LogError(ValueError):
    """A log that cannot be read or appended to. One line: which file, what is wrong with it, what to do."""


class Batch(Struct, frozen=True, kw_only=True):
    """What one flush gathered, ready to be sent and stored. (kind, worker, seq) is its identity within a run."""

    kind: Kind
    worker: int
    seq: int
    rows: int
    data: bytes
    """One encapsulated Arrow record-batch message, without the schema."""


# --- in the worker ----------------------------------------------------------------------------------------------------


class Recorder:
    """Gathers what happens on one worker and hands it on in batches. Mutable; one per worker process.

    `born`, `sent`, `put` and `beat` only append, and may go on while `flush` runs in another thread. Of a worker that
    is killed, what came after its last flush is lost; requests born before that and not ended are found censored.
    A worker index names one process per run: a second process under it would repeat (worker, seq).
    """

    def __init__(self, worker: int, deliver: Callable[[Batch], None]) -> None:
        self._worker = worker
        self._deliver = deliver
        self._born: list[Arrival] = []
        self._sent: list[tuple[int, int]] = []
        self._records: list[Record] = []
        self._beats: list[Health] = []
        self._due = 0
        self._ended = 0
        self._seq: dict[Kind, int] = {"records": 0, "health": 0}
        self._undelivered: deque[Batch] = deque()
        self._turns = [None]  # one flush at a time; not a Lock, which under gevent hangs between native threads

    @property
    def due(self) -> int:
        """Requests born so far."""
        return self._due

    @property
    def ended(self) -> int:
        """Records put so far."""
        return self._ended

    @property
    def in_flight(self) -> int:
        """Requests born and not ended."""
        return self._due - self._ended

    def born(self, arrival: Arrival) -> None:
        """Note a due request. From the next flush on it cannot vanish from the ledger."""
        self._due += 1
        self._born.append(arrival)

    def sent(self, request_id: int, start_ns: int) -> None:
        """Note the start of a request born just now. Optional: only seen should the process be lost, and only when it
        comes before the first flush after the birth."""
        self._sent.append((request_id, start_ns))

    def put(self, record: Record) -> None:
        """Keep the final record of a request. Its timeline must not grow any more."""
        self._ended += 1
        self._records.append(record)

    def beat(self, health: Health) -> None:
        """Keep one health row."""
        self._beats.append(health)

    def flush(self) -> bool:
        """Encode what gathered and deliver it, in order. Whatever `deliver` raises passes through; the batch it was
        raised for and all after it are kept, and go first at the next flush under the same seq.

        True: all that was there at the call is delivered. False: another flush is under way; call again after it.
        """
        try:
            turn = self._turns.pop()  # atomic, and never waits
        except IndexError:
            return False
        try:
            self._encode_records()
            self._encode_health()
            while self._undelivered:
                self._deliver(self._undelivered[0])
                self._undelivered.popleft()
        finally:
            self._turns.append(turn)
        return True

    def _encode_records(self) -> None:
        # Copies first and deletion last: appends may come in between, and a failure in between loses nothing. The
        # order matters: a request in the copy of records is then also in this copy of births, or in an earlier one.
        records, sent, born = self._records[:], self._sent[:], self._born[:]
        ended = {record.request_id for record in records}
        start_ns = dict(sent)
        still_open = [
            open_record(arrival, self._worker, start_ns.get(arrival.request_id))
            for arrival in born
            if arrival.request_id not in ended
        ]
        if records or still_open:
            self._enqueue("records", records_batch(records, still_open))
        del self._records[: len(records)], self._sent[: len(sent)], self._born[: len(born)]

    def _encode_health(self) -> None:
        beats = self._beats[:]
        if beats:
            self._enqueue("health", health_batch(beats))
        del self._beats[: len(beats)]

    def _enqueue(self, kind: Kind, rows: pa.RecordBatch) -> None:
        seq = self._seq[kind]
        data = message(rows, seq)
        self._undelivered.append(Batch(kind=kind, worker=self._worker, seq=seq, rows=rows.num_rows, data=data))
        self._seq[kind] = seq + 1


# --- in the run directory ---------------------------------------------------------------------------------------------


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
            self._tails[place] = _Tail(self._directory / f"{batch.kind}-{batch.worker}.arrows", batch.kind)
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
            for path in _paths(self._directory, kind):
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
        stored = _Stored.opened(path, kind) if path.exists() else None
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


# --- reading ----------------------------------------------------------------------------------------------------------


def read_records(directory: str | os.PathLike[str]) -> pa.Table:
    """One row per request born, of all workers, in the order written; columns as in `columns.RECORDS`.

    A request without an end is `censored`. A torn tail is left out. LogError: something there is not a record log.
    """
    logs = _logs(directory, "records")
    stands = _stands(logs)
    batches, at = [], 0
    for log in logs:
        for batch, _ in log.messages():
            batches.append(settled(batch, stands[at : at + batch.num_rows]))
            at += batch.num_rows
    return pa.Table.from_batches([batch for batch in batches if batch.num_rows], RECORDS)


def read_health(directory: str | os.PathLike[str]) -> pa.Table:
    """One row per beat, of all workers; columns are the fields of Health. LogError as `read_records`."""
    return pa.Table.from_batches([batch for log in _logs(directory, "health") for batch, _ in log.messages()], HEALTH)


def stored_batches(directory: str | os.PathLike[str]) -> Iterator[Batch]:
    """What was appended to the log there, as it was delivered: to send a spool again. LogError as `read_records`."""
    kinds: tuple[Kind, ...] = ("records", "health")
    for kind in kinds:
        for log in _logs(directory, kind):
            for (start, end), (batch, seq) in zip(pairwise(log.bounds[1:]), log.messages([0]), strict=True):
                data = log.buffer.slice(start, end - start).to_pybytes()
                yield Batch(kind=kind, worker=_worker(log.path), seq=seq, rows=batch.num_rows, data=data)


@dataclass(frozen=True, slots=True)
class _Stored:
    """The whole messages of one file, mapped into memory, as they were when it was opened."""

    path: Path
    buffer: pa.Buffer
    bounds: list[int]
    """Where messages begin and end: 0, end of the schema, end of the first batch … A torn tail lies after the last."""

    @classmethod
    def opened(cls, path: Path, kind: str) -> "_Stored":
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
                raise LogError(_damage(self.path, at, str(error).splitlines()[0])) from error
            seq = dict(read.custom_metadata or {}).get(b"seq", b"")
            if not seq.isdigit():
                raise LogError(_damage(self.path, at, "a batch without a sequence number"))
            yield read.batch, int(seq)


def _logs(directory: str | os.PathLike[str], kind: str) -> list[_Stored]:
    place = Path(directory)
    if not place.is_dir():
        raise LogError(f"{place}: no such run directory; give the directory that a run has written")
    return [_Stored.opened(path, kind) for path in _paths(place, kind)]


def _paths(directory: Path, kind: str) -> list[Path]:
    return sorted(directory.glob(f"{kind}-*.arrows"), key=_worker)


def _worker(path: Path) -> int:
    found = re.fullmatch(r"(?:records|health)-(\d+)\.arrows", path.name)
    if found is None:
        raise LogError(f"{path}: not a file of this log; expected KIND-WORKER.arrows; move it out of the run directory")
    return int(found[1])


def _next_bytes(path: Path, data: memoryview, at: int) -> int | None:
    try:
        return message_bytes(data, at)
    except ValueError as error:
        raise LogError(_damage(path, at, str(error))) from error


def _check_schema(path: Path, buffer: pa.Buffer, kind: str) -> None:
    try:
        found = ipc.read_schema(buffer)
        names = sorted({repr(field.name) for field in set(found) ^ set(SCHEMAS[kind])})
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise LogError(_damage(path, 0, str(error).splitlines()[0])) from error
    if not found.equals(SCHEMAS[kind]):
        raise LogError(
            f"{path}: not {kind} of this version; columns that differ: {', '.join(names) or 'their order'}; "
            "read it with the version that wrote it, or move it out of the run directory"
        )


def _damage(path: Path, at: int, why: str) -> str:
    if at == 0:
        return f"{path}: not a record log: {why}; move it out of the run directory"
    return (
        f"{path}: damaged at byte {at}: {why}; what lies before is whole: to keep just that, `truncate -s {at}` a copy"
    )


def _stands(logs: Sequence[_Stored]) -> npt.NDArray[np.bool_]:
    """Which rows of all these logs stand; reads two columns only."""
    columns = [RECORDS.get_field_index(name) for name in ("request_id", "outcome")]
    marks = [batch for log in logs for batch, _ in log.messages(columns)]
    table = pa.Table.from_batches(marks, pa.schema([RECORDS.field(place) for place in columns]))
    is_open = pc.equal(table["outcome"], OPEN)
    return final_rows(table["request_id"].to_numpy(), is_open.to_numpy())
