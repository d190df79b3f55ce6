"""Saturation laws: USL, Kneedle and Little's law. Shown beside a knee, never deciding one. No clock, no I/O."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from harness.findings import Usl

LEAST_POINTS = 4
"""Three unknowns and one point more, or the law would fit anything."""

Array = NDArray[np.float64]
Point = tuple[float, float]
"""Users (or mean number in flight), and requests a second."""


def usl(points: Sequence[Point]) -> Usl | None:
    """The law through measured points; None with too few different N, or where it cannot hold (λ = 0).

    N / X is linear in 1/λ, σ/λ and κ/λ, none of which may be negative: one non-negative least squares, each point
    weighted by X / N so that relative errors count.
    """
    users, rps = _columns([point for point in points if point[0] > 0 and point[1] > 0])
    if len(np.unique(users)) < LEAST_POINTS:
        return None
    terms = np.column_stack([np.ones_like(users), users - 1, users * (users - 1)])
    weights = rps / users
    found, norm = nnls(terms * weights[:, None], np.ones_like(users))
    if found[0] <= 0:
        return None
    slowness, contention, coherence = (float(value) for value in found)
    return Usl(
        lone_rps=1 / slowness,
        contention=contention / slowness,
        coherence=coherence / slowness,
        error=float(norm) / len(users) ** 0.5,
    )


def kneedle(points: Sequence[Point], *, sensitivity: float = 1.0) -> float | None:
    """Where a rising, flattening curve bends most (Satopaa et al. 2011), as one of the measured x; None: no bend.

    Both axes are scaled to 0 … 1; a local maximum of y − x is a knee once the difference falls below it by
    `sensitivity` mean gaps of x. It depends on the range that was measured and knows nothing of an SLO.
    """
    xs, ys = _columns(sorted(points))
    if len(xs) < LEAST_POINTS or np.ptp(xs) == 0 or np.ptp(ys) == 0:
        return None
    x, y = (xs - xs[0]) / np.ptp(xs), (ys - ys.min()) / np.ptp(ys)
    above = y - x
    fall = sensitivity * float(np.mean(np.diff(x)))
    for top in range(1, len(x) - 1):
        is_peak = above[top] >= above[top - 1] and above[top] > above[top + 1]
        if is_peak and _falls(above[top:], float(above[top]) - fall):
            return float(xs[top])
    return None


def _falls(after: Array, threshold: float) -> bool:
    """The difference passes below the threshold before it rises above its peak again."""
    below = np.flatnonzero(after < threshold)
    higher = np.flatnonzero(after > after[0])
    return bool(below.size) and (not higher.size or bool(below[0] < higher[0]))


def little(in_flight: float, arrivals_rps: float, time_in_system_s: float) -> float | None:
    """L / (λ · W) of the requests that arrived in a hold (Little 1961); None when none arrived, or none stayed.

    1 where the level was steady. Those that arrive while it fills up stay longer than those they find there, and the
    ratio falls below 1; above 1 it ran empty. A hold that is short beside W is off either way, by its edges alone.
    """
    expected = arrivals_rps * time_in_system_s
    return in_flight / expected if expected > 0 else None


def _columns(points: Sequence[Point]) -> tuple[Array, Array]:
    table = np.asarray(points, dtype=np.float64).reshape(-1, 2)
    return table[:, 0], table[:, 1]
