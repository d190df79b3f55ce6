"""What travels from a worker (or a watcher of the server) to the log: one flush's rows. No clock, no I/O."""

from typing import Literal

from msgspec import Struct

Kind = Literal["records", "health", "server"]


class Batch(Struct, frozen=True, kw_only=True):
    """What one flush gathered, ready to be sent and stored. (kind, worker, seq) is its identity within a run."""

    kind: Kind
    worker: int
    """Number of the process that wrote it, among those that write this kind."""
    seq: int
    rows: int
    data: bytes
    """One encapsulated Arrow record-batch message, without the schema."""
