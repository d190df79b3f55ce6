"""What InfluxDB 2.x and 3 Core answer differently from 1.x, by their documentation: neither can be installed here.
I/O: an HTTP server on loopback.

It stores points by key as they do, and knows just enough line protocol and InfluxQL for the tests.
"""

import contextlib
import gzip
import json
import re
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal
from urllib.parse import parse_qs, urlsplit

TOKEN = "a-token-of-the-stub=="
ORG, BUCKET = "lab", "runs"
OLDEST_NS = 1_000_000_000
"""Points before this are beyond the retention of the bucket."""
LINE = re.compile(r"(?P<series>(?P<measurement>[^, ]+)\S*) (?P<fields>\S+) (?P<stamp>\d+)")
COUNT = re.compile(r'SELECT count\("(\w+)"\) FROM "(\w+)" WHERE "run" = \'(\w+)\'')


@dataclass
class Stub:
    """One server and what it has seen. Mutable."""

    kind: Literal["2", "3"]
    url: str = ""
    points: dict[tuple[str, int], str] = field(default_factory=dict)
    types: dict[tuple[str, str], str] = field(default_factory=dict)
    script: list[tuple[int, dict[str, str], str]] = field(default_factory=list)
    """Answers to give first: status, headers, body; status 0 takes the points and hangs up."""
    most_bytes: int = 10 * 1024 * 1024
    seen: list[dict[str, Any]] = field(default_factory=list)
    """Of each write: its query, its headers and the number of its bytes on the wire."""

    @property
    def database(self) -> str:
        return f"{self.url}/{BUCKET}"

    def take(self, text: str) -> tuple[int, str]:
        """What 2.x and 3 say to these lines: 2.x takes nothing of a batch with a line that it cannot parse."""
        parsed = [(line, LINE.fullmatch(line)) for line in text.split("\n") if line]
        unreadable = [line for line, found in parsed if found is None or "=bad" in line]
        if unreadable and self.kind == "2":
            return 400, said("invalid", f"unable to parse '{unreadable[0]}': invalid boolean")
        refused = unreadable + [
            line for line, found in parsed if line not in unreadable and found and not self._keep(found)
        ]
        if not refused:
            return 204, ""
        if self.kind == "2":
            return 422, said("unprocessable entity", f"failure writing points to database: dropped={len(refused)}")
        data = [{"original_line": line, "line_number": 1, "error_message": "no valid line"} for line in refused]
        return 400, json.dumps({"error": "partial write of line protocol occurred", "data": data})

    def _keep(self, line: "re.Match[str]") -> bool:
        stamp = int(line["stamp"])
        for name, value in (pair.split("=", 1) for pair in line["fields"].split(",")):
            kind = "integer" if value.endswith("i") else "float"
            if self.types.setdefault((line["measurement"], name), kind) != kind or stamp < OLDEST_NS:
                return False
        self.points[(line["series"], stamp)] = line["fields"]
        return True

    def count(self, statement: str) -> int:
        found = COUNT.search(statement)
        assert found, statement
        name, measurement, run = found.groups()
        wanted = (measurement, f"run={run}")
        return sum(
            (series.split(",")[0], series.split(",")[1]) == wanted and f"{name}=" in fields
            for (series, _), fields in self.points.items()
        )


def said(code: str, message: str) -> str:
    return json.dumps({"code": code, "message": message})


@contextlib.contextmanager
def stub(kind: Literal["2", "3"], tls: ssl.SSLContext | None = None) -> Iterator[Stub]:
    """One that is ready; with a context, over TLS."""
    state = Stub(kind=kind)

    class Answering(Responder):
        stub = state

    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        if tls:
            server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        state.url = f"{'https' if tls else 'http'}://localhost:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield state
        finally:
            server.shutdown()
            thread.join()


class Responder(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    stub: Stub
    timeout = 5

    def handle(self) -> None:
        with contextlib.suppress(ssl.SSLError, ConnectionError):  # a client that does not trust us hangs up
            super().handle()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        place = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(place.query, keep_blank_values=True).items()}
        if place.path == "/query":
            self._answer(*self._queried(parse_qs(body.decode())))
        elif place.path in ("/api/v2/write", "/write"):
            self.stub.seen.append({"query": query, "headers": dict(self.headers), "bytes": len(body)})
            self._written(query, body)
        else:
            self._answer(404, said("not found", "path not found"))

    def _written(self, query: dict[str, str], body: bytes) -> None:
        if len(body) > self.stub.most_bytes:
            self._answer(413, said("request too large", "request body is too large"))
            return
        text = (gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body).decode()
        if self.stub.script:
            status, headers, words = self.stub.script.pop(0)
            if status == 0:
                self.stub.take(text)
                self.close_connection = True
            else:
                self._answer(status, words, headers)
            return
        self._answer(*(self._misdirected(query) or self.stub.take(text)))

    def _misdirected(self, query: dict[str, str]) -> tuple[int, str] | None:
        if not self._is_known():
            return 401, said("unauthorized", "unauthorized access")
        if self.stub.kind == "2" and not query["org"]:
            return 400, said("invalid", "Please provide either orgID or org")
        if self.stub.kind == "2" and query["org"] != ORG:
            return 404, said("not found", f'organization name "{query["org"]}" not found')
        if self.stub.kind == "2" and query["bucket"] != BUCKET:
            return 404, said("not found", f'bucket "{query["bucket"]}" not found')
        assert query["precision"] == "ns", query
        return None

    def _is_known(self) -> bool:
        return self.headers.get("Authorization") in (f"Token {TOKEN}", f"Bearer {TOKEN}")

    def _queried(self, form: dict[str, list[str]]) -> tuple[int, str]:
        if not self._is_known():
            return 401, said("unauthorized", "unauthorized access")
        rows = [{"columns": ["time", "count"], "values": [[0, self.stub.count(form["q"][0])]]}]
        return 200, json.dumps({"results": [{"statement_id": 0, "series": rows}]}) + "\n"

    def _answer(self, status: int, words: str, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"X-Influxdb-Version": f"v{self.stub.kind}.7.1", **(headers or {})}.items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(words.encode())))
        self.end_headers()
        self.wfile.write(words.encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Tests say what they see."""
