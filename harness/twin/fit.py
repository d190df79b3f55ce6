"""A server from what was measured of the real one: the twin that the same requests meet alike. Pure.

Squared differences of logarithms between measured and simulated mean, median, P90 (and P99, from 368 requests on) of
TTFT and TPOT are minimised over what a step costs. Every level is simulated with the requests that were really sent, at
the times at which they were, so that the luck of a trace is on both sides.

The twin begins with a straight τ(b). A knot, or a cost of context, is added only where it pays: see `Levels.pays`.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec import Struct, structs

from harness.twin.descent import descended, soft
from harness.twin.observed import FEWEST, Figure, Measured, Observation, Residual, measured
from harness.twin.scatter import EXACT, Scatter, scatter
from harness.twin.server import Server
from harness.twin.shape import Shape, bent, costs, with_context
from harness.twin.start import Means, means, starts
from harness.twin.trace import Floats

__all__ = ["Fitted", "Observation", "Residual", "fit"]

MOST = 6_000
"""Simulated requests of all levels together, in each of the some hundred evaluations of a fit."""
LEAST_OF_LEVEL = 600
WEIGHTS: dict[Figure, float] = {"mean": 1.0, "p50": 1.0, "p90": 1.0, "p99": 0.5}
LIGHTEST = 0.3
"""Weight of an idle level; one at the cap has 1. What a twin says of the knee must be right there."""
ROBUST = 0.3
MOST_KNOTS = 4
MOST_EXTRA = 3
MOST_ROUNDS = 15
"""Rounds of the optimiser, each of which simulates every level once for each number that is free."""
FITS = 0.02
"""RMS of ln(measured / simulated) above which another start is tried."""
GOOD_ENOUGH = 0.01
"""RMS below which nothing is added any more."""
WORDS = ((0.02, "close"), (0.05, "fair"), (0.15, "poor"), (math.inf, "not the same server"))


class Fitted(Struct, frozen=True, kw_only=True):
    """The twin, and how well it does."""

    server: Server
    residuals: list[Residual]
    goodness: float
    """Weighted RMS of the residuals, ln: 0.02 is 2 %."""
    text: str
    """The same in words, with the worst figure."""
    knots: int
    """Points of τ(b): 2 is a straight line."""
    scatter: Scatter = EXACT
    """Of what was measured about what the server says."""


def fit(
    observations: Sequence[Observation], start: Server | None, *, max_num_seqs: int, max_num_batched_tokens: int
) -> Fitted:
    """The server that fits these levels best, from a start or from what the levels say themselves.

    Levels with fewer than 20 judged answers have no say. Raises ValueError when none has one.
    """
    limits = {"max_num_seqs": max_num_seqs, "max_num_batched_tokens": max_num_batched_tokens}
    levels = Levels.of(observations)
    begun = [structs.replace(start, **limits)] if start else starts(observations, **limits)
    best = levels.closest_from(begun)
    for _ in range(MOST_EXTRA):
        if levels.goodness(best) < GOOD_ENOUGH:
            break
        richer = [levels.closest(server) for server in levels.richer(best)]
        paying = [server for server in richer if levels.pays(best, server)]
        if not paying:
            break
        best = min(paying, key=levels.cost)
    return structs.replace(levels.fitted(best), scatter=scatter(best, observations))


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """All levels of a fit, cut to a length that can be simulated some hundred times, and their weights."""

    levels: list[Measured]
    means: list[Means]
    weights: list[float]

    @classmethod
    def of(cls, observations: Sequence[Observation]) -> "Levels":
        """Raises ValueError when no level can be compared."""
        most = max(LEAST_OF_LEVEL, MOST // max(len(observations), 1))
        pairs = [(measured(one, most), means(one)) for one in observations]
        told = [(level, found) for level, found in pairs if found is not None and level.sides[0].measured]
        if not told:
            raise ValueError(f"fit: no level with {FEWEST} judged answers of two tokens or more: measure longer levels")
        busiest = max(found.tokens_per_s for _, found in told)
        return cls(
            levels=[level for level, _ in told],
            means=[found for _, found in told],
            weights=[max(LIGHTEST, found.tokens_per_s / busiest) for _, found in told],
        )

    def weighted(self, server: Server) -> tuple[list[Residual], Floats]:
        """Every residual, and its weight."""
        each = [level.residuals(server) for level in self.levels]
        weights = [w * WEIGHTS[r.figure] for w, level in zip(self.weights, each, strict=True) for r in level]
        return [residual for level in each for residual in level], np.array(weights)

    def goodness(self, server: Server) -> float:
        """Weighted RMS of ln(measured / simulated)."""
        residuals, weights = self.weighted(server)
        return math.sqrt(float(np.average([residual.ln**2 for residual in residuals], weights=weights**2)))

    def cost(self, server: Server) -> float:
        """What is minimised: like the sum of squares, but a figure that is off by far more than 30 % counts less."""
        residuals, weights = self.weighted(server)
        return soft(np.array([residual.ln for residual in residuals]) * weights, ROBUST)

    def closest(self, server: Server) -> Server:
        """The server of this shape that fits best, from there."""
        shape = Shape.of(server)

        def off(vector: Floats) -> Floats:
            residuals, weights = self.weighted(shape.server(vector))
            return np.array([residual.ln for residual in residuals]) * weights

        found = descended(off, shape.vector(server), rounds=MOST_ROUNDS, robust=ROBUST)
        return shape.server(found)

    def closest_from(self, begun: Sequence[Server]) -> Server:
        """From the best start with a constant and from the best without; from the next best too where neither fits."""
        ranked = sorted(begun, key=self.cost)
        first = list({bool(one.constant_ms): one for one in reversed(ranked)}.values())
        best = min(map(self.closest, first), key=self.cost)
        others = [one for one in ranked if one not in first]
        if others and self.goodness(best) > FITS:
            best = min(best, self.closest(others[0]), key=self.cost)
        return best

    def richer(self, server: Server) -> Iterator[Server]:
        """The server with one more thing to fit: a knot where the levels bend most, or a cost of context."""
        shares = [level.batch_shares(server) for level in self.levels]
        if len(server.knots) < MOST_KNOTS and (curved := bent(server, self.means, shares)) is not None:
            yield curved
        if not server.per_kv_token_ms:
            yield with_context(server, float(np.mean([level.context for level in self.means])))

    def pays(self, plain: Server, richer: Server) -> bool:
        """Whether one more number is worth it: Akaike's criterion for small samples falls.

        The figures of one metric on one level move together and count as one value: n = 2 · levels.
        """
        n, k = 2 * len(self.levels), len(costs(plain))
        if n - k - 2 < 1:
            return False
        penalty = 2 + 2 * (k + 1) * (k + 2) / (n - k - 2) - 2 * k * (k + 1) / (n - k - 1)
        return n * math.log(max(self.cost(plain), 1e-12) / max(self.cost(richer), 1e-12)) > penalty

    def fitted(self, server: Server) -> Fitted:
        """The answer, with its residuals."""
        residuals, goodness = self.weighted(server)[0], self.goodness(server)
        worst = max(residuals, key=lambda residual: abs(residual.ln))
        word = next(word for limit, word in WORDS if goodness <= limit)
        text = (
            f"{word}: within {goodness:.1%} (RMS of {len(residuals)} figures of {len(self.levels)} levels); "
            f"worst: {worst.metric} {worst.figure} at {worst.load:g}, measured {math.expm1(worst.ln):+.0%}"
        )
        return Fitted(server=server, residuals=residuals, goodness=goodness, text=text, knots=len(server.knots))
