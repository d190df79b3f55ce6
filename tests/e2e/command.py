"""The command as a user types it, the engine it loads and the run it leaves. I/O: real processes, loopback only."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from harness.record.log import read_records

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "harness.cli"]
LOCUST = [sys.executable, "-m", "locust", "-f", str(ROOT / "locustfile.py")]
SHORT = {"phases.warmup_s": 0.3, "phases.hold_s": 1, "phases.drain_s": 5}
"""Scenario fields that make a level take little more than a second."""
MOST_ATTEMPTS = 3
WITHIN_S = 60.0
"""A command that takes longer than this hangs."""

ENGINE = """
import sys
import msgspec
from harness.engine import profile, server

def ready(port: int) -> None:
    print(f"http://127.0.0.1:{port}", flush=True)

options = msgspec.json.decode(sys.argv[2], type=server.Options)
server.serve(profile.load(sys.argv[1]), "127.0.0.1", 0, options=options, on_ready=ready)
"""


def environment(**more: str) -> dict[str, str]:
    """This one, able to import the project from anywhere and without anything that changes how output looks."""
    kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "FORCE_COLOR", "NO_COLOR")}
    return kept | {"PYTHONPATH": str(ROOT)} | more


def said(*words: str, cwd: Path, env: Mapping[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    """`tokenswarm …` run to its end."""
    return ended([*COMMAND, *words], cwd, env)


def ended(
    command: Sequence[str], cwd: Path, env: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Any command run to its end."""
    env = env or environment()
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=WITHIN_S)


def settings(**fields: Any) -> list[str]:
    """`-s path=value …`: a short level, changed by these fields (a double underscore stands for the dot)."""
    values = SHORT | {name.replace("__", "."): value for name, value in fields.items()}
    return [word for path, value in values.items() for word in ("-s", f"{path}={json.dumps(value)}")]


@contextlib.contextmanager
def begun(command: Sequence[str], cwd: Path, env: Mapping[str, str] | None = None) -> Iterator["subprocess.Popen[str]"]:
    """A command under way in a session of its own, of which nothing outlives the context; output as text files."""
    with (cwd / "stdout.txt").open("a") as out, (cwd / "stderr.txt").open("a") as err:
        process = subprocess.Popen(
            command, cwd=cwd, env=env or environment(), stdout=out, stderr=err, text=True, start_new_session=True
        )
        try:
            yield process
        finally:
            for each in session_of(process.pid):
                each.kill()
            process.wait()


def session_of(leader: int) -> list[psutil.Process]:
    """Processes of a session, whoever their parent is by now."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(ProcessLookupError):
            if os.getsid(process.pid) == leader:
                found.append(process)
    return found


@contextlib.contextmanager
def engine(profile: str | Path = "demo", **options: Any) -> Iterator[str]:
    """An engine process with these `server.Options`; yields its URL."""
    command = [sys.executable, "-c", ENGINE, str(profile), json.dumps(options)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def soon(what: Callable[[], Any], within_s: float = 20.0) -> Any:
    """The first true thing this returns; AssertionError when there is none in time."""
    give_up = time.monotonic() + within_s
    while not (found := what()):
        assert time.monotonic() < give_up, "waited in vain"
        time.sleep(0.02)
    return found


def grown(directory: Path, worker: int = 0) -> Callable[[], bool]:
    """Whether records of this worker have reached the run directory."""
    path = directory / f"records-{worker}.arrows"
    return lambda: path.exists() and path.stat().st_size > 0


def summary(directory: Path) -> Any:
    """summary.json as any other program would read it."""
    return json.loads((directory / "summary.json").read_text())


def records(directory: Path) -> list[dict[str, Any]]:
    """Rows of the record log of a run, in the order written."""
    rows: list[dict[str, Any]] = read_records(directory).to_pylist()
    return rows


def balanced(directory: Path) -> Any:
    """The ledger of a run, after the first thing that must be true of every run."""
    ledger = summary(directory)["ledger"]
    assert ledger["balanced"]
    assert ledger["lost"] == 0
    assert ledger["due"] == sum(ledger["outcomes"].values()) > 0
    return ledger
