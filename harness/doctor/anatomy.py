"""A response taken apart again: when each frame came, which carried tokens, how many comments. No clock, no I/O."""

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from harness.model import Chunk, Delta
from harness.protocol.http1 import HttpError, Response
from harness.protocol.sse import FrameError, Framer

_COMMENT = re.compile(rb"(?:\A|[\r\n]):")
"""A colon that starts a line."""


class Frame(Struct, frozen=True, array_like=True):
    """One event of a stream, but for [DONE]."""

    at_ns: int
    is_token: bool


class Anatomy(Struct, frozen=True, kw_only=True):
    """What the parts of one response were; empty for one that is no stream of events, or is compressed."""

    frames: list[Frame] = []
    comments: int = 0


def anatomy(chunks: Sequence[Chunk], parse_delta: Callable[[bytes], Delta]) -> Anatomy:
    """As far as the response can be read; what follows a fault is left out."""
    pieces = list(_body(chunks))
    frames: list[Frame] = []
    with contextlib.suppress(FrameError, ValueError, RecursionError):  # the Exchange of these bytes reports it
        for at_ns, data in _events(pieces):
            frames.append(Frame(at_ns, parse_delta(data).is_token))
    return Anatomy(frames=frames, comments=len(_COMMENT.findall(b"".join(piece for _, piece in pieces))))


def _body(chunks: Sequence[Chunk]) -> Iterator[tuple[int, bytes]]:
    """(arrival, piece of body) of an event stream."""
    pieces: list[bytes] = []
    response = Response(pieces.append)
    for chunk in chunks:
        try:
            response.feed(chunk.data)
        except HttpError:
            return
        if not _is_stream(response):
            continue
        yield from ((chunk.at_ns, piece) for piece in pieces)
        pieces.clear()


def _is_stream(response: Response) -> bool:
    kind = response.headers.get("content-type", "text/event-stream").lower()
    plain = response.headers.get("content-encoding", "identity") == "identity"
    return response.headers_done and response.status == 200 and plain and kind.startswith("text/event-stream")


def _events(pieces: Sequence[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    framer = Framer()
    for at_ns, piece in pieces:
        yield from ((at_ns, data) for _, data in framer.feed(piece) if data != b"[DONE]")
