"""How gaps between tokens scatter about the steps of their twin. Pure.

A twin's step takes what it takes; a server's varies, is held up now and then, and reaches us through a network. Which
gap belongs to which step cannot be told, but both distributions can be compared:

    ln measured = level + slope · (ln simulated − level) + residual

with the level the mean of ln simulated, and one slope and one distribution of residuals for all. The slope is that of
the likeliest; a twin that had to explain a cached prompt by cheap ones, or stalls by dear ones, tells steps apart
otherwise than the server does. The residuals are found by expectation-maximisation (Richardson 1972, Lucy 1974), which
keeps chances positive and their sum, from a normal core and a flat tail on.
"""

import math
from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from scipy.optimize import minimize_scalar

from harness.twin.fast import run
from harness.twin.gaps import CELL_LN, CELLS, SHORTEST_S, Gaps
from harness.twin.observed import Observation
from harness.twin.server import Server
from harness.twin.trace import Floats

LEAST_TOKENS = 2_000
SLOPES = (0.3, 2.0)
SHORTER, LONGER = -140, 1000
"""Cells that a residual may be away: from half to 150 times the step."""
ROUNDS = 60
"""Of the maximisation: then it would fit the luck of the levels."""
TAIL = 0.01
"""Share of the flat tail at the start."""
NARROWEST = 1.5
"""Cells: standard deviation of the core at the start, at least."""
NEGLIGIBLE = 1e-7
"""Chances below are no residual."""
SIZE = 2 ** math.ceil(math.log2(CELLS + LONGER - SHORTER))
QUARTILES = [0.25, 0.5, 0.75]
NORMAL_QUARTILES = 1.349


class GapScatter(Struct, frozen=True, kw_only=True):
    """Residuals on the grid of `Gaps`: `chances[i]` of `(shortest + i)` cells."""

    slope: float = 1.0
    shortest: int
    chances: tuple[float, ...]

    def missed(self, step_s: Floats, tokens: Floats, limit_s: float) -> Floats:
        """Chance of a gap of each of these steps, after which so many tokens came, to be beyond the limit."""
        upto = np.concatenate(([0.0], np.cumsum(self.chances)))
        edges = CELL_LN * (self.shortest - 0.5 + np.arange(len(upto)))
        ln = np.log(np.maximum(step_s, SHORTEST_S))
        level = float(ln @ tokens) / max(float(tokens.sum()), 1e-9)
        room = math.log(limit_s) - level - self.slope * (ln - level)
        chance: Floats = 1 - np.interp(room, edges, upto / upto[-1])
        return chance

    def spread(self, gaps: Gaps) -> Gaps:
        """What these simulated gaps may have been, measured."""
        folded = np.convolve(sloped(gaps, self.slope).tokens, self.chances)
        inside = np.zeros(CELLS)
        at = np.clip(np.arange(len(folded)) + self.shortest, 0, CELLS - 1)
        np.add.at(inside, at, folded)
        return Gaps(inside)


def sloped(gaps: Gaps, slope: float) -> Gaps:
    """The same gaps, closer to their mean (on the log scale), or further from it."""
    if slope == 1.0 or not gaps.total:
        return gaps
    cells = np.arange(CELLS)
    mean = float(gaps.tokens @ cells) / gaps.total
    at = np.clip(mean + slope * (cells - mean), 0, CELLS - 1)
    low = np.floor(at).astype(np.int64)
    high, share = np.minimum(low + 1, CELLS - 1), at - low
    moved: Floats = np.zeros(CELLS)
    np.add.at(moved, low, gaps.tokens * (1 - share))
    np.add.at(moved, high, gaps.tokens * share)
    return Gaps(moved)


def gap_scatter(server: Server, observations: Sequence[Observation]) -> GapScatter | None:
    """Of the gaps of these levels about this server; None where they were not kept, or are too few."""
    told = [(one.gaps, one) for one in observations if one.gaps is not None and one.gaps.total]
    measured = [gaps for gaps, _ in told]
    if sum(gaps.total for gaps in measured) < LEAST_TOKENS:
        return None
    simulated = [run(server, one.trace).gaps(one.answered) for _, one in told]
    return unfolded([pair for pair in zip(measured, simulated, strict=True) if pair[1].total])


def unfolded(pairs: Sequence[tuple[Gaps, Gaps]]) -> GapScatter | None:
    """The slope and residuals that make each second distribution its first; None of no pairs."""
    if not pairs:
        return None

    def unlikely(slope: float) -> float:
        return -_residuals(_all_sloped(pairs, slope))[1]

    slope = float(minimize_scalar(unlikely, bounds=SLOPES, method="bounded", options={"xatol": 0.02}).x)
    return _trimmed(slope, _residuals(_all_sloped(pairs, slope))[0])


def _all_sloped(pairs: Sequence[tuple[Gaps, Gaps]], slope: float) -> list[tuple[Gaps, Gaps]]:
    return [(measured, sloped(simulated, slope)) for measured, simulated in pairs]


def _residuals(pairs: Sequence[tuple[Gaps, Gaps]]) -> tuple[Floats, float]:
    """(chances of SHORTER … LONGER − 1 cells, mean ln likelihood of a token)."""
    chances, likelihood = _start(pairs), 0.0
    told = [(measured.tokens, np.fft.rfft(simulated.tokens / simulated.total, SIZE)) for measured, simulated in pairs]
    total = sum(float(tokens.sum()) for tokens, _ in told)
    for _ in range(ROUNDS):
        ours = np.fft.rfft(chances, SIZE)
        better, likelihood = np.zeros(len(chances)), 0.0
        for tokens, theirs in told:
            expected = np.maximum(np.fft.irfft(theirs * ours, SIZE)[-SHORTER : CELLS - SHORTER], 1e-12)
            likelihood += float(tokens @ np.log(expected)) / total
            ratio = tokens / expected
            back = np.fft.irfft(np.fft.rfft(ratio, SIZE) * theirs.conj(), SIZE)
            better += np.concatenate((back[SHORTER:], back[:LONGER]))
        chances = np.maximum(chances * better, 0.0) / total
    return chances, likelihood


def _start(pairs: Sequence[tuple[Gaps, Gaps]]) -> Floats:
    """A normal core, as far apart and as much wider as the quartiles are, and a flat tail of delays."""
    weights = np.array([measured.total for measured, _ in pairs])
    quartiles = np.array([[side.quantile_ln(QUARTILES) for side in pair] for pair in pairs]) / CELL_LN
    low, middle, high = np.average(quartiles, axis=0, weights=weights).T
    wide = (high - low) / NORMAL_QUARTILES
    sd = max(math.sqrt(max(wide[0] ** 2 - wide[1] ** 2, 0.0)), NARROWEST)
    cells = np.arange(SHORTER, LONGER)
    core = np.exp(-0.5 * ((cells - (middle[0] - middle[1])) / sd) ** 2) + 1e-12
    start: Floats = (1 - TAIL) * core / core.sum() + TAIL / len(cells)
    return start


def _trimmed(slope: float, chances: Floats) -> GapScatter:
    some = np.flatnonzero(chances > NEGLIGIBLE)
    first, last = int(some[0]), int(some[-1])
    kept = chances[first : last + 1]
    return GapScatter(slope=slope, shortest=SHORTER + first, chances=tuple((kept / kept.sum()).tolist()))
