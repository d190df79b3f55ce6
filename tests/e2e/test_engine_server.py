"""The engine behind HTTP: a real process, plain sockets, every fault."""

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
PROFILE = """
name: quick
source: this test
max_num_seqs: {seqs}
max_num_batched_tokens: 512
max_model_len: 512
step: {{base_ms: 2.0}}
kv: {{block_size: 4, num_blocks: 1024, prefix_cache: true}}
"""
CHILD = """
import sys
import msgspec
from harness.engine import profile, server

def ready(port: int) -> None:
    print(port, flush=True)

options = msgspec.json.decode(sys.argv[2], type=server.Options)
server.serve(profile.load(sys.argv[1]), "127.0.0.1", 0, options=options, on_ready=ready)
"""


@contextmanager
def engine(folder: Path, *, seqs: int = 8, **options: Any) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """A server process; yields its port."""
    path = folder / "quick.yaml"
    path.write_text(PROFILE.format(seqs=seqs))
    command = [sys.executable, "-c", CHILD, str(path), json.dumps(options)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline()), process
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("engine")


@pytest.fixture(scope="module")
def port(folder: Path) -> Iterator[int]:
    with engine(folder, truth=str(folder / "truth.jsonl")) as (port, _):
        yield port


@pytest.fixture(scope="module")
def strict_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """One seat, a key, small limits, and every second answer cut."""
    limits = {"max_body_bytes": 2000, "idle_s": 0.05}
    cut = {"breaks": "cut", "after_tokens": 2}
    folder = tmp_path_factory.mktemp("strict")
    with engine(folder, seqs=1, api_key="secret", limits=limits, fault=cut, fault_every=2) as (port, _):
        yield port


# --- a plain client ---------------------------------------------------------------------------------------------------


def request_bytes(body: Any, path: str = "/v1/chat/completions", *headers: str) -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"POST {path} HTTP/1.1", "Host: engine", f"Content-Length: {len(data)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + data


