"""One answer frame by frame, each its own HTTP chunk and send, with whatever fault was asked for. I/O: Connection."""

import asyncio
from collections.abc import Callable

from harness import clock
from harness.engine import frames
from harness.engine.asks import error_body
from harness.engine.frames import Frames
from harness.engine.http1 import Connection, response_head
from harness.engine.truth import Ending
from harness.engine.turn import Stage, Turn

_ENDLESS = b"x" * 16384
_ENDLESS_AHEAD_BYTES = 1 << 20
"""An endless line waits while so much of it is unread."""


class Streamed:
    """Headers go out at once, even while the job is queued; the role frame right before the first token."""

    def __init__(self, turn: Turn, connection: Connection, stage: Stage) -> None:
        self._turn, self._connection, self._stage = turn, connection, stage
        self._fault = turn.fault
        self._told = turn.told()
        self._frames = Frames(turn.ask.dialect, turn.number, turn.model, turn.received_ns // clock.S)
        self._breaks = BREAKS.get(turn.fault.breaks or "")
        self._held: list[tuple[int, bool]] | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._sent = 0
        """Tokens in the frames sent so far."""
        self._ready = 0
        """Tokens from the engine that wait for their frame."""
        self._begun = self._over = False
        self._cumulative = turn.ask.continuous_usage or self._fault.usage == "cumulative"

    # --- from the server ------------------------------------------------------------------------------------------

    def begin(self) -> None:
        self._connection.on_lost = self.lost
        if self._fault.headers_after_s:
            self._hold(self._fault.headers_after_s, headers=True)
        else:
            self._send_headers()

    def tokens(self, count: int, *, finished: bool) -> None:
        if self._held is not None:
            self._held.append((count, finished))
        elif not self._over:
            self._ready += count
            self._advance(finished)

    def lost(self) -> None:
        self._end("fault" if "more" in self._timers else "aborted")

    # --- frames ---------------------------------------------------------------------------------------------------

    def _advance(self, finished: bool) -> None:
        if self._breaks is not None and self._sent >= self._fault.after_tokens:
            breaks, self._breaks = self._breaks, None
            breaks(self)
            if self._held is not None:
                self._held.append((0, finished))
            if self._held is not None or self._over:
                return
        if not self._begun:
            self._open()
        if not self._over and (finished or self._sent == 0 or self._ready >= self._fault.tokens_per_frame):
            self._send_content(finished)

    def _open(self) -> None:
        """What comes right before the first token: nothing in one dialect, a role frame in the other."""
        self._begun = True
        self._cancel("comment")
        if self._fault.only_done:
            self._send(frames.DONE)
            self._complete("fault")
            return
        role = self._frames.role(self._usage(final=False))
        if role:
            self._send(role)

    def _send_content(self, finished: bool) -> None:
        count, self._ready = self._ready, 0
        if not self._fault.content:
            if finished:
                self._send(self._frames.last(b"", self._usage(final=True)))
                self._finish()
            return
        text = frames.words(self._sent, count) if count else b""
        self._sent += count
        extra = self._usage(final=finished)
        self._send(self._frames.last(text, extra) if finished else self._frames.content(text, extra), count)
        if finished:
            self._finish()

    def _finish(self) -> None:
        if self._fault.usage == "asked" and self._turn.ask.include_usage:
            self._send(self._frames.usage(self._counts()))
        if self._fault.done:
            self._send(frames.DONE)
        self._complete("finished")

    def _usage(self, *, final: bool) -> bytes:
        """The usage field this frame carries; mostly none."""
        if self._cumulative or (final and self._fault.usage == "finish"):
            return self._counts()
        return frames.NULL_USAGE if self._fault.usage == "null" else b""

    def _counts(self) -> bytes:
        return frames.usage(self._turn.ask.prompt_tokens, self._sent)

    def _send(self, event: bytes, tokens: int = 0) -> None:
        if self._fault.line_end != "lf":
            event = event.replace(b"\n", b"\r\n" if self._fault.line_end == "crlf" else b"\r")
        buffered = self._connection.write(frames.chunk(event))
        if tokens:
            self._told.sent_ns.append(clock.wall_ns())
            self._told.tokens.append(tokens)
            self._told.buffered += buffered

    def _send_headers(self) -> None:
        headers = {"content-type": "text/event-stream; charset=utf-8", "transfer-encoding": "chunked"}
        self._connection.write(response_head(200, headers, self._connection.closing))
        if self._fault.comment_every_s is not None:
            self._later("comment", self._fault.comment_every_s, self._comment)

    def _comment(self) -> None:
        self._send(frames.COMMENT)
        self._later("comment", self._fault.comment_every_s or 1.0, self._comment)

    # --- ends -----------------------------------------------------------------------------------------------------

    def _complete(self, outcome: Ending) -> None:
        """A whole response: the zero chunk, and the connection lives on."""
        self._connection.write(frames.LAST_CHUNK)
        self._told.finished_ns = clock.wall_ns()
        self._end(outcome)
        self._connection.done()

    def _end(self, outcome: Ending) -> None:
        if self._over:
            return
        self._over = True
        for name in list(self._timers):
            self._cancel(name)
        self._connection.on_lost = None
        self._told.outcome = outcome
        self._stage.over(self._told)

    # --- faults ---------------------------------------------------------------------------------------------------

    def _hold(self, seconds: float, *, headers: bool = False) -> None:
        self._held = []
        self._later("release", seconds, lambda: self._release(headers))

    def _release(self, headers: bool) -> None:
        held, self._held = self._held or [], None
        if headers:
            self._send_headers()
        for count, finished in held:
            self.tokens(count, finished=finished)

    def _stall(self) -> None:
        self._hold(self._fault.seconds)

    def _freeze(self) -> None:
        self._stage.freeze(self._fault.seconds)
        self._hold(self._fault.seconds)

    def _cut(self) -> None:
        self._end("fault")
        self._connection.close()

    def _reset(self) -> None:
        self._end("fault")
        self._connection.reset()

    def _error(self) -> None:
        body = error_body(500, "EngineCore encountered an issue.", kind="InternalServerError")
        self._send(b"data: " + body + b"\n\n")
        if self._fault.done:
            self._send(frames.DONE)
        self._complete("fault")

    def _endless_line(self) -> None:
        self._held = []
        self._connection.write(frames.chunk(b"data: "))
        self._more()

    def _more(self) -> None:
        if self._connection.transport.get_write_buffer_size() < _ENDLESS_AHEAD_BYTES:
            self._connection.write(frames.chunk(_ENDLESS))
        self._later("more", 0.001, self._more)

    # --- timers ---------------------------------------------------------------------------------------------------

    def _later(self, name: str, seconds: float, act: Callable[[], None]) -> None:
        self._timers[name] = asyncio.get_running_loop().call_later(seconds, act)

    def _cancel(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()


BREAKS: dict[str, Callable[[Streamed], None]] = {
    "stall": Streamed._stall,
    "freeze": Streamed._freeze,
    "cut": Streamed._cut,
    "rst": Streamed._reset,
    "error": Streamed._error,
    "endless_line": Streamed._endless_line,
}
