"""How fast is the twin, and how near does it come? Virtual time: the servers are simulated too. I/O (results, stdout).

    python bench/twin.py [--requests 1000000] [--servers 12] [--seed 1]

Speed of `twin.fast.run` beside the reference core on the same requests; then servers drawn at random, each measured on
short levels (closed loop, and open loop up to 0.95 of saturation), fitted, and asked for its knee. The fitted knee is
held against that of the server itself on the same histories: what is left is the error of the twin alone. Limits
wanted: 10⁶ requests in 10 s on a core; a fit in seconds.
"""

import argparse
import math
from time import process_time

import numpy as np
from tables import Table, show

from harness.engine.core import Job
from harness.engine.simulate import simulate
from harness.model import LogNormal, Slo
from harness.twin import fast, fit, predict
from harness.twin.look import saturation_rps
from harness.twin.observed import Observation
from harness.twin.server import Server
from harness.twin.traffic import Lengths, Traffic

TOY = Server(knots=((1, 10.15), (64, 19.6)), per_prefill_token_ms=0.03, max_num_seqs=64, max_num_batched_tokens=2048)
TRAFFIC = Traffic(
    lengths=Lengths(
        prompt_tokens=LogNormal(median=math.exp(6.4), sigma=1.0),
        output_tokens=LogNormal(median=math.exp(4.9), sigma=0.8),
    )
)
REFERENCE = 2_000
KNEE = 40_000
KINDS = ("straight", "bent", "context", "noisy")


def speed(requests):
    """Requests a second of CPU, both cores, open and closed loop."""
    cells, facts = [], {}
    cases = {
        "open, 5 /s": TRAFFIC.trace(5.0, requests, 1),
        "open, 9.9 /s, near the knee": TRAFFIC.trace(9.9, requests, 1),
        "closed, 69 users": TRAFFIC.closed(69, requests, 1),
    }
    for name, trace in cases.items():
        began = process_time()
        fast.run(TOY, trace)
        ours = len(trace) / (process_time() - began)
        theirs = reference(trace.head(REFERENCE)) if trace.arrival_s is not None else None
        cells.append(
            [name, f"{ours:,.0f}", f"{theirs:,.0f}" if theirs else "–", f"{ours / theirs:.0f}" if theirs else "–"]
        )
        facts[name] = ours
    columns = ["case", "twin, requests/s", "reference core", "ratio"]
    return Table(title="Simulated requests a second of CPU", columns=columns, cells=cells, facts=facts)


def reference(trace):
    """Requests a second of the reference core."""
    lengths = zip(trace.prompt_tokens.tolist(), trace.output_tokens.tolist(), strict=True)
    jobs = [Job(job_id=i, prompt_tokens=p, output_tokens=o) for i, (p, o) in enumerate(lengths)]
    began = process_time()
    simulate(TOY.profile(), list(zip(trace.arrival_s.tolist(), jobs, strict=True)))
    return len(trace) / (process_time() - began)


def drawn(kind, rng):
    """A server nobody has seen: straight, with a bend in τ(b), or with a cost of context."""
    seats = int(rng.choice([16, 32, 64, 128]))
    first_ms, rise = rng.uniform(4, 20), rng.uniform(0.3, 1.5)
    knots = [(1, first_ms), (seats, first_ms * (1 + rise))]
    if kind == "bent":
        knots.insert(1, (seats // 3, first_ms * (1 + rise * rng.uniform(0.05, 0.2))))
    return Server(
        knots=tuple(knots),
        per_prefill_token_ms=rng.uniform(0.01, 0.06),
        per_kv_token_ms=first_ms * rng.uniform(0.1, 0.4) / (seats * 1000) if kind == "context" else 0.0,
        constant_ms=rng.uniform(0.5, 10),
        max_num_seqs=seats,
        max_num_batched_tokens=2048,
    )


def observed(server, trace, load, rng):
    """A level as a client sees it; of a noisy server every request's times are off by some per cent."""
    lives = fast.run(server, trace)
    spread = 0.05 if rng else 0.0
    off = np.exp(rng.normal(0, spread, (2, len(trace)))) if rng else np.ones((2, len(trace)))
    return Observation(
        load=load,
        loop=trace.loop,
        trace=trace,
        counts=np.arange(len(trace)) >= len(trace) // 8,
        ttft_s=lives.ttft_s * off[0],
        tpot_s=lives.tpot_s * off[1],
    )


def levels(server, kind, seed):
    """Three closed levels and three open ones, about 3,000 requests in all."""
    rng = np.random.default_rng(seed) if kind == "noisy" else None
    most = saturation_rps(server, TRAFFIC, seed=seed, requests=10_000)
    seats = server.max_num_seqs
    closed = [TRAFFIC.closed(users, max(100, 6 * users), (seed, users)) for users in (1, seats // 4, seats)]
    opened = [(most * share, TRAFFIC.trace(most * share, 700, (seed, 1000 + i))) for i, share in enumerate(SHARES)]
    found = [observed(server, trace, trace.users, rng) for trace in closed]
    return found + [observed(server, trace, load, rng) for load, trace in opened]


SHARES = (0.6, 0.8, 0.92)


def accuracy(servers, seed):
    """Error of the fitted knee, kind by kind."""
    cells, facts = [], {}
    for number, kind in enumerate(KINDS):
        rng = np.random.default_rng((seed, number))
        rows = [trial(kind, int(rng.integers(2**31)), rng) for _ in range(servers)]
        errors, seconds, goodness, knots = (np.array(column) for column in zip(*rows, strict=True))
        rms = math.sqrt(float((errors**2).mean()))
        cells.append(
            [
                kind,
                f"{errors.mean():+.2%}",
                f"{rms:.2%}",
                f"{abs(errors).max():.2%}",
                f"{np.median(goodness):.2%}",
                f"{knots.mean():.1f}",
                f"{np.median(seconds):.1f} s",
                f"{seconds.max():.1f} s",
            ]
        )
        facts[kind] = rms
    columns = ["server", "bias", "RMS", "worst", "goodness", "knots", "fit, median", "fit, longest"]
    return Table(
        title=f"Error of the fitted knee (P99 TTFT), {servers} random servers a kind, about 3,000 requests each",
        columns=columns,
        cells=cells,
        facts=facts,
    )


def trial(kind, seed, rng):
    """(relative error of the knee, CPU seconds of the fit, its goodness, its knots)."""
    server = drawn(kind, rng)
    slo = Slo(ttft_p99_ms=float(rng.choice([500, 1000, 2000])))
    seen = levels(server, kind, seed)
    began = process_time()
    seats, tokens = server.max_num_seqs, server.max_num_batched_tokens
    found = fit.fit(seen, None, max_num_seqs=seats, max_num_batched_tokens=tokens)
    spent_s = process_time() - began
    true, ours = (
        predict.knee(one, TRAFFIC, slo, loop="open", seed=seed, requests=KNEE).load for one in (server, found.server)
    )
    error = ours / true - 1 if true else 0.0
    print(f"{kind} {server}\n  {found.server}\n  {true:.3f} {ours:.3f} {error:+.2%} {found.text} {spent_s:.1f} s")
    return error, spent_s, found.goodness, found.knots


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--servers", type=int, default=12, help="of each kind")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args(arguments)
    show("twin", [speed(asked.requests), accuracy(asked.servers, asked.seed)])


if __name__ == "__main__":
    main()
