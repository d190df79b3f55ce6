"""Records to one `second` point per class, level and second of wall time: an accumulator. No clock, no I/O.

A request is known when it has ended, and then adds to every second it lived through, so a point may change for as long
as requests of its second are under way. What comes out does not depend on the portions that went in. Quantiles are
those of `buckets.Sketch`, within 1.6 %; no single value is kept.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from harness import metrics
from harness.analysis.flat import Floats
from harness.analysis.frame import Frame
from harness.clock import MS, US, S
from harness.export.buckets import Ints
from harness.export.cells import MICRO, OPTIONAL, SCALES, SECOND_BITS, SUMS, Cells
from harness.export.lines import Tag, lines, tag_value
from harness.export.measured import Measured, measured
from harness.model import RunHeader, Stage
from harness.schema import FAILURES, SECOND

PIECE_EVENTS = 1 << 20
"""Token events at a time: temporary arrays stay at some tens of MB."""


class Seconds:
    """All seconds of a run so far: 1.3 KB and two sketches each, however many tokens they had. Mutable."""

    def __init__(self, header: RunHeader) -> None:
        self._header = header
        self._cells = Cells()
        self._stages: dict[int, Stage] = {}
        self._endless: dict[int, list[tuple[Ints, Ints]]] = {}
        """By level, groups and begins of requests that have no end: they are in flight until the drain is over."""

    def __len__(self) -> int:
        """Points of the run so far."""
        return len(self._cells)

    def add(self, table: pa.Table) -> None:
        """Take rows that stand, with the columns of `record.columns.RECORDS`; none of them twice. What has token events
        has a start."""
        if not table.num_rows:
            return
        batch = _Batch(measured(self._header, table), self._header.scenario.load.loop)
        classes = tag_value(batch.of.logged["request_class"].combine_chunks())  # those that share a tag share a point
        groups = self._cells.groups(batch.levels, classes)
        self._add_requests(batch, groups)
        self._add_firsts(batch, groups)
        for rows in _portions(batch.of.frame):
            self._add_later(batch, groups, rows)
        self._cells.cover(groups, "in_flight", batch.begin_ns, batch.end_ns)
        self._cells.cover(groups, "running", batch.first_ns, batch.last_ns)
        self._add_endless(batch, groups)

    def lines(self, stages: Sequence[Stage] = ()) -> pa.Array:
        """A line for each second that changed since the last call. `stages`: those known by now, for their load."""
        for stage in stages:
            self._see(stage)
        cells = self._cells.changed()
        levels, classes, starts_ns = self._cells.places(cells)
        tags: dict[str, Tag] = {"run": self._header.run_id, "scenario": self._header.scenario.name}
        tags |= {"class": pa.array(classes, pa.string()), "level": pa.array(levels)}
        values = self._totals(cells) | self._quantiles(cells) | self._planned(levels)
        return lines(SECOND, tags, values, pa.array(starts_ns))

    # --- what comes out -----------------------------------------------------------------------------------------------

    def _totals(self, cells: Ints) -> dict[str, pa.Array]:
        found = {}
        for name in SUMS:
            total = self._cells.totals(cells, name)
            if name in SCALES:
                found[name] = pa.array(total / SCALES[name])
            elif name not in OPTIONAL:
                found[name] = pa.array(total)
            elif total.any():
                found[name] = pa.array(total, mask=total == 0)
        return found

    def _quantiles(self, cells: Ints) -> dict[str, pa.Array]:
        found = {}
        for metric in ("ttft", "itl"):
            for name, share in (("p50", 0.5), ("p99", 0.99)):
                us = pa.array(self._cells.quantile_us(cells, metric, share), pa.float64())
                found[f"{metric}_{name}_ms"] = pa.compute.divide(us, MS / US)
        return found

    def _planned(self, levels: Ints) -> dict[str, pa.Array]:
        """The load of each level, where known, and the latency limits of the SLO."""
        stages = [self._stages.get(level) for level in levels.tolist()]
        found = {"load": pa.array([None if stage is None else stage.load for stage in stages], pa.float64())}
        for limit in metrics.limits(self._header.scenario.slo):
            found[f"slo_{limit.name}"] = pa.array(np.full(len(levels), float(limit.ms)))
        return found

    # --- what goes in -------------------------------------------------------------------------------------------------

    def _add_requests(self, batch: "_Batch", groups: Ints) -> None:
        """How each ended, at its end or, where it has none, when it was due. What was not streamed came at the end."""
        count, of = self._cells.count, batch.of
        count(self._cells.at(groups, batch.due_ns), "due")
        cells = self._cells.at(groups, np.where(batch.end_ns < 0, batch.due_ns, batch.end_ns))
        for name, flags in (("ok", of.ok), ("failed", ~of.ok), ("good", of.good)):
            count(cells[flags], name)
        outcomes = of.frame.rows["outcome"].to_numpy()
        for name in FAILURES:
            count(cells[outcomes == name], f"outcome_{name}")
        whole = (of.frame.rows["events"].to_numpy() == 0) & (batch.end_ns >= 0)
        count(cells[whole], "tokens", _micro(of.frame.rows["tokens"].to_numpy()[whole]))

    def _add_firsts(self, batch: "_Batch", groups: Ints) -> None:
        """The first token event of each request: its tokens, and TTFT."""
        some = batch.first_ns >= 0
        cells = self._cells.at(groups[some], batch.first_ns[some])
        self._cells.count(cells, "events")
        self._cells.count(cells, "tokens", _micro(batch.of.frame.rows["first_tokens"].to_numpy()[some]))
        ttft_ms, ok = batch.of.ms["ttft_ms"][some], batch.of.ok[some]
        ttft_ns = np.rint(ttft_ms[ok] * MS).astype(np.int64)
        self._cells.tally(cells[ok], "ttft", -(-ttft_ns // US))
        self._cells.sketch(cells[ok], "ttft", (ttft_ns / US).astype(np.float32))

    def _add_later(self, batch: "_Batch", groups: Ints, rows: slice) -> None:
        """Every other token event of these rows. Those of one request and second follow each other, so that what they
        have in common is found once for a run of them."""
        gaps_us, weights = batch.of.frame.gaps_of(rows.start, rows.stop)
        count = np.diff(batch.of.frame.edges[rows.start : rows.stop + 1])
        at_ns = _arrivals_ns(batch.first_ns[rows], gaps_us, count)
        row = np.repeat(np.arange(rows.start, rows.stop), count)
        starts = np.flatnonzero(np.diff((row << SECOND_BITS) + at_ns // S, prepend=-1))
        cells = self._cells.at(groups[row[starts]], at_ns[starts])
        lengths = np.diff(starts, append=len(at_ns))
        self._cells.count(cells, "events", lengths)
        tokens = lengths * MICRO if weights is None else np.add.reduceat(_micro(weights), starts)
        self._cells.count(cells, "tokens", tokens)
        ok = batch.of.ok[row]
        self._add_gaps(np.repeat(cells, lengths)[ok], gaps_us[ok], None if weights is None else weights[ok])

    def _add_gaps(self, cells: Ints, gaps_us: NDArray[np.int32], weights: NDArray[np.float32] | None) -> None:
        self._cells.tally(cells, "gap", gaps_us)
        if weights is None:
            self._cells.sketch(cells, "itl", gaps_us.astype(np.float32))
            return
        some = weights > 0
        itl_us = metrics.itl(gaps_us[some].astype(np.float64), weights[some].astype(np.float64))
        self._cells.sketch(cells[some], "itl", itl_us.astype(np.float32), _micro(weights[some]))

    def _add_endless(self, batch: "_Batch", groups: Ints) -> None:
        endless = (batch.end_ns < 0) & (batch.begin_ns >= 0)
        for level in np.unique(batch.levels[endless]).tolist():
            here = endless & (batch.levels == level)
            self._endless.setdefault(level, []).append((groups[here], batch.begin_ns[here]))

    def _see(self, stage: Stage) -> None:
        """Its seconds get their load, and what has no end is in flight until its drain was over."""
        if self._stages.get(stage.level) != stage:
            self._stages[stage.level] = stage
            self._cells.touch(stage.level)
        for groups, begin_ns in self._endless.pop(stage.level, []):
            self._cells.cover(groups, "in_flight", begin_ns, np.full(len(begin_ns), stage.drained_by_ns))


class _Batch:
    """Some requests and the instants of their lives on the wall clock, in ns; -1 is what did not happen."""

    def __init__(self, of: Measured, loop: metrics.Loop) -> None:
        rows = of.frame.rows
        self.of = of
        self.levels: Ints = rows["level"].to_numpy().astype(np.int64)
        self.due_ns: Ints = rows["due_ns"].to_numpy()
        start, first, last, end = (self._wall(rows[name].to_numpy()) for name in ("start", "first", "last", "end"))
        self.begin_ns = self.due_ns if loop == "open" else start
        self.first_ns, self.last_ns, self.end_ns = first, last, end

    def _wall(self, since_due_ns: Floats) -> Ints:
        happened = ~np.isnan(since_due_ns)
        return np.where(happened, self.due_ns + np.where(happened, since_due_ns, 0).astype(np.int64), -1)


def _portions(frame: Frame) -> Iterator[slice]:
    """Rows that have about PIECE_EVENTS gaps together, and some."""
    marks = np.arange(PIECE_EVENTS, frame.edges[-1], PIECE_EVENTS)
    cuts = {0, *np.searchsorted(frame.edges, marks).tolist(), len(frame.edges) - 1}
    return (slice(a, b) for a, b in pairwise(sorted(cuts)) if frame.edges[a] < frame.edges[b])


def _arrivals_ns(first_ns: Ints, gaps_us: NDArray[np.int32], count: Ints) -> Ints:
    """When each later token event of some requests arrived, on the wall clock."""
    upto_us = np.cumsum(gaps_us, dtype=np.int64)
    before_us = np.concatenate(([0], upto_us))[np.cumsum(count) - count]
    at_ns: Ints = upto_us * US + np.repeat(first_ns - before_us * US, count)
    return at_ns


def _micro(tokens: Floats | NDArray[np.float32]) -> Ints:
    return np.rint(tokens.astype(np.float64) * MICRO).astype(np.int64)
