"""List columns of the record table to flat arrays in the Frame's order, a piece at a time. Pure.

The gaps of 10⁸ tokens are 400 MB; they are moved once, as int32, and everything that needs a sum over a request's gaps
(first token to last, to the first answer, the worst gap) is taken on the way.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

PIECE_EVENTS = 1 << 21
"""Token events handled at a time: temporary arrays stay at some tens of MB however large a batch is."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Consecutive rows of the table, with all their events in one array."""

    first_row: int
    events: Ints
    """Token events of each row."""
    gaps_us: NDArray[np.int32]
    """Of each event: c_1 − start for the first of a row, then the gap before it."""
    k: pa.ListArray
    """Exact tokens of each event, per row; null where the frames did not say."""

    @property
    def rows(self) -> slice:
        return slice(self.first_row, self.first_row + len(self.events))

    @property
    def starts(self) -> Ints:
        """Place of each row's first event in `gaps_us`."""
        return np.cumsum(self.events) - self.events


def pieces(table: pa.Table) -> Iterator[Piece]:
    """The table in order, cut between rows so that a piece has about PIECE_EVENTS events at most."""
    first_row = 0
    for batch in table.select(["gaps_us", "k"]).to_batches():
        lists = batch.column("gaps_us")
        offsets = lists.offsets.to_numpy().astype(np.int64)
        values = lists.values.to_numpy()
        cuts = _cuts(offsets)
        for a, b in pairwise(cuts):
            gaps_us = values[offsets[a] : offsets[b]]
            k = batch.column("k").slice(a, b - a)
            yield Piece(first_row=first_row + a, events=np.diff(offsets[a : b + 1]), gaps_us=gaps_us, k=k)
        first_row += batch.num_rows


def _cuts(offsets: Ints) -> list[int]:
    marks = np.arange(offsets[0], offsets[-1], PIECE_EVENTS)
    return sorted({0, *(int(row) for row in np.searchsorted(offsets, marks[1:])), len(offsets) - 1})


@dataclass(frozen=True, slots=True, kw_only=True)
class Filling:
    """What pieces are poured into; mutable until the last one. `sums` are per row in table order, NaN: no event."""

    gaps_us: NDArray[np.int32]
    weights: NDArray[np.float32] | None
    edges: Ints
    tokens: Floats
    first_answer: Floats
    sums: dict[str, Floats]

    @classmethod
    def of(cls, rows: pd.DataFrame, order: Ints, *, weighted: bool) -> "Filling":
        """Empty arrays of the right size for these rows (columns events, tokens, first_answer)."""
        later = np.maximum(rows["events"].to_numpy()[order] - 1, 0)
        edges = np.concatenate([[0], np.cumsum(later)]).astype(np.int64)
        names = ("wait_us", "span_us", "answer_us", "worst_us", "stated", "first_tokens")
        return cls(
            gaps_us=np.empty(edges[-1], dtype=np.int32),
            weights=np.empty(edges[-1], dtype=np.float32) if weighted else None,
            edges=edges,
            tokens=rows["tokens"].to_numpy(dtype=np.float64),
            first_answer=rows["first_answer"].to_numpy(dtype=np.float64),
            sums={name: np.full(len(rows), np.nan) for name in names},
        )

    def put(self, piece: Piece, place: Ints) -> None:
        """Pours one piece in; `place` is the final row of each row of the table."""
        some = np.flatnonzero(piece.events > 0)
        if not len(some):
            return
        firsts = piece.starts[some]
        self._put_sums(piece, some, firsts)
        later = np.ones(len(piece.gaps_us), dtype=bool)
        later[firsts] = False
        gaps, count = piece.gaps_us[later], np.maximum(piece.events - 1, 0)
        self._put_worst(piece.first_row, gaps, count)
        target = _runs(self.edges[place[piece.rows]], count)
        self.gaps_us[target] = gaps
        if self.weights is not None:
            self.weights[target] = self._weights(piece, later, count)

    def _put_sums(self, piece: Piece, some: Ints, firsts: Ints) -> None:
        upto, row = np.cumsum(piece.gaps_us, dtype=np.int64), piece.first_row + some
        self.sums["wait_us"][row] = piece.gaps_us[firsts]
        self.sums["span_us"][row] = upto[firsts + piece.events[some] - 1] - upto[firsts]
        self.sums["first_tokens"][row] = 1.0
        answers = self.first_answer[row]
        known = (answers >= 0) & (answers < piece.events[some])
        answer = firsts[known] + answers[known].astype(np.int64)
        self.sums["answer_us"][row[known]] = upto[answer] - upto[firsts[known]]

    def _put_worst(self, first_row: int, gaps: NDArray[np.int32], count: Ints) -> None:
        some = np.flatnonzero(count > 0)
        if len(some):
            starts = (np.cumsum(count) - count)[some]
            self.sums["worst_us"][first_row + some] = np.maximum.reduceat(gaps, starts)

    def _weights(self, piece: Piece, later: Flags, count: Ints) -> Floats:
        """Tokens of each later event: as stated, else k̄ of `metrics.tokens_per_event`; notes Σ k and k_1 if stated."""
        tokens = self.tokens[piece.rows]
        known = (count > 0) & (tokens > 1)
        weights = np.repeat(np.divide(tokens - 1, count, out=np.ones(len(count)), where=known), count)
        stated = np.asarray(pc.is_valid(piece.k)) & (piece.events > 0)
        if stated.any():
            k = pc.list_flatten(piece.k.filter(pa.array(stated))).to_numpy()
            weights[np.repeat(stated, count)] = k[later[np.repeat(stated, piece.events)]]
            self._put_stated(piece.first_row + np.flatnonzero(stated), piece.events[stated], k)
        return weights

    def _put_stated(self, rows: Ints, events: Ints, k: NDArray[np.int32]) -> None:
        firsts = np.cumsum(events) - events
        self.sums["stated"][rows] = np.add.reduceat(k, firsts, dtype=np.int64)
        self.sums["first_tokens"][rows] = k[firsts]


def _runs(first: Ints, count: Ints) -> Ints:
    """first[i], first[i] + 1, … count[i] of them, for every i in turn."""
    places: Ints = np.arange(int(count.sum())) + np.repeat(first - (np.cumsum(count) - count), count)
    return places
