"""The doctor on real sockets: a good engine, its faults, servers that play a list, TLS, proxies, secrets."""

import asyncio
import base64
import contextlib
import datetime
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import trustme
from msgspec.structs import replace
from scripted_server import AGAIN, CLOSE, HANG, RST, ScriptedServer, Step, serving

from harness.doctor import Finding, examine, exit_code
from harness.doctor.look import Looks
from harness.doctor.seen import Question
from harness.engine import profile
from harness.engine.faults import FAULTS
from harness.engine.pacing import fine_loop
from harness.engine.server import Options, running
from harness.model import Outcome, Target
from harness.wire.endpoint import endpoint

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
SHORT_S = 0.4
"""Limit of a step where the server keeps silent."""


def chunked(*pieces: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)


def whole(status: bytes, body: bytes, kind: bytes = b"application/json") -> bytes:
    head = b"HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n" % (status, kind, len(body))
    return head + body


MODELS = whole(b"200 OK", b'{"data":[{"id":"m"}]}')
ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n'
TOKEN = b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'
FINISH = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}\n\n'
DONE = b"data: [DONE]\n\n"
END = chunked(FINISH, DONE) + b"0\r\n\r\n"
TOKENS: list[Step] = [step for _ in range(4) for step in (0.002, chunked(TOKEN))]
GOOD: list[Step] = [HEAD, *TOKENS, END]


# --- what is examined -------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def engine(host: str = "127.0.0.1", profile_name: str = "demo", **options: Any) -> Iterator[str]:
    """The embedded engine in a thread of its own; yields its URL."""
    ready, stop, ports = threading.Event(), asyncio.Event(), []

    async def serve() -> None:
        async with running(profile.load(profile_name), host, options=Options(**options)) as server:
            ports.append(server.port)
            ready.set()
            await stop.wait()

    loop = fine_loop()
    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), daemon=True)
    thread.start()
    assert ready.wait(5)
    try:
        yield f"http://{f'[{host}]' if ':' in host else host}:{ports[0]}"
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(5)
        loop.close()


def look_at(host: str, *, key: str = "", login: str = "", timeout_s: float = 5.0, **target: Any) -> list[Finding]:
    """An examination of which no finding is empty, of two lines, or without a remedy."""
    found = examine(Target(host=host, **target), environ_key=key, proxy_login=login, timeout_s=timeout_s)
    for finding in found:
        assert finding.check
        assert finding.what
        assert (finding.what + finding.remedy).isprintable()
        assert (finding.remedy == "") == (finding.status == "good"), finding
    return found


def scripted(*answer: Step, timeout_s: float = 5.0, **target: Any) -> dict[str, Finding]:
    """Findings on a server that lists its models and gives this answer to everything else."""
    with serving([CLOSE], [MODELS], answer) as server:  # the first connection only shows the way
        return by_check(look_at(f"http://127.0.0.1:{server.port}", timeout_s=timeout_s, **target))


def by_check(found: list[Finding]) -> dict[str, Finding]:
    return {finding.check: finding for finding in found}


def states(found: Mapping[str, Finding]) -> dict[str, str]:
    """All that is not good."""
    return {check: finding.status for check, finding in found.items() if finding.status != "good"}


# --- a good server ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_good_engine_is_good_in_every_respect(host: str) -> None:
    began = time.monotonic()
    with engine(host, "toy-64") as url:  # 10 ms a step: a busy machine bunches no two of its tokens
        found = by_check(look_at(url))
    assert states(found) == {}
    assert exit_code(list(found.values())) == 0
    assert time.monotonic() - began < 5
    assert set(found) == {
        "name", "tcp", "tls", "stamps", "clock", "models", "model", "api-key", "openai-chat", "openai-completions",
        "streaming", "role-frame", "usage", "tokens-per-frame", "lengths", "end", "speed", "keep-alive", "compression",
        "comments",
    }  # fmt: skip
    assert "got 16, 16, 16" in found["lengths"].what
    assert "4 further requests" in found["keep-alive"].what


def test_the_doctor_needs_neither_locust_nor_gevent() -> None:
    code = "import sys, harness.doctor; print(*{'gevent', 'locust', 'pandas'} & set(sys.modules))"
    asked = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert asked.stdout.strip() == ""


