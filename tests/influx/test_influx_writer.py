"""The writer against a real InfluxDB 1.x: whatever happens, what was sent is stored or set aside."""

import threading
from collections import Counter
from pathlib import Path

import pytest
from servers import Influxd
from writing import START_NS, Session, array, requests, tokens

from harness.clock import S, wall_ns
from harness.export.influx.influxql import QueryError, Rows
from harness.export.influx.target import Options
from harness.export.influx.writer import MOST_SET_ASIDE, Refused, Written

WEEK_NS = 7 * 24 * 3600 * S


def test_every_line_is_stored_and_counted(fresh: str, tmp_path: Path) -> None:
    with Session(fresh, tmp_path) as session:
        assert session.write(tokens(12_000)) == Written(accepted=12_000)
        assert session.database.version == "1"
        assert session.count() == 12_000
        assert session.said == []
        assert not session.aside.exists()


def test_sent_twice_is_stored_once(fresh: str, tmp_path: Path) -> None:
    with Session(fresh, tmp_path) as session:
        for _ in range(2):
            assert session.write(tokens(300)) == Written(accepted=300)
        assert session.count() == 300


def test_points_that_share_a_stamp_are_kept_apart_by_their_tags(fresh: str, tmp_path: Path) -> None:
    with Session(fresh, tmp_path) as session:
        session.write(f"token,run=r,worker={w},slot={s} index=1i {START_NS}" for w in range(20) for s in range(50))
        assert session.count() == 1000


def test_points_are_counted_by_run_and_span(fresh: str, tmp_path: Path) -> None:
    with Session(fresh, tmp_path) as session:
        session.write([*tokens(100, run="it's"), *tokens(50, run="other")])
        assert session.count(run="it's") == 100
        assert session.database.count("token", "other", (START_NS, START_NS + 9)) == 10
        assert session.count(run="nobody's") == 0
        assert session.count("request") == 0


@pytest.mark.parametrize(("measurement", "field"), [("request", "ok"), ("client", "cpu"), ("event", "title")])
def test_each_measurement_is_counted_by_a_field_that_its_points_have(
    measurement: str, field: str, fresh: str, tmp_path: Path
) -> None:
    value = '"a title"' if measurement == "event" else "1i"
    with Session(fresh, tmp_path) as session:
        session.write(f"{measurement},run=r {field}={value},other=2i {START_NS + j}" for j in range(7))
        assert session.count(measurement) == 7


def test_engine_points_are_counted_whatever_the_server_told(fresh: str, tmp_path: Path) -> None:
    fields = ["told=1i,running=1.0", "told=0i", "told=1i,kv_usage=0.5"]
    with Session(fresh, tmp_path) as session:
        session.write(f"engine,run=r,server=s {each} {START_NS + j}" for j, each in enumerate(fields))
        assert session.count("engine") == 3


def test_names_and_texts_come_back_as_they_went(fresh: str, tmp_path: Path) -> None:
    title = r'"say \"hi\", back\\slash, größer 😀"'
    line = rf'event,run=r\,2\ x\=1,class=meta-llama/Llama-3.1\ (q4) title={title},value="a b" 7'
    with Session(fresh, tmp_path) as session:
        assert session.write([line]) == Written(accepted=1)
        statement = 'SELECT "title", "value" FROM "event" GROUP BY *'
        assert list(session.database.query(statement)) == [
            Rows(
                name="event",
                tags={"run": "r,2 x=1", "class": "meta-llama/Llama-3.1 (q4)"},
                columns=["time", "title", "value"],
                values=[[7, 'say "hi", back\\slash, größer 😀', "a b"]],
            )
        ]
        assert session.count("event", "r,2 x=1") == 1


def test_integers_come_back_exactly(fresh: str, tmp_path: Path) -> None:
    largest = 2**63 - 1
    with Session(fresh, tmp_path) as session:
        session.write([f"request,run=r ok=1i,end_ns={largest}i {START_NS + 1}"])
        (rows,) = session.database.query('SELECT "end_ns" FROM "request"')
        assert rows.values == [[START_NS + 1, largest]]


