"""Servers that are not what the twin believes, their traffic and SLO, drawn at random. Compiles unlike.c; seeded."""

import ctypes
from dataclasses import dataclass, replace

import numpy as np
from compiled import library
from scipy.optimize import brentq

from harness.metrics import limits
from harness.model import LogNormal, Slo
from harness.twin.gaps import CELL_LN, CELLS, SHORTEST_S, Gaps
from harness.twin.traffic import Lengths, Traffic

SEPARATE = 7
"""Spawn key of the draws that belong to a request's prompt cache, apart from its lengths and times."""
LENGTHS = {
    "chat": (LogNormal(median=250, sigma=0.9, max=8000), LogNormal(median=150, sigma=0.7, max=1500)),
    "code": (LogNormal(median=1200, sigma=0.8, max=12000), LogNormal(median=25, sigma=0.8, max=400)),
    "long": (LogNormal(median=6000, sigma=0.7, max=40000), LogNormal(median=200, sigma=0.6, max=1200)),
}
ARRIVALS = {"Poisson": {"arrivals": "poisson"}, "CV 2": {"arrivals": "gamma", "cv": 2.0},
            "on/off": {"arrivals": "on_off", "on_s": 10.0, "off_s": 5.0}}  # fmt: skip
BOUND = ("ttft", "tpot")


FARTHER = 4
"""Half units of ln(load) beyond which a clause that still holds is said to hold at every load."""


class NoKnee(Exception):
    """The clause holds even with everything queued: where outputs are short, TPOT hardly tells a full server."""


class Server(ctypes.Structure):
    """`struct server` of unlike.c."""

    _fields_ = [
        *((name, ctypes.c_double) for name in ("base_ms", "sequence_ms", "square_ms", "prefill_ms", "kv_ms")),
        *((name, ctypes.c_double) for name in ("draft_ms", "jitter", "stalls_per_s", "stall_s", "constant_s")),
        ("acceptance", ctypes.c_double),
        *((name, ctypes.c_int64) for name in ("drafts", "seats", "tokens", "seed")),
    ]


class Cells(ctypes.Structure):
    """`struct gaps` of unlike.c."""

    _fields_ = [
        ("tokens", ctypes.c_void_p), ("shortest_s", ctypes.c_double), ("cell_ln", ctypes.c_double),
        ("cells", ctypes.c_int64), ("first", ctypes.c_int64),
    ]  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """What came back, in the order of the trace; seconds."""

    ttft_s: np.ndarray
    tpot_s: np.ndarray
    last_s: np.ndarray
    gaps: Gaps | None
    """Of the requests that are judged, where ITL is asked for."""


@dataclass(frozen=True)
class Case:
    """One engine, its traffic and the one clause that is asked for."""

    seed: int
    arrivals: str
    lengths: str
    bound: str
    server: dict
    hit: float
    """Share of requests whose prompt is cached in part."""
    traffic: Traffic
    limit_ms: float = 0.0

    @property
    def slo(self):
        return Slo(**{f"{self.bound}_p99_ms": self.limit_ms})

    @property
    def limit(self):
        return limits(self.slo)[0]

    def values_s(self, outcome):
        return outcome.ttft_s if self.bound == "ttft" else outcome.tpot_s

    def missed(self, values_s):
        """Share beyond the limit; half a miss is added to either side, so that none is a number too."""
        return (np.sum(values_s > self.limit_ms / 1e3) + 0.5) / (len(values_s) + 1)

    def share(self, outcome, first):
        """Share beyond the limit, of requests from `first` on or of their tokens."""
        if self.bound == "itl":
            return (outcome.gaps.share_beyond(self.limit_ms / 1e3) * outcome.gaps.total + 0.5) / (
                outcome.gaps.total + 1
            )
        values_s = self.values_s(outcome)[first:]
        return self.missed(values_s[np.isfinite(values_s)])

    def p99_s(self, outcome, first):
        """Sample P99 of the same."""
        if self.bound == "itl":
            return float(np.exp(outcome.gaps.quantile_ln([0.99])[0]))
        return float(np.nanquantile(self.values_s(outcome)[first:], 0.99))

    def served(self, trace, seed, first=0):
        """A trace through the server; the seed is that of jitter, stalls, drafts and prompt cache. Gaps from request
        `first` on."""
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(SEPARATE,)))
        share = np.where(rng.random(len(trace)) < self.hit, rng.uniform(0.3, 0.9, len(trace)), 0.0)
        cached = np.minimum((share * trace.prompt_tokens).astype(np.int64), trace.prompt_tokens - 1)
        server = Server(**self.server, seed=int(rng.integers(2**62)))
        return served(server, trace, cached, first if self.bound == "itl" else None)


