"""The record log: nothing lost, nothing twice, stamps exact to the microsecond, readable after any crash."""

import os
import resource
import subprocess
import sys
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from struct import pack
from tempfile import TemporaryDirectory
from threading import Event, Thread

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.model import Arrival, Health, Outcome, Phase, Record, RequestSpec, Timeline, Usage
from harness.record.columns import records_batch
from harness.record.log import (
    Batch,
    LogError,
    Recorder,
    RunLog,
    read_health,
    read_records,
    records_of,
    stored_batches,
)
from harness.record.messages import message_bytes
from harness.record.rows import LOST

T0_NS = 1_760_000_000_123_456_789
ROOT = Path(__file__).parents[2]


def arrival(request_id: int) -> Arrival:
    spec = RequestSpec(prompt="p", prompt_tokens=11, output_tokens=22, request_class="chat")
    return Arrival(request_id=request_id, due_ns=T0_NS + request_id, level=3, phase=Phase.HOLD, slot=7, spec=spec)


def ended(request_id: int, stamps_ns: Sequence[int] = (), **others: object) -> Record:
    fields: dict[str, object] = {
        "request_id": request_id,
        "worker": 0,
        "slot": 7,
        "level": 3,
        "phase": Phase.HOLD,
        "request_class": "chat",
        "due_ns": T0_NS + request_id,
        "start_ns": T0_NS + request_id + 40_000,
        "outcome": Outcome.OK,
        "timeline": Timeline(at_ns=array("q", stamps_ns)),
    }
    return Record(**(fields | others))


def beat(at_ns: int, worker: int = 0) -> Health:
    values = {name: index for index, name in enumerate(Health.__struct_fields__)}
    return Health(**(values | {"worker": worker, "at_ns": at_ns, "cpu": 0.25, "runnable": 0.125, "stolen": 0.0}))


