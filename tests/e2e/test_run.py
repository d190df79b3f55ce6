"""Runs in one process: every due request is accounted for, whatever the server, the user or the machine does to it."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest
from command import (
    COMMAND,
    SHORT,
    balanced,
    begun,
    engine,
    environment,
    grown,
    records,
    said,
    session_of,
    settings,
    soon,
    summary,
)

from harness.clock import MS, S

pytestmark = pytest.mark.e2e

SMALL = ("--prompt-tokens", "8", "--output-tokens", "8")
LONG = settings(phases__hold_s=30)
KEY = "sk-e2e-7f3a91c2"
OTHER_KEY = "sk-e2e-wrong-55d0"

# --- every outcome is counted -----------------------------------------------------------------------------------------

QUICK_TO_GIVE_UP = {"first_token_s": 0.4, "between_tokens_s": 0.4}
FAULTS: dict[str, tuple[dict[str, Any], str, str]] = {
    "429": ({"status": 429, "retry_after_s": 1}, "--users", "rate_limited"),
    "cut": ({"breaks": "cut", "after_tokens": 3}, "--rate", "truncated"),
    "rst": ({"breaks": "rst", "after_tokens": 3}, "--users", "reset"),
    "error in stream": ({"breaks": "error", "after_tokens": 3}, "--rate", "error_in_stream"),
    "stall": ({"breaks": "stall", "after_tokens": 3, "seconds": 9}, "--users", "timeout_between_tokens"),
    "slow headers": ({"headers_after_s": 9}, "--rate", "timeout_first_token"),
}


@pytest.mark.parametrize(("fault", "loop", "outcome"), FAULTS.values(), ids=FAULTS)
def test_a_fault_in_every_third_answer(fault: dict[str, Any], loop: str, outcome: str, tmp_path: Path) -> None:
    """A third ends so and the rest well; in closed loop to the request, in open loop too: nothing is sent twice."""
    load = {"--users": "3", "--rate": "30"}[loop]
    with engine(fault=fault, fault_every=3) as host:
        short = settings(phases__hold_s=0.8, target__timeouts=QUICK_TO_GIVE_UP, slo__error_share=0.5)
        done = said("run", "--host", host, loop, load, *SMALL, *short, "--out", "run", cwd=tmp_path)
    ledger = balanced(tmp_path / "run")
    assert set(ledger["outcomes"]) == {"ok", outcome}, done.stdout
    assert ledger["outcomes"][outcome] == ledger["due"] // 3
    assert done.returncode == summary(tmp_path / "run")["verdict"]["exit_code"]
    assert f"{ledger['outcomes'][outcome]} {outcome}".replace("_", " ") in done.stdout.replace("_", " ")


def test_what_outlives_the_drain_is_censored_and_counted(host: str, tmp_path: Path) -> None:
    short = settings(phases={"warmup_s": 0.2, "hold_s": 0.5, "drain_s": 0.3})
    asked = ("--users", "3", "--prompt-tokens", "8", "--output-tokens", "2000")
    said("run", "--host", host, *asked, *short, "--out", "run", cwd=tmp_path)
    assert balanced(tmp_path / "run")["outcomes"] == {"censored": 3}
    rows = records(tmp_path / "run")
    assert all("still running" in row["detail"] for row in rows)
    assert all(len(row["gaps_us"]) > 30 for row in rows), "their tokens are kept"


# --- coordinated omission ---------------------------------------------------------------------------------------------

FREEZE_S = 1.0
RATE = 40


def slow(directory: Path) -> list[float]:
    """TTFT from due, in seconds, of requests that waited longer than any healthy one of this engine."""
    rows = [row for row in records(directory) if row["gaps_us"]]
    ttft_s = [(row["start_ns"] - row["due_ns"]) / S + row["gaps_us"][0] / 1e6 for row in rows]
    return [value for value in ttft_s if value > 0.15]


def test_a_planted_freeze_hits_as_many_requests_as_were_due_in_it(tmp_path: Path) -> None:
    """The open loop goes on sending while the engine stands still; a closed loop of one waits, and sees it once."""
    frozen = {"breaks": "freeze", "after_tokens": 3, "seconds": FREEZE_S}
    with engine(fault=frozen, fault_every=50) as host:
        for name, load, hold_s in (("open", ("--rate", str(RATE)), 2), ("closed", ("--users", "1"), 1)):
            asked = (*SMALL, *settings(phases__hold_s=hold_s), "--out", name)
            said("run", "--host", host, *load, *asked, cwd=tmp_path)
    assert balanced(tmp_path / "open")["outcomes"].keys() == balanced(tmp_path / "closed")["outcomes"].keys() == {"ok"}

    hit = slow(tmp_path / "open")
    expected = RATE * (FREEZE_S - 0.15)
    assert abs(len(hit) - expected) < 4 * expected**0.5, "as many as were due in the freeze, by Poisson's law"
    assert max(hit) > 0.8 * FREEZE_S
    assert max(hit) < FREEZE_S + 1
    assert 0.25 < sum(hit) / len(hit) / FREEZE_S < 0.9, "those due later in it waited less"
    assert len(slow(tmp_path / "closed")) <= 1


# --- the same seed, the same plan -------------------------------------------------------------------------------------


def plan(directory: Path) -> list[tuple[int, int, int]]:
    """What was asked for and when, from the start of the level, in the order of birth."""
    begin_ns = json.loads((directory / "stages.jsonl").read_text())["warmup_at_ns"]
    rows = sorted(records(directory), key=lambda row: row["request_id"])
    return [(row["due_ns"] - begin_ns, row["prompt_tokens_asked"], row["output_tokens_asked"]) for row in rows]


def test_the_same_seed_makes_the_same_plan(host: str, tmp_path: Path) -> None:
    lengths = {"dist": "uniform", "min": 4, "max": 12}
    for name in ("one", "same"):
        asked = settings(seed=5, prompt_tokens=lengths, output_tokens=lengths, phases__hold_s=0.5)
        said("run", "--host", host, "--rate", "40", *asked, "--out", name, cwd=tmp_path)
    one, same = plan(tmp_path / "one"), plan(tmp_path / "same")
    assert len(one) > 15
    assert len({asked[1:] for asked in one}) > 5
    assert one == same


# --- stopped and killed -----------------------------------------------------------------------------------------------


@contextmanager
def long_run(host: str, cwd: Path) -> Iterator["subprocess.Popen[str]"]:
    """A run of half a minute, of which records are on disk already."""
    command = [*COMMAND, "run", "--host", host, "--users", "4", "--output-tokens", "60", *LONG, "--out", "run"]
    with begun(command, cwd) as process:
        soon(grown(cwd / "run"))
        yield process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_run_in_order(number: signal.Signals, host: str, tmp_path: Path) -> None:
    """Ctrl-C goes to the whole group of the terminal, the others to the command alone."""
    with long_run(host, tmp_path) as process:
        if number is signal.SIGINT:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        assert process.wait(20) == 2
        assert not session_of(process.pid), "nothing goes on behind the user's back"
    outcomes = balanced(tmp_path / "run")["outcomes"]
    assert outcomes["ok"] >= 4
    assert outcomes["censored"] == 4
    assert summary(tmp_path / "run")["verdict"]["text"].startswith("stopped early")
    assert "stopped early" in (tmp_path / "stdout.txt").read_text()
    assert "Traceback" not in (tmp_path / "stderr.txt").read_text()


def test_records_survive_a_kill(host: str, tmp_path: Path) -> None:
    with long_run(host, tmp_path) as process:
        (locust,) = psutil.Process(process.pid).children()
        size = (tmp_path / "run" / "records-0.arrows").stat().st_size
        soon(lambda: (tmp_path / "run" / "records-0.arrows").stat().st_size > size)
        locust.kill()
        assert process.wait(20) == 2
    last = (tmp_path / "stderr.txt").read_text().splitlines()[-1]
    assert f"tokenswarm report {Path('run')}" in last

    done = said("report", "run", cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    outcomes = balanced(tmp_path / "run")["outcomes"]
    assert set(outcomes) == {"ok", "censored"}
    assert outcomes["ok"] >= 8
    assert outcomes["censored"] == 4, "born, and never seen to end"
    ended_ns = [row["end_ns"] for row in records(tmp_path / "run") if row["end_ns"]]
    assert max(ended_ns) - min(ended_ns) > 0.5 * S, "what came before the last second is there"


# --- the API key ------------------------------------------------------------------------------------------------------


def holders(word: str, directory: Path) -> list[str]:
    """Files below a directory with this word in them."""
    return [str(path) for path in directory.rglob("*") if path.is_file() and word.encode() in path.read_bytes()]


def test_the_api_key_stays_in_the_environment(tmp_path: Path) -> None:
    with engine(api_key=KEY) as host:
        asked = ("--users", "2", "--api-key-env", "E2E_KEY", *SMALL, *settings(), "--out", "run")
        with begun([*COMMAND, "run", "--host", host, *asked], tmp_path, environment(E2E_KEY=KEY)) as process:
            soon(grown(tmp_path / "run"))
            lines = [" ".join(each.cmdline()) for each in session_of(process.pid)]
            assert process.wait(20) in (0, 2)
    assert balanced(tmp_path / "run")["outcomes"].keys() == {"ok"}
    assert len(lines) >= 2
    assert not [line for line in lines if KEY in line]
    assert (tmp_path / "stdout.txt").stat().st_size
    assert not holders(KEY, tmp_path)


class Echo(BaseHTTPRequestHandler):
    """A server that says what it was given: the worst place for a key."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(200, b'{"object":"list","data":[{"id":"echo"}]}')

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(401, json.dumps({"error": f"bad key: {self.headers['Authorization']}"}).encode())

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """A test has nobody to tell."""


