"""Answers to accepted requests: the engine says when tokens are there, an answer what the client sees. I/O: Connection.

An answer notes what it sent and when.
"""

import asyncio
from typing import Protocol

from harness import clock
from harness.engine import frames
from harness.engine.http1 import Connection
from harness.engine.streamed import Streamed
from harness.engine.turn import Stage, Turn


class Answer(Protocol):
    """What the server knows of an answer."""

    def begin(self) -> None:
        """The job is queued."""

    def tokens(self, count: int, *, finished: bool) -> None:
        """The engine emitted so many more tokens."""

    def lost(self) -> None:
        """The client has gone."""


def answer(turn: Turn, connection: Connection, stage: Stage) -> Answer:
    """A streamed or a whole answer, as asked."""
    return (Streamed if turn.ask.stream else Whole)(turn, connection, stage)


class Whole:
    """An answer in one piece. Of the faults it knows `headers_after_s`, `cut` and `rst`."""

    def __init__(self, turn: Turn, connection: Connection, stage: Stage) -> None:
        self._turn, self._connection, self._stage = turn, connection, stage
        self._told = turn.told()

    def begin(self) -> None:
        self._connection.on_lost = self.lost

    def tokens(self, count: int, *, finished: bool) -> None:
        if not finished:
            return
        if self._turn.fault.headers_after_s:
            asyncio.get_running_loop().call_later(self._turn.fault.headers_after_s, self._send)
        else:
            self._send()

    def lost(self) -> None:
        self._stage.over(self._told)

    def _send(self) -> None:
        if self._connection.on_lost is None:
            return
        match self._turn.fault.breaks:
            case "cut" | "rst" as how:
                self._connection.close() if how == "cut" else self._connection.reset()
                self._told.outcome = "fault"
            case _:
                self._reply()
        self._stage.over(self._told)

    def _reply(self) -> None:
        turn, ask = self._turn, self._turn.ask
        counts = (ask.prompt_tokens, ask.output_tokens)
        created_s = turn.received_ns // clock.S
        body = frames.whole(ask.dialect, turn.number, turn.model, created_s=created_s, counts=counts)
        self._connection.reply(200, body)
        self._told.finished_ns = clock.wall_ns()
        self._told.sent_ns.append(self._told.finished_ns)
        self._told.tokens.append(ask.output_tokens)
        self._told.outcome = "finished"
