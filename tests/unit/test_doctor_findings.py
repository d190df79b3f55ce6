"""What the doctor makes of what it saw: every finding from values alone."""

import json
import socket
import ssl
from collections.abc import Sequence
from email.utils import formatdate
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import scenario, shipped
from harness.doctor import Finding, answers, exit_code, reach, streams
from harness.doctor.anatomy import anatomy
from harness.doctor.finding import SHOWN, bad, counted, discreet, good, ms, note, one_line
from harness.doctor.look import look
from harness.doctor.seen import Bond, Listing, Look, ProxyRefused, Question, Way
from harness.model import Arrival, Chunk, Phase, Target
from harness.protocol.dialects import DIALECTS
from harness.protocol.exchange import Exchange, Terms
from harness.wire.endpoint import endpoint

MS = 1_000_000
NOON_S = 1_800_000_000
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n'
TOKEN = b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'
FINISH = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"%s"}]}\n\n'
DONE = b"data: [DONE]\n\n"
PING = b": ping\n\n"
ZERO = b"0\r\n\r\n"
HERE = endpoint("http://127.0.0.1:8000")
TARGET = Target(host="http://127.0.0.1:8000")
PARSE = DIALECTS["openai-chat"].parse_delta


def chunked(*events: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(event), event) for event in events)


def usage(tokens: int) -> bytes:
    return b'data: {"choices":[],"usage":{"completion_tokens":%d}}\n\n' % tokens


def end(reason: bytes = b"length", tokens: int | None = 4, done: bytes = DONE) -> bytes:
    counts = [] if tokens is None else [usage(tokens)]
    return chunked(FINISH % reason, *counts, *([done] if done else [])) + ZERO


def seen(
    *reads: tuple[float, bytes],
    tokens: int = 4,
    line: Bond = "fresh",
    target: Target = TARGET,
    ignore_eos: bool = True,
) -> Look:
    """A look at these (ms after the start, bytes); b"" is end of file."""
    question = Question(target=target, model="m", tokens=tokens, ignore_eos=ignore_eos)
    arrival = Arrival(request_id=0, due_ns=0, level=0, phase=Phase.HOLD, slot=-1, spec=question.spec)
    exchange = Exchange(arrival, Terms(dialect=DIALECTS[target.dialect]))
    exchange.sent(NOON_S * 1000 * MS, MS if line != "kept" else None)
    chunks = [Chunk(NOON_S * 1000 * MS + round(at_ms * MS), data) for at_ms, data in reads]
    for chunk in chunks:
        exchange.receive(chunk)
    assert exchange.over
    return look(question, exchange, chunks, line)


def stream(
    times_ms: Sequence[float], *, last: bytes | None = None, line: Bond = "fresh", ignore_eos: bool = True
) -> Look:
    """A good answer whose token events come at these times."""
    tokens = [(at_ms, chunked(TOKEN)) for at_ms in times_ms]
    closing = end() if last is None else last
    return seen((1, HEAD + chunked(ROLE)), *tokens, (times_ms[-1] + 1, closing), line=line, ignore_eos=ignore_eos)


def refusal(status: int, body: bytes = b"no", *headers: str, line: Bond = "fresh", ignore_eos: bool = True) -> Look:
    lines = "".join(f"{header}\r\n" for header in headers)
    head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n{lines}\r\n".encode()
    return seen((1, head + body), line=line, ignore_eos=ignore_eos)


STEADY = stream([10, 20, 30, 40])


# --- words ------------------------------------------------------------------------------------------------------------


@given(st.text())
def test_one_line_is_one_printable_line(text: str) -> None:
    assert one_line(text).isprintable()


@given(st.text(max_size=300), st.text(min_size=4, max_size=300), st.integers(0, 300))
def test_no_secret_survives_a_cut(before: str, secret: str, cut: int) -> None:
    """Whatever was cut off by those who kept the text, and whatever is cut here."""
    said = one_line(before + " " + secret[:cut])
    finding = discreet(note("x", said, "y"), [secret])
    assert len(finding.what) <= SHOWN
    assert secret not in finding.what
    if 4 <= cut < len(secret) and one_line(secret) == secret and len(said) <= SHOWN:
        assert finding.what.endswith("***")


def test_one_line_keeps_the_words_and_disarms_escapes() -> None:
    assert one_line(" two\r\n  words \x1b[31m") == "two words ?[31m"


