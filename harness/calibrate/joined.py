"""Joins the record log of a level with what the emitter truly sent, request by request. No clock, no I/O."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from msgspec import Struct
from numpy.typing import NDArray

from harness.calibrate.rung import Compared, Times
from harness.clock import MS
from harness.engine.emitter import Beat, SentStream
from harness.model import Outcome, Phase, Stage

Stamps = NDArray[np.int64]
COLUMNS = ["request_id", "phase", "outcome", "start_ns", "gaps_us"]


class Arrived(NamedTuple):
    """One request as the log has it. Instants in ns on the wall clock."""

    request_id: int
    in_hold: bool
    """It was due in the hold."""
    ok: bool
    start_ns: int
    at_ns: Stamps
    """To the microsecond below: the log's own resolution."""


class Joined(Struct, frozen=True, kw_only=True):
    """The numbers of one level, side by side: equal length and order within a pair. Times in ns."""

    tokens: int
    """Events that arrived in the hold, of whatever request."""
    coalesced: float
    """Share of all events of the level."""
    failed: int
    ttft_reported: Stamps
    ttft_sent: Stamps
    gap_reported: Stamps
    gap_sent: Stamps
    late: Stamps
    """Sent − due, of every token compared."""

    @property
    def ttft(self) -> Compared | None:
        """None: no request of the hold was whole."""
        return compared(self.ttft_reported, self.ttft_sent)

    @property
    def gap(self) -> Compared | None:
        """None: no gap lies in the hold."""
        return compared(self.gap_reported, self.gap_sent)


def joined(records: pa.Table, sent: Mapping[str, SentStream], stage: Stage, beat: Beat) -> Joined:
    """`sent` by request key, see `keyed`. TTFT of requests due in the hold; gaps whose later token arrived in it.

    Compared are streams that ended ok and of which both ends tell the same number of tokens. TTFT counts from the
    client's own start on both sides: as sent, it ends where the first token left.
    """
    arrived = list(_arrived(records))
    events = _concatenated([one.at_ns for one in arrived])
    pairs = [
        (one, truth)
        for one in arrived
        if one.ok and (truth := sent.get(str(one.request_id))) is not None and len(truth.sent_ns) == len(one.at_ns) > 0
    ]
    at_ns = _concatenated([one.at_ns for one, _ in pairs])
    sent_ns = _concatenated([np.frombuffer(truth.sent_ns, np.int64) for _, truth in pairs])
    is_later = np.ones(len(at_ns), np.bool_)  # than another token of its stream
    is_later[np.cumsum([0, *(len(one.at_ns) for one, _ in pairs)])[:-1]] = False
    wanted = (is_later & _in_hold(at_ns, stage))[1:]
    return Joined(
        tokens=int(_in_hold(events, stage).sum()),
        coalesced=int(np.sum(records["coalesced"].to_numpy())) / max(len(events), 1),
        failed=sum(outcome != Outcome.OK for outcome in records["outcome"].to_pylist()),
        ttft_reported=_stamps(one.at_ns[0] - one.start_ns for one, _ in pairs if one.in_hold),
        ttft_sent=_stamps(truth.sent_ns[0] - one.start_ns for one, truth in pairs if one.in_hold),
        gap_reported=np.diff(at_ns)[wanted],
        gap_sent=np.diff(sent_ns)[wanted],
        late=_concatenated([late_ns(truth, beat) for _, truth in pairs]),
    )


def keyed(streams: Iterable[SentStream], run_id: str) -> dict[str, SentStream]:
    """Streams of this run by the number of their request; of one sent twice, the later."""
    prefix = f"{run_id}-"
    return {stream.key.removeprefix(prefix): stream for stream in streams if stream.key.startswith(prefix)}


def late_ns(stream: SentStream, beat: Beat) -> Stamps:
    """Sent − due of each token: token k is due at request + first + k · gap."""
    sent_ns = np.frombuffer(stream.sent_ns, np.int64)
    due_ns = stream.request_at_ns + round(beat.first_ms * MS) + np.arange(len(sent_ns)) * round(beat.gap_ms * MS)
    return sent_ns - due_ns


def times(values_ns: Stamps) -> Times:
    """P50 and P99 of at least one value."""
    p50, p99 = np.percentile(values_ns, [50, 99]) / MS
    return Times(p50_ms=float(p50), p99_ms=float(p99))


def compared(reported_ns: Stamps, sent_ns: Stamps) -> Compared | None:
    """Quantiles of both sides, each on its own; None when there is nothing."""
    return Compared(reported=times(reported_ns), sent=times(sent_ns)) if len(sent_ns) else None


def _arrived(records: pa.Table) -> Iterator[Arrived]:
    for batch in records.select(COLUMNS).to_batches():
        columns = (batch.column(name).to_pylist() for name in COLUMNS[:4])
        offsets = batch.column("gaps_us").offsets.to_numpy()
        gaps_us = batch.column("gaps_us").values.to_numpy()
        for request_id, phase, outcome, start_ns, (begin, end) in zip(*columns, pairwise(offsets), strict=True):
            if start_ns is not None:
                at_ns = start_ns + np.cumsum(gaps_us[begin:end], dtype=np.int64) * 1000
                yield Arrived(request_id, phase == Phase.HOLD, outcome == Outcome.OK, start_ns, at_ns)


def _in_hold(at_ns: Stamps, stage: Stage) -> NDArray[np.bool_]:
    return (at_ns >= stage.hold_at_ns) & (at_ns < stage.end_at_ns)


def _concatenated(parts: Sequence[Stamps]) -> Stamps:
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _stamps(values_ns: Iterable[int]) -> Stamps:
    return np.fromiter(values_ns, np.int64)
