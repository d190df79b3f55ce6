"""Following the log: every row once, whatever the moments at which one looks, and from any former position on."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_record_log import arrival, batches_of, ended, ids, write

from harness.model import OPEN
from harness.record import tail as tails
from harness.record.log import LogError, Recorder, RunLog, lost_records, read_records
from harness.record.tail import Tail


def rest(tail: Tail) -> Iterator[int]:
    """Ids of all that is there now."""
    while (rows := tail.more()) is not None:
        yield from rows["request_id"].to_pylist()


def log_bytes(directory: Path) -> bytes:
    return (directory / "records-0.arrows").read_bytes()


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(0, 3000), max_size=8))
def test_a_file_that_grows_by_any_bytes_gives_each_row_once_and_in_order(cuts: list[int]) -> None:
    with TemporaryDirectory() as place:
        whole, growing = Path(place) / "whole", Path(place) / "growing"
        write(whole, batches_of([[ended(1), ended(2)], [ended(3)], [ended(4), ended(5), ended(6)]]))
        data = log_bytes(whole)
        growing.mkdir()
        tail, seen = Tail(growing, "records"), list[int]()
        for length in [*sorted(cuts), len(data)]:
            (growing / "records-0.arrows").write_bytes(data[:length])
            seen += rest(tail)
        assert seen == [1, 2, 3, 4, 5, 6]
        assert tail.position == {"records-0.arrows": len(data)}
        assert tail.unread_bytes == 0


def test_a_former_position_is_gone_on_from_and_gone_up_to(tmp_path: Path) -> None:
    batches = batches_of([[ended(1)], [ended(2)], [ended(3)]])
    write(tmp_path, batches[:2])
    first = Tail(tmp_path, "records")
    assert list(rest(first)) == [1, 2]
    position = dict(first.position)
    write(tmp_path, batches)
    assert list(rest(Tail(tmp_path, "records", position))) == [3]

    before = Tail(tmp_path, "records")
    rows = before.more(position)
    assert rows is not None
    assert rows["request_id"].to_pylist() == [1, 2]
    assert before.position == position
    assert before.more(position) is None


def test_a_long_log_comes_in_portions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, batches_of([[ended(each)] for each in range(9)]))
    monkeypatch.setattr(tails, "PORTION_BYTES", 3000)
    tail = Tail(tmp_path, "records")
    portions = list(itertools.takewhile(lambda rows: rows is not None, iter(tail.more, object())))
    assert len(portions) > 1
    assert [each for rows in portions for each in rows["request_id"].to_pylist()] == list(range(9))


def test_a_message_larger_than_a_portion_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, batches_of([[ended(each) for each in range(50)]]))
    monkeypatch.setattr(tails, "PORTION_BYTES", 100)
    assert list(rest(Tail(tmp_path, "records"))) == list(range(50))


def test_workers_are_followed_side_by_side(tmp_path: Path) -> None:
    for worker in (0, 1):
        write(tmp_path, batches_of([[ended(10 * worker)]], worker=worker))
    assert list(rest(Tail(tmp_path, "records"))) == [0, 10]


def test_nothing_yet_is_nothing(tmp_path: Path) -> None:
    tail = Tail(tmp_path, "records")
    assert tail.more() is None
    assert tail.unread_bytes == 0


def test_damage_is_said_with_its_place(tmp_path: Path) -> None:
    write(tmp_path, batches_of([[ended(1)]]))
    path = tmp_path / "records-0.arrows"
    size = path.stat().st_size
    path.write_bytes(path.read_bytes() + b"rubbish that is no message")
    with pytest.raises(LogError, match=f"damaged at byte {size}"):
        list(rest(Tail(tmp_path, "records")))


def test_lost_requests_are_those_without_an_end(tmp_path: Path) -> None:
    log = RunLog(tmp_path)
    recorder = Recorder(0, log.append)
    for each in (1, 2, 3):
        recorder.born(arrival(each))
    recorder.flush()
    recorder.put(ended(2))
    recorder.flush()
    log.close()
    assert sorted(ids(tmp_path)) == [1, 2, 3]
    lost = lost_records(tmp_path)
    assert sorted(lost["request_id"].to_pylist()) == [1, 3]
    assert set(lost["outcome"].to_pylist()) == {"censored"}
    rows = read_records(tmp_path)
    assert OPEN not in rows["outcome"].to_pylist()