@pytest.mark.parametrize(
    ("findings", "code"),
    [
        ([good("tcp", "x"), note("clock", "x", "y")], 0),
        ([good("tcp", "x"), bad("usage", "x", "y")], 1),
        ([bad("tcp", "x", "y")], 2),
        ([bad("usage", "x", "y"), bad("tls", "x", "y")], 2),
        ([], 0),
    ],
)
def test_exit_code(findings: list[Finding], code: int) -> None:
    assert exit_code(findings) == code


def test_durations_and_numbers_read_well() -> None:
    assert [ms(1234 * MS), ms(12.34 * MS), ms(0.1234 * MS)] == ["1234 ms", "12.3 ms", "0.12 ms"]
    assert [counted(0, "token"), counted(1, "token")] == ["0 tokens", "1 token"]


# --- anatomy ----------------------------------------------------------------------------------------------------------

WHOLE = HEAD + chunked(PING, ROLE, TOKEN + TOKEN, b": a\r\n: b\r\n\r\n") + end()


@given(st.sets(st.integers(1, len(WHOLE) - 1)))
def test_anatomy_does_not_depend_on_cuts(cuts: set[int]) -> None:
    pieces = [WHOLE[a:b] for a, b in pairwise([0, *sorted(cuts), len(WHOLE)])]
    parts = anatomy([Chunk(at_ns, piece) for at_ns, piece in enumerate(pieces)], PARSE)
    assert [frame.is_token for frame in parts.frames] == [False, True, True, False, False]
    assert parts.comments == 3


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-x\r\n",
        HEAD.replace(b"200", b"500") + chunked(TOKEN),
        HEAD.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n") + chunked(TOKEN),
        HEAD.replace(b"text/event-stream", b"text/html") + chunked(TOKEN),
        HEAD + chunked(b"data: {nonsense\n\n", TOKEN),
        HEAD + chunked(b'data: {"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n\n"),
    ],
)
def test_anatomy_of_what_cannot_be_read_is_empty(data: bytes) -> None:
    assert anatomy([Chunk(1, data), Chunk(2, b"")], PARSE).frames == []


# --- streams ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("looks", "status", "words"),
    [
        ([STEADY] * 3, "good", "12 token events arrived at 12 instants in 3 streams"),
        ([stream([40, 40, 40, 40])], "bad", "in lumps"),
        ([stream([40, 40.05, 40.1, 40.15])], "bad", "in lumps"),
        ([stream([10, 20, 20, 30])], "note", "3 instants"),
        ([STEADY, STEADY, stream([40, 40, 40, 40])], "note", "9 instants"),
        ([stream([10], last=end(tokens=16))], "bad", "16 tokens came in one frame"),
        ([stream([10], last=end(tokens=1))], "note", "too few"),
        ([stream([10, 40], last=end(tokens=16))], "good", "2 instants"),
    ],
)
def test_streaming(looks: list[Look], status: str, words: str) -> None:
    finding = streams.streaming(looks)
    assert finding.status == status
    assert words in finding.what
    assert ("buffer" in finding.remedy) == (status == "bad" or "together" in finding.what)


@pytest.mark.parametrize(
    ("look", "status", "words"),
    [
        (seen((10, HEAD + chunked(TOKEN)), (20, end())), "good", "carries the first token"),
        (seen((10, HEAD + chunked(ROLE, TOKEN)), (20, end())), "good", "0.00 ms"),
        (seen((1, HEAD + chunked(ROLE)), (500, chunked(TOKEN)), (501, end())), "note", "499 ms"),
        (seen((490, HEAD + chunked(ROLE)), (500, chunked(TOKEN)), (501, end())), "good", "10.0 ms"),
    ],
)
def test_role_frame(look: Look, status: str, words: str) -> None:
    finding = streams.role_frame([look])
    assert (finding.status, words in finding.what) == (status, True)


def stated(tokens: int) -> bytes:
    return b'data: {"choices":[{"index":0,"delta":{"content":"a"},"token_ids":[%s]}]}\n\n' % b",".join([b"1"] * tokens)


EXACT = seen((10, HEAD + chunked(stated(1))), (20, chunked(stated(3))), (21, end(tokens=None)))


@pytest.mark.parametrize(
    ("looks", "status", "words"),
    [
        ([STEADY, STEADY], "good", "4, 4"),
        ([EXACT], "good", "every frame states"),
        ([stream([10, 20], last=end(tokens=None))], "note", "none"),
        ([STEADY, stream([10, 20], last=end(tokens=None))], "note", "in 1 of 2 streams"),
        ([stream([10, 20], last=end(tokens=0))], "note", "in 1 of 1 stream: 0"),
    ],
)
def test_usage(looks: list[Look], status: str, words: str) -> None:
    finding = streams.usage(looks)
    assert finding.status == status
    assert words in finding.what


