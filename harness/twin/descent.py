"""Least squares over costs that cannot be below nothing: damped Gauss–Newton steps within bounds. Pure.

Made for residuals that come from a simulation: derivatives are taken over steps of some per cent, because over smaller
ones a quantile does not move or jumps, and a bound is a place where a cost can stay and leave again.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import lsq_linear

Vector = NDArray[np.float64]
DIFFERENCES = (0.03, 0.01, 0.08)
"""Shares of an element to difference over: the next one when the one before leads no lower."""
DAMPING, EASIER, HARDER = 1e-3, 0.2, 5.0
MOST_DAMPING = 10.0
ENOUGH = 0.01
"""A round that lowers the cost by a smaller share than this is the last."""


def descended(residuals: Callable[[Vector], Vector], start: Vector, *, rounds: int, robust: float) -> Vector:
    """The vector, nowhere below 1, with the least Σ 2·robust²·(√(1 + (r/robust)²) − 1), from `start` on.

    For small residuals that is the sum of squares; beyond `robust` it grows like the residual itself. Each round costs
    one evaluation an element and one to three more.
    """
    at, off = start, residuals(start)
    left = list(DIFFERENCES)
    damping = DAMPING
    for _ in range(rounds):
        slopes = _slopes(residuals, at, off, left[0])
        before = soft(off, robust)
        at, off, damping = _lower(residuals, slopes, (at, off, damping), robust)
        if before - soft(off, robust) <= ENOUGH * before:
            left, damping = left[1:], DAMPING
            if not left:
                break
    return at


def _lower(
    residuals: Callable[[Vector], Vector], slopes: Vector, state: tuple[Vector, Vector, float], robust: float
) -> tuple[Vector, Vector, float]:
    """The next place, its residuals and its damping; the same place where no damping leads lower."""
    at, off, damping = state
    weights = (1 + (off / robust) ** 2) ** -0.25
    while damping <= MOST_DAMPING:
        tried = at + _step(slopes * weights[:, None], off * weights, at, damping)
        found = residuals(tried)
        if soft(found, robust) < soft(off, robust):
            return tried, found, damping * EASIER
        damping *= HARDER
    return at, off, damping


def soft(off: Vector, robust: float) -> float:
    """What is minimised."""
    return float(2 * robust**2 * (np.sqrt(1 + (off / robust) ** 2) - 1).sum())


def _slopes(residuals: Callable[[Vector], Vector], at: Vector, off: Vector, share: float) -> Vector:
    """Forward differences over this share of each element, one column an element."""
    steps = np.diag(share * at)
    return np.stack([(residuals(at + step) - off) / step.sum() for step in steps], axis=1)


def _step(slopes: Vector, off: Vector, at: Vector, damping: float) -> Vector:
    """Marquardt's step: the linear problem, each direction damped by its own curvature, no element led below 1."""
    curvature = np.sqrt((slopes**2).sum(axis=0)) + 1e-9
    rows = np.concatenate((slopes, np.diag(np.sqrt(damping) * curvature)))
    goal = np.concatenate((-off, np.zeros(len(at))))
    found: Vector = lsq_linear(rows, goal, bounds=(1.0 - at - 1e-12, np.inf)).x
    return np.maximum(found, 1.0 - at)