def served(server, trace, cached, first=None):
    """unlike.c over one trace; with the gaps of requests from `first` on."""
    n = len(trace)
    first_s, last_s, first_tokens = np.zeros(n), np.zeros(n), np.zeros(n, np.int64)
    given = [np.ascontiguousarray(trace.arrival_s), trace.prompt_tokens, trace.output_tokens, cached]
    places = [ctypes.c_void_p(array.ctypes.data) for array in [*given, first_s, last_s, first_tokens]]
    counted = np.zeros(CELLS)
    cells = Cells(counted.ctypes.data, SHORTEST_S, CELL_LN, CELLS, first or 0)
    noted = None if first is None else ctypes.byref(cells)
    if library("unlike").lived(ctypes.byref(server), ctypes.c_int64(n), *places, noted):
        raise MemoryError("unlike.c: no memory for the seats")
    later = trace.output_tokens - first_tokens
    tpot_s = np.divide(last_s - first_s, later, out=np.full(n, np.nan), where=later > 0)
    return Outcome(first_s - trace.arrival_s, tpot_s, last_s, None if first is None else Gaps(counted))


def drawn(seed, *, harsh=False, bound=None):
    """Case number `seed`: arrivals, lengths and binding metric (if not given) in turn, everything else at random."""
    rng = np.random.default_rng([seed, 11])
    arrivals, bound = list(ARRIVALS)[seed % 3], bound or BOUND[seed // 3 % 2]
    lengths = list(LENGTHS)[seed // 6 % 3]
    prompt, output = LENGTHS[lengths]
    traffic = Traffic(lengths=Lengths(prompt_tokens=prompt, output_tokens=output), **ARRIVALS[arrivals])
    case = Case(seed, arrivals, lengths, bound, _server(rng, lengths, harsh), rng.uniform(0, 0.5), traffic)
    return replace(case, limit_ms=_limit_ms(case, rng))


def _server(rng, lengths, harsh):
    """A server whose context costs 5 to 25 % of a full step (harsh: 20 to 60 %), and so on."""
    worse = 2.5 if harsh else 1.0
    seats = int(rng.choice([16, 32, 64, 128]))
    base_ms, full = rng.uniform(5, 30), rng.uniform(0.5, 3)
    bend = rng.uniform(0, 0.4)
    sequence_ms, square_ms = base_ms * full * (1 - bend) / seats, base_ms * full * bend / seats**2
    context = {"chat": 450, "code": 1700, "long": 7800}[lengths] * seats
    drafts = int(rng.random() < 0.3) * 2
    return {
        "base_ms": base_ms,
        "sequence_ms": sequence_ms,
        "square_ms": square_ms,
        "prefill_ms": rng.uniform(0.01, 0.06),
        "kv_ms": worse * rng.uniform(0.05, 0.25) * base_ms * (1 + full) / context,
        "draft_ms": 0.1 * base_ms,
        "jitter": worse * rng.uniform(0.02, 0.1),
        "stalls_per_s": worse * rng.uniform(0, 0.05),
        "stall_s": rng.uniform(0.05, 0.3),
        "constant_s": rng.uniform(0.002, 0.03),
        "acceptance": 0.6,
        "drafts": drafts,
        "seats": seats,
        "tokens": int(rng.choice([1024, 2048, 8192])),
    }


def _limit_ms(case, rng):
    """Above what an idle server takes, below what a full one does: a knee exists."""
    full = saturation(case)
    light, heavy = (percentile(case, full * share, 20_000, 1) for share in (0.2, 0.85))
    if case.bound == "ttft":
        return float(light * rng.uniform(1.5, 4)) * 1e3
    return float(light + (heavy - light) * rng.uniform(0.4, 0.8)) * 1e3


def saturation(case):
    """Requests a second with everything queued at once."""
    trace = case.traffic.trace(1.0, 6000, [case.seed, 3])
    burst = replace(trace, arrival_s=np.zeros(len(trace)))
    ends_s = np.sort(case.served(burst, [case.seed, 4]).last_s)
    return 4000 / (ends_s[4999] - ends_s[999])


def percentile(case, load, n, stream):
    """Sample P99 of the bound metric, the first tenth left out."""
    outcome = case.served(case.traffic.trace(load, n, [case.seed, stream]), [case.seed, stream], n // 10)
    return case.p99_s(outcome, n // 10)


def truth(case, *, n=150_000, seeds=4):
    """(knee, its standard error in ln) over long runs: where the miss share passes 1 %, the mean over seeds."""
    top = saturation(case)
    rough = _crossing(case, (top * 0.02, top * 1.05), 20_000, [case.seed, 999], fine=0.03)
    near = rough / 1.3, rough * 1.3
    logs = np.log([_crossing(case, near, n, [case.seed, 1000 + seed], fine=0.001) for seed in range(seeds)])
    return float(np.exp(logs.mean())), float(logs.std(ddof=1) / seeds**0.5)


def _crossing(case, between, n, seed, *, fine):
    """Root in ln(load), with the same history at every load: the miss share rises with it."""

    def excess(at):
        outcome = case.served(case.traffic.trace(float(np.exp(at)), n, seed), seed, n // 50)
        share = case.share(outcome, n // 50)
        return np.log(share / (1 - share)) - np.log(0.01 / 0.99)

    low, high = np.log(between)
    while excess(low) > 0:
        low -= 0.5
    for _ in range(FARTHER):
        if excess(high) > 0:
            break
        high += 0.5
    else:
        raise NoKnee
    return float(np.exp(brentq(excess, low, high, xtol=fine)))


def unlike_core():
    """Largest relative difference to engine.core on a server that both know: context cost, drafts never accepted."""
    from harness.engine.core import Job
    from harness.engine.profile import KvCache, Profile, StepTime
    from harness.engine.simulate import simulate

    trace = drawn(0).traffic.trace(6.0, 400, 5)
    step = StepTime(base_ms=10.0, per_sequence_ms=0.5, per_prefill_token_ms=0.03, per_kv_token_ms=1e-4)
    kv = KvCache(num_blocks=100_000)
    profile = Profile(name="check", source="bench", max_num_seqs=16, max_num_batched_tokens=512, max_model_len=16384,
                      step=step, kv=kv)  # fmt: skip
    jobs = [
        (float(at_s), Job(job_id=order, prompt_tokens=int(prompt), output_tokens=int(output)))
        for order, (at_s, prompt, output) in enumerate(
            zip(trace.arrival_s, trace.prompt_tokens, trace.output_tokens, strict=True)
        )
    ]
    last_s = {life.job.job_id: life.at_s[-1] for life in simulate(profile, jobs)}
    server = Server(base_ms=10.0, sequence_ms=0.5, prefill_ms=0.03, kv_ms=1e-4, seats=16, tokens=512)
    ours = served(server, trace, np.zeros(len(trace), np.int64)).last_s
    return float(np.max(np.abs(ours / np.array([last_s[order] for order in range(len(trace))]) - 1)))
