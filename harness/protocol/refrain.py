"""Recognises a frame that repeats the last one but for its text, without parsing it again. No clock, no I/O.

Nearly every read of a stream is one HTTP chunk that holds one event, and differs from the one before only inside one
JSON string. Once such a read has been parsed in full, its likes are known by their bytes: same head, same tail, and
between them plain characters that can neither end the string nor the event. Parsing costs four times as much.
"""

from collections.abc import Callable
from typing import Final

PLAIN: Final = bytes(set(range(0x20, 0x7F)) - set(b'"\\'))
"""Characters that stand for themselves in a JSON string and end neither it nor a line."""
SIZE_BYTES = 10
"""An HTTP chunk's size line, with its line end, is shorter than this."""
NEVER: Final = b"\0"
"""No chunk begins so."""


class Refrain:
    """Learned from one parsed read; takes those that repeat it, up to so many bytes, and calls `stamp` for each."""

    __slots__ = ("_begins", "_head", "_most_bytes", "_stamp", "_tail", "taken_bytes")

    def __init__(self, head: bytes, tail: bytes, stamp: Callable[[int], None], most_bytes: int) -> None:
        self.taken_bytes = 0
        self._most_bytes = most_bytes
        self._head = head
        self._tail = tail
        self._stamp = stamp
        self._begins: dict[int, bytes] = {}
        """Length of a read → its size line and head: the length of a chunk says what its size line must be."""

    def took(self, at_ns: int, read: bytes) -> bool:
        """Whether this read is one whole HTTP chunk with the same frame around other, non-empty text: then it is one
        more token event, and that is all it says."""
        begin = self._begins.get(len(read)) or self._begin(len(read))
        tail = self._tail
        if not read.startswith(begin) or not read.endswith(tail) or self.taken_bytes > self._most_bytes:
            return False
        if read[len(begin) : -len(tail)].translate(None, PLAIN):
            return False
        self._stamp(at_ns)
        self.taken_bytes += len(read)
        return True

    def _begin(self, length: int) -> bytes:
        begin = NEVER
        for digits in range(1, SIZE_BYTES - 2):
            size = b"%x" % max(0, length - digits - 4)  # without the line ends of size line and chunk
            if len(size) == digits and length > digits + 2 + len(self._head) + len(self._tail):
                begin = size + b"\r\n" + self._head
        self._begins[length] = begin
        return begin


def refrain(read: bytes, markers: tuple[bytes, ...], stamp: Callable[[int], None], most_bytes: int) -> Refrain | None:
    """Learn from a read that held exactly one token event. None when it is not one HTTP chunk with one plain text.

    `markers` are the bytes before the text in this dialect, up to the opening quote.
    """
    start = read.find(b"\r\n", 0, SIZE_BYTES) + 2
    for marker in markers:
        if read.count(marker) == 1:
            text = read.index(marker) + len(marker)
            end = read.find(b'"', text)
            is_plain = start > 2 and end > text and not read[text:end].translate(None, PLAIN)
            is_chunk = read[: start - 2] == b"%x" % max(0, len(read) - start - 2)
            return Refrain(read[start:text], read[end:], stamp, most_bytes) if is_plain and is_chunk else None
    return None