def to_the_us(record: Record) -> Record:
    """What the log promises to give back: stamps floored to whole microseconds since the start (or the due time)."""
    origin_ns = record.due_ns if record.start_ns is None else record.start_ns
    stamps_ns = [origin_ns + (at_ns - origin_ns) // 1000 * 1000 for at_ns in record.timeline.at_ns]
    timeline = msgspec.structs.replace(record.timeline, at_ns=array("q", stamps_ns))
    return msgspec.structs.replace(record, timeline=timeline)


def batches_of(groups: Sequence[Sequence[Record]], worker: int = 0) -> list[Batch]:
    """One delivered batch for each group of records."""
    delivered: list[Batch] = []
    recorder = Recorder(worker, delivered.append)
    for group in groups:
        for record in group:
            recorder.put(record)
        recorder.flush()
    return delivered


def write(directory: Path, batches: Sequence[Batch]) -> None:
    log = RunLog(directory)
    for batch in batches:
        log.append(batch)
    log.close()


def ids(directory: Path) -> list[int]:
    found: list[int] = read_records(directory)["request_id"].to_pylist()
    return found


# --- what goes in comes out -------------------------------------------------------------------------------------------

counts = st.none() | st.integers(0, 2**31 - 1)
instants = st.none() | st.integers(T0_NS, T0_NS + 10**12)
texts = st.text(max_size=8)


@st.composite
def timelines(draw: st.DrawFn) -> Timeline:
    gaps_ns = draw(st.lists(st.integers(-3_000_000, 10**11), max_size=6))
    at_ns = array("q", [T0_NS + total for total in np.cumsum(gaps_ns, dtype=np.int64).tolist()])
    k = draw(st.none() | st.lists(st.integers(1, 9), min_size=len(at_ns), max_size=len(at_ns)))
    stated = None if k is None else array("q", k)
    return Timeline(at_ns=at_ns, k=stated, first_answer=draw(counts), coalesced=draw(st.integers(0, 99)))


usages = st.builds(Usage, prompt_tokens=counts, completion_tokens=counts, reasoning_tokens=counts, cached_tokens=counts)
records = st.builds(
    Record,
    request_id=st.integers(0, 2**50),
    worker=st.integers(0, 99),
    slot=st.integers(-1, 10**6),
    level=st.integers(0, 99),
    phase=st.sampled_from(Phase),
    request_class=texts,
    due_ns=st.integers(T0_NS - 10**9, T0_NS),
    start_ns=instants,
    headers_ns=instants,
    first_byte_ns=instants,
    end_ns=instants,
    connect_ns=st.none() | st.integers(0, 10**10),
    outcome=st.sampled_from(Outcome),
    detail=texts,
    status=st.none() | st.integers(100, 599),
    retried=st.booleans(),
    stamp_source=st.sampled_from(["kernel", "user", ""]),
    timeline=timelines(),
    finish_reason=texts,
    prompt_tokens_asked=st.integers(0, 10**6),
    output_tokens_asked=st.integers(0, 10**6),
    usage=usages,
    usage_source=st.sampled_from(["usage", "frames", ""]),
    response_bytes=st.integers(0, 2**40),
)
some_records = st.lists(records, max_size=5, unique_by=lambda record: record.request_id)


@settings(max_examples=25, deadline=None)
@given(some_records, st.integers(0, 5))
def test_every_field_comes_back_and_every_stamp_to_the_microsecond(group: list[Record], cut: int) -> None:
    with TemporaryDirectory() as place:
        write(Path(place), batches_of([group[:cut], group[cut:]]))
        assert list(records_of(read_records(place))) == [to_the_us(record) for record in group]


def test_a_long_stream_of_odd_gaps_does_not_drift(tmp_path: Path) -> None:
    stamps_ns = [T0_NS + 40_000 + j * 20_000_999 for j in range(5000)]
    write(tmp_path, batches_of([[ended(0, stamps_ns)]]))
    (back,) = records_of(read_records(tmp_path))
    late_ns = np.array(stamps_ns) - np.array(back.timeline.at_ns)
    assert 0 <= late_ns.min() <= late_ns.max() < 1000


def test_none_and_zero_stay_apart(tmp_path: Path) -> None:
    zero = Timeline(k=array("q"), first_answer=0)
    group = [ended(0, usage=Usage(cached_tokens=0), timeline=zero, connect_ns=0), ended(1, start_ns=None)]
    write(tmp_path, batches_of([group]))
    table = read_records(tmp_path)
    assert table["usage_cached_tokens"].to_pylist() == [0, None]
    assert table["connect_ns"].to_pylist() == [0, None]
    assert table["k"].to_pylist() == [[], None]
    assert table["first_answer"].to_pylist() == [0, None]


def test_absurd_values_of_a_server_cost_no_row(tmp_path: Path) -> None:
    usage = Usage(completion_tokens=10**20, prompt_tokens=-(10**20), cached_tokens=5)
    timeline = Timeline(at_ns=array("q", [T0_NS + 10**13]), k=array("q", [2**40]))
    absurd = ended(1, usage=usage, detail="half \ud83d", start_ns=T0_NS, timeline=timeline)
    write(tmp_path, batches_of([[ended(0), absurd]]))
    back = list(records_of(read_records(tmp_path)))[1]
    assert back.usage == Usage(completion_tokens=2**31 - 1, prompt_tokens=-(2**31), cached_tokens=5)
    assert back.detail == "half ?"
    assert list(back.timeline.at_ns) == [T0_NS + (2**31 - 1) * 1000]
    assert list(back.timeline.k or ()) == [2**31 - 1]


def test_health_comes_back(tmp_path: Path) -> None:
    delivered: list[Batch] = []
    for worker in (10, 2):
        recorder = Recorder(worker, delivered.append)
        recorder.beat(beat(1, worker))
        recorder.beat(beat(2, worker))
        recorder.flush()
    write(tmp_path, delivered)
    rows = read_health(tmp_path).to_pylist()
    assert [Health(**row) for row in rows] == [beat(1, 2), beat(2, 2), beat(1, 10), beat(2, 10)]


def test_files_are_plain_arrow_streams(tmp_path: Path) -> None:
    write(tmp_path, batches_of([[ended(0)], [ended(1)]], worker=4))
    with pa.OSFile(str(tmp_path / "records-4.arrows")) as file:
        assert pa.ipc.open_stream(file).read_all().equals(read_records(tmp_path))


def test_tokens_with_jitter_take_at_most_four_bytes_each(tmp_path: Path) -> None:
    noise = np.random.default_rng(1)
    gaps_ns = noise.normal(20_000_000, 1_000_000, (500, 200)).astype(np.int64)
    group = [ended(row, (T0_NS + np.cumsum(gaps)).tolist()) for row, gaps in enumerate(gaps_ns)]
    write(tmp_path, batches_of([group[at : at + 50] for at in range(0, 500, 50)]))
    assert (tmp_path / "records-0.arrows").stat().st_size / gaps_ns.size <= 4


# --- the ledger -------------------------------------------------------------------------------------------------------


def test_a_request_without_end_is_censored_with_what_is_known(tmp_path: Path) -> None:
    delivered: list[Batch] = []
    recorder = Recorder(0, delivered.append)
    recorder.born(arrival(5))
    recorder.sent(5, T0_NS + 100)
    recorder.born(arrival(6))
    recorder.flush()
    write(tmp_path, delivered)
    first, second = records_of(read_records(tmp_path))
    known = ended(5, start_ns=T0_NS + 100, outcome=Outcome.CENSORED, detail=LOST)
    known = msgspec.structs.replace(known, prompt_tokens_asked=11, output_tokens_asked=22)
    assert first == known
    assert (second.request_id, second.start_ns, second.outcome) == (6, None, Outcome.CENSORED)


def test_an_open_row_is_written_once_and_gives_way_to_the_final_one(tmp_path: Path) -> None:
    delivered: list[Batch] = []
    recorder = Recorder(0, delivered.append)
    for request_id in range(4):
        recorder.born(arrival(request_id))
    recorder.put(ended(2))
    for request_id in (3, 1, 0):
        recorder.flush()
        recorder.put(ended(request_id))
    recorder.flush()
    assert [batch.rows for batch in delivered] == [4, 1, 1, 1]
    write(tmp_path, delivered)
    assert ids(tmp_path) == [2, 3, 1, 0]
    assert set(read_records(tmp_path)["outcome"].to_pylist()) == {"ok"}


def test_the_final_row_wins_wherever_it_stands(tmp_path: Path) -> None:
    delivered: list[Batch] = []
    recorder = Recorder(0, delivered.append)
    recorder.born(arrival(1))
    recorder.flush()
    recorder.put(ended(1, detail="first"))
    recorder.flush()
    recorder.put(ended(1, detail="second"))
    recorder.flush()
    write(tmp_path, delivered[::-1])
    (record,) = records_of(read_records(tmp_path))
    assert (record.outcome, record.detail) == (Outcome.OK, "first")


def test_counts() -> None:
    recorder = Recorder(0, lambda batch: None)
    for request_id in range(3):
        recorder.born(arrival(request_id))
    recorder.put(ended(1))
    assert (recorder.due, recorder.ended, recorder.in_flight) == (3, 1, 2)
    recorder.flush()
    assert (recorder.due, recorder.ended, recorder.in_flight) == (3, 1, 2)


# --- delivery ---------------------------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from(["works", "refuses", "stores and then fails"]), max_size=12))
@settings(max_examples=25, deadline=None)
def test_a_failing_delivery_loses_nothing_and_repeats_nothing(ways: list[str]) -> None:
    with TemporaryDirectory() as place:
        log = RunLog(place)
        script = iter(ways)

        def deliver(batch: Batch) -> None:
            way = next(script, "works")
            if way != "refuses":
                log.append(batch)
            if way != "works":
                raise ConnectionError(way)

        recorder = Recorder(0, deliver)
        failures = 0
        for request_id in range(len(ways) + 1):
            recorder.put(ended(request_id))
            recorder.beat(beat(request_id))
            try:
                recorder.flush()
            except ConnectionError:
                failures += 1
        recorder.flush()
        log.close()
        assert failures == len(ways) - ways.count("works")
        assert ids(Path(place)) == list(range(len(ways) + 1))
        assert read_health(place)["at_ns"].to_pylist() == list(range(len(ways) + 1))


def test_a_batch_delivered_twice_is_stored_once_even_by_another_process(tmp_path: Path) -> None:
    batches = batches_of([[ended(0)], [ended(1)]])
    log = RunLog(tmp_path)
    for batch in (batches[1], batches[0], batches[1]):
        log.append(batch)
    log.close()
    size = (tmp_path / "records-0.arrows").stat().st_size
    write(tmp_path, batches)
    assert (tmp_path / "records-0.arrows").stat().st_size == size
    assert ids(tmp_path) == [1, 0]


def test_workers_do_not_share_sequence_numbers(tmp_path: Path) -> None:
    write(tmp_path, batches_of([[ended(0)]], worker=0) + batches_of([[ended(1)]], worker=1))
    assert ids(tmp_path) == [0, 1]


def test_nothing_is_lost_while_a_thread_flushes(tmp_path: Path) -> None:
    log = RunLog(tmp_path)
    recorder = Recorder(0, log.append)
    done = Event()

    def flush_on() -> None:
        while not done.is_set():
            recorder.flush()

    thread = Thread(target=flush_on)
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        thread.start()
        for request_id in range(5000):
            recorder.born(arrival(request_id))
            recorder.put(ended(request_id))
    finally:
        done.set()
        thread.join()
        sys.setswitchinterval(interval_s)
    recorder.flush()
    log.close()
    assert len(list(stored_batches(tmp_path))) > 1
    assert ids(tmp_path) == list(range(5000))
    assert set(read_records(tmp_path)["outcome"].to_pylist()) == {"ok"}


def test_two_flushes_never_overlap_and_never_wait() -> None:
    said: list[bool] = []

    def deliver(batch: Batch) -> None:
        said.append(recorder.flush())

    recorder = Recorder(0, deliver)
    recorder.put(ended(0))
    assert recorder.flush()
    assert said == [False]
    assert recorder.flush()


def test_a_spool_is_sent_again_and_removed(tmp_path: Path) -> None:
    spool, run = tmp_path / "spool", tmp_path / "run"
    delivered = batches_of([[ended(0), ended(1)], [ended(2)]], worker=3)
    recorder = Recorder(3, delivered.append)
    recorder.beat(beat(1))
    recorder.flush()
    write(spool, delivered)
    write(run, delivered[:1])
    assert list(stored_batches(spool)) == delivered
    write(run, list(stored_batches(spool)))
    assert ids(run) == [0, 1, 2]
    RunLog(spool).remove()
    assert not spool.exists()


def test_removing_a_spool_leaves_other_files_alone(tmp_path: Path) -> None:
    write(tmp_path, batches_of([[ended(0)]]))
    (tmp_path / "header.json").write_text("{}")
    RunLog(tmp_path).remove()
    assert [path.name for path in tmp_path.iterdir()] == ["header.json"]


# --- crashes ----------------------------------------------------------------------------------------------------------


def whole_before(path: Path) -> list[int]:
    """Ends of the messages of a file."""
    data, ends = path.read_bytes(), [0]
    while ends[-1] < len(data):
        size = message_bytes(data, ends[-1])
        assert size is not None
        ends.append(ends[-1] + size)
    return ends


def test_torn_at_every_byte_all_whole_batches_remain(tmp_path: Path) -> None:
    log = RunLog(tmp_path)
    recorder = Recorder(0, log.append)
    for at_ns in range(2):
        recorder.beat(beat(at_ns))
        recorder.flush()
    log.close()
    path = tmp_path / "health-0.arrows"
    ends = whole_before(path)
    for size in range(path.stat().st_size, -1, -1):
        os.truncate(path, size)
        rows = max(0, sum(end <= size for end in ends[1:]) - 1)
        assert read_health(tmp_path)["at_ns"].to_pylist() == list(range(rows))


@pytest.mark.parametrize("message", [0, 1, 2])
@pytest.mark.parametrize("offset", [-1, 0, 1, 4, 7, 8, 9, 700])
def test_appending_goes_on_after_a_torn_tail(tmp_path: Path, message: int, offset: int) -> None:
    batches = batches_of([[ended(0)], [ended(1)], [ended(2)]])
    write(tmp_path, batches)
    path = tmp_path / "records-0.arrows"
    ends = whole_before(path)
    size = ends[message + 1] + offset
    os.truncate(path, size)
    before = sum(end <= size for end in ends[2:])
    assert ids(tmp_path) == list(range(before))
    write(tmp_path, batches[2:])
    assert ids(tmp_path) == [*range(before), 2]
    write(tmp_path, batches)
    assert sorted(ids(tmp_path)) == [0, 1, 2]


def test_a_full_disk_leaves_no_half_batch(tmp_path: Path) -> None:
    first, second = batches_of([[ended(0)], [ended(1)]])
    log = RunLog(tmp_path)
    log.append(first)
    size = (tmp_path / "records-0.arrows").stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, hard))
    try:
        with pytest.raises(OSError, match="no room for the batch"):
            log.append(second)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (tmp_path / "records-0.arrows").stat().st_size == size
    log.append(second)
    log.close()
    assert ids(tmp_path) == [0, 1]


