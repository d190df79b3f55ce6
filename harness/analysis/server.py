"""What the server said of itself during a level or a run. Pure."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness.model import Stage


def preemptions(server: pa.Table, stage: Stage) -> int | None:
    """Preemptions counted during the hold of a level; None where the server does not tell them."""
    at_ns = server["at_ns"].to_numpy()
    during = (at_ns >= stage.hold_at_ns) & (at_ns <= stage.drained_by_ns)
    totals = server["preemptions_total"].filter(pa.array(during)).drop_null().to_numpy()
    return int(np.maximum(np.diff(totals), 0).sum()) if len(totals) else None  # a fall is a restart of the server


def most_running(server: pa.Table) -> int | None:
    """Seats of the server's batch: the most it ran while others waited; None where it was never seen full."""
    full = server.filter(pc.fill_null(pc.greater(server["waiting"], 0), False))["running"].drop_null()
    most = pc.max(full).as_py()
    return int(most) if most else None