@pytest.mark.parametrize(
    ("fault", "check", "status", "words"),
    [
        ("html", "openai-chat", "bad", "Please wait"),
        ("500", "openai-chat", "bad", "status 500"),
        ("503", "openai-chat", "bad", "status 503"),
        ("429", "openai-chat", "bad", "Retry-After 1"),
        ("cut", "openai-chat", "bad", "truncated: stream cut after 3 token events"),
        ("rst", "openai-chat", "bad", "reset"),
        ("error-first", "openai-chat", "bad", "EngineCore"),
        ("error-later", "openai-chat", "bad", "EngineCore"),
        ("endless-line", "openai-chat", "bad", "malformed"),
        ("role-only", "openai-chat", "bad", "empty"),
        ("only-done", "openai-chat", "bad", "empty"),
        ("no-done", "end", "note", "no [DONE]"),
        ("usage-none", "usage", "note", "none"),
        ("usage-null", "usage", "note", "none"),
        ("usage-finish", "usage", "good", "16, 16, 16"),
        ("usage-cumulative", "tokens-per-frame", "good", "each frame states its own"),
        ("interval", "tokens-per-frame", "note", "a stream interval"),
        ("crlf", "streaming", "good", "48 token events"),
        ("cr", "streaming", "good", "48 token events"),
    ],
)
def test_faults_of_the_engine(fault: str, check: str, status: str, words: str) -> None:
    with engine(fault=FAULTS[fault]) as url:
        found = by_check(look_at(url))
    assert found[check].status == status, found[check]
    assert words in found[check].what
    assert exit_code(list(found.values())) == (1 if status == "bad" else 0)


def test_comments_of_a_slow_prefill() -> None:
    fault = replace(FAULTS["stall"], after_tokens=0, seconds=0.1, comment_every_s=0.03)
    with engine(fault=fault) as url:
        assert "a sign of life" in by_check(look_at(url))["comments"].what


def test_a_failure_now_and_then_is_seen() -> None:
    with engine(fault=FAULTS["500"], fault_every=3) as url:
        found = by_check(look_at(url))
    assert (found["steady"].status, found["openai-chat"].status) == ("bad", "good")
    assert "1 of 3 further requests failed: status 500" in found["steady"].what


# --- keys -------------------------------------------------------------------------------------------------------------

KEY = "sk-very-secret-0123456789"


def test_a_missing_key() -> None:
    with engine(api_key=KEY) as url:
        found = by_check(look_at(url))
    assert "401 without a key" in found["api-key"].what
    assert "--api-key-env" in found["api-key"].remedy
    assert found["openai-chat"].status == "bad"


def test_a_wrong_key_and_a_right_one() -> None:
    with engine(api_key=KEY) as url:
        wrong = by_check(look_at(url, key="sk-other", api_key_env="MY_KEY"))
        right = by_check(look_at(url, key=KEY, api_key_env="MY_KEY"))
    assert "MY_KEY" in wrong["api-key"].remedy
    assert (right["api-key"].status, right["openai-chat"].status) == ("good", "good")


@pytest.mark.parametrize(
    ("key", "words"), [("", "MY_KEY is not set"), (f"{KEY}\n", "no header can carry"), ("schlüssel", "no header")]
)
def test_a_key_that_cannot_be_sent(key: str, words: str) -> None:
    found = look_at("http://127.0.0.1:9", key=key, api_key_env="MY_KEY")
    assert [(finding.check, finding.status) for finding in found] == [("api-key", "bad")]
    assert words in found[0].what
    assert KEY not in str(found)


@pytest.mark.parametrize("pad", [0, 150, 590, 1015])
@pytest.mark.parametrize("status", [b"200 OK", b"400 Bad", b"401 No", b"500 Oops"])
def test_a_secret_that_the_server_echoes_is_not_repeated(status: bytes, pad: int) -> None:
    login = "joe:very-secret-login"
    quoted = b" ".join([KEY.encode(), base64.b64encode(login.encode()), login.encode()])
    echo = whole(status, b" " * pad + quoted * 20, b"text/plain")
    with serving([echo]) as server:
        url = f"http://127.0.0.1:{server.port}"
        found = look_at("http://model.test", key=KEY, login=login, api_key_env="MY_KEY", proxy=url)
    told = " ".join(finding.what + finding.remedy for finding in found)
    assert "very-secret" not in told
    assert base64.b64encode(login.encode()).decode()[:20] not in told
    assert any(KEY.encode() in request for request in server.requests)


