"""Real database servers on loopback, each in a directory of its own. I/O: starts processes and ends what it started."""

import contextlib
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import urllib3

READY_WITHIN_S = 20.0
HTTP = urllib3.PoolManager(retries=False, timeout=urllib3.Timeout(connect=1.0, read=30.0))

CONFIGURATION = """
reporting-disabled = true
bind-address = "127.0.0.1:{rpc_port}"
[meta]
  dir = "{place}/meta"
[data]
  dir = "{place}/data"
  wal-dir = "{place}/wal"
  query-log-enabled = false
[monitor]
  store-enabled = false
[subscriber]
  enabled = false
[continuous_queries]
  enabled = false
[http]
  bind-address = "127.0.0.1:{port}"
  log-enabled = false
{http}
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def program(name: str, package: str) -> str:
    """Where it lies. Without it the test is skipped, and says so."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed, so recording was NOT tested against it: apt-get install {package}")
    return found


class Server:
    """A process that answers HTTP. Mutable: it can be killed and started again on what it has stored."""

    def __init__(self, command: list[str], port: int, health: str) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._command = command
        self._health = health
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        retries = urllib3.Retry(total=None, connect=60, read=60, status=60, backoff_factor=0.02, backoff_max=0.2)
        response = HTTP.request("GET", self.url + self._health, retries=retries, timeout=READY_WITHIN_S)
        assert response.status < 300, response.data

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(READY_WITHIN_S)

    def kill(self) -> None:
        """kill -9."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(READY_WITHIN_S)


class Influxd(Server):
    """InfluxDB 1.x."""

    def ask(self, statement: str, database: str = "", login: str = "") -> dict[str, Any]:
        """The first result of a statement; `login` is user:password."""
        headers = urllib3.make_headers(basic_auth=login) if login else {}
        fields = {"q": statement, "db": database, "epoch": "ns"}
        response = HTTP.request("POST", f"{self.url}/query", fields=fields, encode_multipart=False, headers=headers)
        document = msgspec.json.decode(response.data)
        assert response.status == 200, document
        result: dict[str, Any] = document["results"][0]
        assert "error" not in result, result
        return result


@contextlib.contextmanager
def influxd(place: Path, http: str = "") -> Iterator[Influxd]:
    """One that is ready; `http` are further settings of that section."""
    port, rpc_port = free_port(), free_port()
    place.mkdir(parents=True, exist_ok=True)
    settings = place / "influxd.conf"
    settings.write_text(CONFIGURATION.format(place=place, port=port, rpc_port=rpc_port, http=http))
    server = Influxd([program("influxd", "influxdb"), "run", "-config", str(settings)], port, "/ping")
    with running(server):
        yield server


@contextlib.contextmanager
def victoria(place: Path) -> Iterator[Server]:
    """VictoriaMetrics, ready."""
    port = free_port()
    command = [program("victoria-metrics", "victoria-metrics"), f"-httpListenAddr=127.0.0.1:{port}"]
    settings = [f"-storageDataPath={place}", "-retentionPeriod=100y", "-search.latencyOffset=0s"]
    server = Server([*command, *settings], port, "/health")
    with running(server):
        yield server


@contextlib.contextmanager
def running(server: Server) -> Iterator[None]:
    try:
        server.start()
        yield
    finally:
        server.stop()
