"""The watcher of a server's metrics as a process: against our engine and against servers that behave in other ways."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest
from command import ENGINE, ROOT, engine, environment, soon
from scripted_server import CLOSE, HANG, ScriptedServer, Step

from harness import clock, scrape
from harness.record.log import read_server

pytestmark = pytest.mark.e2e

GOLDEN = Path(__file__).parent.parent / "golden" / "metrics"
QUICK = scrape.Options(every_s=0.1)
Watcher = subprocess.Popen[str]


def page(text: str, kind: str = "text/plain; version=0.0.4") -> bytes:
    body = text.encode()
    return f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


VLLM = page((GOLDEN / "vllm.txt").read_text(encoding="utf-8"))
NONE = (GOLDEN / "transformers-serve.bin").read_bytes()


@contextlib.contextmanager
def watching(url: str, directory: Path, options: scrape.Options = QUICK, **env: str) -> Iterator[Watcher]:
    """A watcher under way; it does not outlive the context."""
    command = scrape.command(url, directory, options)
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, env=environment(**env), stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def serving(*scripts: list[Step]) -> Iterator[ScriptedServer]:
    server = ScriptedServer(scripts)
    try:
        yield server
    finally:
        server.close()


def rows(directory: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = read_server(directory).to_pylist()
    return found


def ended(process: Watcher) -> tuple[int, str]:
    """Exit status and what it said, once it is told to end. It says nothing on stdout."""
    process.send_signal(signal.SIGTERM)
    return over(process)


def over(process: Watcher) -> tuple[int, str]:
    out, err = process.communicate(timeout=20)
    assert out == ""
    return process.returncode, err


def asks(host: str, tokens: int) -> None:
    body = json.dumps({"prompt": "one two three", "max_tokens": tokens, "ignore_eos": True}).encode()
    request = urllib.request.Request(f"{host}/v1/completions", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=20) as response:
        assert response.status == 200


# --- our engine -------------------------------------------------------------------------------------------------------


def test_an_engine_under_load_is_seen_to_be_so(tmp_path: Path) -> None:
    """Twenty requests on twelve seats: the batch fills, the queue grows, tokens are counted; all is on disk at the
    end, though nothing was old enough to be written before."""
    began_ns = clock.wall_ns()
    with engine() as host, watching(host, tmp_path) as process:
        soon(lambda: psutil.Process(process.pid).nice() == 10)
        clients = [threading.Thread(target=asks, args=(host, 40)) for _ in range(20)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        done_ns = clock.wall_ns()
        soon(lambda: any(row["at_ns"] > done_ns for row in rows(tmp_path)))
        assert ended(process) == (0, "")
    seen = rows(tmp_path)
    assert all(before["at_ns"] < after["at_ns"] for before, after in pairwise(seen))
    assert began_ns < seen[0]["at_ns"]
    assert {row["server"] for row in seen} == {host.removeprefix("http://")}
    assert max(row["running"] for row in seen) == 12
    assert max(row["waiting"] for row in seen) > 0
    assert max(row["kv_usage"] for row in seen) > 0
    last = seen[-1]
    assert (last["running"], last["waiting"], last["generation_tokens_total"]) == (0, 0, 800)
    assert last["dequeued_total"] == 20
    assert last["queue_s_total"] > 0
    assert all(value is not None for value in last.values())


# --- how it ends ------------------------------------------------------------------------------------------------------


def test_sigterm_while_the_server_hangs(tmp_path: Path) -> None:
    with serving([VLLM, CLOSE], [HANG]) as server, watching(server_url(server), tmp_path) as process:
        soon(lambda: server.connections == 2)
        asked_ns = clock.mono_ns()
        assert ended(process) == (0, "")
        assert clock.mono_ns() - asked_ns < 2 * clock.S
    (row,) = rows(tmp_path)
    assert (row["running"], row["waiting"]) == (4, 2)


def server_url(server: ScriptedServer) -> str:
    return f"http://127.0.0.1:{server.port}/metrics"


PARENT = """
import subprocess, sys
print(subprocess.Popen(sys.argv[1:]).pid, flush=True)
sys.stdin.read()
"""


def test_it_does_not_outlive_its_parent(tmp_path: Path) -> None:
    with serving([VLLM, CLOSE]) as server:
        command = [sys.executable, "-c", PARENT, *scrape.command(server_url(server), tmp_path, QUICK)]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, cwd=ROOT, env=environment(), stdin=pipe, stdout=pipe, text=True) as parent:
            assert parent.stdout is not None
            orphan = psutil.Process(int(parent.stdout.readline()))
            soon(lambda: server.connections >= 2)
            parent.kill()
            soon(lambda: not orphan.is_running() or orphan.status() == psutil.STATUS_ZOMBIE)
    assert rows(tmp_path)


def test_a_kill_costs_no_more_than_what_was_not_flushed(tmp_path: Path) -> None:
    with serving([VLLM, CLOSE]) as server:
        for killed in range(2):
            with watching(server_url(server), tmp_path) as process:
                soon(lambda at=killed: len({path.name for path in tmp_path.iterdir() if path.stat().st_size}) > at)
                process.kill()
                process.wait()
    assert {path.name for path in tmp_path.iterdir()} == {"server-0.arrows", "server-1.arrows"}
    assert len(rows(tmp_path)) >= 2 * 5, "three seconds of each, ten looks a second or fewer on a busy machine"


# --- servers that are otherwise ---------------------------------------------------------------------------------------


def test_a_server_without_metrics_is_asked_once(tmp_path: Path) -> None:
    with serving([NONE, CLOSE]) as server, watching(server_url(server), tmp_path) as process:
        status, said = over(process)
        assert (status, server.connections) == (0, 1)
    assert said.count("\n") == 1
    assert "answered 404: there are no metrics" in said
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_comes_late_goes_and_comes_back(tmp_path: Path) -> None:
    """One line for each trouble, however long it lasts."""
    busy = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"
    half = VLLM[: len(VLLM) // 2]
    scripts: list[list[Step]] = [
        [busy, CLOSE],
        [busy, CLOSE],
        [VLLM, CLOSE],
        [half, CLOSE],
        [half, CLOSE],
        [VLLM, CLOSE],
    ]
    with serving(*scripts) as server, watching(server_url(server), tmp_path) as process:
        soon(lambda: server.connections > len(scripts) + 2)
        status, said = ended(process)
    assert status == 0
    lines = said.splitlines()
    assert len(lines) == 2, said
    assert lines[0].endswith("answered 503; still trying")
    assert "no answer" in lines[1]
    assert len(rows(tmp_path)) >= 3


def test_an_engine_that_is_not_there_yet(tmp_path: Path) -> None:
    with engine() as host:
        port = host.rpartition(":")[2]
    with watching(host, tmp_path) as process:
        assert process.stderr is not None
        assert "no answer (Connection refused); still trying" in process.stderr.readline()
        late = [sys.executable, "-c", ENGINE.replace('"127.0.0.1", 0', f'"127.0.0.1", {port}'), "demo", "{}"]
        with subprocess.Popen(late, cwd=ROOT, stdout=subprocess.PIPE) as server:
            try:
                soon(lambda: rows(tmp_path))
            finally:
                server.terminate()
        process.send_signal(signal.SIGTERM)
        process.wait()


def test_a_key_is_sent_only_when_it_is_named(tmp_path: Path) -> None:
    with serving([VLLM, CLOSE]) as server:
        named = scrape.Options(every_s=0.1, api_key_env="METRICS_KEY")
        with watching(server_url(server), tmp_path, named, METRICS_KEY="sk-e2e-scrape") as process:
            soon(lambda: server.requests)
            assert ended(process)[0] == 0
        assert b"\r\nAuthorization: Bearer sk-e2e-scrape\r\n" in server.requests[0]
        asked = len(server.requests)
        with watching(server_url(server), tmp_path, METRICS_KEY="sk-e2e-scrape") as process:
            soon(lambda: len(server.requests) > asked + 2)
            ended(process)
        assert all(b"uthorization" not in request for request in server.requests[asked + 1 :])
        assert b"GET /metrics HTTP/1.1\r\n" in server.requests[-1]


WRONG = {
    "the URL": (["--url", "engine:8000"], "host: got 'engine:8000'"),
    "the key": (["--url", "http://127.0.0.1:9", "--api-key-env", "NOT_SET_HERE"], "NOT_SET_HERE is not set"),
    "the rate": (["--url", "http://127.0.0.1:9", "--every", "0"], "--every: got 0"),
    "the CA file": (["--url", "https://127.0.0.1:9", "--ca-file", "none.pem"], "ca_file: cannot read none.pem"),
}


@pytest.mark.parametrize(("words", "line"), WRONG.values(), ids=WRONG)
def test_wrong_arguments_are_one_line(words: list[str], line: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "harness.scrape", "--out", str(tmp_path), *words]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert line in done.stderr
    assert os.listdir(tmp_path) == []
