"""What an interrupted run had done before it goes on. I/O (reads its directory)."""

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from harness.knee.plan import Seen
from harness.model import RunHeader
from harness.record.directory import read_announced, read_stages
from harness.record.log import free_above
from harness.run.results import seen


class Before(Struct, frozen=True, kw_only=True):
    """The levels that count, and the numbers that are taken. A new run has none."""

    history: Sequence[Seen] = ()
    """Levels run to their end, as judged."""
    levels: int = 0
    """Begun, whether or not they came to their end."""
    workers: int = 0
    """Whose logs lie there, or may still be fetched from a spool."""


def before(directory: Path, header: RunHeader) -> Before:
    """Of the run that lies there. Raises LogError when its log is damaged in its middle."""
    ended, begun = read_stages(directory), read_announced(directory)
    return Before(
        history=seen(directory, ended) if ended else (),
        levels=1 + max((stage.level for stage in (*ended, *begun)), default=-1),
        workers=max(free_above(directory), header.workers),
    )
