"""The knee a server is predicted to have: the load at which an SLO clause is just met in the long run. Pure, seeded.

Estimand: the highest load at which every clause has P(metric > limit) ≤ 1 − q over the declared traffic. Each load is
simulated on the same histories (common random numbers), so that the excess of misses is a curve over ln(load) that can
be followed to its root: a pilot of few requests brackets it, a secant over the whole runs finds it.
"""

import math
from collections.abc import Callable, Sequence
from functools import cache

from msgspec import Struct, structs
from scipy.optimize import brentq

from harness.model import Slo
from harness.twin.look import Look, Loop, Question, saturation_rps
from harness.twin.misses import Misses, clauses
from harness.twin.scatter import EXACT, Scatter
from harness.twin.server import Server
from harness.twin.traffic import Traffic

SATURATION = "saturation"
"""In place of the binding clause where none breaks before the server can do no more."""
CEILING = 0.995
"""Share of saturation above which a queue without end is not told from a long one."""
NEAR = 0.02
"""ln(load) between the two ends of a secant: wide enough for its slope, narrow enough for the curve to be straight."""
LEAST = 1e-3
"""Share of saturation at which a clause that is still broken is taken to break at any load."""
PILOT = 10
"""The pilot has a tenth of the requests, but not fewer than this many."""
FEWEST = 5_000


class Predicted(Struct, frozen=True, kw_only=True):
    """The knee and what it is like there. All figures are of long simulated runs."""

    load: float
    """Requests a second, or the most users with whom every clause holds; 0: broken at any load."""
    slope: float
    """d logit(miss share) / d ln(load) of the binding clause at the knee; 0 where there is no root to have one."""
    vif: float
    """Variance inflation of the binding clause's misses: how much they cluster."""
    miss_share: float
    """Of the binding clause, simulated at `load`."""
    binding: str
    """Name of the clause that breaks first, or `saturation`."""
    batch_p50: float
    batch_p99: float
    batch_p999: float
    batch_max: int
    """Running batch at the knee, over time."""
    rps: float
    """Requests a second at the knee."""
    saturation_rps: float
    """Requests a second that the server can do at most."""
    episodes: int
    """Clusters of misses of the binding clause in the runs at the knee."""
    episode_requests: float
    """Their mean length, from first to last miss."""
    chances: int
    """To miss the binding clause in the runs at the knee: judged requests, or their gaps between tokens."""