def test_many_rows_come_in_parts(fresh: str, tmp_path: Path) -> None:
    with Session(fresh, tmp_path) as session:
        session.write(tokens(25_001))
        parts = [rows.values for rows in session.database.query('SELECT "index" FROM "token"')]
        assert [len(part) for part in parts] == [10_000, 10_000, 5_001]
        assert [row[1] for part in parts for row in part] == list(range(25_001))


def test_a_query_left_half_read_leaves_the_next_one_alone(fresh: str, tmp_path: Path) -> None:
    with Session(fresh, tmp_path) as session:
        session.write(tokens(25_000))
        rows = session.database.query('SELECT "index" FROM "token"')
        assert len(next(rows).values) == 10_000
        rows.close()  # type: ignore[attr-defined]  # a generator, which is what ends it early
        assert session.count() == 25_000


def test_a_query_that_fails_says_where_and_why(fresh: str, tmp_path: Path) -> None:
    with (
        Session(fresh, tmp_path) as session,
        pytest.raises(QueryError, match=r"^http://.*: cannot be queried: .*found"),
    ):
        list(session.database.query("SELECT nonsense FROM FROM"))


def test_types_stay_the_same_over_two_weeks(influxd: Influxd, fresh: str, tmp_path: Path) -> None:
    """A type belongs to a shard, so two weeks could disagree: they do not if integers carry their `i`."""
    with Session(fresh, tmp_path) as session:
        session.write(f"request,run=r ok=1i,ttft_ms={j}.0 {START_NS + j * WEEK_NS}" for j in range(2))
        keys = influxd.ask('SHOW FIELD KEYS FROM "request"', fresh.rpartition("/")[2])["series"][0]["values"]
        assert Counter(map(tuple, keys)) == Counter([("ok", "integer"), ("ttft_ms", "float")])


@pytest.mark.parametrize("at", [[0], [999], [0, 1, 500, 501, 998]])
def test_bad_lines_are_found_and_set_aside_and_the_rest_is_stored(at: list[int], fresh: str, tmp_path: Path) -> None:
    lines = tokens(1000)
    bad = {j: line.replace("gap_us=20000i", "gap_us=NaN") for j, line in enumerate(lines) if j in at}
    with Session(fresh, tmp_path) as session:
        assert session.write(bad.get(j, line) for j, line in enumerate(lines)) == Written(
            accepted=1000 - len(bad), set_aside=len(bad)
        )
        assert session.count() == 1000 - len(bad)
        assert session.set_aside() == list(bad.values())
        assert "invalid number" in session.aside.read_text()
        assert len(session.said) == 1
        assert "set-aside.lp" in session.said[0]


def test_a_field_of_another_type_is_set_aside(fresh: str, tmp_path: Path) -> None:
    stray = f"request,run=r,slot=1 ok=1.5 {START_NS + 77}"
    with Session(fresh, tmp_path) as session:
        session.write(requests(50))
        assert session.write([*requests(60)[50:], stray]) == Written(accepted=10, set_aside=1)
        assert session.count("request") == 60
        assert session.set_aside() == [stray]
        assert "field type conflict" in session.aside.read_text()


def test_points_beyond_retention_are_set_aside(influxd: Influxd, tmp_path: Path) -> None:
    influxd.ask("CREATE DATABASE shortlived WITH DURATION 2h")
    now_ns = wall_ns()
    old = [f"token,run=r index={j}i {now_ns - WEEK_NS + j}" for j in range(3)]
    new = [f"token,run=r index={j}i {now_ns + j}" for j in range(20)]
    with Session(f"{influxd.url}/shortlived", tmp_path) as session:
        assert session.write([*old, *new]) == Written(accepted=20, set_aside=3)
        assert session.count() == 20
        assert session.set_aside() == old
        assert "beyond retention" in session.aside.read_text()


