"""What was asked of a server (Trace) and what came back (Lives), as arrays. Pure: values, no clock, no I/O."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from harness.twin.gaps import Gaps, gaps

Floats = NDArray[np.float64]
Tokens = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Requests in the order in which they arrive; seconds from the start of the level.

    Open loop: `arrival_s` holds their times, rising. Closed loop: it is None, and `users` take the requests in order,
    each its first at its own of `starts_s` (None: all at 0) and another `think_s` after each answer. Raises ValueError
    for lengths below one token, arrays that do not match, and arrivals out of order.
    """

    prompt_tokens: Tokens
    output_tokens: Tokens
    arrival_s: Floats | None = None
    users: int = 0
    think_s: float = 0.0
    starts_s: Floats | None = None

    def __post_init__(self) -> None:
        n = len(self.prompt_tokens)
        if len(self.output_tokens) != n:
            raise ValueError(f"trace: {n} prompts and {len(self.output_tokens)} outputs: expected as many")
        if n and min(self.prompt_tokens.min(), self.output_tokens.min()) < 1:
            raise ValueError("trace: a length below one token: every prompt and output has one or more")
        if self.arrival_s is None:
            self._check_users()
        elif len(self.arrival_s) != n or (n and np.any(np.diff(self.arrival_s) < 0)):
            raise ValueError(f"trace: arrival_s must be {n} rising times, one a request")

    def _check_users(self) -> None:
        if self.users < 1 or not self.think_s >= 0:
            raise ValueError(f"trace: {self.users} users, think_s {self.think_s}: expected 1 or more, and 0 or more")
        if self.starts_s is not None and len(self.starts_s) != self.users:
            raise ValueError(f"trace: {len(self.starts_s)} starts for {self.users} users: expected one each")

    def __len__(self) -> int:
        return len(self.prompt_tokens)

    @property
    def loop(self) -> Literal["closed", "open"]:
        """What drives the arrivals."""
        return "closed" if self.arrival_s is None else "open"

    def head(self, n: int) -> "Trace":
        """The first n requests, in the same loop."""
        return Trace(
            prompt_tokens=self.prompt_tokens[:n],
            output_tokens=self.output_tokens[:n],
            arrival_s=None if self.arrival_s is None else self.arrival_s[:n],
            users=self.users,
            think_s=self.think_s,
            starts_s=self.starts_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """The steps of the engine as runs of steps alike, in order and without gaps; idle time is a run of no step."""

    batch: NDArray[np.int32]
    """Sequences computed in each step of the run; 0: idle."""
    decoding: NDArray[np.int32]
    """Those of them that were decoding: each got its next token at the end of each step."""
    count: NDArray[np.int64]
    """Steps in the run."""
    end_s: Floats
    """When the run ended; the first begins at 0."""
    per_kv_token_s: float = 0.0
    """Within a run each step is longer than the one before by this much a decoding sequence."""

    @property
    def seconds(self) -> Floats:
        """How long each run took."""
        return np.diff(self.end_s, prepend=0.0)

    @property
    def tokens(self) -> Floats:
        """Tokens after the first of their answers that each run gave."""
        return (self.count * self.decoding).astype(np.float64)

    @property
    def step_s(self) -> Floats:
        """How long a step of each run took, in the mean."""
        return self.seconds / np.maximum(self.count, 1)

    def batch_quantiles(self, shares: Iterable[float], *, since_s: float = 0.0, until_s: float = np.inf) -> list[float]:
        """Batch sizes not passed for these shares of the time in a window, idle time included (as size 0)."""
        ends = np.clip(self.end_s, since_s, until_s)
        held_s = np.bincount(self.batch, weights=np.diff(ends, prepend=since_s))
        upto = np.cumsum(held_s) / held_s.sum()
        return [float(np.searchsorted(upto, share - 1e-12)) for share in shares]

    def slow(self, limit_s: float) -> Tokens:
        """How many steps of each run took longer than this: in each of them every decoding sequence saw such a gap."""
        mean_s, growth_s = self.step_s, self.per_kv_token_s * self.decoding
        alike = np.where(mean_s > limit_s, np.inf, 0.0)
        over = np.divide(mean_s + growth_s * (self.count - 1) / 2 - limit_s, growth_s, out=alike, where=growth_s > 0)
        found: Tokens = np.clip(np.ceil(over), 0, self.count).astype(np.int64)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Lives:
    """What became of the requests of a trace, in its order; seconds on the trace's time axis."""

    arrived_s: Floats
    first_s: Floats
    last_s: Floats
    output_tokens: Tokens
    steps: Steps

    def __len__(self) -> int:
        return len(self.arrived_s)

    @property
    def ttft_s(self) -> Floats:
        """First frame − arrival."""
        return self.first_s - self.arrived_s

    @property
    def e2e_s(self) -> Floats:
        """Last frame − arrival."""
        return self.last_s - self.arrived_s

    @property
    def tpot_s(self) -> Floats:
        """(last − first frame) / tokens after the first; NaN where there are none."""
        later = self.output_tokens - 1
        absent = np.full(len(later), np.nan)
        found: Floats = np.divide(self.last_s - self.first_s, later, out=absent, where=later > 0)
        return found

    def slow_gaps(self, limit_s: float) -> Tokens:
        """How many of each request's gaps between tokens were longer than this; it has `output_tokens` − 1 of them."""
        slow: Tokens = self.summed(self.steps.slow(limit_s)).astype(np.int64)
        return slow

    def summed(self, each: Floats | Tokens) -> Floats:
        """Sum over the runs of steps in which a request decoded, of what each run has; for every request."""
        passed = np.concatenate(([0.0], np.cumsum(each)))
        first, last = self._decoded()
        found: Floats = passed[last] - passed[first]
        return found

    def gaps(self, of: NDArray[np.bool_]) -> Gaps:
        """The gaps between the tokens of these requests; within a run of steps all count as its mean."""
        runs = len(self.steps.count) + 1
        first, last = (np.bincount(places[of], minlength=runs) for places in self._decoded())
        decoding = np.cumsum(first - last)[:-1]
        return gaps(self.steps.step_s, decoding * self.steps.count)

    def _decoded(self) -> tuple[Tokens, Tokens]:
        """The first run of steps in which each request decoded, and the first after it no longer did."""
        first, last = (np.searchsorted(self.steps.end_s, at, side="right") for at in (self.first_s, self.last_s))
        return first, last