@pytest.mark.parametrize(
    ("look", "status", "words"),
    [
        (STEADY, "good", "1.00 (4 tokens in 4 frames)"),
        (EXACT, "good", "2.00 (4 tokens in 2 frames), each frame states its own"),
        (stream([10, 20]), "note", "2.00 (4 tokens in 2 frames)"),
        (stream([10, 20, 30, 40], last=end(tokens=2)), "note", "0.50"),
    ],
)
def test_tokens_per_frame(look: Look, status: str, words: str) -> None:
    finding = streams.tokens_per_frame([look])
    assert finding.status == status
    assert words in finding.what
    assert ("continuous_usage_stats: true" in finding.remedy) == ("2.00" in finding.what and status == "note")


@pytest.mark.parametrize(
    ("look", "status", "words"),
    [
        (STEADY, "good", "asked for 4 tokens, got 4"),
        (stream([10, 20], last=end(b"stop", 2)), "note", "got 2: ignore_eos"),
        (stream([10, 20], last=end(b"stop", 2), ignore_eos=False), "good", "got 2"),
        (stream([10, 20], last=end(tokens=9)), "note", "max_tokens is not kept"),
        (stream([10, 20], last=end(tokens=None)), "good", "not counted"),
        (stream([10, 20], last=end(b"stop", None)), "note", "got 2: ignore_eos"),
    ],
)
def test_lengths(look: Look, status: str, words: str) -> None:
    finding = streams.lengths([look])
    assert finding.status == status
    assert words in finding.what


def test_ending() -> None:
    unfinished = HEAD.replace(b"Transfer-Encoding: chunked\r\n", b"") + TOKEN + FINISH % b"stop" + DONE
    closed = seen((1, unfinished), (2, b""))
    silent = stream([10, 20], last=end(done=b""))
    assert streams.ending([STEADY]) == good("end", "finish_reason length; [DONE]; message ended")
    assert streams.ending([closed]) == good("end", "finish_reason stop; [DONE]; connection closed")
    assert streams.ending([STEADY, silent]).status == "note"
    assert "no [DONE]" in streams.ending([STEADY, silent]).what


def test_a_stream_cut_after_done_ended_with_the_connection() -> None:
    cut = seen((1, HEAD + chunked(TOKEN, FINISH % b"stop", DONE)), (2, b""))
    assert streams.ending([cut]) == good("end", "finish_reason stop; [DONE]; connection closed")


@pytest.mark.parametrize(
    ("looks", "status", "words"),
    [
        ([STEADY, stream([10], line="kept"), stream([10], line="kept")], "good", "2 further requests"),
        ([STEADY, stream([10], line="dropped")], "note", "closed before the next request; a new one takes 1.00 ms"),
        ([refusal(200, b"x", "Connection: close")], "note", "closed after each answer"),
        ([seen((1, b"nonsense\r\n"))], "note", "not tested"),
    ],
)
def test_keep_alive(looks: list[Look], status: str, words: str) -> None:
    finding = streams.keep_alive(looks, wanted=True)
    assert finding.status == status
    assert words in finding.what


def test_keep_alive_is_not_missed_where_nobody_wants_it() -> None:
    assert streams.keep_alive([refusal(200, b"x", "Connection: close")], wanted=False).status == "good"


