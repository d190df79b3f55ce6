"""What answers mean, how long to wait, how lines are cut into bodies, and what a query says: all pure."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.export.influx import influxql, patience
from harness.export.influx.answer import (
    MOST_WORDS,
    Answer,
    Meaning,
    answer_of,
    database_is_missing,
    meaning,
    path_is_unknown,
    server_of,
)
from harness.export.influx.batches import MOST_LINES, Lines
from harness.export.influx.influxql import QueryError, Rows

# --- answers: bodies as InfluxDB 1.6.7 gave them, and as 2.x and 3 are documented -------------------------------------

CONFLICT = (
    '{"error":"partial write: field type conflict: input field \\"v\\" on measurement \\"m\\" is type float, '
    'already exists as type integer dropped=1"}'
)


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (204, "", Meaning.STORED),
        (200, "<html>", Meaning.REFUSED),
        (201, '{"error":"partial write"}', Meaning.BAD_LINES),
        (307, "", Meaning.REFUSED),
        (400, CONFLICT, Meaning.BAD_LINES),
        (400, '{"error":"unable to parse \'m v=NaN\': invalid number"}', Meaning.BAD_LINES),
        (400, '{"code":"invalid","message":"unable to parse \'m,org=x v=bad\': invalid"}', Meaning.BAD_LINES),
        (400, '{"code":"invalid","message":"Please provide either orgID or org"}', Meaning.REFUSED),
        (400, "Client sent an HTTP request to an HTTPS server.", Meaning.REFUSED),
        (400, "<html><title>400 The plain HTTP request was sent to HTTPS port</title>", Meaning.REFUSED),
        (401, '{"error":"authorization failed"}', Meaning.REFUSED),
        (403, "", Meaning.REFUSED),
        (404, "404 page not found\n", Meaning.REFUSED),
        (413, '{"error":"Request Entity Too Large"}', Meaning.TOO_LARGE),
        (422, '{"code":"unprocessable entity","message":"dropped=1"}', Meaning.BAD_LINES),
        (429, "", Meaning.WAIT),
        (500, '{"error":"timeout"}', Meaning.WAIT),
        (503, "request throttled, queue full", Meaning.WAIT),
    ],
)
def test_each_answer_means_one_thing(status: int, body: str, expected: Meaning) -> None:
    assert meaning(answer_of(status, {}, body)) is expected


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Connection refused", Meaning.WAIT),
        ("no answer in time", Meaning.WAIT),
        ("EOF occurred in violation of protocol", Meaning.WAIT),
        ("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate", Meaning.REFUSED),
        ("[SSL: WRONG_VERSION_NUMBER] wrong version number", Meaning.REFUSED),
    ],
)
def test_no_answer_is_worth_waiting_for_unless_nobody_trustworthy_is_there(message: str, expected: Meaning) -> None:
    assert meaning(Answer(status=None, message=message)) is expected


@pytest.mark.parametrize(
    ("body", "headers", "message"),
    [
        (CONFLICT, {}, 'partial write: field type conflict: input field "v" on measurement "m" is type float, '),
        ('{"code":"not found","message":"bucket \\"x\\" not found"}', {}, 'bucket "x" not found'),
        ('{"error":"partial write","data":[{"error_message":"bad stamp"}]}', {}, "partial write: bad stamp"),
        ('{"error":"partial write","data":[7]}', {}, "partial write"),
        ("", {"X-Influxdb-Error": "database not found"}, "database not found"),
        ("  two\nlines", {}, "two"),
        ("[1]", {}, "[1]"),
        ("", {}, ""),
    ],
)
def test_the_words_of_a_server_are_found(body: str, headers: dict[str, str], message: str) -> None:
    assert answer_of(400, headers, body).message.startswith(message)
    assert bool(answer_of(400, headers, body).message) == bool(message)


def test_words_are_cut() -> None:
    assert len(answer_of(400, {}, "x" * 10_000).message) == MOST_WORDS


@pytest.mark.parametrize(
    ("header", "seconds"), [("7", 7.0), ("0", 0.0), (" 1.5 ", 1.5), ("", None), ("-1", None), ("nan", None)]
)
def test_retry_after_is_read_in_seconds(header: str, seconds: float | None) -> None:
    assert answer_of(429, {"Retry-After": header}, "").retry_after_s == seconds
    assert answer_of(429, {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, "").retry_after_s is None


def test_a_path_that_is_not_there_is_told_from_a_bucket_that_is_not() -> None:
    nowhere = answer_of(404, {}, "404 page not found\n")
    no_bucket = answer_of(404, {}, '{"code":"not found","message":"bucket \\"x\\" not found"}')
    no_database = answer_of(404, {}, '{"error":"database not found: \\"x\\""}')
    assert [path_is_unknown(answer) for answer in (nowhere, no_bucket, no_database)] == [True, False, True]
    assert [database_is_missing(answer) for answer in (nowhere, no_bucket, no_database)] == [False, False, True]


def test_servers_are_known_by_their_headers() -> None:
    assert server_of({"X-Influxdb-Version": "v2.7.12", "X-Influxdb-Build": "OSS"}) == "InfluxDB 2.7.12"
    assert server_of({"X-Influxdb-Version": "1.8.0", "X-Server-Hostname": "vm"}) == "VictoriaMetrics"
    assert server_of({}) == ""


# --- patience ---------------------------------------------------------------------------------------------------------


def test_pauses_double_up_to_a_limit() -> None:
    assert [patience.pause_s(attempt, None, 0.0) for attempt in range(7)] == [0.5, 1, 2, 4, 8, 15, 15]


@given(st.integers(0, 10**6), st.floats(0, 1))
def test_chance_takes_at_most_half_of_a_pause(attempt: int, chance: float) -> None:
    full = patience.pause_s(attempt, None, 0.0)
    assert full / 2 <= patience.pause_s(attempt, None, chance) <= full <= patience.MOST_S


@given(st.integers(0, 50), st.floats(0, 1e9), st.floats(0, 1))
def test_what_the_server_asks_for_is_honoured_within_limits(attempt: int, asked_s: float, chance: float) -> None:
    pause = patience.pause_s(attempt, asked_s, chance)
    assert patience.FIRST_S <= pause <= patience.MOST_ASKED_S
    assert pause == asked_s or asked_s < patience.FIRST_S or asked_s > patience.MOST_ASKED_S


# --- bodies -----------------------------------------------------------------------------------------------------------

LINES = st.lists(st.binary(max_size=30).map(lambda text: text.replace(b"\n", b"") + b"\n"), max_size=40)


@given(LINES, st.integers(0, 50), st.integers(1, 100), st.sampled_from([pa.binary(), pa.large_binary()]))
def test_bodies_are_all_lines_in_order_and_within_the_limit(
    lines: list[bytes], skipped: int, most_bytes: int, kind: pa.DataType
) -> None:
    kept = Lines(pa.array(lines, kind).slice(skipped))
    at, bodies = 0, []
    while at < len(kept):
        end = kept.end(at, most_bytes)
        body = kept.body(at, end)
        assert len(body) == kept.size(at, end)
        assert len(body) <= most_bytes or end == at + 1
        assert end == len(kept) or kept.size(at, end + 1) > most_bytes
        bodies.append(body)
        at = end
    assert b"".join(bodies) == b"".join(lines[skipped:])


def test_a_body_holds_no_more_lines_than_are_useful() -> None:
    assert Lines(pa.array([b"x\n"] * (MOST_LINES + 1), pa.binary())).end(0) == MOST_LINES


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (pa.array([b"a\n", None], pa.binary()), "1 of 2 are null"),
        (pa.array([b"a\n", b"b"], pa.large_binary()), "does not end in a newline"),
        (pa.array([b"a\n", b""], pa.binary()), "does not end in a newline"),
        (pa.array([1, 2]), "expected binary"),
    ],
)
def test_what_is_no_array_of_lines_is_refused(array: pa.Array, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Lines(array)


# --- queries ----------------------------------------------------------------------------------------------------------


def test_rows_of_a_document() -> None:
    document = (
        b'{"results":[{"statement_id":0,"series":[{"name":"m","tags":{"run":"r"},"columns":["time","v"],'
        b'"values":[[1700000000000000001,9223372036854775807],[2,0.5]],"partial":true}],"partial":true},{}]}'
    )
    (rows,) = influxql.rows_of(document)
    values = [[1700000000000000001, 2**63 - 1], [2, 0.5]]
    assert rows == Rows(name="m", tags={"run": "r"}, columns=["time", "v"], values=values)


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (b'{"error":"error parsing query"}', "error parsing query"),
        (b'{"code":"unauthorized","message":"unauthorized access"}', "unauthorized access"),
        (b'{"results":[{"statement_id":0,"error":"database not found: x"}]}', "database not found: x"),
        (b"404 page not found", "not an answer to a query: '404 page not found'"),
    ],
)
def test_an_error_in_a_document_is_raised(document: bytes, words: str) -> None:
    with pytest.raises(QueryError, match=words):
        list(influxql.rows_of(document))


def test_counting_asks_for_a_field_that_is_always_there() -> None:
    assert influxql.count_statement("token", "r") == 'SELECT count("index") FROM "token" WHERE "run" = \'r\''
    spanned = influxql.count_statement("engine", "it's \\", (1, 2))
    assert spanned == 'SELECT count("told") FROM "engine" WHERE "run" = \'it\\\'s \\\\\' AND time >= 1 AND time <= 2'
    assert influxql.counted(Rows(values=[[0, 7]])) == 7
    assert influxql.counted(Rows()) == 0


def test_names_are_quoted() -> None:
    assert influxql.identifier('a "b" \\ c') == '"a \\"b\\" \\\\ c"'
