"""Which load next, with a twin to ask? `next_probe(history) → Probe | Stop`, pure: no clock, no I/O.

Ladder (double until broken or saturated) → calibrate (near the cap, the twin says where) → verify (around the estimate,
fresh traces, the twin as control variate) → anchor (the first calibration again: did the server drift?) → confirm (a
hold-out at the interval's lower end). A veto sends the search to the pooled fit, or ends it with a band. The stage is
read off the history, so a search that was interrupted goes on with the same function over the same levels.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.knee.above import lived_s
from harness.knee.climb import broken, climb, ending, inside, of, probe, usable
from harness.knee.estimate import Estimate, Twins
from harness.knee.fallback import Pooled, next_load
from harness.knee.modelfree import estimated
from harness.knee.plan import (
    CALIBRATIONS,
    LEAST_VERIFIED,
    MOST_VERIFIED,
    Plan,
    Seen,
    Stage,
    failed,
    is_affordable,
    values_s,
)
from harness.knee.search import Probe, Stop
from harness.knee.veto import DRIFT, Veto, drifted, failing, far, miscounted, moved, preempted, unfit, vetoes
from harness.twin import fast
from harness.twin.fit import Fitted
from harness.twin.observed import Observation

AROUND = (1.03, 0.98)
"""Where to verify, as shares of the estimate of the moment, in turn."""
STEADY = DRIFT / 2
"""An anchor that moved less than this clears a trend of a few corrections with time: it is the sharper measurement."""
LADDER_IN_FIT = 3
"""Highest rungs that help to fit; lower ones say nothing on a full batch."""
PACE_BLOCKS = 10
MOST_FALLBACKS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What is known once the twin is calibrated."""

    fitted: Fitted
    refitted: bool
    """The first two verifications were 10 % off and became calibrations."""
    verified: list[Seen]
    estimates: list[Estimate]
    """Lowest knee first."""
    vetoes: list[Veto]
    drift: float | None
    """Relative change of the anchor's step time; None: not measured twice."""

    @property
    def binding(self) -> Estimate:
        """The clause that breaks first."""
        return self.estimates[0]

    @property
    def moved(self) -> bool:
        """The server changed under the search."""
        return moved(self.vetoes)