# --- servers that play a list -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ([CLOSE], "reset"),
        ([RST], "reset"),
        ([0.05, RST], "reset"),
        ([b"SSH-2.0-OpenSSH_9.2\r\n"], "malformed"),
        ([b"\x00\xff" * 500], "malformed"),
        ([b"\x15\x03\x01\x00\x02\x02\x46"], "malformed"),
        ([b"HTTP/1.1 200 OK\r\n", b"x: y\r\n" * 20_000], "malformed"),
        ([HEAD, b"zz\r\n"], "malformed"),
        ([HEAD, chunked(b"data: {nonsense\n\n")], "malformed"),
        ([HEAD, chunked(b'data: {"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n\n"), HANG], "malformed"),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"], "empty"),
        ([b"HTTP/1.1 204 No Content\r\n\r\n"], "status 204"),
        ([whole(b"200 OK", b"<html>hello</html>", b"text/html")], "hello"),
        ([whole(b"200 OK", b'{"error":"no such model"}')], "no such model"),
        ([whole(b"500 Oops", b"\x1b[31mtrace\r\nback\x00")], "trace back"),
        ([HEAD, chunked(TOKEN), CLOSE], "truncated"),
        ([HEAD, chunked(TOKEN), 0.05, RST], "reset"),
        ([b"HTTP/1.1 302 Found\r\nLocation: http://elsewhere/\r\nContent-Length: 0\r\n\r\n"], "elsewhere"),
    ],
)
def test_bad_answers_are_findings(answer: list[Step], words: str) -> None:
    found = scripted(*answer, timeout_s=2.0)
    assert found["openai-chat"].status == "bad"
    assert words in found["openai-chat"].what
    assert exit_code(list(found.values())) == 1


@pytest.mark.parametrize(
    "answer", [[HANG], [HEAD, HANG], [HEAD, chunked(TOKEN), HANG], [HEAD, *[b"1\r\na\r\n", 0.1] * 99]]
)
def test_silence_ends(answer: list[Step]) -> None:
    began = time.monotonic()
    found = scripted(*answer, timeout_s=SHORT_S)
    assert found["openai-chat"].what.split(": ")[0].endswith(("timeout_first_token", "timeout_between_tokens"))
    assert time.monotonic() - began < 6 * SHORT_S


@pytest.mark.parametrize("answer", [[CLOSE], [RST], [HANG], [b"\x00\xff\r\n\r\n"], [whole(b"200 OK", b"[" * 100_000)]])
def test_a_server_that_answers_nothing_well(answer: list[Step]) -> None:
    with serving(answer) as server:
        found = by_check(look_at(f"http://127.0.0.1:{server.port}", timeout_s=SHORT_S))
    assert {check for check, state in states(found).items() if state == "bad"} == {"models", "openai-chat"}
    assert exit_code(list(found.values())) == 1


def test_lumps() -> None:
    found = scripted(HEAD, 0.01, chunked(ROLE, *[TOKEN] * 16) + END)
    assert (found["streaming"].status, "in lumps" in found["streaming"].what) == ("bad", True)
    assert "proxy_buffering" in found["streaming"].remedy


def test_an_early_role_frame() -> None:
    found = scripted(HEAD + chunked(ROLE), 0.06, *TOKENS, END)
    assert found["role-frame"].status == "note"


def test_an_answer_that_ends_early() -> None:
    found = scripted(*GOOD[:-1], END.replace(b"length", b"seldom"))
    assert "ignore_eos is not honoured" in found["lengths"].what


def test_a_compressed_stream() -> None:
    head = HEAD.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n")
    found = scripted(head, chunked(b"\x1f\x8b\x08"), CLOSE)
    assert (found["compression"].status, found["openai-chat"].remedy) == ("bad", "see compression")


def test_a_server_that_closes_after_each_answer() -> None:
    found = scripted(*[HEAD.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), *TOKENS, END])
    assert (found["keep-alive"].status, "after each answer" in found["keep-alive"].what) == ("note", True)


def test_a_server_that_promises_to_keep_the_connection_and_closes_it() -> None:
    found = scripted(*GOOD)
    assert (found["keep-alive"].status, "closed before" in found["keep-alive"].what) == ("note", True)
    assert found["openai-chat"].status == "good"


def test_a_server_that_keeps_the_connection() -> None:
    found = scripted(*GOOD, *[step for _ in range(4) for step in (AGAIN, *GOOD)])
    assert found["keep-alive"].status == "good"
    assert found["clock"].status == "note"  # these answers have no Date


def test_a_stream_left_open_after_done() -> None:
    found = scripted(HEAD, *TOKENS, chunked(FINISH, DONE), HANG, timeout_s=0.5)
    assert (found["end"].status, "left open" in found["end"].what) == ("note", True)


