"""Twin knee and corrections to a knee with its interval, per clause. Simulates, seeded; no clock, no I/O."""

import math
from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from scipy.special import stdtrit

from harness.knee.above import measured, simulated
from harness.knee.control import correction
from harness.knee.plan import REQUESTS, Plan
from harness.knee.veto import Correction, Counted
from harness.metrics import Limit
from harness.twin import fast, fit, predict
from harness.twin.fit import Fitted
from harness.twin.misses import alone
from harness.twin.observed import Observation
from harness.twin.predict import Predicted
from harness.twin.scatter import Scatter
from harness.twin.server import Server

ETA_SD, ETA_DF = 0.02, 2
"""What corrections scatter by before any was seen, and how many of them that is worth: three that happen to agree
would otherwise claim what three cannot know."""
NORMAL = 1.96
MODEL_SD = 0.005
"""What a twin that misses as much may still say wrongly of the miss share."""


class Estimate(Struct, frozen=True, kw_only=True):
    """The knee of one clause: what the twin says, corrected by what was verified."""

    limit: Limit
    predicted: Predicted
    corrections: list[Correction]
    load: float
    low: float
    high: float
    counted_sd: float
    """What a correction scatters by in ln(load) because misses are counted; 0 where the twin shares their luck."""

    @property
    def etas(self) -> list[float]:
        """Of the corrections, in ln(load)."""
        return [correction.eta for correction in self.corrections]

    @property
    def eta_variance(self) -> float:
        """Of one correction."""
        return variance(self.etas, self.counted_sd)

    @property
    def half_width(self) -> float:
        """Half of the interval, relative to the knee (on the log scale)."""
        return math.log(self.high / self.low) / 2