class Assisted:
    """A search for one plan. What it keeps is computed results only: same history, same answer."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.twins = Twins(plan)

    def next_probe(self, history: Sequence[Seen]) -> Probe | Stop:
        """The next level, or why there is none."""
        step = climb(self.plan, history)
        if step is not None:
            return step
        seen = usable(history)
        calibrated = of(seen, "calibrate")
        if len(calibrated) < len(CALIBRATIONS):
            return self._calibration(seen, len(calibrated))
        return self._after_calibration(seen)

    def _after_calibration(self, seen: Sequence[Seen]) -> Probe | Stop:
        standing = self.standing(seen)
        if self._wants_verification(seen, standing):
            share = AROUND[len(of(seen, "verify")) % len(AROUND)]
            near = inside(standing.binding.load, standing.binding.limit, seen)
            return probe(self.plan, near * share, "verify")
        if not of(seen, "anchor") and is_affordable(self.plan, seen, "anchor"):
            return probe(self.plan, of(seen, "calibrate")[0].level.load, "anchor")
        if standing.moved:
            return Stop(f"the server changed while it was measured: {standing.vetoes[0].text}")
        if standing.vetoes:
            return self._fallback(seen, standing)
        wanted = self.plan.confirm and standing.binding.corrections and not of(seen, "confirm")
        if wanted and is_affordable(self.plan, seen, "confirm"):
            return probe(self.plan, standing.binding.low, "confirm")
        return Stop(ending(self.plan, standing.binding.half_width))

    def _wants_verification(self, seen: Sequence[Seen], standing: Standing) -> bool:
        count = len(standing.verified)
        kept = self._confirming() if count else ()  # a knee that nothing verified has nothing to confirm
        if of(seen, "anchor") or not is_affordable(self.plan, seen, "verify", "anchor", *kept):
            return False
        if count < LEAST_VERIFIED:
            return True
        return not standing.vetoes and count < MOST_VERIFIED and standing.binding.half_width > self.plan.precision

    def _confirming(self) -> tuple[Stage, ...]:
        return ("confirm",) if self.plan.confirm else ()

    # --- calibration ----------------------------------------------------------------------------------------------

    def _calibration(self, seen: Sequence[Seen], done: int) -> Probe | Stop:
        if not is_affordable(self.plan, seen, "calibrate"):
            return Stop("budget spent before the twin was calibrated")
        guess = self.twins.guess(self._fit(seen, []))
        ladder = of(seen, "ladder")
        breaks = broken(self.plan, ladder)
        held = [one.level.load for one in ladder if one.level.load not in breaks]
        low, high = max(held, default=guess) / 2, 1.3 * min(breaks, default=math.inf)
        return probe(self.plan, CALIBRATIONS[done] * min(max(guess, low), high), "calibrate")

    def _fit(self, seen: Sequence[Seen], more: Sequence[Seen]) -> Fitted:
        """The twin of the highest rungs, all calibrations and `more`.

        A rung far above the knee is needed for a first guess only: its queue outweighs what happens near the cap.
        """
        calibrated, ladder = of(seen, "calibrate"), of(seen, "ladder")
        breaks = broken(self.plan, ladder)
        rungs = [one for one in ladder if not calibrated or one.level.load not in breaks]
        highest = sorted(rungs, key=lambda one: one.level.load)[-LADDER_IN_FIT:]
        return self.twins.fitted([one.observed for one in [*highest, *calibrated, *more]])

    # --- verification ---------------------------------------------------------------------------------------------

    def standing(self, seen: Sequence[Seen]) -> Standing:
        """Twin, estimates and vetoes. Raises ValueError before the calibration is complete."""
        if len(of(seen, "calibrate")) < len(CALIBRATIONS):
            raise ValueError(f"{len(of(seen, 'calibrate'))} calibrations: expected {len(CALIBRATIONS)}")
        verified, fitted, refitted = of(seen, "verify"), self._fit(seen, []), False
        estimates = self._estimates(fitted, verified[:2])
        if len(verified) >= 2 and far(np.array(estimates[0].etas), estimates[0].predicted.slope):
            fitted, refitted, verified = self._fit(seen, verified[:2]), True, verified[2:]
        estimates = self._estimates(fitted, verified)
        drift, doubt = self._drift(fitted, seen)
        return Standing(
            fitted=fitted,
            refitted=refitted,
            verified=verified,
            estimates=estimates,
            vetoes=self._objections(seen, fitted, estimates[0], drift, doubt),
            drift=drift,
        )

    def _estimates(self, fitted: Fitted, verified: Sequence[Seen]) -> list[Estimate]:
        return self.twins.estimates(fitted, [one.observed for one in verified])

    def _objections(
        self, seen: Sequence[Seen], fitted: Fitted, binding: Estimate, drift: float | None, doubt: float
    ) -> list[Veto]:
        """`doubt`: a drift no larger than this may be chance."""
        near = of(seen, "calibrate", "verify", "anchor")
        known = [one.preemptions for one in near if one.preemptions is not None]
        drifting = drifted(drift) if drift is not None and abs(drift) > doubt else None
        counted = [self.twins.counted(fitted, one.observed, binding.limit) for one in of(seen, "calibrate", "anchor")]
        found = [
            drifting,
            unfit(fitted.goodness),
            miscounted([one for one in counted if one is not None]),
            preempted(sum(known)),
            failing(*failed(near)),
        ]
        of_twin = vetoes(binding.corrections, binding.predicted.slope)
        if drift is not None and abs(drift) < max(STEADY, doubt):
            of_twin = [veto for veto in of_twin if veto.check != "trend with time"]
        return [veto for veto in found if veto is not None] + of_twin

    def _drift(self, fitted: Fitted, seen: Sequence[Seen]) -> tuple[float | None, float]:
        """How much longer a token took at the end than at the start, at one load, and twice its standard error.

        The twin takes the luck of both traces out.
        """
        if not of(seen, "anchor"):
            return None, 0.0
        levels = of(seen, "calibrate")[0].observed, of(seen, "anchor")[-1].observed
        (first, first_sd), (last, last_sd) = (_pace(fitted, observed) for observed in levels)
        change = last - first
        return (math.expm1(change), 2 * math.hypot(first_sd, last_sd)) if math.isfinite(change) else (None, 0.0)

    # --- fallback -------------------------------------------------------------------------------------------------

    def _fallback(self, seen: Sequence[Seen], standing: Standing) -> Probe | Stop:
        done = len(of(seen, "fallback"))
        why = f"the twin is not believed: {standing.vetoes[0].text}"
        if done >= MOST_FALLBACKS or not is_affordable(self.plan, seen, "fallback"):
            return Stop(f"{why}; answered from pooled misses")
        found = self.pooled(seen, standing)
        near = found.load if found else inside(standing.binding.load, standing.binding.limit, seen)
        return probe(self.plan, next_load(near, done), "fallback")

    def pooled(self, seen: Sequence[Seen], standing: Standing) -> Pooled | None:
        """The model-free estimate for the binding clause, from every level longer than a rung."""
        return estimated(standing.binding.limit, of(seen, "calibrate", "verify", "anchor", "confirm", "fallback"))


def _pace(fitted: Fitted, observed: Observation) -> tuple[float, float]:
    """Mean of ln(measured / simulated) over requests, and its standard error from blocks in order of arrival.

    Of TPOT, or of TTFT where answers have one token.
    """
    lives = fast.run(fitted.server, observed.trace)
    for metric in ("tpot_ms", "ttft_ms"):
        measured, simulated = values_s(metric, observed)[observed.counts], lived_s(metric, lives)[observed.counts]
        both = np.isfinite(measured) & np.isfinite(simulated) & (measured > 0) & (simulated > 0)
        if both.sum() >= 2 * PACE_BLOCKS:
            ratios = np.log(measured[both] / simulated[both])
            blocks = [float(block.mean()) for block in np.array_split(ratios, PACE_BLOCKS)]
            return float(ratios.mean()), float(np.std(blocks, ddof=1)) / math.sqrt(PACE_BLOCKS)
    return math.nan, 0.0
