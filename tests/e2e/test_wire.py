"""Every outcome over a real socket; stamps of the kernel; TLS, proxies, IPv6, kept connections."""

import contextlib
import resource
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import gevent
import pytest
import trustme
from scripted_server import AGAIN, CLOSE, HANG, RST, ScriptedServer, Step, serving

from harness.model import Arrival, Outcome, Phase, Record, RequestSpec, Target, Timeouts
from harness.protocol.dialects import DIALECTS
from harness.protocol.exchange import Exchange, Terms
from harness.wire.client import Client, Wiring
from harness.wire.endpoint import endpoint, tls_context

pytestmark = pytest.mark.e2e

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
FINISH = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
PING = b": ping\n\n"
REQUEST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
QUICK = Timeouts(connect_s=0.5, first_token_s=0.4, between_tokens_s=0.4, total_s=1.2)
ROOMY = Timeouts(connect_s=2, first_token_s=5, between_tokens_s=5, total_s=20)


def chunked(*pieces: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)


def token(text: str = "a") -> bytes:
    return chunked(b'data: {"choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n' % text.encode())


END = chunked(FINISH, b"data: [DONE]\n\n") + b"0\r\n\r\n"
GOOD: list[Step] = [HEAD, token(), token(), END]


@contextlib.contextmanager
def client(
    url: str, timeouts: Timeouts = ROOMY, tls: ssl.SSLContext | None = None, proxy: str | None = None
) -> Iterator[Client]:
    made = Client(Wiring(endpoint=endpoint(url, proxy, "joe:secret"), timeouts=timeouts, tls=tls))
    try:
        yield made
    finally:
        made.close()


def perform(using: Client, request: bytes = REQUEST) -> Record:
    spec = RequestSpec(prompt="", prompt_tokens=1, output_tokens=1)
    arrival = Arrival(request_id=1, due_ns=time.time_ns(), level=0, phase=Phase.HOLD, slot=0, spec=spec)
    exchange = Exchange(arrival, Terms(dialect=DIALECTS["openai-chat"]))
    using.perform(exchange, request)
    return exchange.record()


def record_of(*steps: Step, timeouts: Timeouts = QUICK) -> Record:
    with serving(steps) as server, client(f"http://127.0.0.1:{server.port}", timeouts) as using:
        return perform(using)


@pytest.mark.parametrize(
    ("steps", "outcome", "events"),
    [
        (GOOD, Outcome.OK, 2),
        ([HEAD, token(), CLOSE], Outcome.TRUNCATED, 1),
        ([HEAD, token(), 0.05, RST], Outcome.RESET, 1),
        ([CLOSE], Outcome.RESET, 0),
        ([HANG], Outcome.TIMEOUT_FIRST_TOKEN, 0),
        ([HEAD, HANG], Outcome.TIMEOUT_FIRST_TOKEN, 0),
        ([HEAD, *[chunked(PING), 0.1] * 8, HANG], Outcome.TIMEOUT_FIRST_TOKEN, 0),
        ([HEAD, token(), HANG], Outcome.TIMEOUT_BETWEEN_TOKENS, 1),
        ([HEAD, *[token(), 0.1] * 20], Outcome.TIMEOUT_TOTAL, 12),
        ([b"nonsense\r\n\r\n", HANG], Outcome.MALFORMED, 0),
        ([b"HTTP/1.1 429 Slow\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"], Outcome.RATE_LIMITED, 0),
        ([b"HTTP/1.1 500 Oops\r\nContent-Length: 4\r\n\r\noops"], Outcome.REFUSED, 0),
    ],
    ids=lambda value: str(value) if isinstance(value, Outcome) else "",
)
def test_outcome(steps: list[Step], outcome: Outcome, events: int) -> None:
    record = record_of(*steps)
    assert record.outcome is outcome, record.detail
    assert abs(len(record.timeline.at_ns) - events) <= (2 if outcome is Outcome.TIMEOUT_TOTAL else 0)


def test_pings_keep_a_stream_alive_between_tokens() -> None:
    record = record_of(HEAD, token(), *[0.2, chunked(PING)] * 4, token(), END)
    assert record.outcome is Outcome.OK, record.detail


def test_left_open_after_done_is_ok_within_seconds() -> None:
    began = time.monotonic()
    record = record_of(HEAD, token(), chunked(FINISH, b"data: [DONE]\n\n"), HANG, timeouts=ROOMY)
    assert record.outcome is Outcome.OK
    assert "after [DONE]" in record.detail
    assert time.monotonic() - began < 4


