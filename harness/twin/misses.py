"""How often an SLO clause is missed in a simulated run, and how much its misses cluster. Pure: numbers from Lives."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness import metrics
from harness.metrics import Limit
from harness.model import Slo
from harness.twin.scatter import EXACT, Scatter
from harness.twin.trace import Floats, Lives

BLOCKS = 20
"""Blocks a run is cut into for the variance inflation; each must be longer than an episode of congestion."""


def clauses(slo: Slo) -> list[Limit]:
    """The clauses a twin can judge: the latency limits, and `tps_per_user_min` as a limit on the median TPOT.

    Raises ValueError when there is none.
    """
    found = metrics.limits(slo)
    if slo.tps_per_user_min is not None:
        ms = 1000.0 / slo.tps_per_user_min
        found.append(Limit(name="tps_per_user_min", metric="tpot_ms", quantile=0.5, ms=ms))
    if not found:
        raise ValueError("slo: no latency clause: expected one or more of ttft, itl, tpot, e2e, such as ttft_p99_ms")
    return found


def alone(limit: Limit) -> Slo:
    """An SLO of this clause and no other."""
    return Slo(**{limit.name: 1000.0 / limit.ms if limit.name == "tps_per_user_min" else limit.ms})


@dataclass(frozen=True, slots=True, kw_only=True)
class Misses:
    """One clause over one or more runs: per request (in order of arrival) misses, of so many chances.

    A request is one chance for TTFT and E2E, one for TPOT if it has more than one token, and for ITL each of its gaps
    is one, so that the share is that of tokens.
    """

    limit: Limit
    missed: list[Floats]
    chances: list[Floats]

    @property
    def n(self) -> int:
        """Chances."""
        return int(sum(run.sum() for run in self.chances))

    @property
    def share(self) -> float:
        """Misses / chances; 0 of nothing."""
        return float(sum(run.sum() for run in self.missed)) / max(self.n, 1)

    @property
    def excess(self) -> float:
        """logit(share) − logit(allowed share): above 0 the clause is broken. Half a miss is added to either side, so
        that no misses at all is a number too."""
        missed = sum(run.sum() for run in self.missed)
        allowed = 1 - self.limit.quantile
        return float(np.log((missed + 0.5) / (self.n - missed + 0.5))) - math.log(allowed / (1 - allowed))

    @property
    def vif(self) -> float:
        """Variance of block shares / what independent chances would give: 1 without clustering; NaN without misses."""
        share, chances = self.share, self.n
        if not 0 < share < 1:
            return math.nan
        off = np.concatenate([_blocks(m) - share * _blocks(c) for m, c in zip(self.missed, self.chances, strict=True)])
        return float(np.sum(off**2) * len(off) / (len(off) - 1) / (chances * share * (1 - share)))

    @property
    def episodes(self) -> tuple[int, float]:
        """(number, mean length in requests) of episodes: misses with fewer than 1 / allowed requests between them.

        Where a miss is a chance, those count that are likelier than not.
        """
        apart = 1 / max(1 - self.limit.quantile, 1e-9)
        lengths = np.concatenate([_lengths(np.flatnonzero(run > 0.5), apart) for run in self.missed])
        return len(lengths), float(lengths.mean()) if len(lengths) else 0.0


def misses(limit: Limit, lives: Sequence[Lives], judged: Sequence[slice], scatter: Scatter = EXACT) -> Misses:
    """One clause over the judged requests of some runs; with `scatter`, a miss of TPOT or ITL is a chance."""
    pairs = [_of(limit, run, scatter) for run in lives]
    return Misses(
        limit=limit,
        missed=[missed[part].astype(np.float64) for (missed, _), part in zip(pairs, judged, strict=True)],
        chances=[chances[part].astype(np.float64) for (_, chances), part in zip(pairs, judged, strict=True)],
    )


def _of(limit: Limit, lives: Lives, scatter: Scatter) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
    limit_s = limit.ms / 1e3
    match limit.metric:
        case "ttft_ms":
            return lives.ttft_s > limit_s, np.ones(len(lives))
        case "e2e_ms":
            return lives.e2e_s > limit_s, np.ones(len(lives))
        case "tpot_ms" if scatter.tpot:
            return scatter.tpot.missed(lives.tpot_s, lives.output_tokens, limit_s), lives.output_tokens > 1
        case "tpot_ms":
            return lives.tpot_s > limit_s, lives.output_tokens > 1
        case "itl_ms" if scatter.itl:
            steps = lives.steps
            missed = scatter.itl.missed(steps.step_s, steps.tokens, limit_s)
            return lives.summed(steps.count * missed), lives.output_tokens - 1
        case "itl_ms":
            return lives.slow_gaps(limit_s), lives.output_tokens - 1
    raise ValueError(f"slo clause {limit.name}: the twin knows no {limit.metric}; expected ttft, itl, tpot or e2e")


def _blocks(values: Floats) -> Floats:
    return np.array([block.sum() for block in np.array_split(values, BLOCKS)])


def _lengths(at: NDArray[np.int64], apart: float) -> NDArray[np.int64]:
    """Lengths in requests of the clusters of these positions."""
    if not len(at):
        return np.zeros(0, np.int64)
    cuts = np.flatnonzero(np.diff(at) > apart)
    first, last = at[np.concatenate(([0], cuts + 1))], at[np.concatenate((cuts, [len(at) - 1]))]
    return last - first + 1
