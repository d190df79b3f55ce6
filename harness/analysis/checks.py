"""One level's requests to the checks of a gate: every SLO clause, decided by the share of requests beyond it. Pure."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd

from harness import metrics
from harness.analysis.distributions import Tally, tally
from harness.analysis.flat import Floats
from harness.analysis.frame import Frame
from harness.analysis.intervals import bounds
from harness.analysis.judging import late
from harness.analysis.portions import portion, portion_of_failed
from harness.analysis.spreads import TENTHS_PER_MS, itl_tally, latencies_ms
from harness.decisions import Check
from harness.findings import Level
from harness.knee.gate import Asked, Portion, check
from harness.metrics import Limit, Loop
from harness.model import Outcome, Phase, Slo


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighed:
    """What the checks of one level are made from."""

    frame: Frame
    level: Level
    loop: Loop

    @property
    def due(self) -> pd.DataFrame:
        """Rows due in the hold in due order, whatever became of them."""
        rows = self.frame.rows.iloc[self.frame.level(self.level.index)]
        return rows[rows["phase"] == Phase.HOLD].sort_values("due_ns", kind="stable")


def checks(weighed: Weighed, slo: Slo) -> list[Check]:
    """Every clause that the SLO gives, in its order."""
    due = weighed.due
    found = [check(_asked(limit), weighed.level, _latency(weighed, due, limit)) for limit in metrics.limits(slo)]
    if slo.error_share is not None:
        asked = Asked(name="error_share", limit=slo.error_share, allowed=slo.error_share)
        found.append(check(asked, weighed.level, _failed(due, slo.error_share)))
    if slo.tps_per_user_min is not None:
        (limit,) = metrics.request_limits(Slo(tps_per_user_min=slo.tps_per_user_min))  # speed as a limit on TPOT
        asked = Asked(name=limit.name, limit=slo.tps_per_user_min, allowed=0.5)
        found.append(check(asked, weighed.level, _latency(weighed, due, limit)))
    return found


def _asked(limit: Limit) -> Asked:
    of = "tokens" if limit.metric == "itl_ms" else "requests"
    return Asked(name=limit.name, limit=limit.ms, allowed=round(1 - limit.quantile, 9), of=of)


def _latency(weighed: Weighed, due: pd.DataFrame, limit: Limit) -> Portion:
    allowed = round(1 - limit.quantile, 9)
    if limit.metric == "itl_ms":
        rows = weighed.frame.judged(weighed.level.index)
        parts = [(rows.start + a, rows.start + b) for a, b in pairwise(bounds(rows.stop - rows.start))]
        blocks = [itl_tally(weighed.frame, a, b) for a, b in parts]
        return portion(blocks, limit.ms * TENTHS_PER_MS, allowed, rows.stop - rows.start)
    values = _values_ms(due, limit, weighed.loop)
    return portion(_blocks(values), limit.ms, allowed, len(values))


def _values_ms(due: pd.DataFrame, limit: Limit, loop: Loop) -> Floats:
    """Of those that ended ok; infinite for those that never had a value and are known to have outwaited the limit."""
    values = np.where(due["outcome"] == Outcome.OK, latencies_ms(due, loop)[limit.metric], np.nan)
    values = np.where(late(due, limit, loop), np.inf, values)
    return np.asarray(values[~np.isnan(values)])


def _failed(due: pd.DataFrame, allowed: float) -> Portion:
    flags = np.asarray(due["outcome"] != Outcome.OK, dtype=np.float64)
    return portion_of_failed(_blocks(flags), allowed, len(flags))


def _blocks(values: Floats) -> list[Tally]:
    return [tally(values[a:b]) for a, b in pairwise(bounds(len(values)))]
