"""A run that is also recorded in a real InfluxDB: whatever is killed, stopped or away, nothing is lost or doubled."""

import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
import servers
from command import COMMAND, LOCUST, balanced, begun, ended, environment, records, said, settings, soon, summary
from servers import Influxd

from harness.analysis.frame import Frame, frame_of
from harness.export.influx.database import Database
from harness.export.influx.target import Target
from harness.export.restored import restored
from harness.export.state import State
from harness.record.directory import read_header
from harness.record.facts import facts_of
from harness.record.log import read_health, read_server

pytestmark = pytest.mark.e2e

OUTAGE_S = 20.0
USERS = ("--users", "3", "--prompt-tokens", "8", "--output-tokens", "12")


@pytest.fixture(scope="module")
def influxd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Influxd]:
    with servers.influxd(tmp_path_factory.mktemp("influxd")) as server:
        yield server


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[Influxd]:
    with servers.influxd(tmp_path / "influxd") as server:
        yield server


def state_of(run: Path) -> State:
    """What the export of a run committed."""
    (path,) = run.glob("export-*.json")
    return msgspec.json.decode(path.read_bytes(), type=State)


def stored(influxd: Influxd, run: Path) -> dict[str, int]:
    """Points of a run, counted by the database."""
    database = Database(Target.parse(f"{influxd.url}/llm"))
    try:
        run_id = read_header(run).run_id
        names = ("request", "token", "second", "client", "engine", "event")
        return {name: database.count(name, run_id) or 0 for name in names}
    finally:
        database.close()


def sent(run: Path) -> dict[str, int]:
    """Points that the log says there must be; seconds and events are not counted by it."""
    rows = records(run)
    return {
        "request": len(rows),
        "token": sum(len(row["gaps_us"]) for row in rows),
        "client": len(read_health(run)),
        "engine": len(read_server(run)),
    }


def is_whole(influxd: Influxd, run: Path) -> None:
    """Everything that was sent is stored, once."""
    there, log = stored(influxd, run), sent(run)
    assert {name: there[name] for name in log} == log
    assert there["second"] >= 1
    assert there["event"] >= 2


def equal_frames(one: Frame, other: Frame) -> None:
    """To the last bit, though rows may have come in another order."""
    order = ["level", "due_ns", "request_id"]
    left, right = (frame.rows.assign(span=frame.edges[1:] - frame.edges[:-1]) for frame in (one, other))
    left, right = (rows.sort_values(order).reset_index(drop=True) for rows in (left, right))
    for rows in (left, right):
        rows[rows.select_dtypes("category").columns] = rows.select_dtypes("category").astype(str)
    assert left.equals(right[left.columns])
    assert sorted(one.gaps_us.tolist()) == sorted(other.gaps_us.tolist())


def recorded(host: str, influxd: Influxd, cwd: Path, **fields: Any) -> Any:
    url = f"{influxd.url}/llm"
    return said("run", "--host", host, *USERS, *settings(**fields), "--influx", url, "--out", "run", cwd=cwd)


