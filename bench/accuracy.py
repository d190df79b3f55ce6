"""How true is the knee? Searches against servers unlike the twin, in virtual time, beside what others do. I/O: cores.

    python bench/accuracy.py [--engines 200] [--first 0] [--bound itl] [--harsh] [--docs | --floor]

Every engine is a random server under random traffic with one P99 clause (`unlike.py`); its true knee comes from 600,000
simulated requests at each load near it. The twin flies in C (`swift.py`), held to `twin/fast.py` bit for bit before
anything begins; some 20 s of CPU an engine. --docs writes docs/accuracy.md. --floor searches for nothing: it shows how
far off misses counted at the very knee are, on the same engines.
"""

import argparse
import math
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import swift
from searches import BUDGET, WARMUP, Found, bisection, counted, isotonic
from tables import Table, markdown, show
from unlike import NoKnee, drawn, truth, unlike_core

from harness.findings import Client, Level
from harness.knee.answer import answer
from harness.knee.assisted import Assisted
from harness.knee.plan import Plan, Seen
from harness.knee.search import Probe
from harness.twin import look, observed, scatter_itl, scatter_tpot
from harness.twin.observed import Observation

DOCS = Path(__file__).resolve().parent.parent / "docs" / "accuracy.md"
MARK = "<!-- made by bench/accuracy.py -->"
HEALTHY = Client(
    lag_p99_ms=0.0, hub_delay_p99_ms=0.0, cpu=0.0, runnable=0.0, coalesced_share=0.0, stamp_source="kernel",
    limited=False,
)  # fmt: skip
TARGETS = ["target", "", "", "", "≤ 2.0 %", "90–98 %", "", "≤ 15,000", "", ""]
FLOORS = 10
"""Runs an engine, of counting alone."""
COLUMNS = ["search", "searches", "bias", "sd", "RMSE", "covered", "half-width", "requests", "median off", "worst"]


@dataclass(frozen=True)
class Result:
    """One engine through every search."""

    seed: int
    arrivals: str
    lengths: str
    bound: str
    truth: float
    truth_sd: float
    found: dict[str, Found]
    seconds: float


def measured(case, probe, history):
    """One level in virtual time, as the analysis would hand it on."""
    sent = probe.requests + max(30, round(probe.requests * WARMUP))
    seed = [case.seed, 500, len(history)]
    trace = case.traffic.trace(probe.load, sent, seed)
    outcome = case.served(trace, seed, sent - probe.requests)
    counts = np.arange(sent) >= sent - probe.requests
    before_s = sum(float(one.observed.trace.arrival_s[-1]) for one in history)
    observed = Observation(
        load=probe.load, loop="open", trace=trace, counts=counts, ttft_s=outcome.ttft_s, tpot_s=outcome.tpot_s,
        at_s=before_s, gaps=outcome.gaps,
    )  # fmt: skip
    return Seen(level=level(case, probe, len(history), outcome, observed), observed=observed, why=probe.why)


def level(case, probe, index, outcome, observed):
    """What a judged level says to the search: load, throughput, held or broken."""
    begins_s, ends_s = observed.trace.arrival_s[observed.counts][[0, -1]]
    hold_s = max(float(ends_s - begins_s), 1e-9)
    ended = float(np.sum((outcome.last_s > begins_s) & (outcome.last_s <= ends_s)))
    broken = case.p99_s(outcome, len(observed.counts) - int(observed.counts.sum())) > case.limit_ms / 1e3
    due = int(observed.counts.sum())
    return Level(
        index=index, load=probe.load, axis="rate", hold_s=hold_s, due=due, offered_rps=due / hold_s,
        achieved_rps=ended / hold_s, output_tps=0.0, input_tps=0.0, goodput_rps=0.0, attainment=None, error_share=0.0,
        outcomes={"ok": due}, metrics={}, tokens_per_event=None, in_flight=0.0, running=0.0, settled=True,
        client=HEALTHY, clauses=[], held="broken" if broken else "held",
    )  # fmt: skip


