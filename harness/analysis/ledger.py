"""Does every due request have a record? Pure."""

import pandas as pd
import pyarrow as pa

from harness.analysis.client import health_frame
from harness.analysis.frame import Frame
from harness.findings import Ledger


def ledger(frame: Frame, health: pa.Table) -> Ledger:
    """All phases of all levels: due = Σ outcomes + lost.

    `lost` is, summed over workers, what the last health row of a worker reported as due beyond the rows found of it. A
    worker without a health row is believed; more rows than its last health row reported are those due after it.
    """
    rows = frame.rows
    found = rows.groupby("worker").size()
    beats = health_frame(health).sort_values("at_ns", kind="stable")
    reported: pd.Series[int] = beats.groupby("worker")["due"].last()
    missing = reported.sub(found.reindex(reported.index, fill_value=0))
    lost = int(missing.clip(lower=0).sum())
    outcomes = {str(name): int(count) for name, count in rows["outcome"].value_counts().items() if count}
    return Ledger(due=len(rows) + lost, outcomes=outcomes, lost=lost, balanced=lost == 0)
