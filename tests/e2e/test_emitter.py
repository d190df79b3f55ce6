"""The known emitter over real sockets: what it sends, what it writes down, that the two agree. No timing but order."""

import json
import socket
import ssl
import struct
import subprocess
import sys
from array import array
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme

from harness.engine.emitter import MAGIC, SentStream, Unreadable, parsed_request, read_truth, row

pytestmark = pytest.mark.e2e
QUICK = ("--first-ms", "2", "--gap-ms", "1", "--tokens", "7")
SO_TIMESTAMPNS = 35


@dataclass
class Emitter:
    process: subprocess.Popen
    port: int
    truth: Path

    def stop(self) -> list[SentStream]:
        """SIGTERM; what it left behind."""
        self.process.terminate()
        assert self.process.wait(10) == 0
        return read_truth(self.truth)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=10)


@contextmanager
def running(folder, *options):
    truth = folder / "truth"
    command = [sys.executable, "-m", "harness.engine.emitter", "--truth", str(truth), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            word, port = process.stdout.readline().split()
            assert word == "port"
            yield Emitter(process, int(port), truth)
        finally:
            process.kill()


@pytest.fixture
def quick(tmp_path):
    with running(tmp_path, *QUICK) as emitter:
        yield emitter


def post(headers="", **body):
    data = json.dumps(body)
    return (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n{headers}Content-Length: {len(data)}\r\n\r\n{data}".encode()
    )


def read_response(sock, data=b""):
    """Headers, the data of each HTTP chunk, and what came after the body."""
    while b"\r\n\r\n" not in data:
        data += received(sock)
    headers, _, data = data.partition(b"\r\n\r\n")
    chunks = []
    while True:
        while b"\r\n" not in data:
            data += received(sock)
        size, _, data = data.partition(b"\r\n")
        while len(data) < int(size, 16) + 2:
            data += received(sock)
        chunk, data = data[: int(size, 16)], data[int(size, 16) :]
        assert data[:2] == b"\r\n"
        data = data[2:]
        if not chunk:
            return headers, chunks, data
        chunks.append(chunk)


def received(sock):
    data = sock.recv(65536)
    assert data, "the emitter closed the connection"
    return data


def frame(chunk):
    assert chunk.startswith(b"data: ")
    assert chunk.endswith(b"\n\n")
    return json.loads(chunk[6:])


def words(chunks):
    """Contents of the token frames: all but role, finish, usage and [DONE]."""
    return [frame(chunk)["choices"][0]["delta"]["content"] for chunk in chunks[1:-3]]


def numbered(count):
    return [f" {k:05d}" for k in range(count)]


def test_a_stream_has_every_frame_in_a_chunk_of_its_own(quick):
    with quick.connect() as sock:
        sock.sendall(post("X-Request-Id: abc-1\r\n", max_tokens=5))
        headers, chunks, rest = read_response(sock)
    assert headers.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"text/event-stream" in headers
    assert rest == b""
    assert frame(chunks[0])["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert words(chunks) == numbered(5)
    assert {frame(chunk)["id"] for chunk in chunks[:-1]} == {"chatcmpl-abc-1"}
    assert {frame(chunk)["choices"][0]["finish_reason"] for chunk in chunks[:-3]} == {None}
    assert frame(chunks[-3])["choices"][0] == {
        "index": 0,
        "delta": {},
        "logprobs": None,
        "finish_reason": "length",
        "token_ids": None,
    }
    assert frame(chunks[-2])["choices"] == []
    assert frame(chunks[-2])["usage"]["completion_tokens"] == 5
    assert chunks[-1] == b"data: [DONE]\n\n"
    assert 200 < len(chunks[1]) < 240


def test_truth_names_the_stream_and_stamps_every_token_in_order(quick):
    with quick.connect() as sock:
        sock.sendall(post("x-request-id: abc-1\r\n", max_completion_tokens=5))
        read_response(sock)
    [stream] = quick.stop()
    assert (stream.key, stream.tokens, stream.blocked, len(stream.sent_ns)) == ("abc-1", 5, 0, 5)
    instants = [stream.request_at_ns, stream.opened_ns, *stream.sent_ns]
    assert instants == sorted(instants)
    due_ns = [stream.request_at_ns + 2_000_000 + k * 1_000_000 for k in range(5)]
    assert all(sent_ns >= due for sent_ns, due in zip(stream.sent_ns, due_ns, strict=True))


def test_no_token_arrives_before_its_stamp(quick):
    """By the kernel's arrival stamps, which are those of the newest byte of each read."""
    arrivals, data = [], b""
    with quick.connect() as sock:
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        sock.sendall(post(max_tokens=40))
        while not data.endswith(b"\r\n0\r\n\r\n"):
            piece, [(_, _, stamp)], _, _ = sock.recvmsg(65536, 64)
            data += piece
            at_s, at_ns = struct.unpack("qq", stamp)
            arrivals += [at_s * 1_000_000_000 + at_ns] * (data.count(b'"delta":{"content":"') - len(arrivals))
    [stream] = quick.stop()
    assert len(arrivals) == 40
    assert all(sent_ns <= at_ns for sent_ns, at_ns in zip(stream.sent_ns, arrivals, strict=True))


def test_a_connection_is_kept_and_requests_without_id_are_numbered(quick):
    with quick.connect() as sock:
        for _ in range(2):
            sock.sendall(post())
            _, chunks, _ = read_response(sock)
            assert words(chunks) == numbered(7)
    assert [stream.key for stream in quick.stop()] == ["000000", "000001"]


def test_requests_sent_at_once_are_answered_in_turn(quick):
    get = b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"
    with quick.connect() as sock:
        sock.sendall(post(max_tokens=1) + get + post(max_tokens=2))
        _, first, data = read_response(sock)
        while data.count(b"\r\n\r\n") < 1 or b"]}" not in data:
            data += received(sock)
        models, _, data = data.partition(b"]}")
        assert b'"id":"known"' in models
        _, second, _ = read_response(sock, data)
    assert words(first) == numbered(1)
    assert words(second) == numbered(2)


def test_a_request_that_comes_byte_by_byte(quick):
    with quick.connect() as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        request = post(max_tokens=2)
        for at in range(len(request)):
            sock.send(request[at : at + 1])
        _, chunks, _ = read_response(sock)
    assert words(chunks) == numbered(2)


def test_connection_close_is_honoured(quick):
    with quick.connect() as sock:
        sock.sendall(post("Connection: close\r\n", max_tokens=2))
        read_response(sock)
        assert sock.recv(1) == b""


def test_many_streams_at_once_are_all_whole(quick):
    socks = [quick.connect() for _ in range(50)]
    for number, sock in enumerate(socks):
        sock.sendall(post(f"X-Request-Id: s{number}\r\n", max_tokens=1 + number))
    for number, sock in enumerate(socks):
        with sock:
            _, chunks, _ = read_response(sock)
        assert words(chunks) == numbered(1 + number)
    assert {stream.key: len(stream.sent_ns) for stream in quick.stop()} == {f"s{n}": 1 + n for n in range(50)}


@pytest.mark.parametrize("first_byte", [b"\x00", b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n"])
def test_what_is_no_request_is_refused(quick, first_byte):
    with quick.connect() as sock:
        sock.sendall(first_byte + b"\r\n\r\n")
        assert sock.recv(65536).startswith(b"HTTP/1.1 400 ")
        assert sock.recv(1) == b""


def test_a_client_that_leaves_disturbs_nobody(tmp_path):
    with running(tmp_path, "--first-ms", "0", "--gap-ms", "2") as emitter, emitter.connect() as stays:
        with emitter.connect() as leaves:
            leaves.sendall(post("X-Request-Id: leaves\r\n", max_tokens=10_000))
            while b" 00001" not in leaves.recv(65536):
                pass
        stays.sendall(post("X-Request-Id: stays\r\n", max_tokens=20))
        _, chunks, _ = read_response(stays)
        assert words(chunks) == numbered(20)
        left, stayed = emitter.stop()
    assert (left.key, stayed.key) == ("leaves", "stays")
    assert 2 <= len(left.sent_ns) < left.tokens == 10_000


def test_a_full_socket_delays_tokens_and_loses_none(tmp_path):
    with running(tmp_path, "--first-ms", "0", "--gap-ms", "0") as emitter, socket.socket() as slow:
        slow.settimeout(10)
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", emitter.port))
        slow.sendall(post("X-Request-Id: slow\r\n", max_tokens=16_384))
        with emitter.connect() as other:  # takes its turns with the slow one, and is read to its end first
            other.sendall(post("X-Request-Id: other\r\n", max_tokens=16_384))
            read_response(other)
        _, chunks, _ = read_response(slow)
        streams = {stream.key: stream for stream in emitter.stop()}
    assert words(chunks) == numbered(16_384)
    assert streams["slow"].blocked > 0
    assert len(streams["slow"].sent_ns) == 16_384
    assert list(streams["slow"].sent_ns) == sorted(streams["slow"].sent_ns)
    assert streams["slow"].sent_ns[-1] > streams["other"].sent_ns[-1]


def test_sigterm_writes_down_the_streams_it_cuts(tmp_path):
    with running(tmp_path, "--first-ms", "0", "--gap-ms", "60000") as emitter, emitter.connect() as sock:
        sock.sendall(post("X-Request-Id: cut\r\n", max_tokens=3))
        while b" 00000" not in sock.recv(65536):
            pass
        [stream] = emitter.stop()
    assert (stream.key, stream.tokens, len(stream.sent_ns)) == ("cut", 3, 1)


def test_tls(tmp_path):
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    certificate.cert_chain_pems[0].write_to_path(cert)
    certificate.private_key_pem.write_to_path(key)
    context = ssl.create_default_context()
    authority.configure_trust(context)
    options = (*QUICK, "--tls-cert", str(cert), "--tls-key", str(key))
    with running(tmp_path, *options) as emitter:
        with emitter.connect() as plain:  # no handshake: must not disturb the one after it
            plain.sendall(post())
        with context.wrap_socket(emitter.connect(), server_hostname="localhost") as sock:
            for _ in range(2):
                sock.sendall(post(max_tokens=30, prompt="x" * 100_000))
                _, chunks, _ = read_response(sock)
                assert words(chunks) == numbered(30)
        assert [len(stream.sent_ns) for stream in emitter.stop()] == [30, 30]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--tls-cert", "c.pem"), "go together"),
        (("--gap-ms", "-1"), "out of range: got 50, -1 and 100"),
        (("--first-ms", "nan"), "out of range"),
        (("--tls-cert", "absent.pem", "--tls-key", "absent.pem"), "cannot start"),
    ],
)
def test_wrong_arguments_are_named_and_exit_2(tmp_path, options, said):
    command = [sys.executable, "-m", "harness.engine.emitter", "--truth", str(tmp_path / "truth"), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 2
    assert said in done.stderr.splitlines()[-1]


STREAM = SentStream(
    key="k-1", request_at_ns=5, opened_ns=6, tokens=3, blocked=1, sent_ns=array("q", [7, 8, 1_800_000_000_000_000_000])
)


def test_truth_comes_back_as_written_and_a_row_cut_short_is_left_out(tmp_path):
    whole = MAGIC + row(STREAM)
    for cut in range(len(row(STREAM))):
        (tmp_path / "truth").write_bytes(whole + row(STREAM)[:cut])
        assert read_truth(tmp_path / "truth") == [STREAM]


def test_a_file_of_something_else_is_no_truth(tmp_path):
    (tmp_path / "truth").write_bytes(b"{}")
    with pytest.raises(ValueError, match="not a truth file"):
        read_truth(tmp_path / "truth")


def test_a_request_is_read_only_when_whole():
    data = post("x-request-ID:  q7 \r\nConnection: close\r\n", prompt='say "max_tokens": 3', max_tokens=9)
    assert [parsed_request(data[:cut]) for cut in range(len(data))] == [None] * len(data)
    request = parsed_request(data + b"more")
    assert (request.key, request.max_tokens, request.close, request.size) == ("q7", 9, True, len(data))


def test_a_head_without_end_is_bounded():
    with pytest.raises(Unreadable):
        parsed_request(b"POST / HTTP/1.1\r\nX: " + b"x" * 70_000)
