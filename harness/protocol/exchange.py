"""One request's conversation: stamped bytes go in, one Record comes out. No clock, no I/O."""

from array import array
from typing import Literal

from msgspec import Struct

from harness.model import ANSWER, Arrival, Chunk, Delta, Outcome, Record, Timeline, Usage
from harness.protocol.dialects import Dialect
from harness.protocol.http1 import HttpError, Response
from harness.protocol.refrain import Refrain
from harness.protocol.refrain import refrain as learned
from harness.protocol.sse import FrameError, Framer

BUNCHED_NS = 2_000_000
"""Events of one read that arrived within this span were sent together; further apart, the reader was late."""
DETAIL_BYTES = 1024
"""How much of an error body is kept."""


class Terms(Struct, frozen=True, kw_only=True):
    """What holds for every exchange of a worker."""

    dialect: Dialect
    stream: bool = True
    worker: int = 0
    max_response_bytes: int = 64 * 1024 * 1024
    secret: str = ""
    """Replaced by *** wherever a server echoes it."""


class Exchange:
    """Feed it with `sent`, `receive` and, if the wire gave up, `fail`; when `over`, `record()` is the result.

    An event happened when its last byte arrived, so its stamp is that of the chunk with that byte, however TCP cut
    the stream. Events of one chunk share a stamp.
    """

    __slots__ = (  # a dict for each of thousands of streams would be the largest part of them
        "_at_ns",
        "_body",
        "_bytes",
        "_counted",
        "_detail",
        "_end_ns",
        "_error",
        "_event_chunk",
        "_event_read",
        "_fault",
        "_finish",
        "_first_byte_ns",
        "_framed",
        "_framer",
        "_headers_ns",
        "_late",
        "_limit",
        "_outcome",
        "_parse",
        "_reads",
        "_stamp",
        "_stated",
        "_stream",
        "_terms",
        "_told",
        "_usage",
        "arrival",
        "connect_ns",
        "done",
        "over",
        "refrain",
        "response",
        "retried",
        "stamp_source",
        "start_ns",
        "timeline",
    )

    def __init__(self, arrival: Arrival, terms: Terms) -> None:
        self.arrival = arrival
        self.over = False
        self.done = False
        """[DONE] was seen: only the end of the HTTP message is missing."""
        self.timeline = Timeline()
        self._stamp = self.timeline.at_ns.append
        self.start_ns: int | None = None
        self.connect_ns: int | None = None
        self.retried = False
        self.stamp_source: Literal["kernel", "user", ""] = ""
        self.response: Response
        self._terms = terms
        self._parse = terms.dialect.parse_delta
        self._stream = terms.stream
        self._limit = terms.max_response_bytes
        self._outcome: Outcome | None = None
        self._reset()

    def _reset(self) -> None:
        self._at_ns = 0
        self._late = False
        self._bytes = 0
        self._first_byte_ns: int | None = None
        self._headers_ns: int | None = None
        self._end_ns: int | None = None
        self._detail = ""
        self._finish = ""
        self._error: str | None = None
        self._fault: str | None = None
        self._usage: Usage | None = None
        self._stated: array[int] = array("q")
        self._counted = 0
        self._event_read = self._event_chunk = -1
        self._reads = 0
        self._body: list[bytes] = []
        self.refrain: Refrain | None = None
        """Knows frames like the last one; the wire may ask it before `take`."""
        self._told: list[Delta] = []
        """Frames that the current read completed."""
        self._framed: bool | None = None
        self._framer = Framer()
        self.response = Response(self._on_piece)

    # --- what the wire tells ------------------------------------------------------------------------------------------

    def sent(self, start_ns: int, connect_ns: int | None) -> None:
        """The first byte of the request is about to be handed to the kernel. Again after a retry: starts afresh."""
        self.retried = self.start_ns is not None
        self.start_ns = start_ns
        self.connect_ns = connect_ns
        if self.retried:
            self._reset()

    def receive(self, chunk: Chunk) -> None:
        """Take response bytes as one read returned them; b"" is end of file."""
        self.take(chunk.at_ns, chunk.data, chunk.since_ns)

    def take(self, at_ns: int, data: bytes, since_ns: int) -> None:
        """`receive` without a Chunk: the hot path, and shortest for a frame that repeats the last but for its text."""
        refrain = self.refrain
        if self.over or (refrain is not None and refrain.took(at_ns, data)):
            return
        self._at_ns = at_ns
        self._late = at_ns - since_ns > BUNCHED_NS
        if data:
            self._take(data)
        else:
            self._eof()

    def _take(self, data: bytes) -> None:
        self._reads += 1
        self._bytes += len(data)
        self._forget_refrain()
        self._told = []
        response = self.response
        headers_done = response.headers_done
        try:
            response.feed(data)
        except (HttpError, FrameError) as error:
            self._end(Outcome.MALFORMED, str(error))
            return
        if not headers_done:
            self._headers_arrived()
        elif self._told == [ANSWER] and response.between_chunks and self._framer.idle:
            self.refrain = learned(data, self._terms.dialect.markers, self._stamp, self._limit - self._bytes)
        if response.complete:
            self._judge(whole=True)
        elif self._fault is not None:
            self._end(Outcome.MALFORMED, self._fault)
        elif self._bytes > self._limit:
            self._end(Outcome.MALFORMED, f"response over {self._limit} bytes")

    def _forget_refrain(self) -> None:
        if self.refrain is not None:
            self._bytes += self.refrain.taken_bytes
            self.refrain = None

    def fail(self, outcome: Outcome, detail: str, at_ns: int) -> None:
        """The wire gave up. A stream that had said [DONE] after its finish is whole all the same."""
        if self.over:
            return
        self._at_ns = at_ns
        if self.done and self._finish and self._error is None:
            self._judge(whole=True)
            self._detail = f"connection not ended after [DONE]: {detail}"
        else:
            self._end(outcome, detail)

    @property
    def has_token(self) -> bool:
        """A token event has arrived."""
        return len(self.timeline.at_ns) > 0

    @property
    def answered(self) -> bool:
        """A byte of the response has arrived."""
        return self._bytes > 0

    @property
    def outcome(self) -> Outcome:
        """How it ended. Raises AssertionError before the exchange is over."""
        assert self._outcome is not None, "asked for the end before the exchange was over"
        return self._outcome

    def record(self) -> Record:
        """The result. Raises AssertionError before the exchange is over."""
        arrival, usage, source = self.arrival, *self._counts()
        return Record(
            request_id=arrival.request_id,
            worker=self._terms.worker,
            slot=arrival.slot,
            level=arrival.level,
            phase=arrival.phase,
            request_class=arrival.spec.request_class,
            due_ns=arrival.due_ns,
            start_ns=self.start_ns,
            headers_ns=self._headers_ns,
            first_byte_ns=self._first_byte_ns,
            end_ns=self._end_ns,
            connect_ns=self.connect_ns,
            outcome=self.outcome,
            detail=self._safe(self._detail),
            status=self.response.status or None,
            retried=self.retried,
            stamp_source=self.stamp_source,
            timeline=self._timeline(),
            finish_reason=self._finish,
            prompt_tokens_asked=arrival.spec.prompt_tokens,
            output_tokens_asked=arrival.spec.output_tokens,
            usage=usage,
            usage_source=source,
            response_bytes=self._bytes,
        )

    def release(self) -> None:
        """Recorded, and nothing more will come: what is done with is freed now, not when a collector finds the circle
        of parser and callbacks. With thousands of streams that is memory and pauses saved."""
        self.response.release()

    # --- what the response says ---------------------------------------------------------------------------------------

    def _headers_arrived(self) -> None:
        if self._first_byte_ns is None:
            self._first_byte_ns = self._at_ns
        if self.response.headers_done:
            self._headers_ns = self._at_ns

    def _is_stream(self) -> bool:
        kind = self.response.headers.get("content-type", "text/event-stream")
        return self._stream and self.response.status == 200 and kind.lower().startswith("text/event-stream")

    def _on_piece(self, piece: bytes) -> None:
        """Body without its transfer coding. The first piece decides how all are read."""
        if self._framed is None:
            self._framed = self._is_readable_stream()
        if not self._framed:
            self._body.append(piece)
        elif (  # one whole event of one line, as nearly every chunk is
            self._framer.idle
            and piece[:6] == b"data: "
            and piece[-2:] == b"\n\n"
            and piece.find(b"\n") == len(piece) - 2
            and b"\r" not in piece
        ):
            self._on_event(b"", piece[6:-2])
        else:
            for kind, data in self._framer.feed(piece):
                self._on_event(kind, data)

    def _is_readable_stream(self) -> bool:
        coding = self.response.headers.get("content-encoding", "identity")
        if self._is_stream() and coding != "identity":
            self._fault = f"stream compressed with {coding} though we asked for identity: tokens cannot be timed"
            return False
        return self._is_stream()

    def _on_event(self, kind: bytes, data: bytes) -> None:
        if data == b"[DONE]":
            self.done = True
            return
        if self._fault is not None:
            return
        try:
            delta = self._parse(data)
        except ValueError as error:
            self._fault = f"frame is not JSON of the dialect: {error}"
            return
        self._told.append(delta)
        if delta.answer or delta.reasoning or delta.tool:
            self._on_token(delta)
            if delta is ANSWER:
                return
        if delta.usage is not None:
            self._usage = delta.usage
        if delta.finish is not None:
            self._finish = delta.finish
        if (delta.error is not None or kind == b"error") and self._error is None:
            self._error = delta.error or data[:DETAIL_BYTES].decode("utf-8", "replace")

    def _on_token(self, delta: Delta) -> None:
        timeline = self.timeline
        reads, chunks = self._reads, self.response.chunks
        if reads == self._event_read and chunks != self._event_chunk and self._late:
            timeline.coalesced += 1
        self._event_read, self._event_chunk = reads, chunks
        if timeline.first_answer is None and delta.answer:
            timeline.first_answer = len(timeline.at_ns)
        self._stamp(self._at_ns)
        if delta is ANSWER:
            return
        if delta.tokens is not None:
            self._stated.append(delta.tokens)
        elif delta.usage is not None and delta.usage.completion_tokens is not None:  # cumulative, in every frame
            self._stated.append(delta.usage.completion_tokens - self._counted)
            self._counted = delta.usage.completion_tokens

    # --- how it ended -------------------------------------------------------------------------------------------------

    def _eof(self) -> None:
        if not self.answered:
            self._end(Outcome.RESET, "closed before any byte of an answer")
        elif not self.response.headers_done:
            self._end(Outcome.TRUNCATED, "closed inside the response headers")
        else:
            self._judge(whole=self.response.until_eof)

    def _judge(self, *, whole: bool) -> None:
        """The response has ended; `whole`: as HTTP says it should."""
        status = self.response.status
        if status >= 400:
            limited = status == 429 or (status == 503 and "retry-after" in self.response.headers)
            self._end(Outcome.RATE_LIMITED if limited else Outcome.REFUSED, self._refusal())
        elif status != 200:
            self._end(Outcome.REFUSED, f"status {status} {self.response.headers.get('location', '')}".strip())
        elif self._is_stream():
            self._end(*self._stream_end(whole))
        else:
            self._end(*self._answer_end(whole))

    def _stream_end(self, whole: bool) -> tuple[Outcome, str]:
        tokens = len(self.timeline.at_ns)
        if self._error is not None:
            return Outcome.ERROR_IN_STREAM, self._error
        if self._fault is not None:
            return Outcome.MALFORMED, self._fault
        if not whole and not (self.done and self._finish):
            return Outcome.TRUNCATED, f"stream cut after {tokens} token events"
        if not tokens:
            return Outcome.EMPTY, "stream ended without a token"
        if not self._finish:
            return Outcome.TRUNCATED, f"stream ended after {tokens} token events without a finish reason"
        return Outcome.OK, ""

    def _answer_end(self, whole: bool) -> tuple[Outcome, str]:
        kind = self.response.headers.get("content-type", "no content type")
        body = b"".join(self._body)
        if not whole:
            return Outcome.TRUNCATED, f"answer cut after {len(body)} bytes"
        try:
            answer = self._parse(body)
        except ValueError:
            return Outcome.MALFORMED, f"{kind}: {self._excerpt(body)}"
        if answer.error is not None:
            return Outcome.ERROR_IN_STREAM, answer.error
        if self._stream:
            return Outcome.MALFORMED, f"asked for a stream, got {kind}"
        self._usage = answer.usage
        self._finish = answer.finish or ""
        return (Outcome.OK, "") if answer.is_token else (Outcome.EMPTY, "answer without text")

    def _end(self, outcome: Outcome, detail: str) -> None:
        self.over = True
        self._forget_refrain()
        self._outcome = outcome
        self._detail = detail
        self._end_ns = self._at_ns

    # --- small things -------------------------------------------------------------------------------------------------

    def _refusal(self) -> str:
        retry = self.response.headers.get("retry-after")
        body = self._excerpt(b"".join(self._body))
        return f"Retry-After {retry}: {body}" if retry else body

    def _excerpt(self, body: bytes) -> str:
        return body[:DETAIL_BYTES].decode("utf-8", "replace").strip()

    def _safe(self, text: str) -> str:
        secret = self._terms.secret
        return (text.replace(secret, "***") if secret else text)[:DETAIL_BYTES]

    def _timeline(self) -> Timeline:
        if self._stated and len(self._stated) == len(self.timeline.at_ns) and min(self._stated) >= 1:
            self.timeline.k = self._stated
        return self.timeline

    def _counts(self) -> tuple[Usage, Literal["usage", "frames", ""]]:
        if self._usage is not None and self._usage.completion_tokens is not None:
            return self._usage, "usage"
        k = self._timeline().k
        if k is not None:
            return Usage(completion_tokens=sum(k)), "frames"
        return self._usage or Usage(), ""
