"""A writer as tests use it: what it says is a list, and its naps are short."""

import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa

from harness.export.influx.database import Database
from harness.export.influx.target import Options, Target
from harness.export.influx.writer import Writer, Written

NAP_S = 0.002
MOST_NAPS = 5_000
"""Who waits longer than this waits for ever."""
START_NS = 1_700_000_000_000_000_000


def array(lines: Iterable[str]) -> pa.Array:
    """Lines as the encoder hands them over."""
    return pa.array([line.encode() + b"\n" for line in lines], pa.large_binary())


def tokens(n: int, start: int = 0, run: str = "r") -> list[str]:
    """Token points of two streams, no two with the same key."""
    return [f"token,run={run},slot={j % 2} index={j}i,gap_us=20000i {START_NS + j}" for j in range(start, start + n)]


def requests(n: int, run: str = "r") -> list[str]:
    return [f"request,run={run},slot=1 ok=1i,ttft_ms={j}.5 {START_NS + j}" for j in range(n)]


class Session:
    """One database and its writer; everything it said. Mutable."""

    def __init__(self, url: str, place: Path, options: Options | None = None, patience_s: float = 10.0) -> None:
        self.said: list[str] = []
        self.naps = 0
        self.is_wanted: Callable[[], bool] = lambda: True
        self.on_nap: Callable[[], None] = lambda: None
        self.aside = place / "set-aside.lp"
        self.database = Database(Target.parse(url, **(options or {})), answer_within_s=patience_s)
        self.writer = Writer(
            self.database,
            self.aside,
            wanted=lambda: self.is_wanted(),
            notice=self.said.append,
            sleep=self._nap,
        )

    def write(self, lines: Iterable[str]) -> Written:
        return self.writer.write(array(lines))

    def count(self, measurement: str = "token", run: str = "r") -> int | None:
        return self.database.count(measurement, run)

    def set_aside(self) -> list[str]:
        """Lines in the file, without the comments."""
        found = self.aside.read_text().splitlines() if self.aside.exists() else []
        return [line for line in found if not line.startswith("#")]

    def _nap(self, seconds: float) -> None:
        self.naps += 1
        assert self.naps < MOST_NAPS, self.said
        self.on_nap()
        time.sleep(min(seconds, NAP_S))

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self.database.close()