def raw(port: int, data: bytes) -> bytes:
    """Everything the server sends until it closes. Raises ConnectionResetError on an RST."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as sock:
        sock.sendall(data)
        return b"".join(iter(lambda: sock.recv(65536), b""))


def chat(words: int = 3, tokens: int = 6, **extra: Any) -> dict[str, Any]:
    content = " ".join(f"w{i}" for i in range(words))
    return {"messages": [{"role": "user", "content": content}], "max_tokens": tokens, "stream": True, **extra}


def streamed(port: int, body: dict[str, Any], path: str = "/v1/chat/completions") -> tuple[bytes, list[bytes]]:
    """Head of the response, and the data of its HTTP chunks; the zero chunk is b""."""
    head, _, rest = raw(port, request_bytes(body, path, "Connection: close")).partition(b"\r\n\r\n")
    chunks = []
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        length = int(size, 16)
        chunks.append(rest[:length])
        rest = rest[length + 2 :]
    return head, chunks


def events(chunks: list[bytes]) -> list[Any]:
    return [json.loads(c[6:]) for c in chunks if c.startswith(b"data: {")]


def faulty(port: int, fault: Any, **extra: Any) -> tuple[bytes, list[bytes]]:
    return streamed(port, chat(tokenswarm_fault=fault, **extra))


def texts(frames: list[Any]) -> list[str]:
    return [f["choices"][0]["delta"].get("content", "") for f in frames if f.get("choices")]


def asked(port: int, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    connection.request(method, path, data, headers)
    response = connection.getresponse()
    result = response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()
    connection.close()
    return result


def gauges(port: int) -> dict[str, float]:
    text = asked(port, "GET", "/metrics")[2].decode()
    return {s.name: s.value for family in text_string_to_metric_families(text) for s in family.samples}


def eventually(holds: Callable[[], bool]) -> bool:
    until = time.monotonic() + 3
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(0.002)
    return True


def told(folder: Path, frames: list[Any]) -> dict[str, Any]:
    """The truth line of the answer these frames belong to."""
    number = int(frames[0]["id"].rpartition("-")[2], 16)
    path, found = folder / "truth.jsonl", []

    def there() -> bool:
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        found.extend(row for row in rows if row["number"] == number)
        return bool(found)

    assert eventually(there)
    return found[0]


# --- answers ----------------------------------------------------------------------------------------------------------


def test_a_chat_stream_is_framed_like_vllms(port: int) -> None:
    head, chunks = streamed(port, chat(stream_options={"include_usage": True}))
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"content-type: text/event-stream; charset=utf-8" in head
    assert chunks[-2:] == [b"data: [DONE]\n\n", b""]
    assert all(c.startswith(b"data: ") and c.endswith(b"\n\n") and c.count(b"\n\n") == 1 for c in chunks[:-1])
    role, *content, usage = events(chunks)
    assert role["choices"] == [
        {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
    ]
    assert [c["choices"][0]["finish_reason"] for c in content] == [None] * 5 + ["length"]
    assert all(texts(content))
    assert usage["choices"] == []
    assert usage["usage"] == {"prompt_tokens": 3 + 4, "total_tokens": 13, "completion_tokens": 6}
    assert {f["object"] for f in [role, *content, usage]} == {"chat.completion.chunk"}
    assert {f["model"] for f in content} == {"quick"}


def test_a_completions_stream(port: int) -> None:
    body = {"prompt": "one two three", "max_tokens": 3, "stream": True, "ignore_eos": True}
    _, chunks = streamed(port, body, "/v1/completions")
    frames = events(chunks)
    assert "".join(f["choices"][0]["text"] for f in frames) == "the river turned"
    assert frames[-1]["choices"][0]["finish_reason"] == "length"
    assert all("usage" not in f for f in frames)


@pytest.mark.parametrize("prompt", ["one two three", ["one two three"], [5, 6, 7]])
def test_a_whole_completion(port: int, prompt: Any) -> None:
    status, _, data = asked(port, "POST", "/v1/completions", {"prompt": prompt, "max_tokens": 2})
    answer = json.loads(data)
    assert status == 200
    assert answer["choices"][0]["text"] == "the river"
    assert answer["usage"] == {"prompt_tokens": 3, "total_tokens": 5, "completion_tokens": 2}


def test_a_whole_chat_answer_and_text_in_parts(port: int) -> None:
    message = {"role": "user", "content": [{"type": "text", "text": "one two"}, {"type": "text", "text": "three"}]}
    body = {"model": "quick", "messages": [message], "max_completion_tokens": 2}
    answer = json.loads(asked(port, "POST", "/v1/chat/completions", body)[2])
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": "the river"}
    assert answer["usage"]["prompt_tokens"] == 7


def test_usage_in_every_frame_when_asked(port: int) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    _, chunks = streamed(port, chat(tokens=3, stream_options=options))
    assert [f["usage"]["completion_tokens"] for f in events(chunks)] == [0, 1, 2, 3, 3]


def test_without_a_number_sixteen_tokens(port: int) -> None:
    body = chat()
    del body["max_tokens"]
    assert sum(map(bool, texts(events(streamed(port, body)[1])))) == 16


def test_a_connection_is_kept_for_the_next_request(port: int) -> None:
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    for body in (chat(), {**chat(), "stream": False}, chat()):
        connection.request("POST", "/v1/chat/completions", json.dumps(body))
        sock = connection.sock
        response = connection.getresponse()
        assert response.status == 200
        assert response.read()
        assert connection.sock is sock is not None
    connection.close()


def test_pipelined_requests_are_answered_in_order(port: int) -> None:
    second = request_bytes({"prompt": "b", "max_tokens": 1}, "/v1/completions", "Connection: close")
    data = raw(port, request_bytes(chat(tokens=2)) + second)
    assert data.index(b"[DONE]") < data.index(b'"object":"text_completion"')
    assert data.count(b"HTTP/1.1 200 OK") == 2


def test_a_client_that_waits_for_100_continue(port: int) -> None:
    data = raw(port, request_bytes(chat(tokens=1), "/v1/chat/completions", "Expect: 100-continue", "Connection: close"))
    assert data.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")


def test_models_and_health(port: int) -> None:
    status, _, data = asked(port, "GET", "/v1/models?x=1")
    row = json.loads(data)["data"][0]
    assert (status, row["id"], row["max_model_len"]) == (200, "quick", 512)
    assert asked(port, "GET", "/health")[::2] == (200, b"")


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "body", "status", "kind", "says"),
    [
        ("/v1/completions", b'{"prompt":', 400, "Bad Request", "JSON"),
        ("/v1/completions", {"prompt": "a", "max_tokens": "x"}, 400, "Bad Request", "body.max_tokens"),
        ("/v1/completions", {"max_tokens": 1}, 400, "Bad Request", "prompt"),
        ("/v1/completions", {"prompt": ["a", "b"]}, 400, "BadRequestError", "one text"),
        ("/v1/completions", {"prompt": "a", "max_tokens": 0}, 400, "BadRequestError", "at least 1"),
        ("/v1/completions", {"prompt": "a", "max_tokens": 512}, 400, "BadRequestError", "512 tokens"),
        ("/v1/completions", {"prompt": "a " * 512}, 400, "BadRequestError", "512 input tokens"),
        ("/v1/completions", {"prompt": "a", "n": 2}, 400, "BadRequestError", "n=2"),
        ("/v1/completions", {"prompt": "a", "model": "nope"}, 404, "NotFoundError", "`nope` does not exist"),
        ("/v1/chat/completions", {"max_tokens": 1}, 400, "Bad Request", "messages"),
        ("/v1/chat/completions", {"messages": [{}]}, 400, "Bad Request", "role"),
        ("/v1/completions", {"prompt": "a", "tokenswarm_fault": "stal"}, 400, "BadRequestError", "did you mean stall"),
        ("/v1/completions", {"prompt": "a", "tokenswarm_fault": {"x": 1}}, 400, "BadRequestError", "unknown field"),
    ],
)
def test_a_bad_request(port: int, path: str, body: Any, status: int, kind: str, says: str) -> None:
    got, headers, data = asked(port, "POST", path, body)
    error = json.loads(data)["error"]
    assert (got, error["type"], error["code"]) == (status, kind, status)
    assert says in error["message"]
    assert headers["content-type"] == "application/json"


def test_unknown_path_and_wrong_method(port: int) -> None:
    assert asked(port, "GET", "/nope")[::2] == (404, b'{"detail":"Not Found"}')
    status, headers, data = asked(port, "GET", "/v1/chat/completions")
    assert (status, headers["allow"], data) == (405, "POST", b'{"detail":"Method Not Allowed"}')


def test_what_is_not_http_gets_400_and_a_close(port: int) -> None:
    assert raw(port, b"HELLO\r\n\r\n").startswith(b"HTTP/1.1 400 Bad Request\r\n")


@pytest.mark.parametrize("size", ["Content-Length: 3000", "Transfer-Encoding: chunked"])
def test_a_body_too_large_gets_413(strict_port: int, size: str) -> None:
    body = b"x" * 3000 if "Length" in size else b"bb8\r\n" + b"x" * 3000 + b"\r\n0\r\n\r\n"
    with socket.create_connection(("127.0.0.1", strict_port), timeout=5) as sock:
        sock.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: e\r\n{size}\r\n\r\n".encode() + body)
        data = b"".join(iter(lambda: sock.recv(65536), b""))
    assert data.startswith(b"HTTP/1.1 413 Request Entity Too Large\r\n")
    assert json.loads(data.partition(b"\r\n\r\n")[2])["error"]["code"] == 413


def test_the_key_is_wanted(strict_port: int) -> None:
    assert asked(strict_port, "GET", "/v1/models")[::2] == (401, b'{"error":"Unauthorized"}')
    assert asked(strict_port, "GET", "/v1/models", Authorization="Bearer wrong")[0] == 401
    assert asked(strict_port, "GET", "/v1/models", Authorization="Bearer secret")[0] == 200
    assert asked(strict_port, "GET", "/health")[0] == 200


def test_a_kept_connection_is_closed_when_idle(strict_port: int) -> None:
    assert raw(strict_port, b"GET /health HTTP/1.1\r\nHost: e\r\n\r\n").startswith(b"HTTP/1.1 200 OK\r\n")


# --- what the server counts -------------------------------------------------------------------------------------------


def test_metrics_have_vllms_names(port: int) -> None:
    before = gauges(port)
    streamed(port, chat(words=20, tokens=5))
    text = asked(port, "GET", "/metrics")[2].decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    after = gauges(port)
    names = "num_requests_running num_requests_waiting kv_cache_usage_perc num_preemptions prompt_tokens"
    names += " generation_tokens prefix_cache_queries prefix_cache_hits request_success time_to_first_token_seconds"
    names += " inter_token_latency_seconds e2e_request_latency_seconds request_queue_time_seconds"
    assert {f"vllm:{name}" for name in names.split()} <= set(families)
    assert all(
        s.labels["engine"] == "0" and s.labels["model_name"] == "quick" for f in families.values() for s in f.samples
    )

    def rose(name: str) -> float:
        return after[name] - before.get(name, 0.0)

    assert rose("vllm:prompt_tokens_total") == 24
    assert rose("vllm:generation_tokens_total") == 5
    assert rose("vllm:request_queue_time_seconds_count") == 1
    assert rose("vllm:request_queue_time_seconds_sum") < rose("vllm:time_to_first_token_seconds_sum")
    assert rose("vllm:time_to_first_token_seconds_count") == 1
    assert rose("vllm:inter_token_latency_seconds_count") == 4
    assert rose("vllm:e2e_request_latency_seconds_sum") >= 5 * 0.002
    assert after["vllm:num_requests_running"] == 0


def test_a_known_prefix_is_a_hit(port: int) -> None:
    streamed(port, chat(words=60, tokens=1))
    before = gauges(port)["vllm:prefix_cache_hits_total"]
    streamed(port, chat(words=60, tokens=1))
    assert gauges(port)["vllm:prefix_cache_hits_total"] - before == 60, "61 words with the role, in blocks of 4"


def test_a_client_that_leaves_frees_its_seat(port: int, folder: Path) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=5) as sock:
        sock.sendall(request_bytes(chat(tokens=500)))
        first = sock.recv(4096)
        while b"\n\n" not in first.partition(b"\r\n\r\n")[2]:
            first += sock.recv(4096)
    assert eventually(lambda: gauges(port)["vllm:num_requests_running"] == 0)
    frame = json.loads(first.partition(b"data: ")[2].partition(b"\n\n")[0])
    row = told(folder, [frame])
    assert row["outcome"] == "aborted"
    assert 0 < len(row["sent_ns"]) < 500
    assert row["finished_ns"] is None


def test_headers_come_at_once_and_tokens_when_there_is_a_seat(strict_port: int) -> None:
    key = "Authorization: Bearer secret"
    body = chat(tokens=400, tokenswarm_fault={})
    with (
        socket.create_connection(("127.0.0.1", strict_port), timeout=5) as first,
        socket.create_connection(("127.0.0.1", strict_port), timeout=5) as second,
    ):
        first.sendall(request_bytes(body, "/v1/chat/completions", key))
        assert eventually(lambda: gauges(strict_port)["vllm:num_requests_running"] == 1)
        second.sendall(request_bytes(body, "/v1/chat/completions", key))
        assert second.recv(4096).endswith(b"\r\n\r\n"), "headers alone"
        assert gauges(strict_port)["vllm:num_requests_waiting"] == 1
        first.close()
        assert b'"role"' in second.recv(4096)
    assert eventually(lambda: gauges(strict_port)["vllm:num_requests_running"] == 0)


def test_truth_says_when_each_frame_was_sent(port: int, folder: Path) -> None:
    started_ns = time.time_ns()
    _, chunks = streamed(port, chat(tokens=100))
    ended_ns = time.time_ns()
    row = told(folder, events(chunks))
    sent_ns = row["sent_ns"]
    assert row["outcome"] == "finished"
    assert row["tokens"] == [1] * 100
    assert (row["prompt_tokens"], row["output_tokens"], row["buffered"]) == (7, 100, 0)
    assert row["first_token_ns"] == sent_ns[0]
    assert [started_ns, row["received_ns"], *sent_ns, row["finished_ns"], ended_ns] == sorted(
        [started_ns, row["received_ns"], *sent_ns, row["finished_ns"], ended_ns]
    )
    assert sent_ns[-1] - sent_ns[0] > 99 * 2_000_000 - 20_000_000, "never faster than the profile, but for catching up"


# --- faults -----------------------------------------------------------------------------------------------------------


def test_stall_holds_back_one_answer(port: int, folder: Path) -> None:
    _, chunks = faulty(port, {"breaks": "stall", "after_tokens": 3, "seconds": 0.1})
    assert len(events(chunks)) == 7
    sent_ns = told(folder, events(chunks))["sent_ns"]
    assert len(sent_ns) == 6
    assert sent_ns[3] - sent_ns[2] > 90_000_000
    assert max(b - a for a, b in pairwise(sent_ns[3:])) < sent_ns[3] - sent_ns[2]


def test_freeze_stops_everybody(port: int, folder: Path) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=5) as sock:
        sock.sendall(request_bytes(chat(tokens=60), "/v1/chat/completions", "Connection: close"))
        faulty(port, {"breaks": "freeze", "after_tokens": 2, "seconds": 0.15})
        other = b"".join(iter(lambda: sock.recv(65536), b""))
    frame = json.loads(other.partition(b"data: ")[2].partition(b"\n\n")[0])
    sent_ns = told(folder, [frame])["sent_ns"]
    assert max(b - a for a, b in pairwise(sent_ns)) > 140_000_000


def test_cut(port: int, folder: Path) -> None:
    _, chunks = faulty(port, {"breaks": "cut", "after_tokens": 3})
    assert texts(events(chunks)) == ["", "the", " river", " turned"]
    assert chunks[-1] != b""
    assert told(folder, events(chunks))["outcome"] == "fault"
    assert gauges(port)["vllm:num_requests_running"] == 0


def test_cut_before_the_first_token(port: int) -> None:
    head, chunks = faulty(port, {"breaks": "cut"})
    assert head.startswith(b"HTTP/1.1 200 OK")
    assert chunks == []


def test_rst(port: int) -> None:
    with pytest.raises(ConnectionResetError):
        faulty(port, "rst")
    with pytest.raises(ConnectionResetError):
        raw(port, request_bytes({**chat(tokenswarm_fault="rst"), "stream": False}))


@pytest.mark.parametrize(("status", "kind"), [(429, "RateLimitError"), (503, "ServiceUnavailableError")])
def test_status(port: int, status: int, kind: str) -> None:
    fault = {"status": status, "retry_after_s": 7}
    got, headers, data = asked(port, "POST", "/v1/chat/completions", chat(tokenswarm_fault=fault))
    assert (got, headers["retry-after"], json.loads(data)["error"]["type"]) == (status, "7", kind)


def test_500_without_retry_after(port: int) -> None:
    got, headers, _ = asked(port, "POST", "/v1/chat/completions", chat(tokenswarm_fault="500"))
    assert (got, "retry-after" in headers) == (500, False)


@pytest.mark.parametrize("after", [0, 3])
def test_error_frame(port: int, after: int) -> None:
    _, chunks = faulty(port, {"breaks": "error", "after_tokens": after})
    frames = events(chunks)
    assert frames[-1]["error"]["code"] == 500
    assert sum(map(bool, texts(frames))) == after
    assert chunks[-2:] == [b"data: [DONE]\n\n", b""]


def test_slow_headers(port: int) -> None:
    started = time.monotonic()
    head, chunks = faulty(port, {"headers_after_s": 0.1})
    assert time.monotonic() - started >= 0.1
    assert head.startswith(b"HTTP/1.1 200 OK")
    assert len(events(chunks)) == 7


def test_role_only(port: int) -> None:
    _, chunks = faulty(port, "role-only")
    role, finish = events(chunks)
    assert role["choices"][0]["delta"]["role"] == "assistant"
    assert (finish["choices"][0]["finish_reason"], texts([finish])) == ("length", [""])


def test_only_done(port: int) -> None:
    assert faulty(port, "only-done")[1] == [b"data: [DONE]\n\n", b""]


def test_html(port: int) -> None:
    status, headers, data = asked(port, "POST", "/v1/chat/completions", chat(tokenswarm_fault="html"))
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert data.startswith(b"<!DOCTYPE html>")


@pytest.mark.parametrize(
    ("usage", "counts"),
    [
        ("none", ["absent"] * 4),
        ("finish", ["absent", "absent", "absent", 3]),
        ("cumulative", [0, 1, 2, 3]),
        ("null", [None] * 4),
    ],
)
def test_usage(port: int, usage: str, counts: list[Any]) -> None:
    _, chunks = faulty(port, {"usage": usage}, tokens=3, stream_options={"include_usage": True})
    frames = events(chunks)
    fields = [f.get("usage", {"completion_tokens": "absent"}) for f in frames]
    assert [f and f["completion_tokens"] for f in fields] == counts


@pytest.mark.parametrize(("line_end", "end"), [("crlf", b"\r\n\r\n"), ("cr", b"\r\r")])
def test_line_ends(port: int, line_end: str, end: bytes) -> None:
    _, chunks = faulty(port, {"line_end": line_end})
    assert len(chunks) == 9
    assert all(c.endswith(end) and c.count(b"\n") == end.count(b"\n") for c in chunks[:-1])


def test_comments_while_waiting(port: int) -> None:
    hold = chat(tokens=1, tokenswarm_fault={"breaks": "stall", "seconds": 0.1, "comment_every_s": 0.02})
    _, chunks = streamed(port, hold)
    comments = [c for c in chunks if c.startswith(b":")]
    assert 2 <= len(comments) <= 5
    assert chunks[: len(comments)] == [b": keep-alive\n\n"] * len(comments)


def test_several_tokens_a_frame(port: int, folder: Path) -> None:
    _, chunks = faulty(port, "interval", tokens=20)
    frames = events(chunks)
    assert [len(t.split()) for t in texts(frames)] == [0, 1, 8, 8, 3]
    assert told(folder, frames)["tokens"] == [1, 8, 8, 3]


def test_no_done(port: int) -> None:
    _, chunks = faulty(port, "no-done")
    assert chunks[-1] == b""
    assert events(chunks)[-1]["choices"][0]["finish_reason"] == "length"
    assert b"data: [DONE]\n\n" not in chunks


def test_endless_line(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=5) as sock:
        sock.sendall(request_bytes(chat(tokenswarm_fault="endless-line")))
        seen = b""
        while len(seen) < 300_000:
            seen += sock.recv(65536)
    tail = seen[seen.rindex(b"\n\n") :]
    assert tail.count(b"data: ") == 1
    assert len(tail) > 200_000
    assert eventually(lambda: gauges(port)["vllm:num_requests_running"] == 0)


def test_every_nth_answer_is_faulty(strict_port: int) -> None:
    key = "Authorization: Bearer secret"
    ends = [
        raw(strict_port, request_bytes(chat(), "/v1/chat/completions", key, "Connection: close")).endswith(b"0\r\n\r\n")
        for _ in range(4)
    ]
    assert sorted(ends) == [False, False, True, True]
    assert ends[0] != ends[1]


def test_sigterm_ends_the_process_with_0(tmp_path: Path) -> None:
    with engine(tmp_path) as (port, process):
        assert asked(port, "GET", "/health")[0] == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(5) == 0
