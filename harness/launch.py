"""Starts what a verb needs: the embedded engine, and Locust on our locustfile. I/O (processes and files).

Neither locust nor gevent is imported here: both live in the child process, so the command itself stays light.
"""

import contextlib
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from harness import clock, scenario, shipped
from harness.model import Scenario
from harness.record.directory import read_header

READY_S = 20.0
STOP_S = 5.0
USERS_FAULT = 2
"""Exit code of Locust on our locustfile when a line on stderr says what is wrong."""
SCENARIO = "scenario.yaml"
"""In the run directory: the scenario as it was asked for, before a host was known."""
STARTER = ("locustfile.py", "scenarios", "dashboards")


class AlreadySaid(Exception):
    """There is no run, and one line on stderr has said why."""


class Launch(Struct, frozen=True, kw_only=True):
    """One run as a verb asks for it."""

    scenario: Scenario
    plan: str
    processes: int = 1
    directory: Path | None = None
    command: str = ""
    resume: bool = False
    """Go on with the run that was interrupted in `directory`."""


def scenario_named(name: str, overrides: list[str]) -> Scenario:
    """A scenario file or a shipped scenario. Raises ValueError, one line."""
    try:
        return scenario.load(shipped.scenario_path(name), overrides)
    except FileNotFoundError as error:
        raise ValueError(str(error)) from None


@contextlib.contextmanager
def engine_for(asked: Scenario) -> Iterator[str]:
    """The host to send load to: the scenario's own, or the embedded engine it names, started for as long as needed."""
    if asked.target.host:
        yield asked.target.host
        return
    if not asked.target.engine:
        raise ValueError(f"{asked.name}: no host to send load to; give --host URL")
    with engine(asked.target.engine) as host:
        yield host


@contextlib.contextmanager
def engine(profile: str, *options: str) -> Iterator[str]:
    """`tokenswarm engine PROFILE` on a free port; yields its URL. Raises ValueError when it does not come up."""
    command = [sys.executable, "-m", "harness.cli", "engine", profile, "--port", "0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()  # the ready line, or end of file when it failed and said why
        if not line.startswith("http"):
            process.wait(READY_S)
            raise ValueError(f"engine {profile}: did not start (exit {process.returncode})")
        yield line.split()[0]
    finally:
        _end(process)


def load(asked: Launch, host: str) -> Path:
    """Run Locust on our locustfile until it ends; returns the run directory.

    Raises ValueError or AlreadySaid when no run was made; then nothing of it stays.
    """
    if asked.resume and asked.directory:
        return _resumed(asked, host, asked.directory)
    directory = asked.directory or Path("runs") / run_id(asked.scenario.name)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        taken = any(directory.iterdir())
    except OSError as error:
        raise ValueError(f"{directory}: cannot be the run directory ({error.strerror}); choose another --out") from None
    if taken:
        raise ValueError(f"{directory}: is not empty; choose another --out, or remove it")
    written = directory / SCENARIO
    written.write_text(scenario.dump(asked.scenario), encoding="utf-8")
    code = _locust(locust_command(asked, host, directory, written))
    if not (directory / "header.json").exists():
        shutil.rmtree(directory, ignore_errors=True)
        if code == USERS_FAULT:
            raise AlreadySaid
        raise ValueError(f"the run did not start (exit {code}); the reason stands above")
    return directory


def interrupted(directory: Path, processes: int | None, command: str) -> Launch:
    """To go on with the run that lies there. Raises ValueError, one line, where none does."""
    header = read_header(directory)
    written = directory / SCENARIO
    asked = scenario.load(written) if written.exists() else header.scenario
    return Launch(
        scenario=asked,
        plan=header.plan,
        processes=processes or header.workers,
        directory=directory,
        command=command,
        resume=True,
    )


def _resumed(asked: Launch, host: str, directory: Path) -> Path:
    begun = read_header(directory).resumed_ns
    code = _locust([*locust_command(asked, host, directory, directory / SCENARIO), "--resume"])
    if read_header(directory).resumed_ns == begun:
        if code == USERS_FAULT:
            raise AlreadySaid
        raise ValueError(f"the run did not go on (exit {code}); the reason stands above")
    return directory


def locust_command(asked: Launch, host: str, directory: Path, written: Path) -> list[str]:
    """The same command a person would type, headless and quiet."""
    several = ["--processes", str(asked.processes)] if asked.processes > 1 else []
    return [
        sys.executable, "-m", "locust", "-f", str(shipped.shipped("locustfile.py")), "--headless", "--only-summary",
        "--skip-log-setup", "--host", host, "--scenario", str(written), "--plan", asked.plan,
        "--run-dir", str(directory), "--run-command", asked.command, *several,
    ]  # fmt: skip


def run_id(name: str) -> str:
    """Sorts by time, and says what it was."""
    stamp = clock.iso(clock.wall_ns()).replace("-", "").replace(":", "").rstrip("Z")
    return f"{stamp}-{name}"


def copy_starter(directory: Path) -> list[Path]:
    """Copy the shipped files; raises ValueError rather than overwrite one."""
    sources = [source for name in STARTER if (source := shipped.shipped(name)).exists()]
    taken = [directory / source.name for source in sources if (directory / source.name).exists()]
    if taken:
        raise ValueError(f"init: {taken[0]} exists; choose another directory, or move it away")
    directory.mkdir(parents=True, exist_ok=True)
    for source in sources:
        if source.is_dir():
            shutil.copytree(source, directory / source.name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, directory / source.name)
    return [directory / source.name for source in sources]


def heed_signals() -> None:
    """SIGTERM and SIGHUP end this process in order, as Ctrl-C does."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)


def _locust(command: list[str]) -> int:
    """Exit code of Locust; its own statistics go nowhere, its log and our progress to stderr.

    In a process group of its own Ctrl-C does not reach it and its workers all at once: it is told once, ends the run
    in order, and this process waits for that.
    """
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, process_group=0)
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            process.terminate()


def _end(process: "subprocess.Popen[str]") -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if process.stdout is not None:
        process.stdout.close()
