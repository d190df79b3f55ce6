"""The writer against what InfluxDB 2.x and 3 answer, as documented: see `stub_influx`."""

import ssl
from pathlib import Path

import pytest
import trustme
from stub_influx import BUCKET, ORG, TOKEN, Stub, stub
from writing import START_NS, Session, requests, tokens

from harness.export.influx.target import Options
from harness.export.influx.writer import Refused, Written

SECOND: Options = {"org": ORG, "token": TOKEN}
THIRD: Options = {"token": TOKEN}


def spoilt(n: int, *at: int) -> list[str]:
    return [line.replace("gap_us=20000i", "gap_us=bad") if j in at else line for j, line in enumerate(tokens(n))]


def test_2_is_found_by_a_write_and_counted(second: Stub, tmp_path: Path) -> None:
    with Session(second.database, tmp_path, SECOND) as session:
        assert session.write(tokens(6000)) == Written(accepted=6000)
        assert session.database.version == "2"
        assert session.count() == 6000 == len(second.points)
        assert [seen["query"] for seen in second.seen] == [{"org": ORG, "bucket": BUCKET, "precision": "ns"}] * 2
        assert session.said == []


def test_3_needs_no_organisation(third: Stub, tmp_path: Path) -> None:
    with Session(third.database, tmp_path, THIRD) as session:
        assert session.write(tokens(100)) == Written(accepted=100)
        assert session.count() == 100


@pytest.mark.parametrize("at", [(0,), (17,), (63,), (0, 1, 40, 41, 62)])
def test_2_refuses_a_whole_batch_and_yet_the_good_lines_are_stored(
    at: tuple[int, ...], second: Stub, tmp_path: Path
) -> None:
    lines = spoilt(64, *at)
    with Session(second.database, tmp_path, SECOND) as session:
        assert session.write(lines) == Written(accepted=64 - len(at), set_aside=len(at))
        assert session.count() == 64 - len(at)
        assert session.set_aside() == [lines[j] for j in at]
        assert len(second.seen) <= 1 + 2 * 6 * len(at)  # 64 lines are halved six times
        assert "400 unable to parse" in session.aside.read_text()


def test_2_drops_points_with_422(second: Stub, tmp_path: Path) -> None:
    stray = [f"request,run=r ok=1.5 {START_NS}", "request,run=r ok=1i 999"]
    with Session(second.database, tmp_path, SECOND) as session:
        assert session.write([*requests(30), *stray]) == Written(accepted=30, set_aside=2)
        assert session.count("request") == 30
        assert session.set_aside() == stray


def test_3_stores_what_it_can_of_a_batch(third: Stub, tmp_path: Path) -> None:
    lines = spoilt(50, 3, 30)
    with Session(third.database, tmp_path, THIRD) as session:
        assert session.write(lines) == Written(accepted=48, set_aside=2)
        assert session.count() == 48
        assert session.set_aside() == [lines[3], lines[30]]
        assert "no valid line" in session.aside.read_text()


@pytest.mark.parametrize(
    "answers",
    [
        [(429, {"Retry-After": "1"}, "rate limit"), (429, {"Retry-After": "0"}, "rate limit")],
        [(503, {"Retry-After": "2"}, "busy"), (503, {}, ""), (500, {}, "<html>")],
        [(502, {}, "<html>bad gateway</html>"), (504, {}, "")],
    ],
)
def test_what_asks_to_wait_is_sent_again(
    answers: list[tuple[int, dict[str, str], str]], second: Stub, tmp_path: Path
) -> None:
    second.script = answers.copy()
    with Session(second.database, tmp_path, SECOND) as session:
        assert session.write(tokens(10)) == Written(accepted=10)
        assert session.count() == 10
        assert len(second.seen) == len(answers) + 1


def test_retry_after_is_honoured_and_capped(second: Stub, tmp_path: Path) -> None:
    second.script = [(429, {"Retry-After": "2"}, ""), (503, {"Retry-After": "3600"}, "")]
    with Session(second.database, tmp_path, SECOND) as session:
        session.write(tokens(1))
        assert session.naps == 20 + 300  # of a tenth of a second


def test_a_short_refusal_is_not_worth_a_word(second: Stub, tmp_path: Path) -> None:
    with Session(second.database, tmp_path, SECOND) as session:
        second.script = [(503, {}, "")]
        session.write(tokens(1))
        assert session.said == []
        second.script = [(503, {}, "")] * 2
        session.write(tokens(1))
        assert len(session.said) == 2


def test_a_batch_taken_without_an_answer_is_not_doubled(second: Stub, tmp_path: Path) -> None:
    second.script = [(0, {}, ""), (0, {}, "")]
    with Session(second.database, tmp_path, SECOND) as session:
        assert session.write(tokens(100)) == Written(accepted=100)
        assert session.count() == 100 == len(second.points)
        assert len(second.seen) == 3


def test_10_mib_are_never_passed(third: Stub, tmp_path: Path) -> None:
    long = [f'event,run=r title="{"x" * 20_000}" {START_NS + j}' for j in range(1000)]
    with Session(third.database, tmp_path, THIRD) as session:
        assert session.write(long) == Written(accepted=1000)
        assert session.count("event") == 1000
        assert all(seen["bytes"] < 8_000_000 for seen in third.seen)
        assert session.said == []


