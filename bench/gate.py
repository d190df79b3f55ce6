"""How often does the gate let a bad server through, and how often does it stop a good one? In virtual time, seeded.

    python bench/gate.py [--runs 500] [--processes 2] [--seed 1]

A server of known knee is run at shares of that knee, 500 times each with fresh traffic, and every run is decided as
`tokenswarm gate` would: by the code of the gate, on the waits of the twin's engine. Then pairs of runs, the second on a
server that is slower by a known factor, are decided as with `--baseline`. Prints the Markdown tables of
docs/accuracy-gate.md. About 20 minutes of one core.
"""

import argparse
import math
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import pairwise
from time import perf_counter

import numpy as np
from msgspec import structs

from harness.analysis.distributions import tally
from harness.analysis.intervals import bounds
from harness.analysis.portions import portion
from harness.analysis.ratios import Sampled, quantile_ratio
from harness.knee.changes import decided as decided_change
from harness.knee.gate import Asked, decided
from harness.model import LogNormal, Slo
from harness.twin import fast, predict
from harness.twin.server import Server
from harness.twin.traffic import Lengths, Traffic

TOY = Server(
    knots=((1, 10.15), (64, 19.6)), per_prefill_token_ms=0.03, max_num_seqs=64, max_num_batched_tokens=2048
)  # profile toy-64
CHAT = Lengths(
    prompt_tokens=LogNormal(median=math.exp(6.4), sigma=1.0), output_tokens=LogNormal(median=math.exp(4.9), sigma=0.8)
)
CASES = {
    "TTFT P99 ≤ 1 s, Poisson": (Traffic(lengths=CHAT), Slo(ttft_p99_ms=1000)),
    "TTFT P99 ≤ 1 s, CV 2": (Traffic(lengths=CHAT, arrivals="gamma", cv=2.0), Slo(ttft_p99_ms=1000)),
    "TPOT P99 ≤ 34 ms, Poisson": (Traffic(lengths=CHAT), Slo(tpot_p99_ms=34)),
}
SHARES = (0.8, 0.9, 1.0, 1.1)
REQUESTS = (1_500, 5_000, 15_000)
WARMUP = 1_500
SLOWER = (1.0, 1.03, 1.05, 1.1, 1.2)
PAIR_REQUESTS = 5_000
METRICS = (("ttft", 0.5), ("ttft", 0.99), ("tpot", 0.5))


def values_ms(server, traffic, load, n, seed):
    """TTFT and TPOT of the n requests after the warm-up."""
    lives = fast.run(server, traffic.trace(load, WARMUP + n, seed))
    return {"ttft": lives.ttft_s[WARMUP:] * 1e3, "tpot": lives.tpot_s[WARMUP:] * 1e3}


def blocks(values):
    present = values[~np.isnan(values)]
    return [tally(present[a:b]) for a, b in pairwise(bounds(len(present)))], len(present)


def gated(case, load, seed):
    """What the gate says of one run after each number of requests."""
    traffic, slo = CASES[case]
    name = "ttft" if slo.ttft_p99_ms else "tpot"
    asked = Asked(name=f"{name}_p99_ms", limit=slo.ttft_p99_ms or slo.tpot_p99_ms, allowed=0.01)
    values = values_ms(TOY, traffic, load, REQUESTS[-1], seed)[name]
    cut = [blocks(values[:n]) for n in REQUESTS]
    return [decided(asked, portion(parts, asked.limit, asked.allowed, n))[0] for parts, n in cut]


def compared(load, same, seed):
    """What a comparison says of a server that is slower by each factor: TTFT P50, TTFT P99, TPOT P50."""
    traffic = CASES["TTFT P99 ≤ 1 s, Poisson"][0]
    old = values_ms(TOY, traffic, load, PAIR_REQUESTS, (seed, 0))
    said = []
    for factor in SLOWER:
        new = values_ms(slower(factor), traffic, load, PAIR_REQUESTS, (seed, 0 if same else 1))
        for metric, q in METRICS:
            sides = [Sampled(blocks=cut, requests=n) for cut, n in (blocks(new[metric]), blocks(old[metric]))]
            ratio = quantile_ratio(*sides, q, same_arrivals=same)
            said.append(decided_change(ratio, higher=False, limit=0.05)[0])
    return said


def slower(factor):
    """The toy server, every step of which takes so many times as long."""
    return structs.replace(
        TOY,
        knots=tuple((batch, ms * factor) for batch, ms in TOY.knots),
        per_prefill_token_ms=TOY.per_prefill_token_ms * factor,
    )


def long_run(load, n, seed):
    """By factor: the ratio of each metric that very long runs on the same arrivals have."""
    traffic = CASES["TTFT P99 ≤ 1 s, Poisson"][0]
    runs = [values_ms(slower(factor), traffic, load, n, seed) for factor in SLOWER]
    return [[np.nanquantile(run[m], q) / np.nanquantile(runs[0][m], q) for m, q in METRICS] for run in runs]


def shares(decisions):
    """pass / fail / inconclusive in percent."""
    count, of = Counter(decisions), len(decisions)
    return " / ".join(f"{100 * count[each] / of:.1f}" for each in ("pass", "fail", "inconclusive"))


def gate_table(asked, pool):
    print("| clause | knee, req/s | load | " + " | ".join(f"{n:,} requests" for n in REQUESTS) + " |")
    print("| --- | --- | --- |" + " --- |" * len(REQUESTS))
    for place, (case, (traffic, slo)) in enumerate(CASES.items()):
        knee = predict.knee(TOY, traffic, slo, loop="open", seed=asked.seed, requests=asked.truth).load
        for share in SHARES:
            seeds = [(asked.seed, place, round(100 * share), run) for run in range(asked.runs)]
            said = list(pool.map(partial(gated, case, share * knee), seeds, chunksize=10))
            cells = [shares([run[n] for run in said]) for n in range(len(REQUESTS))]
            print(f"| {case} | {knee:.2f} | {share:g} × knee | {' | '.join(cells)} |", flush=True)


def change_table(asked, pool):
    traffic, slo = CASES["TTFT P99 ≤ 1 s, Poisson"]
    knee = predict.knee(TOY, traffic, slo, loop="open", seed=asked.seed, requests=asked.truth).load
    print(f"\n| arrivals | slower by | TTFT P50 | TTFT P99 | TPOT P50 |\n|{' --- |' * 5}")
    truth = long_run(0.8 * knee, asked.truth, asked.seed)
    for same in (True, False):
        said = list(pool.map(partial(compared, 0.8 * knee, same), range(asked.pairs), chunksize=5))
        for place, factor in enumerate(SLOWER):
            parts = [shares([run[3 * place + metric] for run in said]) for metric in range(3)]
            cells = [f"{100 * (ratio - 1):+.1f} %: {part}" for ratio, part in zip(truth[place], parts, strict=True)]
            print(f"| {'the same' if same else 'others'} | {factor - 1:.0%} | {' | '.join(cells)} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--truth", type=int, default=1_000_000, help="Requests a simulation of the true knee.")
    asked, began = parser.parse_args(), perf_counter()
    with ProcessPoolExecutor(asked.processes) as pool:
        if asked.runs:
            gate_table(asked, pool)
        if asked.pairs:
            change_table(asked, pool)
    print(f"\nseed {asked.seed}, {asked.runs} runs and {asked.pairs} pairs a cell, {perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
