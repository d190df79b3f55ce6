"""One HTTP/1.1 response out of stamped bytes. No clock, no I/O; llhttp (httptools) does the parsing."""

from collections.abc import Callable

import httptools

MAX_HEADER_BYTES = 64 * 1024


class HttpError(Exception):
    """The peer did not speak HTTP/1.1. The message says how, in a few words."""


class Response:
    """Status, headers and body pieces of one response, fed in any cut.

    `on_body(piece)` is called for every piece of body with the transfer coding removed. `chunks` counts HTTP chunks
    begun so far, so that a caller can tell pieces of one chunk from pieces of two. `complete` is set by the byte that
    ends the message; a body without length or chunking ends only with the connection (`until_eof`).
    """

    __slots__ = (
        "_feed",
        "_header_bytes",
        "_parser",
        "between_chunks",
        "chunks",
        "complete",
        "headers",
        "headers_done",
        "keep_alive",
        "on_body",
        "status",
        "surplus",
        "until_eof",
    )

    def __init__(self, on_body: Callable[[bytes], None]) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.headers_done = False
        self.complete = False
        self.chunks = 0
        self.between_chunks = False
        """The last byte fed, if it ended a line, ended a chunk."""
        self.until_eof = False
        self.keep_alive = False
        self.surplus = False
        """Bytes came after the end of the message: the connection must not be used again."""
        self._header_bytes = 0
        self.on_body = on_body  # llhttp takes hold of it for good
        self._parser = httptools.HttpResponseParser(self)
        self._feed = self._parser.feed_data

    def feed(self, data: bytes) -> None:
        """Take response bytes. Raises HttpError on bytes that are not HTTP/1.1 or on endless headers."""
        if self.complete:
            self.surplus = True
            return
        try:
            self._feed(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._explain(error)
        if not self.headers_done:
            self._bound_headers(len(data))

    def release(self) -> None:
        """Nothing more will be fed: let go of the parser, which holds this response as this holds it."""
        del self._parser, self._feed, self.on_body

    def _explain(self, error: Exception) -> None:
        if isinstance(error, httptools.HttpParserCallbackError):
            raise error.__context__ or error from None  # what our own callback raised
        if isinstance(error, httptools.HttpParserUpgrade):
            raise HttpError("switched protocols") from None
        if not self.complete:
            raise HttpError(f"not HTTP/1.1: {error}") from None
        self.surplus = True

    def _bound_headers(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > MAX_HEADER_BYTES:
            raise HttpError(f"headers over {MAX_HEADER_BYTES} bytes")

    # llhttp's callbacks

    def on_message_begin(self) -> None:
        if self.complete:
            self.surplus = True
            return
        self.headers = {}

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if self.complete:
            return
        self.status = self._parser.get_status_code()
        if self.status < 200:  # 100 Continue, 103 Early Hints: the real response follows
            return
        self.headers_done = True
        self.keep_alive = self._parser.should_keep_alive()
        coded = "transfer-encoding" in self.headers or "content-length" in self.headers
        self.until_eof = not coded and self.status not in (204, 304)

    def on_chunk_header(self) -> None:
        self.chunks += 1
        self.between_chunks = False

    def on_chunk_complete(self) -> None:
        self.between_chunks = True

    def on_message_complete(self) -> None:
        if self.headers_done:
            self.complete = True
