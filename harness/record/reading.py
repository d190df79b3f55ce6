"""The log of a run directory, read back whole. I/O, no clock."""

import os
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from harness.model import OPEN
from harness.record.batch import Batch, Kind
from harness.record.columns import HEALTH, RECORDS, SERVER
from harness.record.rows import final_rows, settled
from harness.record.stored import LogError, Stored, paths_of, worker_of


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


def lost_records(directory: str | os.PathLike[str]) -> pa.Table:
    """Of the rows of `read_records` only those of requests without an end. Reads one batch at a time."""
    logs = _logs(directory, "records")
    stands, found, at = _stands(logs), [], 0
    for log in logs:
        for batch, _ in log.messages():
            is_open = pc.equal(batch.column("outcome"), OPEN).to_numpy(zero_copy_only=False)
            lost = stands[at : at + batch.num_rows] & is_open
            at += batch.num_rows
            if lost.any():
                found.append(settled(batch, lost))
    return pa.Table.from_batches(found, RECORDS)


def read_health(directory: str | os.PathLike[str]) -> pa.Table:
    """One row per beat, of all workers; columns are the fields of Health. LogError as `read_records`."""
    return pa.Table.from_batches([batch for log in _logs(directory, "health") for batch, _ in log.messages()], HEALTH)


def read_server(directory: str | os.PathLike[str]) -> pa.Table:
    """One row per look at a server's metrics, none where nobody looked; columns are the fields of Vitals, null: not
    told. LogError as `read_records`."""
    return pa.Table.from_batches([batch for log in _logs(directory, "server") for batch, _ in log.messages()], SERVER)


def stored_batches(directory: str | os.PathLike[str]) -> Iterator[Batch]:
    """What was appended to the log there, as it was delivered: to send a spool again. LogError as `read_records`."""
    kinds: tuple[Kind, ...] = ("records", "health", "server")
    for kind in kinds:
        for log in _logs(directory, kind):
            for (start, end), (batch, seq) in zip(pairwise(log.bounds[1:]), log.messages([0]), strict=True):
                data = log.buffer.slice(start, end - start).to_pybytes()
                yield Batch(kind=kind, worker=worker_of(log.path), seq=seq, rows=batch.num_rows, data=data)


def _logs(directory: str | os.PathLike[str], kind: str) -> list[Stored]:
    place = Path(directory)
    if not place.is_dir():
        raise LogError(f"{place}: no such run directory; give the directory that a run has written")
    return [Stored.opened(path, kind) for path in paths_of(place, kind)]


def _stands(logs: Sequence[Stored]) -> npt.NDArray[np.bool_]:
    """Which rows of all these logs stand; reads two columns only."""
    columns = [RECORDS.get_field_index(name) for name in ("request_id", "outcome")]
    marks = [batch for log in logs for batch, _ in log.messages(columns)]
    table = pa.Table.from_batches(marks, pa.schema([RECORDS.field(place) for place in columns]))
    is_open = pc.equal(table["outcome"], OPEN)
    return final_rows(table["request_id"].to_numpy(), is_open.to_numpy())
