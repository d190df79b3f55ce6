"""Length distributions to whole numbers of tokens. Pure: randomness comes from the generator that is passed in."""

import math

import numpy as np
from numpy.typing import NDArray

from harness.model import Choice, Exponential, Fixed, Length, LogNormal, Quantiles, Uniform

Tokens = NDArray[np.int64]


def draw(length: Length, rng: np.random.Generator, n: int) -> Tokens:
    """`n` independent lengths in tokens, each within the distribution's own limits.

    Values beyond `min` and `max` are moved to the limit, not drawn again: the median stays the one that was asked for.
    """
    match length:
        case Fixed(tokens=tokens):
            return np.full(n, tokens, np.int64)
        case Uniform(min=low, max=high):
            return rng.integers(low, high, size=n, endpoint=True)
        case LogNormal():
            return _cut(_lognormal(length, rng, n), length.min, length.max)
        case Exponential(mean=mean):
            return _cut(rng.exponential(mean, n), length.min, length.max)
        case Quantiles(shares=shares, tokens=points):
            return _cut(np.interp(rng.random(n), shares, points), points[0], points[-1])
        case Choice():
            return _choice(length, rng, n)


def _lognormal(length: LogNormal, rng: np.random.Generator, n: int) -> NDArray[np.float64]:
    """exp(ln median + sigma·z); cut before exp as well, since exp(710) is no longer a number."""
    log_tokens = rng.normal(math.log(length.median), length.sigma, n)
    return np.exp(np.minimum(log_tokens, math.log(length.max)))


def _choice(length: Choice, rng: np.random.Generator, n: int) -> Tokens:
    weights = np.array(length.weights or [1.0] * len(length.tokens))
    return rng.choice(np.array(length.tokens, np.int64), size=n, p=weights / weights.sum())


def _cut(tokens: NDArray[np.float64], low: int, high: int) -> Tokens:
    return np.clip(np.rint(tokens), low, high).astype(np.int64)
