"""Record table to a Frame: scalars of each request as pandas columns, gaps as one flat array. Pure.

Rows are sorted by level, then those whose latencies are judged (due in the hold, outcome ok), then the rest, each in
due order; so the judged requests of a level, a block of them, and all their gaps are slices and never copies.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from harness.analysis.flat import Filling, Floats, Ints, pieces
from harness.clock import US
from harness.model import Outcome, Phase

COLUMNS = [
    "request_id",
    "worker",
    "level",
    "phase",
    "outcome",
    "stamp_source",
    "due_ns",
    "first_answer",
    "coalesced",
    "slot",
    "prompt_tokens_asked",
    "output_tokens_asked",
    "usage_prompt_tokens",
    "usage_completion_tokens",
]
SINCE_DUE = ("start", "first_byte", "end")


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Every request of a run.

    `rows` has the scalar columns of the record log and, as float ns with NaN for "did not happen": `start`,
    `first_byte`, `end`, `first`, `answer`, `last` (since due), `connect`, `worst_gap`; further `events`, `tokens` (n),
    `first_tokens` (k_1) and `judged`. `gaps_us[edges[i]:edges[i + 1]]` are the gaps between the token events of row i,
    and `weights` the tokens of the event after each gap; None: one each, in every row.
    """

    rows: pd.DataFrame
    gaps_us: NDArray[np.int32]
    weights: NDArray[np.float32] | None
    edges: Ints

    def level(self, index: int) -> slice:
        """Rows of one level, all phases."""
        levels = self.rows["level"].to_numpy()
        return slice(int(np.searchsorted(levels, index)), int(np.searchsorted(levels, index, side="right")))

    def judged(self, index: int) -> slice:
        """Rows of one level that are due in the hold and ended ok, in due order."""
        rows = self.level(index)
        return slice(rows.start, rows.start + int(self.rows["judged"].to_numpy()[rows].sum()))

    def gaps_of(self, first: int, end: int) -> tuple[NDArray[np.int32], NDArray[np.float32] | None]:
        """Gaps in µs and tokens of rows first … end − 1, one after the other."""
        part = slice(int(self.edges[first]), int(self.edges[end]))
        return self.gaps_us[part], None if self.weights is None else self.weights[part]


def frame_of(table: pa.Table) -> Frame:
    """The Frame of a record table (`record.log.read_records`), in any row order and chunking."""
    rows = _scalars(table)
    order = np.lexsort((rows["due_ns"], ~rows["judged"], rows["level"]))
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    filling = Filling.of(rows, order, weighted=_is_weighted(table, rows))
    for piece in pieces(table):
        filling.put(piece, place)
    _put_times(rows, filling)
    return Frame(
        rows=rows.iloc[order].reset_index(drop=True),
        gaps_us=filling.gaps_us,
        weights=filling.weights,
        edges=filling.edges,
    )


def _put_times(rows: pd.DataFrame, filling: Filling) -> None:
    """The sums of gaps as ns since due, and n and k_1 as frames state them where the server reported no usage."""
    sums = filling.sums
    rows["first"] = rows["start"] + sums["wait_us"] * US
    rows["answer"] = rows["first"] + sums["answer_us"] * US
    rows["last"] = rows["first"] + sums["span_us"] * US
    rows["worst_gap"] = sums["worst_us"] * US
    reported = rows["usage_completion_tokens"] >= 1
    rows["tokens"] = rows["tokens"].where(reported | np.isnan(sums["stated"]), sums["stated"])
    rows["first_tokens"] = np.where(rows["events"] == 1, rows["tokens"], sums["first_tokens"])


def _scalars(table: pa.Table) -> pd.DataFrame:
    rows: pd.DataFrame = table.select(COLUMNS).to_pandas(strings_to_categorical=True)
    for name in SINCE_DUE:
        rows[name] = _floats(pc.subtract(table.column(f"{name}_ns"), table.column("due_ns")))
    rows["connect"] = _floats(table.column("connect_ns"))
    rows["judged"] = (rows["phase"] == Phase.HOLD) & (rows["outcome"] == Outcome.OK)
    events = _floats(pc.list_value_length(table.column("gaps_us")))
    rows["events"] = np.nan_to_num(events).astype(np.int64)
    reported = rows["usage_completion_tokens"].to_numpy(dtype=np.float64)
    rows["tokens"] = np.where(reported >= 1, reported, rows["events"])
    return rows


def _floats(column: pa.ChunkedArray) -> Floats:
    return np.asarray(pc.cast(column, pa.float64(), safe=False).to_numpy(), dtype=np.float64)


def _is_weighted(table: pa.Table, rows: pd.DataFrame) -> bool:
    column = table.column("k")
    inferred = (rows["events"] > 1) & (rows["tokens"] > 1) & (rows["tokens"] != rows["events"])
    return column.null_count < len(column) or bool(inferred.any())
