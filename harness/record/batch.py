"""What travels from a worker to the log: one flush's rows. No clock, no I/O."""

from typing import Literal

from msgspec import Struct

Kind = Literal["records", "health"]


class Batch(Struct, frozen=True, kw_only=True):
    """What one flush gathered, ready to be sent and stored. (kind, worker, seq) is its identity within a run."""

    kind: Kind
    worker: int
    seq: int
    rows: int
    data: bytes
    """One encapsulated Arrow record-batch message, without the schema."""