def assisted(case, foot):
    """Ours, from the first probe to the answer; its twin flies in C."""
    look.run = observed.run = scatter_tpot.run = scatter_itl.run = swift.run
    plan = Plan(
        slo=case.slo, traffic=case.traffic, loop="open", ladder=[foot], max_num_seqs=case.server["seats"],
        max_num_batched_tokens=case.server["tokens"], seed=case.seed + 1, long_run=400_000,
    )  # fmt: skip
    search, history = Assisted(plan), []
    while isinstance(step := search.next_probe(history), Probe):
        history.append(measured(case, step, history))
    said = answer(search, history)
    stages = "".join(one.why[0] for one in history)
    note = f"{said.method} {stages} confirmed={said.confirmed} {said.sure}; {step.why}"
    load = said.load or math.nan
    return Found(load, said.low, said.high, said.requests, said.minutes, note), said


def searched(seed, harsh, bound):
    """Every search on engine `seed`, or None where that has no knee. They start from the same rate, a fourth to a
    thirtieth of the knee. Of ITL, ours alone: the others count requests."""
    began = time.process_time()
    case = drawn(seed, harsh=harsh, bound=bound)
    try:
        knee, sd = truth(case)
    except NoKnee:
        return None
    foot = float(f"{knee / np.random.default_rng([seed, 12]).uniform(4, 30):.2g}")
    ours, said = assisted(case, foot)
    found = {f"assisted, {said.method}": ours}
    if bound != "itl":
        found |= {
            "bisection, 1,000": bisection(case, foot, 1000),
            "bisection, 6,000": bisection(case, foot, 6000),
            "isotonic, 2,000": isotonic(case, foot, 2000),
        }
    seconds = time.process_time() - began
    return Result(seed, case.arrivals, case.lengths, case.bound, knee, sd, found, seconds)


def row(name, pairs):
    """One line of the table from (found, result)."""
    errors = np.array([math.log(found.load / result.truth) for found, result in pairs])
    told = [(found, result) for found, result in pairs if found.low is not None]
    covered = np.mean([found.low <= result.truth <= found.high for found, result in told]) if told else None
    widths = [math.log(found.high / found.low) / 2 for found, _ in told]
    return [
        name, f"{len(pairs)}", f"{errors.mean():+.1%}", f"{errors.std():.1%}", f"{np.sqrt(np.mean(errors**2)):.1%}",
        f"{covered:.0%}" if told else "–", f"{np.median(widths):.1%}" if told else "–",
        f"{np.mean([found.requests for found, _ in pairs]):,.0f}", f"{np.median(np.abs(errors)):.1%}",
        f"{errors[np.argmax(np.abs(errors))]:+.1%}",
    ]  # fmt: skip


def table(results, title):
    """All searches over all engines, then ours by kind of traffic and clause."""
    pairs = [(name, found, result) for result in results for name, found in result.found.items()]
    valid = [(name, found, result) for name, found, result in pairs if found.load > 0]
    ours = [(found, result) for name, found, result in valid if name.startswith("assisted")]
    cells = [row("assisted, all", ours)] if ours else []
    names = sorted({name for name, _, _ in valid})
    cells += [row(name, [(found, result) for own, found, result in valid if own == name]) for name in names]
    for kind in ("arrivals", "lengths", "bound"):
        for value in sorted({getattr(result, kind) for result in results}):
            chosen = [(found, result) for found, result in ours if getattr(result, kind) == value]
            cells += [row(f"assisted: {value}", chosen)] if chosen else []
    worse = np.sqrt(np.mean([result.truth_sd**2 for result in results]))
    notes = [
        f"The true knee is itself known to ±{worse:.1%} (standard error), which is in every error above.",
        f"No answer: {len(pairs) - len(valid)} of {len(pairs)}. "
        f"CPU: {np.mean([result.seconds for result in results]):.0f} s an engine.",
    ]
    facts = {
        f"{cell[0]}, {column}": number(value)
        for cell in cells
        for column, value in zip(COLUMNS[1:], cell[1:], strict=True)
    }
    return Table(title=title, columns=COLUMNS, cells=[*cells, TARGETS], notes=notes, facts=facts)


def floored(seed, harsh):
    """(case, errors of counting alone), or None where engine `seed` has no knee."""
    case = drawn(seed, harsh=harsh)
    try:
        knee, _ = truth(case)
    except NoKnee:
        return None
    return case, counted(case, knee, FLOORS)


