"""The knee without a model: one curve through the misses of all probes, pooled. No clock, no I/O.

logit P(miss) = a + b · ln(load), quasi-binomial. Misses near a knee come in clusters, so their variance is φ times the
binomial one; φ is estimated from how probes scatter about the curve, held towards 60 where there are few of them. The
slope is held towards 30 ± 15, what continuous batching showed. Such intervals covered the truth in 73 to 78 % of
simulated searches, hence the factor 1.5 on their half-width; about 50,000 requests give 3 % (RMSE).
"""

import math
from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray
from scipy.special import expit, logit, stdtrit

SLOPE, SLOPE_SD = 30.0, 15.0
DISPERSION, DISPERSION_DF = 60.0, 4
WIDENING = 1.5
ROUNDS = 30
LEAST_SLOPE = 1.0
"""A flatter curve has no knee worth the name."""
FARTHEST = 0.5
"""In ln(load) from the nearest probe with a say: an extrapolated root is not an estimate."""
SPREAD = (1.0, 0.90, 1.06, 0.95, 1.03, 0.98, 1.08, 0.92)
"""Loads to probe, as shares of the best guess. The order is mixed so that drift does not pass for slope."""

Array = NDArray[np.float64]


class Counted(Struct, frozen=True):
    """One probe: how many of its requests missed the clause."""

    load: float
    misses: float
    requests: int


class Pooled(Struct, frozen=True, kw_only=True):
    """The load at which the pooled curve passes the allowed share of misses, with its 95 % interval."""

    load: float
    low: float
    high: float
    slope: float
    """d logit(miss) / d ln(load)."""
    dispersion: float
    """φ: variance of miss counts over the binomial one."""

    @property
    def half_width(self) -> float:
        """Half of the interval, relative to the knee (on the log scale)."""
        return math.log(self.high / self.low) / 2


def pooled(probes: Sequence[Counted], allowed: float) -> Pooled | None:
    """The root of the pooled curve; None where no curve rises, or the root lies far from every probe.

    `allowed` is the share of requests that may miss, 0.01 for a P99 clause.
    """
    counted = [probe for probe in probes if probe.requests > 0 and probe.load > 0]
    if len(counted) < 2 or not 0 < allowed < 1:
        return None
    x = np.log([probe.load for probe in counted])
    n = np.array([probe.requests for probe in counted], dtype=np.float64)
    misses = np.array([probe.misses for probe in counted], dtype=np.float64)
    centre = float(np.average(x, weights=n))
    beta, covariance, dispersion = _fitted(x - centre, misses, n, allowed)
    if beta[1] < LEAST_SLOPE:
        return None
    root = (float(logit(allowed)) - beta[0]) / beta[1]
    if np.min(np.abs(x - centre - root)) > FARTHEST:
        return None
    gradient = np.array([-1.0, -root]) / beta[1]
    spread = math.sqrt(gradient @ covariance @ gradient)
    half = WIDENING * float(stdtrit(max(0, len(counted) - 2) + DISPERSION_DF, 0.975)) * spread
    at = centre + float(root)
    return Pooled(
        load=math.exp(at),
        low=math.exp(at - half),
        high=math.exp(at + half),
        slope=float(beta[1]),
        dispersion=dispersion,
    )


def _fitted(x: Array, misses: Array, n: Array, allowed: float) -> tuple[Array, Array, float]:
    """(a, b), their covariance and φ: Newton steps on the penalised quasi-likelihood, φ renewed in each."""
    terms = np.column_stack([np.ones_like(x), x])
    start = (misses.sum() + allowed) / (n.sum() + 1)
    beta, dispersion = np.array([float(logit(start)), SLOPE]), DISPERSION
    held = np.diag([1e-6, SLOPE_SD**-2])
    information = held
    for _ in range(ROUNDS):
        share = np.clip(expit(terms @ beta), 1e-9, 1 - 1e-9)
        weight = n * share * (1 - share)
        dispersion = _dispersion(misses, n * share, weight)
        information = terms.T @ (terms * weight[:, None]) / dispersion + held
        score = terms.T @ (misses - n * share) / dispersion - np.array([0.0, (beta[1] - SLOPE) / SLOPE_SD**2])
        move = np.linalg.solve(information, score)
        beta = beta + np.clip(move, [-1.0, -5.0], [1.0, 5.0])
    return beta, np.linalg.inv(information), dispersion


def _dispersion(misses: Array, expected: Array, variance: Array) -> float:
    """Pearson's χ² per degree of freedom, with `DISPERSION_DF` pseudo-degrees at `DISPERSION`; at least 1.

    A probe that expects less than one miss says nothing on φ, whatever its residual divided by almost nothing is.
    """
    telling = expected >= 1
    chi2 = float(np.sum((misses - expected)[telling] ** 2 / variance[telling]))
    freedom = max(0, int(telling.sum()) - 2)
    return max(1.0, (chi2 * (freedom > 0) + DISPERSION * DISPERSION_DF) / (freedom + DISPERSION_DF))


def next_load(guess: float, done: int) -> float:
    """The load of fallback probe number `done`, counted from 0."""
    return guess * SPREAD[done % len(SPREAD)]
