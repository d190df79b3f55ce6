"""The bytes of requests: everything that is the same for all of a run is encoded once. No clock, no I/O."""

from collections.abc import Mapping

import msgspec

from harness import __version__
from harness.model import RequestSpec, RunHeader, Scenario
from harness.protocol.dialects import DIALECTS
from harness.protocol.exchange import Terms
from harness.wire.endpoint import Endpoint

OURS = frozenset({"host", "content-length", "transfer-encoding", "accept-encoding", "connection"})
"""Headers a scenario may not set: the measurement depends on them."""


class Requests:
    """Writes requests in HTTP/1.1. Holds the API key; nothing it returns but the request does."""

    def __init__(self, header: RunHeader, where: Endpoint, api_key: str) -> None:
        self._scenario: Scenario = header.scenario
        self._model = header.model
        self._run_id = header.run_id
        self._dialect = DIALECTS[self._scenario.target.dialect]
        self._api_key = api_key
        self._head = self._head_of(where)
        self._encode = msgspec.json.Encoder().encode

    def terms(self, worker: int) -> Terms:
        """What holds for all exchanges of this run on one worker."""
        target = self._scenario.target
        return Terms(
            dialect=self._dialect,
            stream=target.stream,
            worker=worker,
            max_response_bytes=target.max_response_bytes,
            secret=self._api_key,
        )

    def encoded(self, request_id: int, spec: RequestSpec) -> bytes:
        """Head and body, ready to send."""
        body = self._encode(self._dialect.request_body(self._scenario, self._model, spec))
        tail = f"X-Request-Id: {self._run_id}-{request_id}\r\nContent-Length: {len(body)}\r\n\r\n"
        return self._head + tail.encode() + body

    def _head_of(self, where: Endpoint) -> bytes:
        target = self._scenario.target
        path = where.base_path + (target.path or self._dialect.path)
        through_proxy = where.proxy is not None and not where.secure
        headers = {
            "Host": where.authority,
            "User-Agent": f"tokenswarm/{__version__}",
            "Accept": "text/event-stream" if target.stream else "application/json",
            "Accept-Encoding": "identity",  # a compressor may hold tokens back
            "Content-Type": "application/json",
            "Connection": "keep-alive" if target.keep_alive else "close",
        }
        if self._api_key:
            headers["Authorization"] = f"Bearer {self._api_key}"
        if through_proxy and where.proxy_auth:
            headers["Proxy-Authorization"] = where.proxy_auth
        line = f"POST {f'http://{where.authority}{path}' if through_proxy else path} HTTP/1.1\r\n"
        return (line + _lines(_merged(headers, target.headers))).encode("latin-1")


def _merged(ours: Mapping[str, str], theirs: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in theirs.items() if name.lower() not in OURS}
    taken = {name.lower() for name in kept}
    return {name: value for name, value in ours.items() if name.lower() not in taken} | kept


def _lines(headers: Mapping[str, str]) -> str:
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items())