CHILD = """
import sys, time
from harness.model import Arrival, Outcome, Phase, Record, RequestSpec
from harness.record.log import Recorder, RunLog
spec = RequestSpec(prompt="", prompt_tokens=1, output_tokens=1)
place = {"level": 0, "phase": Phase.HOLD, "slot": 0}
recorder = Recorder(0, RunLog(sys.argv[1]).append)
for turn in range(1000):
    recorder.born(Arrival(request_id=turn, due_ns=turn, spec=spec, **place))
    if turn >= 3:
        fields = {"request_id": turn - 3, "due_ns": turn - 3, "worker": 0, "request_class": "", "outcome": Outcome.OK}
        recorder.put(Record(**fields, **place))
    if turn % 2:
        recorder.flush()
        sys.stdout.write(f"{turn}\\n")
        sys.stdout.flush()
    time.sleep(0.05)
"""


def test_a_killed_process_loses_at_most_what_came_after_its_last_flush(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CHILD, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        flushed = -1
        while flushed < 7:
            flushed = int(child.stdout.readline())
        child.kill()
        flushed = max([flushed, *map(int, child.stdout.read().split())])
    outcomes = {record.request_id: record.outcome for record in records_of(read_records(tmp_path))}
    assert set(range(flushed + 1)) <= set(outcomes)
    assert len(outcomes) <= flushed + 3  # one more flush may have come through before its line did
    finals = [request_id for request_id, outcome in outcomes.items() if outcome is Outcome.OK]
    assert set(range(flushed - 2)) <= set(finals)
    assert set(outcomes.values()) == {Outcome.OK, Outcome.CENSORED}
    assert len(outcomes) - len(finals) == 3


# --- what is not a log ------------------------------------------------------------------------------------------------


def test_nothing_written_is_an_empty_table(tmp_path: Path) -> None:
    (tmp_path / "records-0.arrows").touch()
    assert read_records(tmp_path).num_rows == 0
    assert read_records(tmp_path).schema.names == records_batch([]).schema.names
    assert read_health(tmp_path).schema.names == list(Health.__struct_fields__)


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="nowhere: no such run directory"):
        read_records(tmp_path / "nowhere")