def test_a_key_that_a_server_echoes_is_blotted_out(tmp_path: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        asked = ("--users", "1", "--api-key-env", "E2E_KEY", *SMALL, *settings(phases__hold_s=0.2))
        url = f"http://127.0.0.1:{server.server_port}"
        done = said("run", "--host", url, *asked, "--out", "run", cwd=tmp_path, env=environment(E2E_KEY=OTHER_KEY))
        server.shutdown()
    assert done.returncode == 1
    assert balanced(tmp_path / "run")["outcomes"].keys() == {"refused"}
    details = {row["detail"] for row in records(tmp_path / "run")}
    assert all("bad key: Bearer ***" in detail for detail in details), details
    assert not holders(OTHER_KEY, tmp_path)
    assert OTHER_KEY not in done.stdout + done.stderr


def test_a_refused_key_is_said_before_any_load(tmp_path: Path) -> None:
    with engine(api_key=KEY) as host:
        asked = ("demo", "--host", host, "--api-key-env", "E2E_KEY")
        done = said("run", *asked, cwd=tmp_path, env=environment(E2E_KEY=OTHER_KEY))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "401" in done.stderr
    assert OTHER_KEY not in done.stderr


# --- a starved generator ----------------------------------------------------------------------------------------------


@contextmanager
def hogs(core: int, many: int) -> Iterator[None]:
    """Busy loops on one core. Each in a session of its own: Linux shares a core fairly between sessions."""
    command = [sys.executable, "-c", "while True: pass"]
    running = [subprocess.Popen(command, start_new_session=True) for _ in range(many)]
    try:
        for each in running:
            os.sched_setaffinity(each.pid, {core})
        yield
    finally:
        for each in running:
            each.kill()
            each.wait()


SWIFT = """
name: swift
source: the profile demo, three times as fast and with seats for all
max_num_seqs: 128
max_num_batched_tokens: 8192
max_model_len: 8192
step: {base_ms: 3.0, per_sequence_ms: 0.01, per_prefill_token_ms: 0.0}
kv: {block_size: 16, num_blocks: 65536}
"""


def test_a_starved_generator_says_so_and_judges_nothing(tmp_path: Path) -> None:
    """A hundred and twenty streams, read by a process that gets a seventh of a core until the hold is over."""
    core = min(os.sched_getaffinity(0))
    asked = settings(load__levels=[120], slo={"ttft_p99_ms": 9000})
    profile = tmp_path / "swift.yaml"
    profile.write_text(SWIFT)
    begin = [*COMMAND, "run", "demo", *asked, "--out", "run", "--host"]
    with engine(profile) as host, begun([*begin, host], tmp_path) as process:
        soon(lambda: "level 1" in (tmp_path / "stderr.txt").read_text())
        (locust,) = psutil.Process(process.pid).children()
        os.sched_setaffinity(locust.pid, {core})
        with hogs(core, 6):
            time.sleep(SHORT["phases.warmup_s"] + SHORT["phases.hold_s"])
        assert process.wait(30) == 2
    balanced(tmp_path / "run")
    (level,) = summary(tmp_path / "run")["levels"]
    assert level["client"]["limited"]
    assert level["held"] == "unjudged"
    told = (tmp_path / "stdout.txt").read_text()
    assert "lient-limited" in told
    assert "--processes" in told


def test_lag_of_arrivals_is_small_on_a_machine_that_has_time(finished: Path) -> None:
    """A closed loop is due when it starts: its lag is a few instructions."""
    lag_ms = [(row["start_ns"] - row["due_ns"] - (row["connect_ns"] or 0)) / MS for row in records(finished)]
    assert sorted(lag_ms)[len(lag_ms) // 2] < 1
