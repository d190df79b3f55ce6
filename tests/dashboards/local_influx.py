"""A real InfluxDB 1.x on loopback, and its HTTP API. I/O (processes, sockets, the clock)."""

import contextlib
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

READY_S = 10.0
CONFIG = """
reporting-disabled = true
bind-address = "127.0.0.1:{rpc}"
[meta]
dir = "{place}/meta"
[data]
dir = "{place}/data"
wal-dir = "{place}/wal"
query-log-enabled = false
[monitor]
store-enabled = false
[http]
bind-address = "127.0.0.1:{http}"
log-enabled = false
[subscriber]
enabled = false
[continuous_queries]
enabled = false
"""


def available() -> bool:
    """Is the server installed?"""
    return shutil.which("influxd") is not None


@contextlib.contextmanager
def running(place: Path) -> Iterator[str]:
    """A server with its files in this folder; yields its URL."""
    http, rpc = free_port(), free_port()
    config = place / "influxd.conf"
    config.write_text(CONFIG.format(place=place, http=http, rpc=rpc), encoding="utf-8")
    with (place / "influxd.log").open("wb") as log:
        process = subprocess.Popen(["influxd", "run", "-config", str(config)], stdout=log, stderr=log)
        try:
            url = f"http://127.0.0.1:{http}"
            _await(url, process)
            yield url
        finally:
            process.terminate()
            process.wait(READY_S)


def create(url: str, database: str) -> None:
    """Make an empty database."""
    _post(f"{url}/query", urllib.parse.urlencode({"q": f'CREATE DATABASE "{database}"'}).encode())


def write(url: str, database: str, body: str) -> None:
    """Write line protocol, stamps in ns. HTTPError: the database refused a line."""
    _post(f"{url}/write?db={database}&precision=ns", body.encode())


def asked(url: str, database: str, query: str) -> list[dict[str, Any]]:
    """Series of the answer, times in ms. ValueError: the database does not understand the query."""
    form = urllib.parse.urlencode({"q": query, "db": database, "epoch": "ms"}).encode()
    try:
        answer = json.loads(_post(f"{url}/query", form))
    except urllib.error.HTTPError as error:
        with error:
            raise ValueError(f"{error.read().decode()} in {query}") from None
    result = answer["results"][0]
    if "error" in result:
        raise ValueError(f"{result['error']} in {query}")
    return list(result.get("series", []))


def free_port() -> int:
    """A port that nobody uses just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _post(address: str, body: bytes) -> bytes:
    with urllib.request.urlopen(urllib.request.Request(address, data=body), timeout=60) as answer:
        return bytes(answer.read())


def _await(url: str, process: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + READY_S
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/ping", timeout=1):
            return
        time.sleep(0.02)
    raise RuntimeError(f"influxd did not start (exit {process.poll()}); its log stands beside its configuration")
