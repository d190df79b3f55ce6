"""Looking at a server again and again: what is kept, what is said, what stops it; and the log it ends in."""

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from harness import scrape
from harness.clock import S
from harness.record.columns import SERVER
from harness.record.log import LogError, Recorder, RunLog, Vitals, claimed, read_server, stored_batches
from harness.record.vitals import TOLD
from harness.scrape.look import Answer, Trouble, vitals
from harness.scrape.watch import FLUSH_S, Kept, watch

T0_NS = 1_760_000_000_123_456_789
URL = "http://engine:8000/metrics"
PAGE = 'vllm:num_requests_running{engine="0"} 3\nvllm:kv_cache_usage_perc 0.5\n'
GOLDEN = Path(__file__).parent.parent / "golden" / "metrics"
AWAY = Trouble(text="no answer", final=False)


def seen(second: float, running: float = 1.0) -> Vitals:
    return Vitals(at_ns=T0_NS + int(second * S), server="engine:8000", running=running)


def answer(status: int = 200, text: str = PAGE, content_type: str = "text/plain; version=0.0.4") -> Answer:
    return Answer(url=URL, server="engine:8000", status=status, at_ns=T0_NS, text=text, content_type=content_type)


def watched(directory: Path, looks: Sequence[Vitals | Trouble]) -> list[str]:
    """What is said while these come one after the other."""
    said: list[str] = []
    upcoming = iter(looks)
    watch(lambda: next(upcoming), (None for _ in looks), Kept(directory), said.append)
    return said


# --- an answer --------------------------------------------------------------------------------------------------------


def test_a_page_becomes_vitals_stamped_at_its_receipt() -> None:
    expected = Vitals(at_ns=T0_NS, level=-1, server="engine:8000", running=3.0, kv_usage=0.5)
    assert vitals(answer()) == expected


@pytest.mark.parametrize("status", [401, 403, 404, 405, 410, 501, 301, 307, 400])
def test_refusals_are_final(status: int) -> None:
    trouble = vitals(answer(status))
    assert isinstance(trouble, Trouble)
    assert trouble.final
    assert trouble.text.startswith(f"{URL}: answered {status}")
    assert "goes on without" in trouble.text


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_a_busy_server_may_answer_later(status: int) -> None:
    trouble = vitals(answer(status))
    assert isinstance(trouble, Trouble)
    assert not trouble.final
    assert str(status) in trouble.text


def test_remedies_are_told() -> None:
    texts = {status: getattr(vitals(answer(status)), "text", "") for status in (401, 404)}
    assert "--api-key-env" in texts[401]
    assert "--metrics" in texts[404]
    moved = Answer(url=URL, server="e", status=307, at_ns=0, location="/metrics/")
    assert "'/metrics/'" in getattr(vitals(moved), "text", "")


@pytest.mark.parametrize("kind", ["application/json", "text/html; charset=utf-8", "Application/JSON"])
def test_another_kind_of_page_is_the_wrong_address(kind: str) -> None:
    trouble = vitals(answer(text="[]", content_type=kind))
    assert isinstance(trouble, Trouble)
    assert trouble.final
    assert "/prometheus/metrics" in trouble.text


@pytest.mark.parametrize("text", ["up 1\n", "", "vllm:num_requests_running x\n"])
def test_a_page_that_tells_nothing_may_tell_more_later(text: str) -> None:
    trouble = vitals(answer(text=text, content_type=""))
    assert isinstance(trouble, Trouble)
    assert not trouble.final
    assert "\n" not in trouble.text


def test_a_real_server_without_metrics() -> None:
    head, _, body = (GOLDEN / "transformers-serve.bin").read_bytes().partition(b"\r\n\r\n")
    status = int(head.split()[1])
    trouble = vitals(answer(status, body.decode(), "application/json"))
    assert isinstance(trouble, Trouble)
    assert trouble.final


# --- watching ---------------------------------------------------------------------------------------------------------


def test_what_is_seen_is_kept_in_order(tmp_path: Path) -> None:
    assert watched(tmp_path, [seen(0, 1), seen(1, 2), seen(9, 3), AWAY]) == ["no answer"]
    table = read_server(tmp_path)
    assert table["running"].to_pylist() == [1, 2, 3]
    assert table["at_ns"].to_pylist() == [T0_NS, T0_NS + S, T0_NS + 9 * S]
    assert table["waiting"].to_pylist() == [None, None, None]
    assert table["level"].to_pylist() == [-1, -1, -1]