def test_a_run_is_recorded_whole_and_read_back_the_same(host: str, influxd: Influxd, tmp_path: Path) -> None:
    done = recorded(host, influxd, tmp_path, load__levels=[2, 3])
    run, url = tmp_path / "run", f"{influxd.url}/llm"
    assert "confirmed by count, nothing pending" in done.stdout, done.stdout + done.stderr
    is_whole(influxd, run)
    state = state_of(run)
    assert state.confirmed == state.points

    again = said("push", "run", "--influx", url, cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert stored(influxd, run) == state.points, "pushing twice changes nothing"

    database = Database(Target.parse(url))
    found, log = restored(database, read_header(run).run_id), facts_of(run)
    assert (found.header, found.stages) == (log.header, log.stages)
    equal_frames(frame_of(log.records), frame_of(found.records))
    for kept, there in ((log.health, found.health), (log.server, found.server)):
        assert there.combine_chunks().equals(kept.sort_by("at_ns").combine_chunks())
    database.close()

    told = said("report", f"influx:{found.header.run_id}", "--influx", url, cwd=tmp_path)
    assert told.returncode == done.returncode
    there = summary(tmp_path / "runs" / f"{found.header.run_id}.influx")
    assert summary(run)["levels"] == there["levels"]


def test_an_open_loop_of_two_processes_is_recorded_whole(host: str, influxd: Influxd, tmp_path: Path) -> None:
    """Many requests at once, in lanes: no two points of theirs share a key."""
    asked = ("--rate", "40", "--output-tokens", "20", "--processes", "2", *settings(), "--influx", f"{influxd.url}/llm")
    done = said("run", "--host", host, *asked, "--out", "run", cwd=tmp_path)
    assert "confirmed by count" in done.stdout, done.stdout + done.stderr
    is_whole(influxd, tmp_path / "run")
    assert {row["worker"] for row in records(tmp_path / "run")} == {0, 1}


def test_locust_alone_records_where_the_environment_says(host: str, influxd: Influxd, tmp_path: Path) -> None:
    sets = [word if word != "-s" else "--set" for word in settings(load__levels=[2])]
    quiet = ["--headless", "--only-summary", "--scenario", "demo", "--host", host, "--run-dir", "run"]
    where = environment(TOKENSWARM_INFLUX_URL=f"{influxd.url}/llm")
    done = ended([*LOCUST, *quiet, *sets], tmp_path, where)
    assert "confirmed by count" in done.stderr
    is_whole(influxd, tmp_path / "run")


def test_fewer_token_points_where_fewer_are_asked_for(host: str, influxd: Influxd, tmp_path: Path) -> None:
    done = recorded(host, influxd, tmp_path, influx__token_points="sample=4")
    assert "confirmed by count" in done.stdout, done.stdout + done.stderr
    there, log = stored(influxd, tmp_path / "run"), sent(tmp_path / "run")
    assert there["request"] == log["request"]
    assert 0 < there["token"] < log["token"]
    told = said(
        "report", f"influx:{read_header(tmp_path / 'run').run_id}", "--influx", f"{influxd.url}/llm", cwd=tmp_path
    )
    assert told.returncode == 2
    assert "--token-points all" in told.stderr


def exporter_of(process: "Any") -> psutil.Process | None:
    """The exporter that a run under way has started."""
    for child in psutil.Process(process.pid).children(recursive=True):
        if "push" in child.cmdline():
            return child
    return None


def test_a_killed_exporter_costs_nothing(host: str, influxd: Influxd, tmp_path: Path) -> None:
    asked = [*COMMAND, "run", "--host", host, *USERS, *settings(phases__hold_s=4), "--out", "run"]
    run = tmp_path / "run"
    with begun([*asked, "--influx", f"{influxd.url}/llm"], tmp_path) as process:
        soon(lambda: list(run.glob("export-*.json")) and state_of(run).written.get("token"))
        exporter = exporter_of(process)
        assert exporter is not None
        exporter.kill()
        process.wait(30)
    assert "finish it with: tokenswarm push run" in (tmp_path / "stdout.txt").read_text()
    balanced(run)
    done = said("push", "run", "--influx", f"{influxd.url}/llm", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    is_whole(influxd, run)


def test_the_exporter_of_a_killed_run_finishes_alone(host: str, influxd: Influxd, tmp_path: Path) -> None:
    asked = [*COMMAND, "run", "--host", host, *USERS, *settings(phases__hold_s=30), "--out", "run"]
    run = tmp_path / "run"
    with begun([*asked, "--influx", f"{influxd.url}/llm"], tmp_path) as process:
        soon(lambda: list(run.glob("export-*.json")) and state_of(run).written.get("token"))
        (locust,) = psutil.Process(process.pid).children()
        exporter = exporter_of(process)
        assert exporter is not None
        locust.kill()
        process.wait(20)
        exporter.wait(20)
    assert state_of(run).done
    is_whole(influxd, run)
    assert {row["outcome"] for row in records(run)} == {"ok", "censored"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_is_recorded_whole(number: signal.Signals, host: str, influxd: Influxd, tmp_path: Path) -> None:
    asked = [*COMMAND, "run", "--host", host, *USERS, *settings(phases__hold_s=30), "--out", "run"]
    run = tmp_path / "run"
    with begun([*asked, "--influx", f"{influxd.url}/llm"], tmp_path) as process:
        soon(lambda: list(run.glob("export-*.json")) and state_of(run).written.get("token"))
        process.send_signal(number)
        assert process.wait(30) == 2
    assert "confirmed by count" in (tmp_path / "stdout.txt").read_text()
    is_whole(influxd, run)


def test_a_run_that_went_on_after_an_interruption_is_recorded_whole(host: str, mortal: Influxd, tmp_path: Path) -> None:
    levels = settings(load={"loop": "closed", "levels": [2, 3]}, phases={"warmup_s": 0.3, "hold_s": 1.5})
    asked = [*COMMAND, "run", "--host", host, *USERS, *levels, "--influx", f"{mortal.url}/llm", "--out", "run"]
    run = tmp_path / "run"
    with begun(asked, tmp_path) as process:
        soon(lambda: (run / "stages.jsonl").exists())
        process.terminate()
        assert process.wait(30) == 2
    done = said("resume", "run", cwd=tmp_path)
    assert "confirmed by count, nothing pending" in done.stdout, done.stdout + done.stderr
    assert [level["load"] for level in summary(run)["levels"]] == [2, 3]
    is_whole(mortal, run)
    database = Database(Target.parse(f"{mortal.url}/llm"))
    found, log = restored(database, read_header(run).run_id), facts_of(run)
    assert (found.header, found.stages) == (log.header, log.stages)
    equal_frames(frame_of(found.records), frame_of(log.records))


def test_a_database_that_is_down_costs_the_run_a_stated_time(host: str, mortal: Influxd, tmp_path: Path) -> None:
    mortal.stop()
    done = recorded(host, mortal, tmp_path, influx__wait_s=3.0)
    assert "finish it with: tokenswarm push run --influx" in done.stdout, done.stdout + done.stderr
    assert "onnection refused" in done.stdout
    balanced(tmp_path / "run")
    mortal.start()
    pushed = said("push", "run", "--influx", f"{mortal.url}/llm", cwd=tmp_path)
    assert pushed.returncode == 0, pushed.stdout + pushed.stderr
    is_whole(mortal, tmp_path / "run")


def test_a_database_killed_and_away_for_20_s_loses_nothing(host: str, mortal: Influxd, tmp_path: Path) -> None:
    asked = [*COMMAND, "run", "--host", host, *USERS, *settings(phases__hold_s=5), "--out", "run"]
    run = tmp_path / "run"
    with begun([*asked, "--influx", f"{mortal.url}/llm"], tmp_path) as process:
        soon(lambda: list(run.glob("export-*.json")) and state_of(run).written.get("token"))
        mortal.kill()
        killed = time.monotonic()
        soon(lambda: state_of(run).trouble)
        time.sleep(OUTAGE_S - (time.monotonic() - killed))
        mortal.start()
        process.wait(60)
    assert "confirmed by count" in (tmp_path / "stdout.txt").read_text()
    is_whole(mortal, run)


def test_a_database_that_lost_everything_is_filled_again(host: str, influxd: Influxd, tmp_path: Path) -> None:
    recorded(host, influxd, tmp_path)
    influxd.ask('DROP DATABASE "llm"')
    done = said("push", "run", "--influx", f"{influxd.url}/llm", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    is_whole(influxd, tmp_path / "run")


def test_where_nothing_can_be_counted_that_is_said(finished: Path, tmp_path: Path) -> None:
    """VictoriaMetrics takes Influx's lines and has no InfluxQL."""
    run = shutil.copytree(finished, tmp_path / "run")
    with servers.victoria(tmp_path / "victoria") as victoria:
        done = said("push", str(run), "--influx", f"{victoria.url}/llm", cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "all taken, and the database cannot count" in done.stdout
        servers.HTTP.request("GET", f"{victoria.url}/internal/force_flush")
        exported = servers.HTTP.request("GET", f"{victoria.url}/api/v1/export?match[]=token_gap_us").data
    points = sum(len(msgspec.json.decode(series)["values"]) for series in exported.splitlines())
    assert points == sent(run)["token"]


def test_secrets_stay_in_the_environment(host: str, tmp_path: Path) -> None:
    secret = "an-influx-secret-7f3"
    asked = [*COMMAND, "run", "--host", host, *USERS, *settings(influx__wait_s=0.5), "--out", "run"]
    where = environment(TOKENSWARM_INFLUX_TOKEN=secret)
    done = ended([*asked, "--influx", "http://127.0.0.1:9/llm", "--influx-org", "o"], tmp_path, where)
    assert secret not in done.stdout + done.stderr
    assert not [path for path in (tmp_path / "run").iterdir() if secret.encode() in path.read_bytes()]
    refused = ended([*asked, "--influx", f"http://me:{secret}@127.0.0.1:9/llm"], tmp_path, where)
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1
    assert secret not in refused.stderr


def test_nothing_to_push_and_nowhere_to_push_are_one_line_each(tmp_path: Path) -> None:
    for words in (("push", "nowhere", "--influx", "http://127.0.0.1:9/x"), ("report", "influx:r")):
        done = said(*words, cwd=tmp_path)
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1, done.stderr
