"""Gaps between tokens, counted by their length on one grid for all. Pure.

A level has 10⁴ to 10⁸ of them. On one grid of logarithms those measured and those simulated are 30 kB each, can be held
against each other, and folded with how the first scatter about the second.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

CELL_LN = 0.005
"""Width of a cell: half a percent."""
SHORTEST_S, LONGEST_S = 1e-5, 1e3
"""Shorter and longer gaps are counted at the ends."""
CELLS = math.ceil(math.log(LONGEST_S / SHORTEST_S) / CELL_LN)
LN: Floats = math.log(SHORTEST_S) + CELL_LN * (np.arange(CELLS, dtype=np.float64) + 0.5)
"""ln of the seconds in the middle of each cell."""


@dataclass(frozen=True, slots=True)
class Gaps:
    """`tokens[i]` of them came after a gap of exp(LN[i]) s."""

    tokens: Floats

    @property
    def total(self) -> float:
        """Tokens."""
        return float(self.tokens.sum())

    def share_beyond(self, limit_s: float) -> float:
        """Share of tokens that came after more than this; the cell that the limit is in is split evenly. 0 of none."""
        at = (math.log(limit_s / SHORTEST_S)) / CELL_LN
        cell = min(max(math.floor(at), 0), CELLS - 1)
        beyond = float(self.tokens[cell + 1 :].sum()) + float(self.tokens[cell]) * min(max(cell + 1 - at, 0.0), 1.0)
        return beyond / max(self.total, 1e-9)

    def quantile_ln(self, shares: list[float]) -> Floats:
        """ln of the gaps that these shares of the tokens do not pass, evenly within a cell; NaN of none."""
        if not self.total:
            return np.full(len(shares), np.nan)
        upto = np.concatenate(([0.0], np.cumsum(self.tokens))) / self.total
        found: Floats = math.log(SHORTEST_S) + CELL_LN * np.interp(shares, upto, np.arange(CELLS + 1))
        return found


def gaps(seconds: Floats, tokens: Floats) -> Gaps:
    """So many tokens after each of these gaps."""
    cells = np.floor(np.log(np.maximum(seconds, SHORTEST_S) / SHORTEST_S) / CELL_LN).astype(np.int64)
    counted = np.bincount(np.clip(cells, 0, CELLS - 1), weights=tokens, minlength=CELLS)
    return Gaps(counted.astype(np.float64))
