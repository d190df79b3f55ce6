"""The file of lines that a database refused, with its words. I/O, no clock."""

import os
from pathlib import Path


class SetAside:
    """Line protocol, each line under a comment that says why. Mutable; grows on disk, and is there only if it must."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: bytes | None = None

    @property
    def path(self) -> Path:
        return self._path

    def add(self, line: bytes, words: str) -> None:
        """Keep a line (it ends in a newline) for good; one that lies there already is not repeated. OSError."""
        known = self._read() if self._known is None else self._known
        if b"\n" + line in known:
            return
        entry = f"# {' '.join(words.split())}\n".encode() + line
        with self._path.open("ab") as file:
            file.write(entry)
            file.flush()
            os.fsync(file.fileno())
        self._known = known + entry

    def _read(self) -> bytes:
        try:
            return self._path.read_bytes()
        except FileNotFoundError:
            return b""
