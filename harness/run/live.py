"""The level under way in a few numbers, for the progress line: never for a verdict. No clock, no I/O."""

import math
from typing import Literal

import numpy as np
import pyarrow as pa

from harness.clock import S
from harness.model import OPEN, Outcome, Stage
from harness.record.columns import RECORDS
from harness.record.log import Batch

STEP = math.log(1.01)
"""Buckets one percent wide: constant memory however long the level."""
BUCKETS = 2048


class Buckets:
    """A histogram of µs values with a relative error of one percent."""

    def __init__(self) -> None:
        self._counts = np.zeros(BUCKETS, dtype=np.int64)

    def add(self, values_us: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> None:
        """Count these values."""
        if len(values_us):
            index = np.clip(np.log(np.maximum(values_us, 1)) / STEP, 0, BUCKETS - 1).astype(np.int64)
            self._counts += np.bincount(index, minlength=BUCKETS)

    def quantile_ms(self, share: float) -> float | None:
        """None when nothing was counted."""
        total = int(self._counts.sum())
        if not total:
            return None
        index = int(np.searchsorted(np.cumsum(self._counts), math.ceil(share * total)))
        return math.exp((index + 0.5) * STEP) / 1000


class Live:
    """Folds batches of the record log as they arrive at the master."""

    def __init__(self, stage: Stage, loop: Literal["closed", "open"]) -> None:
        self.stage = stage
        self.ended = 0
        self.failed = 0
        self.tokens = 0
        self._until_ns = stage.warmup_at_ns
        self.ttft = Buckets()
        self.gaps = Buckets()
        self._from_due = loop == "open"

    def saw(self, batch: Batch) -> None:
        """Take one batch; only records of this level count."""
        if batch.kind != "records":
            return
        rows = pa.ipc.read_record_batch(pa.py_buffer(batch.data), RECORDS)
        level = rows.column("level").to_numpy(zero_copy_only=False) == self.stage.level
        outcomes = np.array(rows.column("outcome").to_pylist(), dtype=object)
        ended = level & (outcomes != OPEN)
        ok = level & (outcomes == Outcome.OK.value)
        self.ended += int(ended.sum())
        self.failed += int((ended & ~ok).sum())
        if ended.any():
            ends = rows.column("end_ns").fill_null(0).to_numpy(zero_copy_only=False)
            self._until_ns = max(self._until_ns, int(ends[ended].max()))
        self._timelines(rows, ok)

    @property
    def tokens_per_s(self) -> float:
        """Of answered requests, from the start of the level until the last end known."""
        return self.tokens / max((self._until_ns - self.stage.warmup_at_ns) / S, 0.1)

    def _timelines(self, rows: pa.RecordBatch, wanted: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> None:
        gaps = rows.column("gaps_us")
        offsets = gaps.offsets.to_numpy()
        values = gaps.values.to_numpy().astype(np.int64)
        streamed = wanted & (np.diff(offsets) > 0)
        first = offsets[:-1][streamed]
        is_first = np.zeros(len(values), dtype=bool)
        is_first[first] = True
        of_wanted = np.repeat(streamed, np.diff(offsets))
        self.tokens += int(of_wanted.sum())
        self.gaps.add(values[of_wanted & ~is_first[: len(of_wanted)]])
        self.ttft.add(values[first] + self._lag_us(rows)[streamed])

    def _lag_us(self, rows: pa.RecordBatch) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
        if not self._from_due:
            return np.zeros(rows.num_rows, dtype=np.int64)
        starts = rows.column("start_ns").fill_null(0).to_numpy(zero_copy_only=False)
        lag_us: np.ndarray[tuple[int], np.dtype[np.int64]] = (
            starts - rows.column("due_ns").to_numpy(zero_copy_only=False)
        ) // 1000
        return lag_us
