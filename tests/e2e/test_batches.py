"""The batch dimension with real servers: started anew for each setting, ended as a group, seen when they die.

The engine here takes 20 ms a step, so that few users fill it and a busy machine can keep up.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from command import COMMAND, MOST_ATTEMPTS, begun, said, soon

from harness.batches import written
from harness.batches.command import template
from harness.batches.serving import Hook, is_ready, running
from harness.knee.map import BatchMap, Setting
from harness.model import Serve

pytestmark = pytest.mark.e2e

SMALL = Setting(max_num_seqs=2, max_num_batched_tokens=2048)
PROFILE = {
    "name": "slow",
    "source": "invented for these tests: 20 ms a step, whatever the batch",
    "max_num_seqs": 64,
    "max_num_batched_tokens": 2048,
    "max_model_len": 2048,
    "step": {"base_ms": 20.0},
    "kv": {"block_size": 16, "num_blocks": 4096},
}
STUBBORN = """
import http.server, os, pathlib, signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.sigwait({signal.SIGUSR1})"])
pathlib.Path("pids").write_text(f"{os.getpid()} {child.pid}")

class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Answers).serve_forever()
"""
"""A server that does not heed SIGTERM, and has a child of its own."""
MORTAL = """
import os, sys, threading
from harness.engine import profile, server

def doomed(port):
    timer = threading.Timer(6.0, lambda: (print("out of memory, sadly", file=sys.stderr, flush=True), os._exit(3)))
    timer.daemon = True
    timer.start()