def knee(  # noqa: PLR0913 - three nouns, and by keyword only what a search passes one by one
    server: Server,
    traffic: Traffic,
    slo: Slo,
    *,
    loop: Loop,
    seed: int,
    requests: int = 200_000,
    scatter: Scatter = EXACT,
) -> Predicted:
    """The knee of a server under some traffic, from about so many simulated requests at each load near it.

    Whole users in the closed loop. Raises ValueError for an SLO without a latency clause.
    """
    limits = clauses(slo)
    most_rps = saturation_rps(server, traffic, seed=seed, requests=max(FEWEST, requests // PILOT))
    question = Question(server=server, traffic=traffic, limits=limits, loop=loop, seed=seed, scatter=scatter)
    look = cache(question.look)
    if loop == "open":
        found, slope = _rate(look, most_rps, requests)
        return _predicted(found, slope, most_rps, found.binding)
    found, slope = _users(look, _most_users(question, most_rps), requests)
    broken = look(found.load + 1, requests).binding if slope else found.binding
    return _predicted(found, slope, most_rps, _same(found, broken))


def at_batches(  # noqa: PLR0913 - as `knee`, and the batch sizes
    server: Server,
    traffic: Traffic,
    slo: Slo,
    batches: Sequence[int],
    *,
    loop: Loop,
    seed: int,
    requests: int = 100_000,
    scatter: Scatter = EXACT,
) -> list[Predicted]:
    """The knee with each of these max_num_seqs, in their order.

    Caps from the largest down: one above the largest batch that was ever seen to run at the knee of a larger cap is the
    same experiment, and is not simulated again. Raises ValueError for a cap above max_num_batched_tokens.
    """
    known: dict[int, Predicted] = {}
    before: Predicted | None = None
    for cap in sorted(set(batches), reverse=True):
        if before is None or cap <= before.batch_max:
            capped = structs.replace(server, max_num_seqs=cap)
            before = knee(capped, traffic, slo, loop=loop, seed=seed, requests=requests, scatter=scatter)
        known[cap] = before
    return [known[cap] for cap in batches]


Looking = Callable[[float, int], Look]


def _rate(look: Looking, most_rps: float, requests: int) -> tuple[Look, float]:
    """Open loop: (what is seen at the knee, slope there)."""
    pilot = max(FEWEST, requests // PILOT)
    ceiling, low = CEILING * most_rps, 0.8 * most_rps
    if look(ceiling, pilot).excess <= 0 and (top := look(ceiling, requests)).excess <= 0:
        return top, 0.0
    while look(low, pilot).excess > 0:
        if low < LEAST * most_rps:
            return look(low, pilot), 0.0
        low *= 0.6
    if look(ceiling, pilot).excess <= 0:
        return _secant(look, math.log(ceiling), requests)
    at = brentq(lambda x: look(math.exp(x), pilot).excess, math.log(low), math.log(ceiling), xtol=0.005)
    return _secant(look, float(at), requests)


def _secant(look: Looking, at: float, requests: int) -> tuple[Look, float]:
    """Root of the excess over ln(load) near `at`, from ends on both sides of it or not far from it."""
    here, step = look(math.exp(at), requests).excess, NEAR
    for _ in range(6):
        other = at - math.copysign(step, here)
        there = look(math.exp(other), requests).excess
        slope = (there - here) / (other - at)
        if here * there <= 0 and slope > 0:
            break
        at, here, step = other, there, max(NEAR, min(abs(there / slope), 10 * NEAR)) if slope > 0 else NEAR
    root = at - here / slope if slope > 0 else at
    return look(math.exp(root), requests), max(slope, 0.0)


def _most_users(question: Question, most_rps: float) -> int:
    """Users with whom a clause that can break has broken: their wait beyond the seats is twice the longest limit."""
    waits_s = [limit.ms / 1e3 for limit in question.limits if limit.metric in {"ttft_ms", "e2e_ms"}]
    waiting = most_rps * (2 * max(waits_s, default=0.0) + question.traffic.think_s)
    return 2 * question.server.max_num_seqs + math.ceil(waiting)


def _users(look: Looking, most: int, requests: int) -> tuple[Look, float]:
    """Closed loop: (what is seen with the most users that hold, slope from there to one more)."""
    pilot = max(FEWEST, requests // PILOT)
    low, high = 0, 1
    while high < most and look(high, pilot).excess <= 0:
        low, high = high, min(2 * high, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if look(middle, pilot).excess <= 0 else (low, middle)
    users = max(low, 1)
    while users > 1 and look(users, requests).excess > 0:
        users -= 1
    while users < most and look(users + 1, requests).excess <= 0:
        users += 1
    here = look(users, requests)
    if users == most or here.excess > 0:
        return here, 0.0
    return here, max(0.0, look(users + 1, requests).excess - here.excess) / math.log((users + 1) / users)


def _same(found: Look, broken: Misses) -> Misses:
    """The clause that breaks with one user more, as it is at the knee: there several may miss nothing, and tie."""
    return next(clause for clause in found.clauses if clause.limit == broken.limit)


def _predicted(found: Look, slope: float, most_rps: float, binding: Misses) -> Predicted:
    broken = slope == 0 and found.excess > 0
    episodes, length = binding.episodes
    return Predicted(
        load=0.0 if broken else found.load,
        slope=slope,
        vif=binding.vif,
        miss_share=binding.share,
        binding=binding.limit.name if broken or slope else SATURATION,
        batch_p50=found.batches.p50,
        batch_p99=found.batches.p99,
        batch_p999=found.batches.p999,
        batch_max=found.batches.most,
        rps=found.rps,
        saturation_rps=most_rps,
        episodes=episodes,
        episode_requests=length,
        chances=binding.n,
    )
