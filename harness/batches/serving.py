"""One server of a setting: started in a session of its own, waited for, ended as a group. I/O: processes, loopback."""

import contextlib
import http.client
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct

from harness import clock
from harness.batches.command import LOCAL, PORT, Template, filled
from harness.knee.map import Setting
from harness.model import Serve

HEALTH, MODELS = "/health", "/v1/models"
UNKNOWN = (404, 405)
"""Answers of a server that has no such path."""
ASK_EVERY_S = 0.1
ASK_WITHIN_S = 2.0
TAIL_CHARACTERS = 300


class Hook(Struct, frozen=True, kw_only=True):
    """How servers are started, checked, with the host of those that listen where the command cannot say."""

    serve: Serve
    template: Template
    host: str | None = None

    def __post_init__(self) -> None:
        if not self.template.has(PORT) and not self.host:
            raise ValueError("serve.command: has no {port} and there is no target.host; put one of them in")


class Server(Struct, frozen=True, kw_only=True):
    """A server that is up."""

    host: str
    process: "subprocess.Popen[bytes]"
    log: Path
    ready_after_s: float

    def end_of_it(self) -> str:
        """How it died, in one line."""
        return f"exit {self.process.returncode}; its last words: {last_words(self.log)} ({self.log})"


@contextlib.contextmanager
def running(hook: Hook, setting: Setting, place: Path) -> Iterator[Server]:
    """A server with this setting while the context lasts; what it says is appended to PLACE.server.log.

    Raises ValueError, one line: it cannot be started, died before it was ready, or was not ready in time.
    """
    port = free_port() if hook.template.has(PORT) else 0
    words = filled(hook.template, setting, port=port, profile_path=place.with_name(f"{place.name}.profile.yaml"))
    host = f"http://{LOCAL}:{port}" if port else hook.host or ""
    log = place.with_name(f"{place.name}.server.log")
    process = _started(words, hook.serve, log)
    try:
        since_ns = clock.mono_ns()
        _wait(process, hook, host, log)
        yield Server(host=host, process=process, log=log, ready_after_s=(clock.mono_ns() - since_ns) / clock.S)
    finally:
        _end(process, hook.serve.stop_within_s)


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind((LOCAL, 0))
        return int(probe.getsockname()[1])


def last_words(log: Path) -> str:
    """The last line of a log that says anything."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    return lines[-1][:TAIL_CHARACTERS] if lines else "none"


def _started(words: list[str], serve: Serve, log: Path) -> "subprocess.Popen[bytes]":
    with open(log, "ab") as said:
        try:
            return subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                env={**os.environ, **serve.env},
                start_new_session=True,  # Ctrl-C does not reach it, and its group is its own
            )
        except OSError as error:
            raise ValueError(
                f"serve: cannot start {words[0]}: {error.strerror}; install it, or give its path in serve.command"
            ) from None


def _wait(process: "subprocess.Popen[bytes]", hook: Hook, host: str, log: Path) -> None:
    within_s = hook.serve.ready_within_s
    give_up_ns = clock.mono_ns() + int(within_s * clock.S)
    while not is_ready(host, hook.serve.ready):
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = process.wait(ASK_EVERY_S)
            raise ValueError(f"serve: the server ended before it was ready: exit {code}: {last_words(log)} ({log})")
        if clock.mono_ns() > give_up_ns:
            asked = f"{host}{hook.serve.ready or HEALTH}"
            raise ValueError(
                f"serve: {asked} did not answer 200 within {within_s:g} s; raise serve.ready_within_s, or see {log}"
            )


def is_ready(host: str, path: str | None) -> bool:
    """Does the server say that it can be used? Only one without /health is asked for its models."""
    if path is not None:
        return _status(host, path) == 200
    status = _status(host, HEALTH)
    return status == 200 or (status in UNKNOWN and _status(host, MODELS) == 200)


def _status(host: str, path: str) -> int | None:
    """None: there is no HTTP answer yet."""
    at = urlsplit(host)
    secure = at.scheme == "https"
    kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    connection = kind(at.hostname or "", at.port, timeout=ASK_WITHIN_S)
    try:
        connection.request("GET", at.path.rstrip("/") + path)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def _end(process: "subprocess.Popen[bytes]", within_s: float) -> None:
    """SIGTERM to the group, and SIGKILL to what is left of it once its leader has ended or was given its time."""
    try:
        _tell(process, signal.SIGTERM)
        process.wait(within_s)
    except subprocess.TimeoutExpired:
        pass  # it was given its time
    finally:
        _tell(process, signal.SIGKILL)
        process.wait()


def _tell(process: "subprocess.Popen[bytes]", number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)
