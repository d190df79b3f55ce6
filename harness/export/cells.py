"""Sums and distributions by class, level and second of wall time: what seconds are gathered in. No clock, no I/O.

All that is summed is whole numbers (tokens in millionths, time in ns), so the order in which it came does not matter.
"""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from harness.clock import S
from harness.export import buckets
from harness.export.buckets import FINE_BITS, Ints, Sketch
from harness.schema import FAILURES, bucket_names

MICRO = 1_000_000
OPTIONAL = (*(f"outcome_{name}" for name in FAILURES), *bucket_names("ttft"), *bucket_names("gap"))
"""Counts that are absent where they are 0."""
SCALES = {"tokens": MICRO, "in_flight": S, "running": S}
"""What 1 is in those sums that stand for no whole numbers."""
SUMS = ("due", "ok", "failed", "good", "events", *SCALES, *OPTIONAL)
_COLUMN = {name: column for column, name in enumerate(SUMS)}

SECOND_BITS = 34
"""Enough for every second that 64 bits of ns can name; above them in a cell's code stands its group."""
MOST_S = 86_400
"""A request is followed this long at most: one that seems to last longer has met a clock that was set."""


class Cells:
    """One cell per group (a level and a class) and second, numbered as they came. Mutable."""

    def __init__(self) -> None:
        self._groups: dict[tuple[int, str], int] = {}
        self._numbers: dict[int, int] = {}
        self._sums = np.zeros((64, len(SUMS)), np.int64)
        self._changed = np.zeros(64, np.bool_)
        self._sketches: dict[str, dict[int, Sketch]] = {"ttft": {}, "itl": {}}

    def __len__(self) -> int:
        return len(self._numbers)

    # --- where --------------------------------------------------------------------------------------------------------

    def groups(self, levels: Ints, classes: pa.Array) -> Ints:
        """The number of each row's group."""
        encoded = pc.dictionary_encode(classes)
        pairs, places = np.unique((levels << 32) + encoded.indices.to_numpy(), return_inverse=True)
        names = encoded.dictionary.to_pylist()
        known = [(pair >> 32, names[pair & 0xFFFFFFFF]) for pair in pairs.tolist()]
        numbers: Ints = np.array([self._groups.setdefault(pair, len(self._groups)) for pair in known], np.int64)[places]
        return numbers

    def at(self, groups: Ints, at_ns: Ints) -> Ints:
        """The cell in which each instant falls, made if need be, and marked as changed."""
        encoded = pc.dictionary_encode(pa.array((groups << SECOND_BITS) + at_ns // S))
        codes = encoded.dictionary.to_pylist()
        cells = np.array([self._numbers.setdefault(code, len(self)) for code in codes], np.int64)
        while len(self) > len(self._sums):
            self._sums = np.concatenate([self._sums, np.zeros_like(self._sums)])
            self._changed = np.concatenate([self._changed, np.zeros_like(self._changed)])
        self._changed[cells] = True
        found: Ints = cells[encoded.indices.to_numpy()]
        return found

    # --- what goes in -------------------------------------------------------------------------------------------------

    def count(self, cells: Ints, name: str, amount: int | Ints = 1) -> None:
        """Add to a sum."""
        np.add.at(self._sums.reshape(-1), cells * len(SUMS) + _COLUMN[name], amount)

    def tally(self, cells: Ints, metric: str, us: NDArray[np.int32] | Ints) -> None:
        """Count durations in their coarse buckets."""
        first = _COLUMN[bucket_names(metric)[0]]
        np.add.at(self._sums.reshape(-1), cells * len(SUMS) + (first + buckets.coarse(us)), 1)

    def sketch(self, cells: Ints, metric: str, us: NDArray[np.float32], micro: Ints | None = None) -> None:
        """Add durations to a distribution; each weighs so many millionths, or 1."""
        encoded = pc.dictionary_encode(pa.array((cells << FINE_BITS) + buckets.fine(us)))
        weights = np.bincount(encoded.indices.to_numpy(), micro)  # of whole numbers < 2⁵³: exact
        whole = weights * MICRO if micro is None else weights.astype(np.int64)
        codes = encoded.dictionary.to_numpy()
        order = np.argsort(codes)
        codes, whole = codes[order], whole[order]
        found, starts = np.unique(codes >> FINE_BITS, return_index=True)
        known = self._sketches[metric]
        for cell, (start, end) in zip(found.tolist(), pairwise([*starts.tolist(), len(codes)]), strict=True):
            new = Sketch(codes[start:end] & ((1 << FINE_BITS) - 1), whole[start:end])
            known[cell] = known[cell].merged(new) if cell in known else new

    def cover(self, groups: Ints, name: str, begin_ns: Ints, close_ns: Ints) -> None:
        """Add the time between the two to every second it lies in; an instant before 0 did not happen."""
        some = (begin_ns >= 0) & (close_ns > begin_ns)
        groups, begin_ns, close_ns = groups[some], begin_ns[some], close_ns[some]
        count = np.minimum((close_ns - 1) // S - begin_ns // S + 1, MOST_S)
        groups, begin_ns, close_ns = (np.repeat(each, count) for each in (groups, begin_ns, close_ns))
        turn = np.arange(len(groups)) - np.repeat(np.cumsum(count) - count, count)
        second_ns = (begin_ns // S + turn) * S
        spent_ns = np.minimum(close_ns, second_ns + S) - np.maximum(begin_ns, second_ns)
        self.count(self.at(groups, second_ns), name, spent_ns)

    # --- what comes out -----------------------------------------------------------------------------------------------

    def touch(self, level: int) -> None:
        """Mark all cells of a level as changed."""
        groups = [number for (of, _), number in self._groups.items() if of == level]
        self._changed[: len(self)] |= np.isin(self._codes() >> SECOND_BITS, groups)

    def changed(self) -> Ints:
        """The cells that changed since this was last asked."""
        cells = np.flatnonzero(self._changed)
        self._changed[:] = False
        return cells

    def places(self, cells: Ints) -> tuple[Ints, list[str], Ints]:
        """Level, class and start in ns of each."""
        codes = self._codes()[cells]
        of = list(self._groups)
        known = [of[group] for group in (codes >> SECOND_BITS).tolist()]
        starts_ns = (codes & ((1 << SECOND_BITS) - 1)) * S
        return np.array([level for level, _ in known], np.int64), [name for _, name in known], starts_ns

    def totals(self, cells: Ints, name: str) -> Ints:
        """A sum of each."""
        found: Ints = self._sums[cells, _COLUMN[name]]
        return found

    def quantile_us(self, cells: Ints, metric: str, share: float) -> list[float | None]:
        """A quantile of each, None where nothing is."""
        of = [self._sketches[metric].get(cell) for cell in cells.tolist()]
        return [None if sketch is None else sketch.quantile(share) for sketch in of]

    def _codes(self) -> Ints:
        return np.fromiter(self._numbers, np.int64, len(self))
