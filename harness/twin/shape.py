"""Which numbers make a server, as a vector that an optimiser can turn; and where a straight τ(b) wants a knot. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np
from msgspec import structs
from scipy.optimize import nnls

from harness.twin.server import Server
from harness.twin.start import LEAST_MS, Means
from harness.twin.trace import Floats

LEAST = 1e-9
"""An optional cost, in ms, that is as good as none but keeps its place."""
PLACES = 10
"""Batches, evenly spaced in ln, at which a knot is tried."""
SMALL = 0.05
"""Unit of a cost that begins near 0, as a share of the shortest step."""


def costs(server: Server) -> Floats:
    """τ at the first knot, then per sequence on each line between knots, per prefill token; constant, and per token of
    context, where they are not 0. All in ms, none below 0: a larger batch never makes a shorter step.

    A constant of 0 stays 0: whoever asks again at once is in the next step, and after any pause at all in the one after
    it, so that there is no way from one to the other by small steps.
    """
    batches, taus = (np.array(column, np.float64) for column in zip(*server.knots, strict=True))
    slopes = np.maximum(np.diff(taus) / np.diff(batches), 0.0)
    rest = [getattr(server, name) for name in _optional(server)]
    return np.array([taus[0], *slopes, server.per_prefill_token_ms, *rest])


def _optional(server: Server) -> list[str]:
    return [name for name in ("constant_ms", "per_kv_token_ms") if getattr(server, name)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Servers that differ in their costs only: as many knots at the same batches, and with context or without."""

    like: Server
    units: Floats
    """About the size of each cost: a step of 0.01 in the vector is one of some per cent in what it stands for."""

    @classmethod
    def of(cls, server: Server) -> "Shape":
        """Units that fit this server."""
        first_ms, batches = server.knots[0][1], [batch for batch, _ in server.knots]
        per_sequence = [SMALL * first_ms / max(batches[-1] - batches[0], 1)] * (len(batches) - 1)
        of_prompt = SMALL * first_ms / server.max_num_batched_tokens
        least = [LEAST_MS, *per_sequence, of_prompt, *([LEAST_MS] * len(_optional(server)))]
        return cls(like=server, units=np.maximum(costs(server), least))

    def vector(self, server: Server) -> Floats:
        """1 + cost / unit: 1 is the least, and a relative step from there is not nothing."""
        return 1.0 + costs(server) / self.units

    def server(self, vector: Floats) -> Server:
        """The server with these costs."""
        found = (vector - 1.0) * self.units
        batches = [batch for batch, _ in self.like.knots]
        lines, rest = found[1 : len(batches)], found[len(batches) :].tolist()
        rises = np.concatenate(([0.0], np.cumsum(lines * np.diff(batches))))
        taus = (max(LEAST_MS, found[0]) + rises).tolist()
        optional = {name: max(LEAST, value) for name, value in zip(_optional(self.like), rest[1:], strict=True)}
        knots = tuple(zip(batches, taus, strict=True))
        return structs.replace(self.like, knots=knots, per_prefill_token_ms=rest[0], **optional)


def bent(server: Server, levels: Sequence[Means], shares: Sequence[Floats]) -> Server | None:
    """The server with one more knot, all of them where they explain the levels' mean steps best; None: no room for it.

    `shares[j][b]` is the share of the tokens of level j that came in steps of b sequences, by the server as it is: the
    mean of a bent τ is not τ of the mean batch. This says where to try, not whether it pays.
    """
    first, last = server.knots[0][0], server.knots[-1][0]
    batches = sorted(level.batch for level in levels)
    tried = {round(at) for at in np.geomspace(max(batches[0], 1.5), max(batches[-1], 2.0), PLACES + 2)[1:-1]}
    inner = combinations(sorted(at for at in tried if first < at < last), len(server.knots) - 1)
    found = [_regressed([first, *at, last], server.per_prefill_token_ms, levels, shares) for at in inner]
    best = min(found, key=lambda pair: pair[0], default=None)
    return None if best is None else structs.replace(server, knots=best[1])


def _regressed(
    at: Sequence[int], prefill_ms: float, levels: Sequence[Means], shares: Sequence[Floats]
) -> tuple[float, tuple[tuple[int, float], ...]]:
    """(error left, knots at these batches): relative least squares of mean steps, τ never falling."""
    steps_ms = np.array([1e3 * level.step_s for level in levels])
    alone_ms = np.maximum(steps_ms - prefill_ms * np.array([level.prefill_tokens for level in levels]), steps_ms / 10)
    lines = [np.array([share @ _along(len(share), x0, x1) for share in shares]) for x0, x1 in pairwise(at)]
    found, error = nnls(np.stack([np.ones_like(steps_ms), *lines], axis=1) / steps_ms[:, None], alone_ms / steps_ms)
    taus = max(LEAST_MS, found[0]) + np.concatenate(([0.0], np.cumsum(found[1:] * np.diff(at))))
    return float(error), tuple(zip(at, taus.tolist(), strict=True))


def _along(sizes: int, x0: int, x1: int) -> Floats:
    """How far each batch size is along the line from x0 to x1."""
    return np.clip(np.arange(sizes, dtype=np.float64), x0, x1) - x0


def with_context(server: Server, context: float) -> Server:
    """Half of what a sequence adds to a step charged to its context of so many tokens instead: the same mean steps."""
    (first, first_ms), (last, last_ms) = server.knots[0], server.knots[-1]
    per_sequence_ms = max((last_ms - first_ms) / (last - first), SMALL * first_ms / (last - first))
    halved = tuple((batch, first_ms + (tau_ms - first_ms) / 2) for batch, tau_ms in server.knots)
    return structs.replace(server, knots=halved, per_kv_token_ms=per_sequence_ms / 2 / max(context, 1.0))
