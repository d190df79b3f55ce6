"""The engine's own account of what it sent and when, one JSON line per request. I/O: appends to a file.

Nothing here is shared with the harness's metrics: a test compares the two.
"""

from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

Ending = Literal["finished", "aborted", "fault"]


class Told(Struct, kw_only=True):
    """What became of one accepted request. Grows while it is answered. Instants are CLOCK_REALTIME in ns."""

    number: int
    """1, 2, … in order of acceptance; also the hexadecimal part of the answer's id."""
    received_ns: int
    """The request's last byte had been read."""
    prompt_tokens: int
    output_tokens: int
    """Asked for."""
    sent_ns: "array[int]"
    """Right after each content frame was handed to the kernel."""
    tokens: "array[int]"
    """Tokens in each of those frames."""
    buffered: int = 0
    """Frames the kernel did not take at once (a client that reads slowly): their stamps are too early."""
    finished_ns: int | None = None
    """Right after the last byte was handed over. None: the answer has no end."""
    outcome: Ending = "aborted"


Put = Callable[[Told], None]


@contextmanager
def truth(path: str | None) -> Iterator[Put]:
    """What appends lines to this file (nowhere, when there is no path), each flushed as soon as it is written."""
    if path is None:
        yield lambda told: None
        return
    with Path(path).open("ab") as file:

        def put(told: Told) -> None:
            file.write(line(told))
            file.flush()

        yield put


def line(told: Told) -> bytes:
    """One request as one line of JSON."""
    row = {name: getattr(told, name) for name in told.__struct_fields__}
    row["sent_ns"], row["tokens"] = told.sent_ns.tolist(), told.tokens.tolist()
    row["first_token_ns"] = told.sent_ns[0] if told.sent_ns else None
    return msgspec.json.encode(row) + b"\n"