def test_trouble_is_said_once_and_a_final_one_ends_it(tmp_path: Path) -> None:
    final = Trouble(text="no such page", final=True)
    assert watched(tmp_path, [AWAY, seen(0), AWAY, AWAY, final, AWAY]) == ["no answer", "no such page"]
    assert read_server(tmp_path).num_rows == 1


def test_a_server_that_tells_nothing_leaves_no_file(tmp_path: Path) -> None:
    watched(tmp_path, [AWAY, AWAY])
    assert list(tmp_path.iterdir()) == []
    assert read_server(tmp_path).num_rows == 0


def test_it_is_written_after_a_while_and_when_the_server_goes_away(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.look(seen(0))
    kept.look(seen(FLUSH_S - 0.1))
    assert read_server(tmp_path).num_rows == 0
    kept.look(seen(FLUSH_S))
    assert read_server(tmp_path).num_rows == 3
    kept.look(seen(FLUSH_S + 1))
    assert read_server(tmp_path).num_rows == 3
    kept.flush()
    assert read_server(tmp_path).num_rows == 4


def test_a_disk_that_is_full_for_a_while_costs_nothing(tmp_path: Path) -> None:
    """The directory is not there, so the file cannot be made; then it is."""
    place = tmp_path / "run"
    kept, said = Kept(place), []
    place.rmdir()

    def looks() -> Iterator[Vitals | Trouble]:
        yield from (AWAY, seen(0), AWAY)
        place.mkdir()
        yield from (seen(1), AWAY)

    upcoming = looks()
    watch(lambda: next(upcoming), [None] * 5, kept, said.append)
    assert [text.partition(":")[0] for text in said] == ["no answer", "server metrics cannot be written"]
    assert read_server(place)["at_ns"].to_pylist() == [T0_NS, T0_NS + S]


# --- the log ----------------------------------------------------------------------------------------------------------


def test_everything_told_comes_back(tmp_path: Path) -> None:
    values = {name: float(index) for index, name in enumerate(TOLD)}
    full = Vitals(at_ns=1, level=2, server="engine:8000", **values)
    log = RunLog(tmp_path)
    recorder = Recorder(0, log.append)
    recorder.look(full)
    recorder.flush()
    log.close()
    assert [Vitals(**row) for row in read_server(tmp_path).to_pylist()] == [full]


def test_a_torn_tail_costs_the_last_message_only(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    for second in range(3):
        kept.look(seen(second))
        kept.flush()
    path = tmp_path / "server-0.arrows"
    os.truncate(path, path.stat().st_size - 1)
    assert read_server(tmp_path).num_rows == 2


def test_one_that_starts_again_does_not_write_into_the_same_file(tmp_path: Path) -> None:
    for second in range(3):
        kept = Kept(tmp_path)
        kept.look(seen(second))
        kept.flush()
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"server-{number}.arrows" for number in range(3)]
    assert read_server(tmp_path)["at_ns"].to_pylist() == [T0_NS, T0_NS + S, T0_NS + 2 * S]
    assert claimed(tmp_path, "server") == 3
    assert claimed(tmp_path, "records") == 0
    assert read_server(tmp_path).num_rows == 3, "an empty file is one of which nothing is known yet"


def test_it_is_a_log_like_the_others(tmp_path: Path) -> None:
    watched(tmp_path, [seen(0), AWAY])
    with pa.OSFile(str(tmp_path / "server-0.arrows")) as file:
        assert pa.ipc.open_stream(file).schema == SERVER
    assert [(batch.kind, batch.worker, batch.seq, batch.rows) for batch in stored_batches(tmp_path)] == [
        ("server", 0, 0, 1)
    ]
    (tmp_path / "server-x.arrows").write_bytes(b"")
    with pytest.raises(LogError, match=r"server-x\.arrows: not a file of this log"):
        read_server(tmp_path)


# --- the command ------------------------------------------------------------------------------------------------------


def test_the_command_says_what_was_asked_for() -> None:
    start = [sys.executable, "-m", "harness.scrape", "--url", URL, "--out", "run"]
    assert scrape.command(URL, Path("run")) == [*start, "--every", "1.0"]
    options = scrape.Options(every_s=0.5, api_key_env="KEY", ca_file="ca.pem", verify_tls=False)
    told = ["--every", "0.5", "--api-key-env", "KEY", "--ca-file", "ca.pem", "--no-verify-tls"]
    assert scrape.command(URL, Path("run"), options) == [*start, *told]
