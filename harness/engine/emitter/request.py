"""Bytes to the requests that the known emitter reads: as little of each as it needs. No clock, no I/O."""

import re

from msgspec import Struct

HEAD_BYTES = 65536

_LENGTH = re.compile(rb"(?i)\r\ncontent-length:[ \t]*(\d{1,12})[ \t]*\r\n")
_CHUNKED = re.compile(rb"(?i)\r\ntransfer-encoding:")
_CLOSE = re.compile(rb"(?i)\r\nconnection:[ \t]*close[ \t]*\r\n")
_KEY = re.compile(rb"(?i)\r\nx-request-id:[ \t]*([!#-\[\]-~]{1,128})[ \t]*\r\n")  # what needs no escape in JSON
_MAX_TOKENS = re.compile(rb'"max_(?:completion_)?tokens"\s*:\s*(\d{1,9})')


class Request(Struct, frozen=True, kw_only=True):
    """One whole HTTP request, as far as the emitter reads it."""

    post: bool
    key: str | None
    max_tokens: int | None
    body_bytes: int
    close: bool
    """The client asked for the connection to be closed after the answer."""
    size: int
    """Bytes it took of what was received."""


class Unreadable(ValueError):
    """The client sent something that is not a request the emitter can answer."""


def parsed_request(data: bytes) -> Request | None:
    """The first request in these bytes; None while it is not whole. Raises Unreadable."""
    head_end = data.find(b"\r\n\r\n")
    if head_end < 0:
        if len(data) > HEAD_BYTES:
            raise Unreadable(f"request head longer than {HEAD_BYTES} bytes")
        return None
    head = data[: head_end + 2]
    if b" HTTP/1." not in head[: head.find(b"\r\n")]:
        raise Unreadable("not an HTTP/1.x request line")
    if _CHUNKED.search(head):
        raise Unreadable("request body without Content-Length")
    length, key = _LENGTH.search(head), _KEY.search(head)
    body_at = head_end + 4
    size = body_at + (int(length[1]) if length else 0)
    if len(data) < size:
        return None
    asked = _MAX_TOKENS.search(data, body_at, size)
    return Request(
        post=head.startswith(b"POST "),
        key=key[1].decode() if key else None,
        max_tokens=int(asked[1]) if asked else None,
        body_bytes=size - body_at,
        close=_CLOSE.search(head) is not None,
        size=size,
    )
