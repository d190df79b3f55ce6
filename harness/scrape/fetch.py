"""One GET of a metrics page, on a connection of its own. I/O."""

import ssl
from contextlib import closing
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead

from msgspec import Struct

from harness import clock
from harness.scrape.look import Answer, Trouble
from harness.wire.endpoint import Endpoint

TIMEOUT_S = 5.0
"""Long: a server is slowest to tell how it is when that matters most."""
MOST_BYTES = 16 * 1024 * 1024


class Page(Struct, frozen=True, kw_only=True):
    """Where the metrics are, and what it takes to get them."""

    endpoint: Endpoint
    tls: ssl.SSLContext | None = None
    key: str = ""
    """Sent as a bearer token when not empty. A secret."""

    @property
    def url(self) -> str:
        """Without credentials."""
        return self.endpoint.url


def fetched(page: Page) -> Answer | Trouble:
    """The answer, whole and stamped at the arrival of its last byte; no environment variable names a proxy for it."""
    try:
        with closing(_connection(page)) as connection:
            connection.request("GET", page.endpoint.base_path, headers=_headers(page))
            response = connection.getresponse()
            body = _body(response)
            return Answer(
                url=page.url,
                server=page.endpoint.authority,
                status=response.status,
                at_ns=clock.wall_ns(),
                content_type=response.headers.get("content-type", ""),
                location=response.headers.get("location", ""),
                text=body.decode("utf-8", "replace"),
            )
    except (OSError, HTTPException) as error:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return Trouble(text=f"{page.url}: no answer ({why}); still trying", final=False)


def _connection(page: Page) -> HTTPConnection:
    hostname, port = page.endpoint.hostname, page.endpoint.port
    if page.endpoint.secure:
        return HTTPSConnection(hostname, port, timeout=TIMEOUT_S, context=page.tls)
    return HTTPConnection(hostname, port, timeout=TIMEOUT_S)


def _headers(page: Page) -> dict[str, str]:
    headers = {"Accept": "text/plain; version=0.0.4", "User-Agent": "tokenswarm", "Connection": "close"}
    return headers | ({"Authorization": f"Bearer {page.key}"} if page.key else {})


def _body(response: HTTPResponse) -> bytes:
    """Raises when it is cut short, has no end or is slow without end: half a page would be half a truth."""
    until_ns = clock.mono_ns() + int(TIMEOUT_S * clock.S)
    body = bytearray()
    while part := response.read1(1 << 16):
        body += part
        if len(body) > MOST_BYTES:
            raise HTTPException(f"more than {MOST_BYTES} bytes")
        if clock.mono_ns() > until_ns:
            raise TimeoutError("timed out")
    if response.length:
        raise IncompleteRead(bytes(body), response.length)
    return bytes(body)
