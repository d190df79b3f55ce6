"""Twin knee and corrections to a knee with its interval, per clause. Simulates, seeded; no clock, no I/O."""

import math
from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from scipy.special import stdtrit

from harness.knee.control import correction
from harness.knee.plan import Plan
from harness.knee.veto import Correction
from harness.metrics import Limit
from harness.model import Slo
from harness.twin import fit, predict
from harness.twin.fit import Fitted
from harness.twin.observed import Observation
from harness.twin.predict import Predicted
from harness.twin.server import Server

ETA_SD, ETA_DF = 0.02, 2
"""What corrections scatter by before any was seen, and how many of them that is worth: three that happen to agree
would otherwise claim what three cannot know."""
NORMAL = 1.96
MODEL_SD = 0.005
"""What a twin that reproduces the tails may still say wrongly of the miss share."""


class Estimate(Struct, frozen=True, kw_only=True):
    """The knee of one clause: what the twin says, corrected by what was verified."""

    limit: Limit
    predicted: Predicted
    corrections: list[Correction]
    load: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half of the interval, relative to the knee (on the log scale)."""
        return math.log(self.high / self.low) / 2


class Twins:
    """Fits, predictions and corrections for one plan, each computed once. The memory changes speed, never a number."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._fits: dict[tuple[int, ...], tuple[Sequence[Observation], Fitted]] = {}
        self._knees: dict[tuple[Server, str, int], Predicted] = {}
        self._corrections: dict[tuple[Server, int, str], tuple[Observation, Correction | None]] = {}

    def fitted(self, observations: Sequence[Observation]) -> Fitted:
        """The twin of these levels. They are kept, so that an id stays theirs."""
        key = tuple(map(id, observations))
        if key not in self._fits:
            seats, tokens = self.plan.max_num_seqs, self.plan.max_num_batched_tokens
            found = fit.fit(observations, None, max_num_seqs=seats, max_num_batched_tokens=tokens)
            self._fits[key] = (observations, found)
        return self._fits[key][1]

    def predicted(self, server: Server, limit: Limit, requests: int) -> Predicted:
        """The twin's own knee for one clause alone."""
        key = (server, limit.name, requests)
        if key not in self._knees:
            plan, only = self.plan, Slo(**{limit.name: limit.ms})
            self._knees[key] = predict.knee(
                server, plan.traffic, only, loop=plan.loop, seed=plan.seed, requests=requests
            )
        return self._knees[key]

    def guess(self, server: Server) -> float:
        """The lowest of the clauses' knees, from shorter runs: good enough to say where to measure."""
        requests = max(5_000, self.plan.long_run // 4)
        return min(self.predicted(server, limit, requests).load for limit in self.plan.clauses())

    def estimates(self, server: Server, verified: Sequence[Observation]) -> list[Estimate]:
        """One for each clause, lowest knee first."""
        found = [self._estimate(server, limit, verified) for limit in self.plan.clauses()]
        return sorted(found, key=lambda estimate: estimate.load)

    def _estimate(self, server: Server, limit: Limit, verified: Sequence[Observation]) -> Estimate:
        predicted = self.predicted(server, limit, self.plan.long_run)
        corrections = [found for one in verified if (found := self.corrected(server, one, limit)) is not None]
        etas = [correction.eta for correction in corrections]
        middle, half = interval(etas, simulated_sd(predicted, limit))
        at = math.log(max(predicted.load, 1e-9)) - middle
        return Estimate(
            limit=limit,
            predicted=predicted,
            corrections=corrections,
            load=math.exp(at),
            low=math.exp(at - half),
            high=math.exp(at + half),
        )

    def corrected(self, server: Server, observed: Observation, limit: Limit) -> Correction | None:
        """`control.correction`, remembered."""
        key = (server, id(observed), limit.name)
        if key not in self._corrections:
            self._corrections[key] = (observed, correction(server, observed, limit))
        return self._corrections[key][1]


def interval(etas: Sequence[float], predicted_sd: float) -> tuple[float, float]:
    """(mean of the corrections, half-width of its 95 % interval), both in ln(load).

    t-interval whose variance is held towards `ETA_SD`², widened by what the prediction itself does not know.
    """
    count = len(etas)
    mean = float(np.mean(etas)) if count else 0.0
    squares = float(np.sum((np.asarray(etas) - mean) ** 2)) + ETA_DF * ETA_SD**2
    freedom = max(count - 1, 0) + ETA_DF
    corrected = float(stdtrit(freedom, 0.975)) * math.sqrt(squares / freedom / max(count, 1))
    return mean, math.hypot(corrected, NORMAL * predicted_sd, NORMAL * MODEL_SD)


def simulated_sd(predicted: Predicted, limit: Limit) -> float:
    """Standard error of the twin's knee in ln(load): √(VIF · (1 − π) / (π · n)) / slope, π the allowed share."""
    if not predicted.slope > 0 or not predicted.requests:
        return 0.0
    inflation = predicted.vif if predicted.vif > 1 else 1.0
    return math.sqrt(inflation * limit.quantile / ((1 - limit.quantile) * predicted.requests)) / predicted.slope