def test_compression_and_comments() -> None:
    zipped = seen((1, HEAD.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n") + chunked(b"x")))
    pinged = seen((1, HEAD + chunked(PING, PING)), (2, chunked(TOKEN)), (3, end()))
    assert streams.compression([STEADY, zipped]).status == "bad"
    assert "gzip" in streams.compression([STEADY, zipped]).what
    assert streams.compression([STEADY]).status == "good"
    assert "2 comment lines" in streams.comments([STEADY, pinged]).what
    assert streams.comments([STEADY]).what == "none seen"


def test_speed_uses_first_tokens_and_frame_gaps() -> None:
    what = streams.speed([STEADY, stream([30, 50]), stream([20, 30])]).what
    assert "TTFT 20.0 ms (3 requests, 10.0 ms to 30.0 ms), mean gap 12.0 ms" in what
    assert "no gaps" in streams.speed([stream([10])]).what


# --- answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "listing", "expected"),
    [
        (None, Listing(status=200, names=["a", "b"]), [("models", "good"), ("model", "good")]),
        ("b", Listing(status=200, names=["a", "b"]), [("models", "good"), ("model", "good")]),
        ("c", Listing(status=200, names=["a", "b"]), [("models", "note")]),
        (None, Listing(status=200, names=[]), [("models", "bad")]),
        (None, Listing(status=200, detail="<html>"), [("models", "bad")]),
        (None, Listing(status=404, detail="no"), [("models", "bad")]),
        ("a", Listing(status=404, detail="no"), [("models", "note")]),
        (None, Listing(status=401), [("models", "note")]),
        (None, Listing(detail="timed out"), [("models", "bad")]),
    ],
)
def test_models(model: str | None, listing: Listing, expected: list[tuple[str, str]]) -> None:
    target = Target(host="http://h", model=model)
    found = answers.models_findings(HERE, target, listing)
    assert [(finding.check, finding.status) for finding in found] == expected
    assert all(bool(finding.remedy) == (finding.status != "good") for finding in found)


def test_a_long_list_of_models_is_cut() -> None:
    listing = Listing(status=200, names=[f"m{number}" for number in range(40)])
    assert answers.models_findings(HERE, TARGET, listing)[0].what.endswith("m4 and 35 more")


def test_a_doubled_v1_is_seen() -> None:
    where = endpoint("http://127.0.0.1:8000/v1")
    finding = answers.models_findings(where, TARGET, Listing(status=404))[0]
    assert "leave /v1 out of --host" in finding.remedy
    assert "leave /v1 out" in answers.dialect_findings(where, refusal(404), None)[0].remedy


KEYED = Target(host="http://h", api_key_env="MY_KEY")


@pytest.mark.parametrize(
    ("target", "listing", "looks", "status", "words"),
    [
        (TARGET, Listing(status=200), [STEADY], "good", "none given"),
        (KEYED, Listing(status=200), [STEADY], "good", "MY_KEY is accepted"),
        (TARGET, Listing(status=401), [STEADY], "bad", "401 without"),
        (TARGET, Listing(status=200), [refusal(403)], "bad", "403 without"),
        (KEYED, Listing(status=200), [refusal(401)], "bad", "401 with the key from MY_KEY"),
        (TARGET, Listing(), [seen((1, b""))], "note", "not tested"),
    ],
)
def test_key(target: Target, listing: Listing, looks: list[Look], status: str, words: str) -> None:
    finding = answers.key_finding(target, listing, looks)
    assert finding.status == status
    assert words in finding.what


def answer(kind: str, body: bytes) -> Look:
    return refusal(200, body, f"Content-Type: {kind}")


CHAT_ANSWER = json.dumps({"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]}).encode()


@pytest.mark.parametrize(
    ("look", "words", "remedy"),
    [
        (seen((1, b"")), "closed before any byte", "log"),
        (seen((1, b"SSH-2.0-OpenSSH\r\n")), "malformed", "check host"),
        (seen((1, b"\x15\x03\x01\x00\x02\x02\x46")), "malformed", "https://"),
        (refusal(400, b"The plain HTTP request was sent to HTTPS port"), "400", "https://"),
        (answer("text/html", b"<html>Log in</html>"), "Log in", "web page"),
        (answer("application/json", CHAT_ANSWER), "asked for a stream", "ignores stream"),
        (answer("text/plain", b"hello"), "hello", "not the API's"),
        (seen((1, HEAD + chunked(TOKEN)), (2, b"")), "truncated", "proxy"),
        (seen((1, HEAD + chunked(DONE) + ZERO)), "empty", "said nothing"),
        (seen((1, HEAD + chunked(b'data: {"error":{"message":"died"}}\n\n', DONE) + ZERO)), "died", "log"),
        (refusal(401, b"bad key sk-12***34"), "status 401", "api-key"),
        (refusal(404), "status 404", "--model"),
        (refusal(302, b"", "Location: http://elsewhere"), "elsewhere", "redirects"),
        (refusal(429, b"slow", "Retry-After: 3"), "Retry-After 3", "limit"),
        (refusal(500, b"oops"), "oops", "log"),
        (refusal(502, b"gateway"), "502", "gateway"),
        (refusal(503, b"loading", "Retry-After: 3"), "loading", "until the model is loaded"),
    ],
)
def test_a_dialect_that_does_not_answer(look: Look, words: str, remedy: str) -> None:
    finding = answers.dialect_findings(HERE, look, None)[0]
    assert (finding.check, finding.status) == ("openai-chat", "bad")
    assert words in finding.what
    assert remedy in finding.remedy
    assert "sk-" not in finding.what


def test_the_other_dialect_is_a_way_out() -> None:
    target = Target(host="http://h", dialect="openai-completions")
    text = b'data: {"choices":[{"index":0,"text":"a","finish_reason":"stop"}]}\n\n'
    other = seen((1, HEAD + chunked(text) + ZERO), target=target)
    first, second = answers.dialect_findings(HERE, refusal(404), other)
    assert first.remedy.startswith("--dialect openai-completions works")
    assert (second.check, second.status) == ("openai-completions", "good")


def test_the_other_dialect_is_no_duty() -> None:
    first, second = answers.dialect_findings(HERE, STEADY, refusal(404))
    assert (first.status, second.status) == ("good", "note")


def test_nothing_is_said_of_dialects_not_asked() -> None:
    assert answers.dialect_findings(HERE, None, None) == []


def test_after_a_refusal_less_is_asked_for_once() -> None:
    assert answers.asks_too_much(refusal(422))
    assert not answers.asks_too_much(refusal(422, ignore_eos=False))
    assert not answers.asks_too_much(refusal(404))
    assert not answers.asks_too_much(STEADY)


def test_what_had_to_be_left_out_is_said() -> None:
    checks = [
        [finding.check for finding in answers.dialect_findings(HERE, look, None)[1:]]
        for look in (STEADY, stream([10], ignore_eos=False), refusal(400, ignore_eos=False))
    ]
    assert checks == [[], ["ignore_eos"], []]


def test_the_override_that_a_remedy_names_can_be_loaded() -> None:
    remedy = streams.tokens_per_frame([stream([10, 20])]).remedy
    loaded = scenario.load(shipped.scenario_path("chat"), [remedy.split("'")[1]])
    assert loaded.target.body == {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}


def test_repeats_that_fail() -> None:
    assert answers.repeat_findings([STEADY, STEADY]) == []
    found = answers.repeat_findings([STEADY, refusal(500), STEADY])
    assert (found[0].status, "1 of 3 further requests failed" in found[0].what) == ("bad", True)


# --- the way ----------------------------------------------------------------------------------------------------------

SECURE = endpoint("https://api.test")
PROXIED = endpoint("https://api.test", "http://proxy.test:3128")


def certificate(days: float) -> dict[str, object]:
    after = formatdate(NOON_S + days * 86400, usegmt=True)  # "Fri, 15 Jan 2027 08:00:00 GMT"
    _, day, month, year, at, zone = after.replace(",", "").split()
    return {"notAfter": f"{month} {int(day):2d} {at} {year} {zone}", "subjectAltName": (("DNS", "api.test"),)}


def arrived(**known: object) -> Way:
    way = Way(step="tls", addresses=1, address="10.0.0.1", resolve_ns=MS, tcp_ns=MS, tls_ns=MS, tls_version="TLSv1.3")
    for name, value in known.items():
        setattr(way, name, value)
    return way


def verification(code: int) -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_code, error.verify_message = code, "reason of OpenSSL"
    return error


def handshake(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, reason)
    error.reason = reason
    return error


@pytest.mark.parametrize(
    ("way", "expected", "words"),
    [
        (arrived(certificate=certificate(90)), "good", "TLSv1.3, handshake in 1.00 ms; certificate for api.test"),
        (arrived(certificate=certificate(90)), "good", "90 days left"),
        (arrived(certificate=certificate(5)), "note", "5 days left"),
        (arrived(), "note", "not verified"),
        (arrived(error=verification(10)), "bad", "reason of OpenSSL"),
        (arrived(error=verification(18)), "bad", "reason of OpenSSL"),
        (arrived(error=handshake("WRONG_VERSION_NUMBER")), "bad", "does not speak TLS"),
        (arrived(error=handshake("NO_SHARED_CIPHER")), "bad", "NO_SHARED_CIPHER"),
        (arrived(error=TimeoutError("timed out")), "bad", "no answer to the TLS handshake"),
        (arrived(error=ConnectionResetError(104, "reset")), "bad", "closed the connection during the TLS handshake"),
    ],
)
def test_tls(way: Way, expected: str, words: str) -> None:
    finding = reach.reach_findings(SECURE, TARGET, way, NOON_S * 1000 * MS)[-1]
    assert (finding.check, finding.status) == ("tls", expected)
    assert words in finding.what


@pytest.mark.parametrize(("code", "remedy"), [(10, "renew"), (62, "name in the certificate"), (20, "--ca-file")])
def test_each_kind_of_bad_certificate_has_its_remedy(code: int, remedy: str) -> None:
    way = arrived(error=verification(code))
    assert remedy in reach.reach_findings(SECURE, TARGET, way, 0)[-1].remedy


@pytest.mark.parametrize(
    ("way", "check", "words"),
    [
        (Way(error=socket.gaierror(-2, "Name or service not known")), "name", "does not resolve: Name or service"),
        (Way(error=UnicodeError("label too long")), "name", "label too long"),
        (Way(step="tcp", error=ConnectionRefusedError(111, "refused")), "tcp", "refuses connections"),
        (Way(step="tcp", error=TimeoutError("timed out")), "tcp", "no answer to connecting in time"),
        (Way(step="tcp", error=OSError(101, "Network is unreachable")), "tcp", "Network is unreachable"),
        (Way(step="proxy", error=ProxyRefused("HTTP/1.1 407 Who are you")), "proxy", "407"),
        (Way(step="proxy", error=TimeoutError("timed out")), "proxy", "no answer to CONNECT in time"),
        (Way(step="proxy", error=ConnectionResetError("no answer to CONNECT: b''")), "proxy", "no answer to CONNECT"),
    ],
)
def test_where_the_way_ended(way: Way, check: str, words: str) -> None:
    found = reach.reach_findings(PROXIED, TARGET, way, 0)
    assert (found[-1].check, found[-1].status) == (check, "bad")
    assert words in found[-1].what
    assert found[-1].remedy
    assert exit_code(found) == 2
    assert all(finding.status != "bad" for finding in found[:-1])


def test_a_way_through_a_proxy_names_it() -> None:
    found = reach.reach_findings(PROXIED, TARGET, arrived(tunnel_ns=3 * MS, certificate=certificate(90)), 0)
    assert [finding.check for finding in found] == ["name", "tcp", "proxy", "tls"]
    assert "a tunnel, opened in 3.00 ms" in found[2].what
    assert "proxy.test is 10.0.0.1" in found[0].what


def test_a_far_server_and_a_key_in_clear_text_are_worth_a_note() -> None:
    where = endpoint("http://api.test")
    found = reach.reach_findings(where, KEYED, arrived(tcp_ns=80 * MS), 0)
    assert [finding.status for finding in found] == ["good", "note", "note"]
    near = reach.reach_findings(HERE, KEYED, arrived(), 0)
    assert [finding.status for finding in near] == ["good", "good", "good"]


@pytest.mark.parametrize(
    ("kernel_stamps", "source", "secure", "status"),
    [
        (True, "kernel", False, "good"),
        (True, "user", False, "note"),
        (True, "user", True, "good"),
        (True, "", False, "good"),
        (False, "user", False, "note"),
    ],
)
def test_stamps(kernel_stamps: bool, source: str, secure: bool, status: str) -> None:
    question = Question(target=TARGET, model="m", tokens=4)
    arrival = Arrival(request_id=0, due_ns=0, level=0, phase=Phase.HOLD, slot=-1, spec=question.spec)
    exchange = Exchange(arrival, Terms(dialect=DIALECTS["openai-chat"]))
    exchange.sent(0, None)
    exchange.stamp_source = source  # type: ignore[assignment]  # a parameter is no literal
    exchange.receive(Chunk(1, b""))
    way = arrived(kernel_stamps=kernel_stamps)
    where = SECURE if secure else HERE
    assert reach.stamps_finding(where, way, [look(question, exchange, [], "fresh")]).status == status


@pytest.mark.parametrize(
    ("ahead_s", "status", "words"),
    [(0, "good", "+0.5 s"), (2, "good", "+2.5 s"), (4, "note", "+4.5 s"), (-4, "note", "-3.5 s")],
)
def test_clock(ahead_s: int, status: str, words: str) -> None:
    dated = refusal(404, b"", f"Date: {formatdate(NOON_S + ahead_s, usegmt=True)}")
    finding = reach.clock_finding([STEADY, dated])
    assert (finding.status, words in finding.what) == (status, True)


@pytest.mark.parametrize("headers", [[], ["Date: yesterday"], ["Date: Fri, 99 Jan 2027 08:00:00 GMT"]])
def test_clocks_are_not_compared_without_a_date(headers: list[str]) -> None:
    assert "not compared" in reach.clock_finding([refusal(404, b"", *headers)]).what