def test_nobody_listens() -> None:
    with contextlib.closing(socket.socket()) as unused:
        unused.bind(("127.0.0.1", 0))
        with client(f"http://127.0.0.1:{unused.getsockname()[1]}") as using:
            record = perform(using)
    assert record.outcome is Outcome.UNREACHABLE
    assert record.start_ns is None


def test_unknown_name() -> None:
    with client("http://no-such-host.invalid") as using:
        assert perform(using).outcome is Outcome.UNREACHABLE


def test_connect_timeout() -> None:
    """A listener whose queue is full answers no SYN."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(contextlib.closing(socket.socket()))
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(3):
            filler = stack.enter_context(contextlib.closing(socket.socket()))
            filler.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                filler.connect(listener.getsockname())
        with client(f"http://127.0.0.1:{listener.getsockname()[1]}", QUICK) as using:
            record = perform(using)
    assert record.outcome is Outcome.TIMEOUT_CONNECT, record.detail


def test_no_file_left_is_not_the_servers_fault() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with serving(GOOD) as server, client(f"http://127.0.0.1:{server.port}") as using:
        taken = [socket.socket() for _ in range(3)]
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(sock.fileno() for sock in taken) + 1, hard))
            record = perform(using)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for sock in taken:
                sock.close()
    assert record.outcome is Outcome.NOT_SENT
    assert "open files" in record.detail


def test_the_kernel_stamps_when_bytes_came_not_when_they_were_read() -> None:
    """The hub sleeps 150 ms across two tokens sent 50 ms apart: their stamps are 50 ms apart all the same."""
    with (
        serving([HEAD, token(), 0.05, token(), 0.3, END]) as server,
        client(f"http://127.0.0.1:{server.port}") as using,
    ):
        running = gevent.spawn(perform, using)
        while not server.requests:
            gevent.sleep(0.001)
        time.sleep(0.01)
        blocked_at = time.time_ns()
        time.sleep(0.15)
        woke_at = time.time_ns()
        record = running.get()
    assert record.stamp_source == "kernel"
    assert record.timeline.at_ns[-1] < woke_at - 50_000_000
    assert record.timeline.at_ns[0] < blocked_at + 60_000_000


def test_a_kept_connection_is_used_again() -> None:
    with serving([*GOOD, AGAIN, *GOOD]) as server, client(f"http://127.0.0.1:{server.port}") as using:
        first, second = perform(using), perform(using)
        assert server.connections == 1
    assert first.connect_ns is not None
    assert second.connect_ns is None
    assert (first.outcome, second.outcome) == (Outcome.OK, Outcome.OK)


def test_a_kept_connection_closed_while_idle_is_replaced() -> None:
    with serving(GOOD, GOOD) as server, client(f"http://127.0.0.1:{server.port}") as using:
        perform(using)
        gevent.sleep(0.1)
        second = perform(using)
    assert (second.outcome, second.retried) == (Outcome.OK, False)
    assert second.connect_ns is not None


@pytest.mark.parametrize("end", [CLOSE, RST])
def test_a_kept_connection_closed_before_any_answer_is_tried_once_more(end: str) -> None:
    with serving([*GOOD, AGAIN, end], GOOD) as server, client(f"http://127.0.0.1:{server.port}") as using:
        perform(using)
        second = perform(using)
    assert (second.outcome, second.retried, second.stamp_source) == (Outcome.OK, True, "kernel")


def test_a_fresh_connection_closed_before_any_answer_is_not_tried_again() -> None:
    with serving([CLOSE], GOOD) as server, client(f"http://127.0.0.1:{server.port}") as using:
        assert perform(using).outcome is Outcome.RESET
        assert server.connections == 1


def test_ipv6() -> None:
    with serving(GOOD, family=socket.AF_INET6) as server, client(f"http://[::1]:{server.port}") as using:
        assert perform(using).outcome is Outcome.OK


def test_a_large_request_is_sent_whole() -> None:
    body = b"x" * 8_000_000
    request = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    with serving([0.2, *GOOD]) as server, client(f"http://127.0.0.1:{server.port}") as using:
        assert perform(using, request).outcome is Outcome.OK
        assert server.requests[0].endswith(body)


def test_censor_ends_what_runs() -> None:
    with serving([HEAD, token(), HANG]) as server, client(f"http://127.0.0.1:{server.port}") as using:
        running = gevent.spawn(perform, using)
        gevent.sleep(0.2)
        assert using.censor("run stopped") == 1
        record = running.get()
    assert (record.outcome, len(record.timeline.at_ns)) == (Outcome.CENSORED, 1)


# --- TLS --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def server_context(authority: trustme.CA, name: str = "localhost") -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    return context


@pytest.fixture
def ca_file(authority: trustme.CA, tmp_path: Path) -> str:
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    return str(tmp_path / "ca.pem")


def test_tls_with_a_custom_ca(authority: trustme.CA, ca_file: str) -> None:
    script = [*GOOD, AGAIN, HEAD, token(), 0.05, token(), END]
    with (
        serving(script, tls=server_context(authority)) as server,
        client(f"https://localhost:{server.port}", tls=tls_context(Target(ca_file=ca_file))) as using,
    ):
        first, second = perform(using), perform(using)
        assert server.connections == 1
    assert (first.outcome, second.outcome) == (Outcome.OK, Outcome.OK), (first.detail, second.detail)
    assert second.stamp_source == "kernel"
    assert second.timeline.at_ns[1] - second.timeline.at_ns[0] > 40_000_000


def test_tls_verifies_by_default(authority: trustme.CA) -> None:
    with (
        serving(GOOD, tls=server_context(authority)) as server,
        client(f"https://localhost:{server.port}", tls=tls_context(Target())) as using,
    ):
        record = perform(using)
    assert record.outcome is Outcome.UNREACHABLE
    assert "ca_file" in record.detail


def test_tls_checks_the_name(authority: trustme.CA, ca_file: str) -> None:
    with (
        serving(GOOD, tls=server_context(authority, "elsewhere.test")) as server,
        client(f"https://localhost:{server.port}", tls=tls_context(Target(ca_file=ca_file))) as using,
    ):
        assert perform(using).outcome is Outcome.UNREACHABLE


def test_tls_unverified_when_asked(authority: trustme.CA) -> None:
    with (
        serving(GOOD, tls=server_context(authority)) as server,
        client(f"https://localhost:{server.port}", tls=tls_context(Target(verify_tls=False))) as using,
    ):
        assert perform(using).outcome is Outcome.OK


# --- proxies ----------------------------------------------------------------------------------------------------------


def test_http_through_a_proxy() -> None:
    with serving(GOOD) as server, client("http://model.test:9", proxy=f"http://127.0.0.1:{server.port}") as using:
        assert perform(using).outcome is Outcome.OK


def test_https_through_a_proxy(authority: trustme.CA, ca_file: str) -> None:
    with serving(GOOD, tls=server_context(authority)) as server, tunnel(server) as proxy:
        url = f"https://localhost:{server.port}"
        with client(url, tls=tls_context(Target(ca_file=ca_file)), proxy=f"http://127.0.0.1:{proxy.port}") as using:
            record = perform(using)
        assert record.outcome is Outcome.OK, record.detail
        assert b"Proxy-Authorization: Basic am9lOnNlY3JldA==" in proxy.requests[0]


def test_a_proxy_that_refuses() -> None:
    refusal = b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n"
    with serving([refusal]) as proxy:
        tls = tls_context(Target())
        with client("https://model.test", tls=tls, proxy=f"http://127.0.0.1:{proxy.port}") as using:
            record = perform(using)
    assert record.outcome is Outcome.UNREACHABLE
    assert "407" in record.detail


class Tunnel(ScriptedServer):
    """Answers CONNECT, then carries bytes both ways."""

    onward = 0

    def _play(self, sock: socket.socket, step: Step) -> None:
        super()._play(sock, b"HTTP/1.1 200 Connected\r\n\r\n")
        with contextlib.closing(socket.create_connection(("127.0.0.1", self.onward))) as other:
            sock.settimeout(0.02)
            other.settimeout(0.02)
            for _ in range(200):
                for source, sink in ((sock, other), (other, sock)):
                    with contextlib.suppress(TimeoutError):
                        data = source.recv(65536)
                        if not data:
                            return
                        sink.sendall(data)


@contextlib.contextmanager
def tunnel(to: ScriptedServer) -> Iterator[ScriptedServer]:
    made = Tunnel([[CLOSE]])
    made.onward = to.port
    try:
        yield made
    finally:
        made.close()