def test_when_nothing_fits_it_stops_and_says_what_to_do(fresh: str, tmp_path: Path) -> None:
    lines = [line.replace("index=", "index=x") for line in tokens(MOST_SET_ASIDE + 100)]
    for _ in range(2):  # the second time, as after a restart, nothing is set aside twice
        with (
            Session(fresh, tmp_path) as session,
            pytest.raises(Refused, match=r"refused 500 points, the last with 400"),
        ):
            session.write(lines)
    assert session.set_aside() == lines[:MOST_SET_ASIDE]


def test_bodies_too_large_are_halved_and_the_size_is_remembered(narrow: Influxd, tmp_path: Path) -> None:
    lines = tokens(5000)
    size = sum(len(line) + 1 for line in lines)
    assert size > 300_000  # against a limit of 100,000
    with Session(f"{narrow.url}/halved", tmp_path) as session:
        assert session.write(lines) == Written(accepted=5000)
        told = len(session.said)
        assert session.write(tokens(5000, start=5000)) == Written(accepted=5000)
        assert len(session.said) == told
        assert session.count() == 10_000


def test_a_single_line_too_large_is_set_aside(narrow: Influxd, tmp_path: Path) -> None:
    huge = f'event,run=r title="{"x" * 120_000}" {START_NS}'
    with Session(f"{narrow.url}/huge", tmp_path) as session:
        assert session.write([*tokens(4), huge, *tokens(4, start=4)]) == Written(accepted=8, set_aside=1)
        assert session.count() == 8
        assert session.set_aside() == [huge]


