"""Rows as they were written to rows that stand, and to Records. No clock, no I/O."""

from array import array
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from harness.model import OPEN, Outcome, Phase, Record, Timeline, Usage
from harness.record.columns import RECORDS

LOST = "no end recorded: its worker process was lost"
"""The detail of a request whose last row says OPEN."""


def final_rows(request_ids: npt.NDArray[np.int64], is_open: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Which rows stand: of each request the row last written, and an OPEN one only when there is no other."""
    order = np.lexsort((~is_open, request_ids))  # stable: rows of one request stay as written, OPEN ones first
    ordered = request_ids[order]
    stands = np.zeros(len(order), np.bool_)
    stands[order[np.append(ordered[1:] != ordered[:-1], True)[: len(order)]]] = True
    return stands


def settled(batch: pa.RecordBatch, stands: npt.NDArray[np.bool_]) -> pa.RecordBatch:
    """The rows that stand, with OPEN turned into censored. Where all stand and none is OPEN, nothing is copied."""
    kept = batch if stands.all() else batch.filter(pa.array(stands))
    lost = pc.equal(kept.column("outcome"), OPEN)
    if not pc.any(lost).as_py():
        return kept
    for name, value in (("outcome", Outcome.CENSORED.value), ("detail", LOST)):
        place = RECORDS.get_field_index(name)
        kept = kept.set_column(place, RECORDS.field(place), pc.if_else(lost, value, kept.column(name)))
    return kept


def records_of(table: pa.Table) -> Iterator[Record]:
    """Rows as Records, row by row: for tests and samples. Stamps come back as start + whole microseconds."""
    for batch in table.to_batches():
        yield from map(_record, batch.to_pylist())


def _record(row: dict[str, Any]) -> Record:
    origin_ns = row["due_ns"] if row["start_ns"] is None else row["start_ns"]
    stamps_ns = origin_ns + np.cumsum(row.pop("gaps_us"), dtype=np.int64) * 1000
    k = row.pop("k")
    timeline = Timeline(
        at_ns=array("q", stamps_ns.tobytes()),
        k=None if k is None else array("q", k),
        first_answer=row.pop("first_answer"),
        coalesced=row.pop("coalesced"),
    )
    usage = Usage(**{name: row.pop(f"usage_{name}") for name in Usage.__struct_fields__})
    row |= {"phase": Phase(row["phase"]), "outcome": Outcome(row["outcome"])}
    return Record(timeline=timeline, usage=usage, **row)