def floor(seeds, harsh, cores):
    """RMS of those errors, by clause and by lengths."""
    with ProcessPoolExecutor(cores) as pool:
        known = [one for one in pool.map(floored, seeds, [harsh] * len(seeds)) if one is not None]
    groups = {"all": [errors for _, errors in known]}
    for case, errors in known:
        groups.setdefault(f"{case.lengths}, {case.bound}", []).append(errors)
    cells = []
    for name, errors in groups.items():
        rms = [math.sqrt(np.mean(np.square(each))) for each in errors]
        all_of_them = math.sqrt(np.mean(np.square(rms)))
        cells.append([name, f"{len(rms)}", f"{all_of_them:.1%}", f"{np.median(rms):.1%}", f"{max(rms):.1%}"])
    columns = ["engines", "number", "RMSE", "median engine", "worst engine"]
    title = f"Counting misses at the very knee: {BUDGET:,} requests, {FLOORS} times an engine"
    facts = {f"{name}, RMSE": number(rmse) for name, _, rmse, *_ in cells}
    return Table(title=title, columns=columns, cells=cells, notes=[], facts=facts)


def number(text):
    """A cell as a number; None for a dash."""
    bare = text.replace(",", "").rstrip("%").strip()
    return float(bare) if bare not in ("", "–") else None


def write(tables, command):
    """The part of docs/accuracy.md below the mark."""
    above = DOCS.read_text(encoding="utf-8").split(MARK)[0]
    body = "\n\n".join(markdown(one) for one in tables)
    DOCS.write_text(f"{above}{MARK}\n\n`{command}`\n\n{body}\n", encoding="utf-8")


def main(argv=None):
    parser = argparse.ArgumentParser(description="Searches against the truth.")
    parser.add_argument("--engines", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--harsh", action="store_true")
    parser.add_argument("--bound", choices=["ttft", "tpot", "itl"], help="one clause for all engines, not in turn")
    parser.add_argument("--docs", action="store_true")
    parser.add_argument("--floor", action="store_true")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no engine after so long")
    args = parser.parse_args(argv)
    if args.docs and (args.harsh or args.bound):
        parser.error("--docs: its table is that of all engines as they are drawn; leave --harsh and --bound out")
    print(f"unlike.c and engine.core differ by {unlike_core():.1e} at most (relative)")
    swift.check(drawn(seed).traffic.trace(4.0, 3000, seed) for seed in range(18))
    print("swift.c is twin/fast.py, bit for bit")
    seeds = range(args.first, args.first + args.engines)
    if args.floor:
        show("accuracy-floor", [floor(seeds, args.harsh, args.cores)])
        return
    tried = all_searched(seeds, args)
    results = [one for one in tried if one is not None]
    kind = "harsh mismatch" if args.harsh else "servers unlike the twin"
    kind += f", P99 {args.bound.upper()}" if args.bound else ""
    tables = [table(results, f"Knee searches, {kind}: engines {seeds[0]} to {seeds[0] + len(tried) - 1}")]
    tables[0].notes.append(f"Left out, as their clause holds at every load: {len(tried) - len(results)} engines.")
    show("-".join(["accuracy", *(["harsh"] if args.harsh else []), *([args.bound] if args.bound else [])]), tables)
    if args.docs:
        write(tables, f"python bench/accuracy.py --engines {len(tried)} --first {args.first}")


def all_searched(seeds, args):
    """Results in the order of their seeds; those without a gap that were begun within the time given."""
    began_s, results = time.monotonic(), []
    with ProcessPoolExecutor(args.cores) as pool:
        futures = [pool.submit(searched, seed, args.harsh, args.bound) for seed in seeds]
        for future in futures:
            if time.monotonic() - began_s > 60 * args.minutes and future.cancel():
                break
            results.append(future.result())
            print(told(results[-1]) if results[-1] else "no knee", file=sys.stderr, flush=True)
        pool.shutdown(cancel_futures=True)
    return results


def told(result):
    """One engine in one line, for whoever waits."""
    said = "; ".join(
        f"{name}: {math.log(found.load / result.truth):+.1%} {found.requests} {found.note}"
        for name, found in result.found.items()
    )
    case = f"{result.seed} {result.arrivals} {result.lengths} {result.bound}"
    return f"{case} {result.truth:.4g} {result.seconds:.0f} s: {said}"


if __name__ == "__main__":
    main()