def test_a_throttled_database_gets_everything_in_the_end(narrow: Influxd, tmp_path: Path) -> None:
    sessions = [Session(f"{narrow.url}/throttled", tmp_path / str(j)) for j in range(8)]
    narrow.ask("CREATE DATABASE throttled")

    def pushed(session: Session, start: int) -> None:
        for at in range(start, start + 10_000, 1000):
            assert session.write(tokens(1000, start=at)) == Written(accepted=1000)

    threads = [threading.Thread(target=pushed, args=(each, 10_000 * j)) for j, each in enumerate(sessions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(session.naps for session in sessions), "nobody was throttled: this proved nothing"
    assert sessions[0].count() == 80_000


def test_a_missing_database_is_created_once(influxd: Influxd, tmp_path: Path) -> None:
    with Session(f"{influxd.url}/not%20%22there%22%20yet", tmp_path) as session:
        assert session.write(tokens(10)) == Written(accepted=10)
        assert session.count() == 10
        assert [words for words in session.said if "created it" in words] == session.said
        influxd.ask('DROP DATABASE "not \\"there\\" yet"')
        with pytest.raises(Refused, match="CREATE DATABASE"):
            session.write(tokens(10))


@pytest.mark.parametrize(
    ("options", "status", "remedy"),
    [
        ({}, 401, "TOKENSWARM_INFLUX_USER and TOKENSWARM_INFLUX_PASSWORD"),
        ({"user": "writer", "password": "not-this-one"}, 401, "to a user that may write"),
        ({"user": "reader", "password": "r-long-secret"}, 403, "the right to write"),
    ],
)
def test_without_rights_it_stops_and_says_what_to_do(
    options: Options, status: int, remedy: str, locked: Influxd, tmp_path: Path
) -> None:
    with Session(f"{locked.url}/open", tmp_path, options) as session, pytest.raises(Refused) as refused:
        session.write(tokens(10))
    assert f"answered {status}" in str(refused.value)
    assert remedy in str(refused.value)
    assert options.get("password", "?") not in str(refused.value)


def test_with_rights_it_writes_and_counts(locked: Influxd, tmp_path: Path) -> None:
    options: Options = {"user": "writer", "password": "w-long-secret"}
    with Session(f"{locked.url}/open", tmp_path, options) as session:
        assert session.write(tokens(10)) == Written(accepted=10)
        assert session.count() == 10


def test_who_may_not_create_a_database_is_told_to_ask(locked: Influxd, tmp_path: Path) -> None:
    options: Options = {"user": "writer", "password": "w-long-secret"}
    with Session(f"{locked.url}/closed", tmp_path, options) as session, pytest.raises(Refused) as refused:
        session.write(tokens(10))
    assert 'admin: CREATE DATABASE "closed"' in str(refused.value)


def test_a_version_that_the_server_is_not_is_said(influxd: Influxd, tmp_path: Path) -> None:
    options: Options = {"version": "3"}
    with Session(f"{influxd.url}/any", tmp_path, options) as session, pytest.raises(Refused, match="Influx version"):
        session.write(tokens(1))


def test_an_outage_costs_time_only(mortal: Influxd, tmp_path: Path) -> None:
    with Session(f"{mortal.url}/outage", tmp_path) as session:
        session.write(tokens(6000))
        mortal.stop()
        session.on_nap = lambda: mortal.start() if session.naps == 30 else None
        assert session.write(tokens(6000, start=6000)) == Written(accepted=6000)
        assert session.count() == 12_000
        away, again = session.said[1:]
        assert "not writable for" in away
        assert "Connection refused" in away
        assert "writable again after" in again


def test_a_database_that_is_away_at_first_is_found_later(mortal: Influxd, tmp_path: Path) -> None:
    mortal.stop()
    with Session(f"{mortal.url}/late", tmp_path) as session:
        session.on_nap = lambda: mortal.start() if session.naps == 3 else None
        assert session.write(tokens(10)) == Written(accepted=10)
        assert session.count() == 10


def test_told_to_stop_it_leaves_the_rest_and_the_rest_can_be_sent_again(mortal: Influxd, tmp_path: Path) -> None:
    with Session(f"{mortal.url}/stopped", tmp_path) as session:
        session.write(tokens(100))
        mortal.stop()
        session.is_wanted = lambda: session.naps < 8
        assert session.write(tokens(12_000)) == Written(pending=12_000)
        assert session.naps == 8
        mortal.start()
        assert session.write(tokens(12_000)) == Written(accepted=5000, pending=7000)  # no longer wanted: one body
        session.is_wanted = lambda: True
        assert session.write(tokens(12_000)) == Written(accepted=12_000)
        assert session.count() == 12_000


def test_killed_again_and_again_in_the_middle_nothing_is_lost_or_doubled(mortal: Influxd, tmp_path: Path) -> None:
    kills = 4
    over = threading.Event()

    def killing() -> None:
        for _ in range(kills):
            mortal.kill()
            mortal.start()
            over.wait(0.15)
        over.set()

    sent = 0
    with Session(f"{mortal.url}/killed", tmp_path) as session:
        sent += session.write(tokens(5000)).accepted
        thread = threading.Thread(target=killing)
        thread.start()
        while not over.is_set():
            assert session.write(tokens(5000, start=sent)) == Written(accepted=5000)
            sent += 5000
        thread.join()
        assert session.naps, "it was never away: this proved nothing"
        assert sent > 5000
        assert session.count() == sent


def test_compressed_bodies_arrive(influxd: Influxd, tmp_path: Path) -> None:
    """An address that does not look like this machine, though it is: there bodies are compressed."""
    url = influxd.url.replace("127.0.0.1", "0.0.0.0")
    with Session(f"{url}/packed", tmp_path) as session:
        assert not session.database.target.loopback
        assert session.write(tokens(6000)) == Written(accepted=6000)
        assert session.count() == 6000


def test_lines_are_taken_from_a_slice(fresh: str, tmp_path: Path) -> None:
    with Session(fresh, tmp_path) as session:
        lines = array(tokens(9000))
        assert session.writer.write(lines[1000:8000]) == Written(accepted=7000)
        (rows,) = session.database.query('SELECT min("index"), max("index"), count("index") FROM "token"')
        assert rows.values[0][1:] == [1000, 7999, 7000]
        assert session.writer.write(lines[:0]) == Written()