def complaint(directory: Path) -> str:
    """What reading says: "" where it gave a table."""
    try:
        read_records(directory)
    except LogError as error:
        return str(error)
    return ""


def plain_arrow(schema: pa.Schema) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as stream:
        stream.write_batch(pa.record_batch([[] for _ in schema], schema=schema))
    data: bytes = sink.getvalue().to_pybytes()
    return data


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"request_id,worker\n1,2\n", "not a record log: it begins with b'request_'"),
        (b"\xff\xff\xff\xff\xff\xff\xff\x7f", "not a record log: .* 2147483647 bytes of metadata"),
        (
            b"\xff\xff\xff\xff\x08\x00\x00\x00\xff\xff\xff\x7f\xff\xff\xff\xff",
            "metadata of an Arrow message are garbage",
        ),
        (b"\xff\xff\xff\xff" + pack("<IIHHHHHHiq", 28, 16, 12, 12, 0, 0, 0, 4, 12, -1), "a body of -1 bytes"),
        (plain_arrow(pa.schema([("a", pa.int64())])), "columns that differ: 'a', 'coalesced'"),
        (plain_arrow(records_batch([]).schema), "stream was ended there"),
        (plain_arrow(records_batch([]).schema)[:-8], "without a sequence number"),
    ],
)
def test_a_foreign_file_is_one_clear_line(tmp_path: Path, data: bytes, why: str) -> None:
    path = tmp_path / "records-0.arrows"
    path.write_bytes(data)
    with pytest.raises(LogError, match=why) as caught:
        read_records(tmp_path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(LogError):
        write(tmp_path, batches_of([[ended(0)]]))
    assert path.read_bytes() == data


def test_garbage_after_whole_batches_says_where(tmp_path: Path) -> None:
    batches = batches_of([[ended(0)], [ended(1)]])
    write(tmp_path, batches)
    path = tmp_path / "records-0.arrows"
    ends = whole_before(path)
    data = bytearray(path.read_bytes())
    data[ends[2] : ends[2] + 4] = b"\0\0\0\0"
    path.write_bytes(data)
    with pytest.raises(LogError, match=f"damaged at byte {ends[2]}: .*truncate -s {ends[2]}"):
        read_records(tmp_path)
    os.truncate(path, ends[2])
    assert ids(tmp_path) == [0]


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_a_flipped_byte_never_ends_in_anything_but_a_table_or_a_clear_line(data: st.DataObject) -> None:
    with TemporaryDirectory() as place:
        write(Path(place), batches_of([[ended(0, [T0_NS, T0_NS + 5_000_000])], [ended(1)]]))
        path = Path(place) / "records-0.arrows"
        spoilt = bytearray(path.read_bytes())
        spoilt[data.draw(st.integers(0, len(spoilt) - 1))] ^= data.draw(st.integers(1, 255))
        path.write_bytes(spoilt)
        said = complaint(Path(place))
        assert said == "" or (str(path) in said and "\n" not in said)


def test_a_file_of_another_name_is_pointed_out(tmp_path: Path) -> None:
    (tmp_path / "records-old.arrows").write_bytes(b"")
    with pytest.raises(LogError, match=r"records-old\.arrows: not a file of this log"):
        read_records(tmp_path)


@pytest.mark.parametrize("spoil", [lambda data: data[:-1], lambda data: data + b"\0", lambda data: b"x" + data])
def test_a_damaged_batch_never_reaches_a_file(tmp_path: Path, spoil: Callable[[bytes], bytes]) -> None:
    (batch,) = batches_of([[ended(0)]])
    log = RunLog(tmp_path)
    with pytest.raises(LogError, match="records batch 0 of worker 0: not one whole message"):
        log.append(msgspec.structs.replace(batch, data=spoil(batch.data)))
    assert list(tmp_path.iterdir()) == []
