"""The progress line's numbers, from batches of the record log."""

from array import array

import pytest

from harness.model import Outcome, Phase, Record, Stage, Timeline
from harness.record.log import Batch, Recorder
from harness.run.live import Buckets, Live

MS = 1_000_000
STAGE = Stage(level=3, load=2, warmup_at_ns=0, hold_at_ns=0, end_at_ns=9_000 * MS, drained_by_ns=9_000 * MS)


def record(request_id: int, *, level: int = 3, outcome: Outcome = Outcome.OK, due_ms: int = 0) -> Record:
    start_ns = (due_ms + 1) * MS
    stamps = array("q", [start_ns + (50 + 20 * n) * MS for n in range(10)])
    return Record(
        request_id=request_id, worker=0, slot=0, level=level, phase=Phase.HOLD, request_class="default",
        due_ns=due_ms * MS, start_ns=start_ns, end_ns=stamps[-1], outcome=outcome, timeline=Timeline(at_ns=stamps),
    )  # fmt: skip


def seen(loop: str, *records: Record) -> Live:
    live = Live(STAGE, loop)  # type: ignore[arg-type]
    batches: list[Batch] = []
    recorder = Recorder(0, batches.append)
    for one in records:
        recorder.put(one)
    recorder.flush()
    for batch in batches:
        live.saw(batch)
    return live


def test_only_ok_records_of_the_level_reach_the_latencies() -> None:
    live = seen("closed", record(1), record(2, due_ms=770), record(3, level=2), record(4, outcome=Outcome.RESET))
    assert (live.ended, live.failed, live.tokens) == (3, 1, 20)
    assert live.ttft.quantile_ms(0.99) == pytest.approx(50, rel=0.01)
    assert live.gaps.quantile_ms(0.99) == pytest.approx(20, rel=0.01)
    assert live.tokens_per_s == pytest.approx(20 / 1.001, rel=0.001)


def test_the_open_loop_counts_from_due() -> None:
    assert seen("open", record(1)).ttft.quantile_ms(0.5) == pytest.approx(51, rel=0.01)


def test_nothing_yet() -> None:
    live = seen("closed")
    assert live.ttft.quantile_ms(0.99) is None
    assert live.tokens_per_s == 0


def test_buckets_are_within_one_percent() -> None:
    import numpy as np

    buckets = Buckets()
    values = np.random.default_rng(1).lognormal(10, 1, 10_000).astype(np.int64)
    buckets.add(values)
    for share in (0.5, 0.9, 0.99):
        assert buckets.quantile_ms(share) == pytest.approx(np.quantile(values, share) / 1000, rel=0.015)
