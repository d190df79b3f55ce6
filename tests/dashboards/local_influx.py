"""A real InfluxDB 1.x on loopback, and its HTTP API. I/O (processes, sockets)."""

import contextlib
import json
import shutil
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import servers


def available() -> bool:
    """Is the server installed?"""
    return shutil.which("influxd") is not None


@contextlib.contextmanager
def running(place: Path) -> Iterator[str]:
    """A server with its files in this folder; yields its URL."""
    with servers.influxd(place) as server:
        yield server.url


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


def _post(address: str, body: bytes) -> bytes:
    with urllib.request.urlopen(urllib.request.Request(address, data=body), timeout=60) as answer:
        return bytes(answer.read())
