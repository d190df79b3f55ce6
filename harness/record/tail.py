"""The log as it grows: whole messages after a position, portion by portion. I/O, no clock."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa

from harness.record.columns import SCHEMAS
from harness.record.messages import message_bytes, schema_message
from harness.record.stored import LogError, damage, paths_of

PORTION_BYTES = 4 << 20
"""Of compressed log at a time; one larger message is still read whole."""


class Tail:
    """All files of one kind in a run directory, each from where it was left. Mutable.

    `position` is bytes by file name, between two messages: what `more` gave lies before it. Keep it to go on later.
    """

    def __init__(self, directory: Path, kind: str, position: Mapping[str, int] | None = None) -> None:
        self._directory = directory
        self._kind = kind
        self.position = dict(position or {})

    def more(self, until: Mapping[str, int] | None = None) -> pa.Table | None:
        """Rows of the next portion, as they were written; None: nothing new yet. LogError: a file is damaged.

        `until`: a former position; nothing behind it is given.
        """
        for path in paths_of(self._directory, self._kind):
            while data := self._portion(path, until):
                at = self.position.get(path.name, 0)
                self.position[path.name] = at + len(data)
                batches = list(_batches(data, self._kind, is_start=at == 0))
                if batches:  # none in what is only the schema
                    return pa.Table.from_batches(batches, SCHEMAS[self._kind])
        return None

    def _portion(self, path: Path, until: Mapping[str, int] | None) -> bytes:
        at = self.position.get(path.name, 0)
        return _whole_messages(path, at, None if until is None else until.get(path.name, 0) - at)

    @property
    def unread_bytes(self) -> int:
        """Of log that `more` has not given yet."""
        paths = paths_of(self._directory, self._kind)
        return sum(path.stat().st_size - self.position.get(path.name, 0) for path in paths)


def _whole_messages(path: Path, at: int, most: int | None) -> bytes:
    """Whole messages from there on: about `PORTION_BYTES` of them, or b"" where none is whole yet."""
    if most is not None and most <= 0:
        return b""
    wanted = PORTION_BYTES if most is None else min(PORTION_BYTES, most)
    with open(path, "rb") as file:
        while True:
            file.seek(at)
            data = file.read(wanted)
            whole = _whole_bytes(path, data, at)
            if whole or len(data) < wanted:
                return data[:whole]
            wanted *= 4


def _whole_bytes(path: Path, data: bytes, at: int) -> int:
    end = 0
    try:
        while end < len(data) and (size := message_bytes(data, end)):
            end += size
    except ValueError as error:
        raise LogError(damage(path, at + end, str(error))) from error
    return end


def _batches(data: bytes, kind: str, *, is_start: bool) -> Iterator[pa.RecordBatch]:
    if data:
        yield from pa.ipc.open_stream(data if is_start else schema_message(kind) + data)
