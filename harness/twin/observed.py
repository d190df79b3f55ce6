"""A measured level as the twin needs it, and how far a server's simulation of the same requests is from it. Pure."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from harness.metrics import FEW_FOR_P99
from harness.twin.fast import run
from harness.twin.gaps import Gaps
from harness.twin.server import Server
from harness.twin.trace import Floats, Trace

Flags = NDArray[np.bool_]
FEWEST = 20
"""Requests below which a level has no P90 worth comparing and is left out."""
LASTING = 0.99
FLOOR_S = 1e-6
"""Times are compared as logarithms; none is taken to be shorter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One level as measured. Arrays have one value a request of the trace, in its order; NaN where there is none."""

    load: float
    """Requests a second, or users."""
    loop: Literal["closed", "open"]
    trace: Trace
    """As really sent, warm-up included, so that the simulated queue begins as the real one did."""
    counts: Flags
    """Which requests are judged."""
    ttft_s: Floats
    tpot_s: Floats
    at_s: float = 0.0
    """When in the run the level was measured."""
    gaps: Gaps | None = None
    """Between the tokens of the judged requests; None: not kept, as no clause asks for them."""

    @property
    def answered(self) -> Flags:
        """Which requests are judged and had an answer."""
        found: Flags = self.counts & np.isfinite(self.ttft_s)
        return found


Metric = Literal["ttft", "tpot"]
Figure = Literal["mean", "p50", "p90", "p99"]
QUANTILES: dict[Figure, float] = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


class Residual(Struct, frozen=True, kw_only=True):
    """One figure of one level: ln(measured / simulated), above 0 where the server is slower than its twin."""

    load: float
    at_s: float
    metric: Metric
    figure: Figure
    ln: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One metric of a level: its judged requests, and the figures measured of them."""

    metric: Metric
    judged: Flags
    measured: dict[Figure, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """An observation cut to a length that can be simulated often."""

    observation: Observation
    trace: Trace
    sides: list[Side]

    def residuals(self, server: Server) -> list[Residual]:
        """Every figure of this level against that server: always the same ones, in the same order."""
        lives = run(server, self.trace)
        values_s: dict[Metric, Floats] = {"ttft": lives.ttft_s, "tpot": lives.tpot_s}
        at = self.observation
        return [
            Residual(load=at.load, at_s=at.at_s, metric=side.metric, figure=figure, ln=side.measured[figure] - ln)
            for side in self.sides
            for figure, ln in figures(values_s[side.metric][side.judged]).items()
        ]

    def batch_shares(self, server: Server) -> Floats:
        """Share of the tokens after the first that came in steps of each size (the index) on that server."""
        steps = run(server, self.trace).steps
        tokens = np.bincount(steps.batch, weights=steps.tokens, minlength=server.max_num_seqs + 1)
        shares: Floats = tokens / max(tokens.sum(), 1.0)
        return shares


def figures(values_s: Floats) -> dict[Figure, float]:
    """ln of mean, median and P90, and of P99 from enough values; nothing from too few."""
    if len(values_s) < FEWEST:
        return {}
    wanted: list[Figure] = ["p50", "p90", "p99"] if len(values_s) >= FEW_FOR_P99 else ["p50", "p90"]
    found: dict[Figure, float] = {"mean": float(values_s.mean())}
    found.update(zip(wanted, np.quantile(values_s, [QUANTILES[name] for name in wanted]).tolist(), strict=True))
    return {name: math.log(max(value, FLOOR_S)) for name, value in found.items()}


def measured(observation: Observation, most: int) -> Measured:
    """The first `most` requests of a level. What is cut off is its end: a queue has to be simulated from its beginning.

    Requests that had company from beyond the cut are simulated and not judged: by arrival, never by how long they took.
    """
    trace, n = observation.trace.head(most), min(most, len(observation.trace))
    ttft_s, tpot_s = observation.ttft_s[:n], observation.tpot_s[:n]
    judged = observation.answered[:n] & _undisturbed(observation, most)
    many = judged & np.isfinite(tpot_s) & (trace.output_tokens > 1)
    return Measured(
        observation=observation,
        trace=trace,
        sides=[
            Side(metric="ttft", judged=judged, measured=figures(ttft_s[judged])),
            Side(metric="tpot", judged=many, measured=figures(tpot_s[many])),
        ],
    )


def _undisturbed(observation: Observation, most: int) -> Flags:
    """Which of the first requests were over, very likely, before the first one that is cut off arrived."""
    trace = observation.trace
    order = np.arange(min(most, len(trace)))
    if most >= len(trace):
        return order >= 0
    if trace.arrival_s is None:
        return order < most - 2 * trace.users
    later_s = np.nan_to_num((trace.output_tokens - 1) * observation.tpot_s)
    lasting_s = np.nanquantile((observation.ttft_s + later_s)[:most], LASTING)
    undisturbed: Flags = trace.arrival_s[:most] < trace.arrival_s[most] - lasting_s
    return undisturbed