server.serve(profile.load(sys.argv[1]), "127.0.0.1", int(sys.argv[2]), on_ready=doomed)
"""
"""An engine that dies when the load has begun."""


def written_scenario(place: Path, serve: dict[str, Any], **fields: Any) -> Path:
    """A closed loop of a few users; the 99th percentile of TTFT is 40 ms with a free seat, and 60 and more without."""
    scenario = {
        "name": "batches",
        "load": {"loop": "closed", "ladder": {"from": 2, "to": 8, "factor": 2}},
        "phases": {"warmup_s": 0.3, "hold_s": 1.0, "drain_s": 5},
        "prompt_tokens": {"dist": "uniform", "min": 8, "max": 16},
        "output_tokens": {"dist": "uniform", "min": 6, "max": 10},
        "slo": {"ttft_p99_ms": 55},
        "serve": serve,
    }
    path = place / "batches.yaml"
    path.write_text(yaml.safe_dump({**scenario, **fields}), encoding="utf-8")
    (place / "slow.yaml").write_text(yaml.safe_dump(PROFILE), encoding="utf-8")
    return path


def mapped(place: Path, path: Path, batch: str) -> Any:
    return said("knee", str(path), "--batch", batch, "--out", "map", cwd=place)


# --- the map ----------------------------------------------------------------------------------------------------------


def knees(found: BatchMap) -> dict[int, float | None]:
    return {cell.setting.max_num_seqs: cell.figures.load for cell in found.cells}


def test_the_knee_follows_the_batch_and_is_not_measured_twice(tmp_path: Path) -> None:
    path = written_scenario(tmp_path, {"built_in": "engine", "model": "slow.yaml"})
    for attempt in range(MOST_ATTEMPTS):  # a neighbour on this machine can starve the client; then nothing is claimed
        done = mapped(tmp_path, path, "2,4")
        found = written.read(tmp_path / "map")
        if None not in knees(found).values():
            break
        (tmp_path / "map").rename(tmp_path / f"attempt-{attempt}")
    assert done.returncode == 0, done.stderr
    assert knees(found)[2] in (2, 3), done.stderr
    assert knees(found)[4] in (4, 5), done.stderr
    assert found.best == Setting(max_num_seqs=4, max_num_batched_tokens=2048)
    assert [cell.how for cell in found.cells] == ["measured", "measured"]
    assert all(cell.figures.binding == "ttft_p99_ms" for cell in found.cells)
    assert "★4" in done.stdout
    servers = [process for process in psutil.process_iter() if str(tmp_path) in " ".join(_words(process))]
    assert not servers
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "map").glob("*/summary.json")}
    assert len(before) == 2
    again = mapped(tmp_path, path, "2,4")
    assert again.returncode == 0, again.stderr
    assert "the server starts" not in again.stderr
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_a_map_that_was_interrupted_goes_on_within_its_search(tmp_path: Path) -> None:
    path = written_scenario(tmp_path, {"built_in": "engine", "model": "slow.yaml"})
    run = tmp_path / "map" / "seqs-4-tokens-2048"
    command = [*COMMAND, "knee", str(path), "--batch", "2,4", "--out", "map"]
    with begun(command, tmp_path) as process:
        soon(lambda: len(stages_of(run)) >= 2)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) != 0
    before = stages_of(run)
    assert not (run / "summary.json").exists()
    again = mapped(tmp_path, path, "2,4")  # may end without a knee where a neighbour starves the client
    assert "seqs-4-tokens-2048: goes on where it was interrupted" in again.stderr
    assert stages_of(run)[: len(before)] == before
    assert [cell.how for cell in written.read(tmp_path / "map").cells] == ["measured", "measured"]
    assert not list((tmp_path / "map").glob("*.unfinished"))


def stages_of(run: Path) -> list[str]:
    return (run / "stages.jsonl").read_text().splitlines() if (run / "stages.jsonl").exists() else []


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:  # it has just ended
        return []


# --- servers that fail ------------------------------------------------------------------------------------------------


def test_a_server_that_does_not_come_up_is_one_line(tmp_path: Path) -> None:
    dies = f"{sys.executable} -c \"import sys; sys.exit('no such model')\" {{max_num_seqs}} {{port}}"
    done = mapped(tmp_path, written_scenario(tmp_path, {"command": dies}), "2")
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert "ended before it was ready: exit 1: no such model" in last
    assert (tmp_path / "map" / "seqs-2-tokens-2048.server.log").read_text().strip() == "no such model"


def test_a_server_that_dies_during_the_search_ends_it_at_once(tmp_path: Path) -> None:
    (tmp_path / "mortal.py").write_text(MORTAL)
    command = f"{sys.executable} mortal.py slow.yaml {{port}} {{max_num_seqs}}"
    path = written_scenario(tmp_path, {"command": command}, phases={"warmup_s": 1, "hold_s": 40, "drain_s": 30})
    done = mapped(tmp_path, path, "2")
    assert done.returncode == 2, done.stderr
    assert "died during the search: exit 3; its last words: out of memory, sadly" in done.stderr.splitlines()[-1]
    assert not (tmp_path / "map" / "seqs-2-tokens-2048").exists()
    assert (tmp_path / "map" / "seqs-2-tokens-2048.unfinished").is_dir()


def test_a_program_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    done = mapped(tmp_path, written_scenario(tmp_path, {"command": "no-such-program {max_num_seqs} {port}"}), "2")
    assert done.returncode == 2
    assert "serve: cannot start no-such-program" in done.stderr.splitlines()[-1]


# --- start, readiness and end -----------------------------------------------------------------------------------------


def hooked(**fields: Any) -> Hook:
    serve = Serve(**fields)
    return Hook(serve=serve, template=template(serve))


def test_what_does_not_heed_sigterm_is_killed_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    hook = hooked(command=f"{sys.executable} stubborn.py {{port}} {{max_num_seqs}}", stop_within_s=0.3)
    with running(hook, SMALL, tmp_path / "run") as server:
        pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
        assert server.process.pid == pids[0]
        assert os.getsid(pids[0]) == pids[0]
        assert all(psutil.pid_exists(pid) for pid in pids)
    soon(lambda: not any(_lives(pid) for pid in pids))


def _lives(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_what_never_answers_is_given_up_and_ended(tmp_path: Path) -> None:
    wait = "import pathlib, os, signal; pathlib.Path('{}').write_text(str(os.getpid())); signal.pause()"
    place = tmp_path / "pid"
    serve = {"command": f'{sys.executable} -c "{wait.format(place)}" {{max_num_seqs}} {{port}}', "ready_within_s": 0.6}
    with (
        pytest.raises(ValueError, match=r"/health did not answer 200 within 0\.6 s"),
        running(hooked(**serve), SMALL, tmp_path / "run"),
    ):
        pytest.fail("it was never ready")
    assert not place.exists() or not _lives(int(place.read_text()))


def test_env_reaches_the_server(tmp_path: Path) -> None:
    told = "import os, sys; sys.exit(os.environ['SAID'])"
    hook = hooked(command=f'{sys.executable} -c "{told}" {{max_num_seqs}} {{port}}', env={"SAID": "so it is"})
    with pytest.raises(ValueError, match="so it is"), running(hook, SMALL, tmp_path / "run"):
        pytest.fail("it was never ready")


@contextmanager
def answering(statuses: dict[str, int]) -> Iterator[str]:
    """A server on a thread that gives these paths these statuses."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(statuses.get(self.path, 404))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *words: object) -> None:
            """Nothing is said."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()


@pytest.mark.parametrize(
    ("statuses", "path", "ready"),
    [
        ({"/health": 200}, None, True),
        ({"/health": 503, "/v1/models": 200}, None, False),  # still loading, and its models are listed all the same
        ({"/v1/models": 200}, None, True),
        ({}, None, False),
        ({"/up": 200}, "/up", True),
        ({"/health": 200, "/up": 503}, "/up", False),
    ],
)
def test_readiness(statuses: dict[str, int], path: str | None, ready: bool) -> None:
    with answering(statuses) as host:
        assert is_ready(host, path) is ready


def test_nobody_listens() -> None:
    assert not is_ready("http://127.0.0.1:9", None)
