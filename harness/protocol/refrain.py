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
SIZE_LINES: Final[dict[int, bytes]] = {}
"""Length of a read → the size line it must begin with; shared by all streams, and no longer than reads are."""


class Refrain:
    """Learned from one parsed read; takes those that repeat it, up to so many bytes, and calls `stamp` for each."""

    __slots__ = ("_head", "_most_bytes", "_overhead", "_stamp", "_tail", "taken_bytes")

    def __init__(self, head: bytes, tail: bytes, stamp: Callable[[int], None], most_bytes: int) -> None:
        self.taken_bytes = 0
        self._most_bytes = most_bytes
        self._head = head
        self._tail = tail
        self._overhead = len(head) + len(tail)
        self._stamp = stamp

    def took(self, at_ns: int, read: bytes) -> bool:
        """Whether this read is one whole HTTP chunk with the same frame around other, non-empty text: then it is one
        more token event, and that is all it says."""
        length, tail = len(read), self._tail
        line = SIZE_LINES.get(length) or _size_line(length)
        start = len(line)
        if not (read.startswith(line) and read.startswith(self._head, start) and read.endswith(tail)):
            return False
        text = start + len(self._head)
        if length <= start + self._overhead or self.taken_bytes > self._most_bytes:
            return False
        if read[text : length - len(tail)].translate(None, PLAIN):
            return False
        self._stamp(at_ns)
        self.taken_bytes += length
        return True


def _size_line(length: int) -> bytes:
    """What a read of so many bytes begins with if it is exactly one HTTP chunk: its length says so."""
    line = NEVER
    for digits in range(1, SIZE_BYTES - 2):
        size = b"%x" % max(0, length - digits - 4)  # without the line ends of size line and chunk
        if len(size) == digits:
            line = size + b"\r\n"
    SIZE_LINES[length] = line
    return line


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