def test_a_smaller_limit_is_found_by_halving(third: Stub, tmp_path: Path) -> None:
    third.most_bytes = 20_000
    lines = [*tokens(3000)[:1500], f'event,run=r title="{"x" * 30_000}" 2', *tokens(3000)[1500:]]
    with Session(third.database, tmp_path, THIRD) as session:
        assert session.write(lines) == Written(accepted=3000, set_aside=1)
        assert session.count() == 3000


def test_a_proxy_page_is_no_success(second: Stub, tmp_path: Path) -> None:
    second.script = [(200, {}, "<html>Welcome</html>")]
    with Session(second.database, tmp_path, SECOND) as session, pytest.raises(Refused, match="204"):
        session.write(tokens(10))


@pytest.mark.parametrize("options", [SECOND, {"version": "1"}])
def test_a_redirection_is_said_and_not_followed(options: Options, second: Stub, tmp_path: Path) -> None:
    elsewhere = f"{second.url}/elsewhere"
    second.script = [(307, {"Location": elsewhere}, "")]
    with Session(second.database, tmp_path, options) as session, pytest.raises(Refused, match=f"307 {elsewhere}"):
        session.write(tokens(10))
    assert len(second.seen) == 1


@pytest.mark.parametrize(
    ("options", "bucket", "words"),
    [
        ({"org": ORG}, BUCKET, "401 unauthorized access; set TOKENSWARM_INFLUX_TOKEN"),
        ({"org": ORG, "token": "another-token"}, BUCKET, "this one was not accepted"),
        ({"org": "other", "token": TOKEN}, BUCKET, r'404 organization name "other" not found; create the bucket'),
        ({"token": TOKEN}, BUCKET, "400 Please provide either orgID or org; create the bucket"),
        ({"org": ORG, "token": TOKEN}, "nowhere", r'404 bucket "nowhere" not found; create the bucket'),
    ],
)
def test_what_a_person_must_correct_is_said(
    options: Options, bucket: str, words: str, second: Stub, tmp_path: Path
) -> None:
    with Session(f"{second.url}/{bucket}", tmp_path, options) as session, pytest.raises(Refused) as refused:
        session.write(tokens(10))
    assert words in str(refused.value)
    assert options.get("token", "?") not in str(refused.value)
    assert not session.aside.exists()
    assert second.points == {}


def test_a_server_that_repeats_the_token_does_not_spread_it(second: Stub, tmp_path: Path) -> None:
    words = f"no right with Token {TOKEN}"
    second.script = [(503, {}, words), (503, {}, words), (400, {}, words), (403, {}, words)]
    with Session(second.database, tmp_path, SECOND) as session:
        assert session.write(tokens(1)) == Written(set_aside=1)
        with pytest.raises(Refused) as refused:
            session.write(tokens(1))
    told = [*session.said, session.aside.read_text(), str(refused.value), repr(session.database.target)]
    assert len(told) == 6
    assert TOKEN not in "".join(told)
    assert "***" in session.aside.read_text()


def test_bodies_are_compressed_on_the_way_to_another_machine(second: Stub, tmp_path: Path) -> None:
    url = second.database.replace("localhost", "0.0.0.0")
    lines = tokens(5000)
    with Session(url, tmp_path, SECOND) as session:
        assert session.write(lines) == Written(accepted=5000)
        assert session.count() == 5000
    assert second.seen[0]["headers"]["Content-Encoding"] == "gzip"
    assert second.seen[0]["bytes"] < sum(map(len, lines)) / 4


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def tls(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    return context


def test_over_tls_with_its_authority(authority: trustme.CA, tls: ssl.SSLContext, tmp_path: Path) -> None:
    ca_file = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(ca_file))
    with stub("3", tls) as server, Session(server.database, tmp_path, {**THIRD, "ca_file": str(ca_file)}) as session:
        assert session.write(tokens(100)) == Written(accepted=100)
        assert session.count() == 100


def test_over_tls_unverified_if_asked_for(tls: ssl.SSLContext, tmp_path: Path) -> None:
    with stub("3", tls) as server, Session(server.database, tmp_path, {**THIRD, "verify_tls": False}) as session:
        assert session.write(tokens(100)) == Written(accepted=100)
        assert session.count() == 100


@pytest.mark.parametrize("version", ["1", "3"])
def test_a_certificate_of_nobody_known_stops_it(version: str, tls: ssl.SSLContext, tmp_path: Path) -> None:
    with stub("3", tls) as server, Session(server.database, tmp_path, {"version": version}) as session:
        with pytest.raises(Refused, match=r"certificate verify failed.*CA file"):
            session.write(tokens(1))
        assert session.naps == 0


@pytest.mark.parametrize("version", ["1", "3"])
def test_tls_to_a_server_that_speaks_none_stops_it(version: str, third: Stub, tmp_path: Path) -> None:
    url = third.database.replace("http:", "https:")
    with Session(url, tmp_path, {"version": version}) as session, pytest.raises(Refused, match="http or https"):
        session.write(tokens(1))
