"""When requests are due in an open loop, as offsets from the start of a stage. Pure: no clock, seeded randomness."""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import count
from typing import Literal

import numpy as np

from harness.clock import S

BLOCK = 1024
"""Gaps drawn at once: numpy's cost per call disappears, and a worker that stops early wasted some 10 µs."""
STREAM = 0
"""First element of the spawn key here; `plan` uses another, so that lengths and due times stay independent."""


def due_offsets(
    arrivals: Literal["poisson", "constant"],
    rate: float,
    *,
    seed: int | Sequence[int],
    worker: int,
    workers: int,
) -> Iterator[int]:
    """Endless rising offsets in ns at which this worker's requests are due; `rate` is per second over all workers.

    Poisson: each worker draws its own stream of rate/workers, and independent Poisson streams add up to one of the sum.
    Constant: slot i is due at i/rate; worker w takes slots w, w + workers, w + 2·workers, …

    Pass `(seed, level)` as the seed: a level drawn from the same numbers as its neighbour repeats its bursts, and the
    knee would be that of one trace. Raises ValueError for a rate or a worker that cannot be.
    """
    if not rate > 0 or not 0 <= worker < workers:
        raise ValueError(f"rate {rate}, worker {worker} of {workers}: expected rate > 0 and 0 <= worker < workers")
    if arrivals == "constant":
        return _slots(Fraction(rate), worker, workers)
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(STREAM, worker)))
    return _poisson(rng, S * workers / rate)


def _poisson(rng: np.random.Generator, mean_gap_ns: float) -> Iterator[int]:
    """Sums of exponential gaps. A float holds whole nanoseconds up to 2⁵³, 104 days: rounding does not add up."""
    at_ns = 0.0
    while True:
        due_ns = at_ns + np.cumsum(rng.exponential(mean_gap_ns, BLOCK))
        at_ns = float(due_ns[-1])
        yield from np.rint(due_ns).astype(np.int64).tolist()


def _slots(rate: Fraction, worker: int, workers: int) -> Iterator[int]:
    """Each slot is computed from its index in whole numbers, so no rounding error is carried from slot to slot."""
    numerator, denominator = S * rate.denominator, rate.numerator
    return (slot * numerator // denominator for slot in count(worker, workers))
