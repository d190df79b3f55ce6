"""The declared traffic as a distribution over traces: any load, any number of requests, any seed. Pure, seeded.

Gaps are drawn for one request a second and scaled, lengths do not depend on the load: traces of one seed are the same
history at another speed (common random numbers), so that a miss share is a smooth curve over load. Gaps are not scaled
to meet the load exactly and lengths are not stratified: both would take out variance and put the knee too high.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
from msgspec import Meta, Struct

from harness.model import Count, Length, NotNegative, Positive, Scenario
from harness.traffic.lengths import draw
from harness.twin.trace import Floats, Tokens, Trace

ARRIVALS, LENGTHS = 0, 1
"""Last element of the spawn key: two streams of random numbers, so that one can change and the other stay."""


class Empirical(Struct, frozen=True, kw_only=True, tag=True):
    """Requests as they were seen: (prompt tokens, output tokens), drawn with replacement and kept together."""

    pairs: Annotated[Sequence[tuple[Count, Count]], Meta(min_length=1)]


class Lengths(Struct, frozen=True, kw_only=True, tag=True):
    """Prompts and outputs, independent of each other."""

    prompt_tokens: Length
    output_tokens: Length


class Traffic(Struct, frozen=True, kw_only=True):
    """When requests arrive and how long they are.

    poisson; constant; gamma: independent gaps with this coefficient of variation; on_off: Poisson in bursts, both
    phases of exponential duration with these means, whatever the load, and none between them.
    """

    lengths: Lengths | Empirical
    arrivals: Literal["poisson", "constant", "gamma", "on_off"] = "poisson"
    cv: Positive = 2.0
    """gamma only."""
    on_s: Positive = 17.0
    off_s: Positive = 43.0
    think_s: NotNegative = 0.0
    """Closed loop only."""

    def trace(self, load: float, n: int, seed: int | Sequence[int]) -> Trace:
        """Open loop: n requests at `load` a second in the long run. Raises ValueError for a load that is not > 0."""
        if not load > 0:
            raise ValueError(f"load {load} requests a second: expected more than 0")
        prompt_tokens, output_tokens = self._drawn(n, _rng(seed, LENGTHS))
        arrival_s = self._arrival_s(load, n, _rng(seed, ARRIVALS))
        return Trace(prompt_tokens=prompt_tokens, output_tokens=output_tokens, arrival_s=arrival_s)

    def closed(self, users: int, n: int, seed: int | Sequence[int], *, starts_s: Floats | None = None) -> Trace:
        """Closed loop: the same n requests, taken by so many users."""
        prompt_tokens, output_tokens = self._drawn(n, _rng(seed, LENGTHS))
        return Trace(
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            users=users,
            think_s=self.think_s,
            starts_s=starts_s,
        )

    def _drawn(self, n: int, rng: np.random.Generator) -> tuple[Tokens, Tokens]:
        if isinstance(self.lengths, Empirical):
            pairs = np.array(self.lengths.pairs, np.int64)[rng.integers(len(self.lengths.pairs), size=n)]
            return pairs[:, 0], pairs[:, 1]
        prompt_rng, output_rng = rng.spawn(2)
        return draw(self.lengths.prompt_tokens, prompt_rng, n), draw(self.lengths.output_tokens, output_rng, n)

    def _arrival_s(self, load: float, n: int, rng: np.random.Generator) -> Floats:
        if self.arrivals == "constant":
            return np.arange(n) / load
        if self.arrivals == "gamma":
            shape = self.cv**-2
            return np.cumsum(rng.gamma(shape, 1 / shape, n)) / load
        gaps_rng, on_rng, off_rng = rng.spawn(3)
        unit: Floats = np.cumsum(gaps_rng.exponential(1.0, n))
        if self.arrivals == "poisson":
            return unit / load
        on_s = unit * self.on_s / (self.on_s + self.off_s) / load
        burst = np.searchsorted(_bursts_end_s(self.on_s, on_s, on_rng), on_s)
        pauses_s = np.cumsum(off_rng.exponential(self.off_s, burst.max(initial=0) + 1))
        paused_s: Floats = np.concatenate(([0.0], pauses_s))[burst]
        return on_s + paused_s


def of(scenario: Scenario) -> Traffic:
    """The traffic a scenario declares."""
    return Traffic(
        lengths=Lengths(prompt_tokens=scenario.prompt_tokens, output_tokens=scenario.output_tokens),
        arrivals=scenario.load.arrivals,
        think_s=scenario.load.think_s,
    )


def _bursts_end_s(mean_s: float, until_s: Floats, rng: np.random.Generator) -> Floats:
    """Ends of bursts on a clock that runs in bursts only, up to the last of some instants on it."""
    ends_s = np.zeros(0)
    while len(until_s) and (not len(ends_s) or ends_s[-1] < until_s[-1]):
        more_s = np.cumsum(rng.exponential(mean_s, 256))
        ends_s = np.concatenate((ends_s, more_s + (ends_s[-1] if len(ends_s) else 0.0)))
    return ends_s


def _rng(seed: int | Sequence[int], stream: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(stream,)))