class Twins:
    """Fits, predictions and corrections for one plan, each computed once. The memory changes speed, never a number."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._fits: dict[tuple[int, ...], tuple[Sequence[Observation], Fitted]] = {}
        self._knees: dict[tuple[Server, Scatter, str, int], Predicted] = {}
        self._corrections: dict[tuple[Server, Scatter, int, str], tuple[Observation, Correction | None]] = {}

    def fitted(self, observations: Sequence[Observation]) -> Fitted:
        """The twin of these levels. They are kept, so that an id stays theirs."""
        key = tuple(map(id, observations))
        if key not in self._fits:
            seats, tokens = self.plan.max_num_seqs, self.plan.max_num_batched_tokens
            found = fit.fit(observations, None, max_num_seqs=seats, max_num_batched_tokens=tokens)
            self._fits[key] = (observations, found)
        return self._fits[key][1]

    def predicted(self, fitted: Fitted, limit: Limit, requests: int) -> Predicted:
        """The twin's own knee for one clause alone."""
        key = (fitted.server, fitted.scatter, limit.name, requests)
        if key not in self._knees:
            plan, only = self.plan, alone(limit)
            self._knees[key] = predict.knee(
                fitted.server, plan.traffic, only, loop=plan.loop, seed=plan.seed, requests=requests,
                scatter=fitted.scatter,
            )  # fmt: skip
        return self._knees[key]

    def guess(self, fitted: Fitted) -> float:
        """The lowest of the clauses' knees, from shorter runs: good enough to say where to measure."""
        requests = max(5_000, self.plan.long_run // 4)
        return min(self.predicted(fitted, limit, requests).load for limit in self.plan.clauses())

    def estimates(self, fitted: Fitted, verified: Sequence[Observation]) -> list[Estimate]:
        """One for each clause, lowest knee first."""
        found = [self._estimate(fitted, limit, verified) for limit in self.plan.clauses()]
        return sorted(found, key=lambda estimate: estimate.load)

    def _estimate(self, fitted: Fitted, limit: Limit, verified: Sequence[Observation]) -> Estimate:
        predicted = self.predicted(fitted, limit, self.plan.long_run)
        corrections = [found for one in verified if (found := self.corrected(fitted, one, limit)) is not None]
        etas = [correction.eta for correction in corrections]
        counted_sd = counting_sd(predicted, limit, _chances(limit, fitted, predicted, verified))
        middle, half = interval(etas, simulated_sd(predicted, limit), counted_sd)
        at = math.log(max(predicted.load, 1e-9)) - middle
        return Estimate(
            limit=limit,
            predicted=predicted,
            corrections=corrections,
            load=math.exp(at),
            low=math.exp(at - half),
            high=math.exp(at + half),
            counted_sd=counted_sd,
        )

    def counted(self, fitted: Fitted, observed: Observation, limit: Limit) -> Counted | None:
        """Misses of a level, and those of the twin at the same requests; None: nothing was measured. For ITL as many
        requests as there are tokens' worth."""
        judged, found = observed.answered, measured(limit, observed)
        if found is None:
            return None
        expected = simulated(limit, fast.run(fitted.server, observed.trace), judged, fitted.scatter)
        n = int(judged.sum())
        return Counted(load=observed.load, missed=n * found.missed, expected=n * expected.missed)

    def corrected(self, fitted: Fitted, observed: Observation, limit: Limit) -> Correction | None:
        """`control.correction`, remembered."""
        key = (fitted.server, fitted.scatter, id(observed), limit.name)
        if key not in self._corrections:
            self._corrections[key] = (observed, correction(fitted.server, observed, limit, fitted.scatter))
        return self._corrections[key][1]


def _chances(limit: Limit, fitted: Fitted, predicted: Predicted, verified: Sequence[Observation]) -> float:
    """Chances to miss, in one verification, whose luck the twin does not share: answers that scatter about it, or steps
    that do (all tokens of a step are late together). Infinitely many where its own word is taken."""
    if limit.metric == "tpot_ms" and fitted.scatter.tpot:
        return REQUESTS["verify"]
    if limit.metric == "itl_ms" and fitted.scatter.itl:
        tokens = [one.gaps.total for one in verified if one.gaps]
        steps = sum(tokens) / max(len(tokens), 1) / max(predicted.batch_p50, 1.0)
        return steps or REQUESTS["verify"]
    return math.inf


def interval(etas: Sequence[float], predicted_sd: float, counted_sd: float = 0.0) -> tuple[float, float]:
    """(mean of the corrections, half-width of its 95 % interval), both in ln(load).

    t-interval whose variance is held towards `ETA_SD`² and that of counting, widened by what the prediction itself does
    not know.
    """
    mean = float(np.mean(etas)) if etas else 0.0
    quantile = float(stdtrit(max(len(etas) - 1, 0) + ETA_DF, 0.975))
    corrected = quantile * math.sqrt(variance(etas, counted_sd) / max(len(etas), 1))
    return mean, math.hypot(corrected, NORMAL * predicted_sd, NORMAL * MODEL_SD)


def variance(etas: Sequence[float], counted_sd: float) -> float:
    """Of one correction in ln(load): what these scatter by, held towards what was known before any was seen."""
    squares = float(np.sum((np.asarray(etas) - np.mean(etas)) ** 2)) if etas else 0.0
    return (squares + ETA_DF * (ETA_SD**2 + counted_sd**2)) / (max(len(etas) - 1, 0) + ETA_DF)


def counting_sd(predicted: Predicted, limit: Limit, chances: float) -> float:
    """What a correction scatters by, in ln(load), because misses are counted: √((1 − π) / (π · n)) / slope.

    `chances`: n, of which the twin does not know the luck.
    """
    return _sampling_sd(limit, predicted.slope, chances, 1.0)


def simulated_sd(predicted: Predicted, limit: Limit) -> float:
    """Standard error of the twin's knee in ln(load): √(VIF · (1 − π) / (π · n)) / slope, π the allowed share."""
    return _sampling_sd(limit, predicted.slope, predicted.chances, predicted.vif if predicted.vif > 1 else 1.0)


def _sampling_sd(limit: Limit, slope: float, chances: float, inflation: float) -> float:
    """In ln(load), of the place where so many chances miss as many as is allowed; 0 where that is not known."""
    if not slope > 0 or not chances:
        return 0.0
    return math.sqrt(inflation * limit.quantile / ((1 - limit.quantile) * chances)) / slope
