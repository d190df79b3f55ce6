"""Lines into a database, whatever it answers: waits, halves, sets aside. I/O, no clock."""

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct

from harness.export.influx.answer import Answer, Meaning, database_is_missing, meaning
from harness.export.influx.batches import MOST_BYTES, Lines
from harness.export.influx.database import Database
from harness.export.influx.patience import pause_s
from harness.export.influx.refusal import Refused, refusal
from harness.export.influx.set_aside import SetAside

__all__ = ["Refused", "Writer", "Written"]

NAP_S = 0.1
"""A wait is cut into naps, to end soon when it is no longer wanted."""
WORD_EVERY_S = 60.0
MOST_SET_ASIDE = 500
"""Refused lines of one writer before it stops: not some lines are wrong then, but the database or its settings."""


class Written(Struct, frozen=True, kw_only=True):
    """What became of the lines of one call; they add up to all of them."""

    accepted: int = 0
    set_aside: int = 0
    pending: int = 0
    """Not sent, or not known to be stored: to be sent again, which doubles nothing."""


class Writer:
    """Writes lines until each is stored or set aside. Mutable: remembers how large a body may be."""

    def __init__(
        self,
        database: Database,
        set_aside: Path,
        *,
        wanted: Callable[[], bool],
        notice: Callable[[str], None],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`set_aside` is the file for refused lines. `wanted` is asked before every further request and during waits;
        False ends the call with what is pending. `notice` gets a line of text whenever a person should know."""
        self._database = database
        self._aside = SetAside(set_aside)
        self._wanted = wanted
        self._notice = notice
        self._sleep = sleep
        self._most_bytes = MOST_BYTES
        self._set_aside = 0
        self._may_create = True

    def write(self, array: Any) -> Written:
        """Send the lines of a pyarrow array (see `batches.Lines`), in order. Refused: the database takes none until a
        person acts; then and after a kill, sending all of them again is safe."""
        lines = Lines(array)
        accepted = aside = 0
        todo = [(0, len(lines))] if len(lines) else []
        while todo and (self._wanted() or not accepted + aside):
            start, stop = todo.pop()
            end = min(stop, lines.end(start, self._most_bytes))
            answer = self._answer(lines.body(start, end))
            if answer is None:
                break
            if end < stop:
                todo.append((end, stop))
            stored = meaning(answer) is Meaning.STORED
            if stored:
                accepted += end - start
            elif end - start == 1:
                self._put_aside(lines.body(start, end), answer)
                aside += 1
            else:
                todo += self._halves(lines, (start, end), answer)
        return Written(accepted=accepted, set_aside=aside, pending=len(lines) - accepted - aside)

    def _halves(self, lines: Lines, span: tuple[int, int], answer: Answer) -> list[tuple[int, int]]:
        """The first half last, for it is taken from the end. Too large: no later body may be as large."""
        start, end = span
        if meaning(answer) is Meaning.TOO_LARGE:
            self._most_bytes = max(1, lines.size(start, end) // 2)
            self._say(f"bodies of {lines.size(start, end)} bytes are too large for it; from now on {self._most_bytes}")
        middle = (start + end) // 2
        return [(middle, end), (start, middle)]

    def _put_aside(self, line: bytes, answer: Answer) -> None:
        self._aside.add(line, self._database.target.without_secrets(str(answer)))
        self._set_aside += 1
        if self._set_aside == 1:
            self._say(f"a point was refused ({answer}); it and others like it are kept in {self._aside.path.name}")
        if self._set_aside >= MOST_SET_ASIDE:
            target = self._database.target
            raise Refused(
                target.without_secrets(
                    f"{target.named}: refused {self._set_aside} points, the last with {answer}; "
                    f"they are kept in {self._aside.path}; remove the cause (or take a new database) and push again"
                )
            )

    def _answer(self, body: bytes) -> Answer | None:
        """The first answer that is about the lines. None: the database was away until no longer wanted."""
        while True:
            answer = self._heard(body)
            if answer is None or meaning(answer) is not Meaning.REFUSED:
                return answer
            if not (database_is_missing(answer) and self._created()):
                raise refusal(answer, self._database.target, self._database.version)

    def _heard(self, body: bytes) -> Answer | None:
        """The first answer that does not ask to wait. A body that was reset after it was sent is just sent again."""
        attempt, waited_s, next_word_s = 0, 0.0, 0.0
        while meaning(answer := self._database.write(body)) is Meaning.WAIT:
            if attempt and waited_s >= next_word_s:
                self._say(f"not writable for {waited_s:.0f} s: {answer}; trying on")
                next_word_s = waited_s + WORD_EVERY_S
            pause = pause_s(attempt, answer.retry_after_s, random.random())
            if not self._rested(pause):
                return None
            attempt, waited_s = attempt + 1, waited_s + pause
        if next_word_s:
            self._say(f"writable again after {waited_s:.0f} s")
        return answer

    def _rested(self, seconds: float) -> bool:
        """False: no longer wanted."""
        left_s = seconds
        while left_s > 0 and self._wanted():
            self._sleep(min(left_s, NAP_S))
            left_s -= NAP_S
        return self._wanted()

    def _created(self) -> bool:
        """Make a database that is missing, once: someone who drops it later means it."""
        if not self._may_create or self._database.version != "1":
            return False
        self._may_create = False
        made = meaning(self._database.create()) is Meaning.STORED
        if made:
            self._say("there was no such database; created it")
        return made

    def _say(self, words: str) -> None:
        target = self._database.target
        self._notice(target.without_secrets(f"{target.named}: {words}"))