def test_a_strict_server_is_asked_for_less() -> None:
    refusal = whole(b"400 Bad Request", b'{"error":"unknown field"}')
    with serving([CLOSE], [MODELS], [refusal, AGAIN, *GOOD], GOOD) as server:
        found = by_check(look_at(f"http://127.0.0.1:{server.port}"))
        bodies = [request.partition(b"\r\n\r\n")[2] for request in server.requests if b"POST" in request]
    assert (found["ignore_eos"].status, found["openai-chat"].status) == ("bad", "good")
    assert [b"ignore_eos" in body for body in bodies[:4]] == [True, False, False, False]


# --- the way ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "check"),
    [
        ({"host": ""}, "address"),
        ({"host": "127.0.0.1:8000"}, "address"),
        ({"host": "http://[::1"}, "address"),
        ({"host": "http://h:99999"}, "address"),
        ({"host": "http://joe:secret@h"}, "address"),
        ({"host": "http://h/a b"}, "address"),
        ({"host": "http://h", "proxy": "socks5://p"}, "address"),
        ({"host": "https://h", "ca_file": "no-such-file.pem"}, "tls"),
        ({"host": "http://no-such-host.invalid"}, "name"),
        ({"host": "http://a..b"}, "name"),
        ({"host": f"http://{'x' * 70}.test"}, "name"),
    ],
)
def test_nowhere_to_go(target: dict[str, str], check: str) -> None:
    found = look_at(**target, timeout_s=2.0)
    assert (found[-1].check, found[-1].status) == (check, "bad")
    assert exit_code(found) == 2


def test_a_server_that_goes_away_after_the_first_connection() -> None:
    with serving([CLOSE]) as server:
        looks = Looks(endpoint(f"http://127.0.0.1:{server.port}"), None, "", 1.0)
        assert looks.way().error is None
    look = looks.take(Question(target=Target(), model="m", tokens=8))
    assert (look.record.outcome, "refused" in look.record.detail) == (Outcome.UNREACHABLE, True)


def test_no_host_at_all() -> None:
    assert examine(Target(), environ_key="")[0].check == "address"


def test_nobody_listens() -> None:
    with contextlib.closing(socket.socket()) as unused:
        unused.bind(("127.0.0.1", 0))
        found = look_at(f"http://127.0.0.1:{unused.getsockname()[1]}")
    assert (found[-1].check, exit_code(found)) == ("tcp", 2)
    assert "refuses connections" in found[-1].what


def test_a_full_listener_answers_nothing() -> None:
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(contextlib.closing(socket.socket()))
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(3):
            filler = stack.enter_context(contextlib.closing(socket.socket()))
            filler.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                filler.connect(listener.getsockname())
        found = look_at(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout_s=SHORT_S)
    assert (found[-1].check, "in time" in found[-1].what) == ("tcp", True)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def ca_file(authority: trustme.CA, tmp_path: Path) -> str:
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    return str(tmp_path / "ca.pem")


def secured(authority: trustme.CA, name: str = "localhost", days: float = 90) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    until = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)
    authority.issue_cert(name, not_after=until).configure_cert(context)
    return context


class Secured(ScriptedServer):
    """Closes a TLS connection on which no request came, as the doctor's first one."""

    def _take_request(self, sock: socket.socket) -> None:
        try:
            super()._take_request(sock)
        except OSError:
            sock.close()
            raise


@contextlib.contextmanager
def serving_tls(context: ssl.SSLContext, *scripts: list[Step]) -> Iterator[ScriptedServer]:
    with contextlib.closing(Secured(scripts, tls=context)) as server:
        yield server


def over_tls(context: ssl.SSLContext, **target: Any) -> dict[str, Finding]:
    kept = [*GOOD, *[step for _ in range(4) for step in (AGAIN, *GOOD)]]
    with serving_tls(context, [CLOSE], [MODELS], kept) as server:
        return by_check(look_at(f"https://localhost:{server.port}", **target))


def test_tls_with_a_known_authority(authority: trustme.CA, ca_file: str) -> None:
    found = over_tls(secured(authority), ca_file=ca_file)
    assert (found["tls"].status, found["openai-chat"].status) == ("good", "good")
    assert "TLSv1.3" in found["tls"].what
    assert "certificate for localhost is trusted, 90 days left" in found["tls"].what
    assert found["streaming"].status == "good"
    assert found["keep-alive"].status == "good"


def test_tls_that_expires_soon(authority: trustme.CA, ca_file: str) -> None:
    assert over_tls(secured(authority, days=3), ca_file=ca_file)["tls"].status == "note"


def test_tls_unverified_when_asked(authority: trustme.CA) -> None:
    found = over_tls(secured(authority), verify_tls=False)
    assert (found["tls"].status, found["openai-chat"].status) == ("note", "good")


