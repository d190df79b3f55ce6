"""How the TPOT of requests scatters about their twin's, by length of the answer. Pure.

A twin has one time for a step. A server's steps vary, it stalls now and then, and drafts give several tokens at once:
over a long answer that averages out, over a short one it decides whether a limit is missed, at any load. So a request's
TPOT is not one number here but a distribution about what the twin says:

    ln measured = level + slope · (ln simulated − level) + residual

with a slope and residuals for each group of lengths, and the level the mean of ln simulated over the group. A twin that
had to explain all scatter by load tells requests apart where the server does not (slope < 1), and one that is too even
does not tell them apart enough (slope > 1); what moves with the load, the level, is the twin's alone.
"""

import math
from collections.abc import Sequence

import numpy as np
from msgspec import Struct, structs
from numpy.typing import NDArray
from scipy.optimize import brentq

from harness.twin.fast import run
from harness.twin.observed import FLOOR_S, Observation
from harness.twin.server import Server
from harness.twin.trace import Floats, Tokens

RESIDUALS = 200
"""Equally likely residuals that a group is kept as: the rarest of them decide about a P99."""
LEAST_OF_GROUP = 200
MOST_GROUPS = 8
STEEPEST = 3.0
SLOWEST = 0.02
"""Share of a level that must come out as slow as it was: about where a P99 is."""
STRETCHES = (0.3, 4.0)
LONG = 400
"""Answers from which on the slowest of a level mean something."""

Groups = NDArray[np.int64]
Pairs = tuple[Floats, Floats, Tokens]
"""(ln measured, ln simulated, tokens after the first) of the judged answers of a level."""


class RequestScatter(Struct, frozen=True, kw_only=True):
    """One slope and one set of residuals for each group of answers, shortest first."""

    longest: tuple[int, ...]
    """Most tokens after the first in each group but the last, which has no end."""
    slopes: tuple[float, ...]
    residuals: tuple[tuple[float, ...], ...]
    """`RESIDUALS` each, rising."""

    def missed(self, tpot_s: Floats, output_tokens: Tokens, limit_s: float) -> Floats:
        """Chance of each simulated request to be beyond the limit; 0 where it has no TPOT."""
        shares, told = np.zeros(len(tpot_s)), np.isfinite(tpot_s)
        group = _grouped(self.longest, output_tokens[told] - 1)
        room = math.log(limit_s) - self._explained(_ln(tpot_s[told]), group)
        found = np.zeros(len(room))
        for each, residuals in enumerate(self.residuals):
            here = group == each
            found[here] = 1 - np.searchsorted(residuals, room[here], side="right") / len(residuals)
        shares[told] = found
        return shares

    def spread_ln(self, tpot_s: Floats, output_tokens: Tokens) -> Floats:
        """ln of every TPOT that these simulated requests may have: `RESIDUALS` for each that has one."""
        told = np.isfinite(tpot_s)
        return self._spread(_ln(tpot_s[told]), output_tokens[told] - 1)

    def _spread(self, ln: Floats, later: Tokens) -> Floats:
        group = _grouped(self.longest, later)
        spread: Floats = (self._explained(ln, group)[:, None] + np.array(self.residuals)[group]).ravel()
        return spread

    def _explained(self, ln: Floats, group: Groups) -> Floats:
        level = _means(ln, group, len(self.slopes))[group]
        explained: Floats = level + np.array(self.slopes)[group] * (ln - level)
        return explained


def request_scatter(server: Server, observations: Sequence[Observation]) -> RequestScatter | None:
    """The scatter of these levels about this server; None with fewer answers than one group needs."""
    levels = [_pairs(server, one) for one in observations]
    later = np.concatenate([tokens for _, _, tokens in levels])
    wanted = min(MOST_GROUPS, later.size // LEAST_OF_GROUP)
    if not wanted:
        return None
    longest = tuple(np.unique(np.quantile(later, np.arange(1, wanted) / wanted).astype(np.int64)).tolist())
    group, groups = _grouped(longest, later), len(longest) + 1
    inside, about = (np.concatenate(parts) for parts in zip(*(_centred(longest, *one) for one in levels), strict=True))
    slopes = _slopes(inside, about, group, groups)
    residual = about - slopes[group] * inside
    shares = (np.arange(RESIDUALS) + 0.5) / RESIDUALS
    rows = tuple(tuple(np.quantile(residual[group == each], shares).tolist()) for each in range(groups))
    plain = RequestScatter(longest=longest, slopes=tuple(slopes.tolist()), residuals=rows)
    return _stretched(plain, [one for one in levels if len(one[0]) >= LONG] or levels)


def _centred(longest: tuple[int, ...], measured: Floats, simulated: Floats, later: Tokens) -> tuple[Floats, Floats]:
    """(ln simulated, ln measured), both from the level of ln simulated on."""
    group = _grouped(longest, later)
    level = _means(simulated, group, len(longest) + 1)[group]
    return simulated - level, measured - level


def _slopes(inside: Floats, about: Floats, group: Groups, groups: int) -> Floats:
    """Least squares within each group; 1 where the twin tells nobody apart."""
    squares = np.bincount(group, weights=inside * inside, minlength=groups)
    products = np.bincount(group, weights=inside * about, minlength=groups)
    return np.clip(np.divide(products, squares, out=np.ones(groups), where=squares > 0), 0.0, STEEPEST)


def _stretched(plain: RequestScatter, levels: Sequence[Pairs]) -> RequestScatter:
    """The same with its upper residuals longer or shorter, so that the slowest of the levels are as slow as they were.

    One slope for all is that of the many; those near a limit can be further apart.
    """
    goals = [_slowest(measured) for measured, _, _ in levels]

    def longer(share: float) -> RequestScatter:
        rows = tuple(tuple(each * share if each > 0 else each for each in row) for row in plain.residuals)
        return structs.replace(plain, residuals=rows)

    def excess(share: float) -> float:
        tried = longer(share)
        off = [_slowest(tried._spread(ln, later)) - goal for (_, ln, later), goal in zip(levels, goals, strict=True)]
        return float(np.dot(off, [len(ln) for _, ln, _ in levels]))

    least, most = STRETCHES
    if excess(least) >= 0:
        return longer(least)
    return longer(most if excess(most) <= 0 else float(brentq(excess, least, most, xtol=0.02)))


def _pairs(server: Server, observed: Observation) -> Pairs:
    simulated_s = run(server, observed.trace).tpot_s
    both = observed.counts & (observed.tpot_s > 0) & (simulated_s > 0)
    return np.log(observed.tpot_s[both]), _ln(simulated_s[both]), observed.trace.output_tokens[both] - 1


def _slowest(ln: Floats) -> float:
    top = max(1, round(SLOWEST * len(ln)))
    return float(np.partition(ln, len(ln) - top)[-top:].mean())


def _means(values: Floats, group: Groups, groups: int) -> Floats:
    count = np.maximum(np.bincount(group, minlength=groups), 1)
    found: Floats = np.bincount(group, weights=values, minlength=groups) / count
    return found


def _grouped(longest: tuple[int, ...], later: Tokens) -> Groups:
    found: Groups = np.searchsorted(np.array(longest, np.int64), later)
    return found


def _ln(values_s: Floats) -> Floats:
    ln: Floats = np.log(np.maximum(values_s, FLOOR_S))
    return ln