@pytest.mark.parametrize(
    ("name", "days", "known", "remedy"),
    [
        ("localhost", 90, False, "--ca-file"),
        ("elsewhere.test", 90, True, "name in the certificate"),
        ("localhost", -1, True, "renew"),
    ],
)
def test_certificates_that_are_not_accepted(
    authority: trustme.CA, ca_file: str, name: str, days: float, known: bool, remedy: str
) -> None:
    found = over_tls(secured(authority, name, days), ca_file=ca_file if known else None)
    assert list(found) == ["name", "tcp", "tls"]
    assert found["tls"].status == "bad"
    assert remedy in found["tls"].remedy


def test_https_to_a_server_without_tls() -> None:
    with engine() as url:
        found = look_at(url.replace("http:", "https:"))
    assert (found[-1].check, found[-1].remedy) == ("tls", "use http:// in --host")


@pytest.mark.parametrize("end", [CLOSE, RST, HANG])
def test_no_answer_to_the_handshake(end: str) -> None:
    """The script starts after a "request", which the first bytes of a hello never complete: hence a bare listener."""
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as listener:
        threading.Thread(target=_drop if end != HANG else _hold, args=(listener,), daemon=True).start()
        found = look_at(f"https://127.0.0.1:{listener.getsockname()[1]}", timeout_s=SHORT_S)
    assert (found[-1].check, found[-1].status, exit_code(found)) == ("tls", "bad", 2)


def _drop(listener: socket.socket) -> None:
    listener.accept()[0].close()


def _hold(listener: socket.socket) -> None:
    with listener.accept()[0]:
        time.sleep(2 * SHORT_S)


def test_http_to_a_tls_port(authority: trustme.CA) -> None:
    with serving([CLOSE], tls=secured(authority)) as server:
        found = by_check(look_at(f"http://localhost:{server.port}", timeout_s=SHORT_S))
    assert found["openai-chat"].status == "bad"


def test_through_a_proxy() -> None:
    with serving([CLOSE], [MODELS], GOOD) as proxy:
        found = by_check(look_at("http://model.test", proxy=f"http://127.0.0.1:{proxy.port}", login="joe:secret"))
        lines = [request.split(b"\r\n")[0] for request in proxy.requests]
    assert (found["proxy"].status, found["openai-chat"].status) == ("note", "good")
    assert {line.split()[1].split(b"/")[2] for line in lines} == {b"model.test"}


@pytest.mark.parametrize(
    ("answer", "words", "remedy"),
    [
        ([b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n"], "407", "TOKENSWARM_PROXY_LOGIN"),
        ([b"HTTP/1.1 403 Forbidden\r\n\r\n"], "403", "CONNECT"),
        ([CLOSE], "no answer to CONNECT", "HTTP proxy"),
        ([HANG], "in time", "--proxy"),
    ],
)
def test_a_proxy_that_opens_no_tunnel(answer: list[Step], words: str, remedy: str) -> None:
    with serving(answer) as proxy:
        url = f"http://127.0.0.1:{proxy.port}"
        found = look_at("https://model.test", proxy=url, timeout_s=SHORT_S)
    assert (found[-1].check, found[-1].status, exit_code(found)) == ("proxy", "bad", 2)
    assert words in found[-1].what
    assert remedy in found[-1].remedy


def test_a_tunnel_carries_tls(authority: trustme.CA, ca_file: str) -> None:
    with serving_tls(secured(authority), [CLOSE], [MODELS], GOOD) as server, serving([CLOSE]) as proxy:
        proxy._serve = lambda sock, script: carry(proxy, sock, server.port)  # type: ignore[method-assign]  # a tunnel
        url = f"http://127.0.0.1:{proxy.port}"
        found = by_check(look_at(f"https://localhost:{server.port}", proxy=url, ca_file=ca_file, timeout_s=3.0))
    assert "a tunnel, opened in" in found["proxy"].what
    assert (found["tls"].status, found["openai-chat"].status) == ("good", "good")


def carry(proxy: ScriptedServer, sock: socket.socket, port: int) -> None:
    """Answer CONNECT, then carry bytes both ways until either side ends."""
    with contextlib.suppress(OSError), sock, socket.create_connection(("127.0.0.1", port)) as other:
        proxy._take_request(sock)
        sock.sendall(b"HTTP/1.1 200 Connected\r\n\r\n")
        back = threading.Thread(target=pour, args=(other, sock), daemon=True)
        back.start()
        pour(sock, other)
        back.join(5)


def pour(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
