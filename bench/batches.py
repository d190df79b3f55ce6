"""Does a twin fitted at one batch size know the knee at others? Virtual time, and a real llama.cpp. I/O: processes.

    python bench/batches.py [--engines 12] [--first 0] [--cores 1] [--real closed open]

Virtual: servers unlike the twin (`unlike.py`) with a clause on TTFT. Each is searched once, at its own batch size, as
`tokenswarm knee --method twin` does; its twin, corrected by that one knee, then says the knee at four smaller ones. The
truth is where the miss share passes 1 % in long runs at each. Wanted: a median error of 3 % or less.

Real: `llama-server --parallel 1, 2, 4`, a search by bracket at each; the twin is fitted to the levels that the one at 4
happened to measure. Needs two cores that do nothing else.
"""

import argparse
import math
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np
from accuracy import assisted
from tables import Table, show
from unlike import BOUND, drawn, truth

from harness import scenario
from harness.analysis.frame import frame_of
from harness.analysis.observed import observation
from harness.batches.settings import Asked
from harness.batches.survey import batch_map
from harness.batches.twins import predictions
from harness.knee.map import Setting
from harness.record.facts import facts_of
from harness.twin import predict
from harness.twin.fit import fit
from harness.twin.server import Server

SHARES = (3 / 4, 1 / 2, 1 / 4, 1 / 8)
"""Batch sizes asked for, of the one that was searched."""
TRUTH = {"n": 80_000, "seeds": 2}
PARALLEL = (1, 2, 4)
TOKENS = 2048
SCENARIO = """
name: llama-batches
target: {model: tiny}
load: {loop: LOOP, ladder: LADDER, precision: 0.05}
phases: {warmup_s: WARMUP, hold_s: HOLD, drain_s: 20}
prompt_tokens: {dist: uniform, min: 8, max: 24}
output_tokens: {dist: uniform, min: 8, max: 24}
slo: {ttft_p99_ms: 180}
"""
FIELDS = {
    "closed": {"LADDER": "{from: 1, to: 16}", "WARMUP": "1", "HOLD": "6"},
    "open": {"LADDER": "{from: 1, to: 64}", "WARMUP": "2", "HOLD": "15"},
}


@dataclass(frozen=True)
class Row:
    """One engine: its own knee as it was found, and the knees at smaller batches."""

    seed: int
    seats: int
    own: float
    caps: list[int]
    true: list[float]
    plain: list[float]
    """As the twin says them."""
    corrected: list[float]
    """Times found / predicted at the batch that was searched."""


# --- virtual time -----------------------------------------------------------------------------------------------------


def engine(seed):
    """A Row; None where the search had no twin to show."""
    case = drawn(seed)
    knee, _ = truth(case, **TRUTH)
    found, said = assisted(case, float(f"{knee / 8:.2g}"))
    if not said.twin or not found.load > 0:
        return None
    server = msgspec.convert(said.twin, Server)
    seats = case.server["seats"]
    caps = sorted({max(2, round(seats * share)) for share in SHARES}, reverse=True)
    told = predict.at_batches(server, case.traffic, case.slo, [seats, *caps], loop="open", seed=case.seed + 1)
    true = [truth(replace(case, server=case.server | {"seats": cap}), **TRUTH)[0] for cap in caps]
    plain = [one.load for one in told[1:]]
    correction = found.load / told[0].load
    return Row(seed, seats, found.load / knee - 1, caps, true, plain, [load * correction for load in plain])


def seeds(first, engines):
    """Those whose clause is on TTFT: a small batch never breaks one on TPOT."""
    numbers = (seed for seed in range(first, first + 100 * engines) if BOUND[seed // 3 % 2] == "ttft")
    return [next(numbers) for _ in range(engines)]


def virtual(args):
    """All engines, and the median over their caps."""
    with ProcessPoolExecutor(args.cores) as pool:
        rows = []
        for row in pool.map(engine, seeds(args.first, args.engines)):
            print(row, file=sys.stderr, flush=True)
            rows += [] if row is None else [row]
    cells, facts = [], {}
    for name, of in (("the twin alone", "plain"), ("corrected by its own knee", "corrected")):
        errors = np.concatenate([np.log(np.array(getattr(row, of)) / np.array(row.true)) for row in rows])
        cells.append([name, f"{len(errors)}", *figures(errors)])
        facts[f"{name}, median"] = float(np.median(np.abs(errors)))
    own = np.log1p(np.array([row.own for row in rows]))
    cells.append(["searched: the batch it was fitted at", f"{len(own)}", *figures(own)])
    by_share = [np.log(row.corrected[place] / row.true[place]) for place in (0, -1) for row in rows]
    near, far = (np.median(np.abs(part)) for part in np.split(np.array(by_share), 2))
    return Table(
        title=f"Knee at other batch sizes than the one searched: {len(rows)} servers unlike the twin",
        columns=["prediction", "knees", "median off", "RMSE", "bias", "worst"],
        cells=[*cells, ["target", "", "≤ 3 %", "", "", ""]],
        notes=[f"Corrected, the largest of the smaller batches: {near:.1%} (median); the smallest: {far:.1%}."],
        facts=facts,
    )


def figures(errors):
    rmse = math.sqrt(float(np.mean(errors**2)))
    return [
        f"{np.median(np.abs(errors)):.1%}",
        f"{rmse:.1%}",
        f"{errors.mean():+.1%}",
        f"{errors[np.abs(errors).argmax()]:+.1%}",
    ]


# --- a real server ----------------------------------------------------------------------------------------------------


def real(loop):
    """Measured and predicted at each --parallel."""
    sys.path.append(str(Path(__file__).resolve().parent.parent / "tests" / "e2e"))
    import llama_cpp

    text = SCENARIO.replace("LOOP", loop)
    for name, value in FIELDS[loop].items():
        text = text.replace(name, value)
    options = "-t 1 -c 16384 --alias tiny --metrics --offline --no-cache-prompt --cache-ram 0 --threads-http 64"
    command = (
        f"{llama_cpp.binary()} -m {llama_cpp.model()} --host 127.0.0.1 --port {{port}} -np {{max_num_seqs}} {options}"
    )
    asked = scenario.parse(text, overrides=[f"serve.command={command!r}"])
    with tempfile.TemporaryDirectory() as folder:
        request = Asked(scenario=asked, caps=list(PARALLEL), directory=Path(folder) / "map", command="bench/batches.py")
        found = batch_map(request, lambda said: print(said, file=sys.stderr, flush=True))
        said = fitted(request, Path(folder) / "map" / found.cells[-1].run)
    cells = [cells_of(cell, said[cell.setting]) for cell in found.cells]
    return Table(
        title=f"llama.cpp, --parallel 1, 2, 4, {loop} loop, P99 TTFT ≤ 180 ms: knee in {found.axis}",
        columns=["--parallel", "measured: held to broke", "requests/s", "running P50/P95", "twin fitted at 4", "off"],
        cells=cells,
        notes=[*found.notes, found.verdict.text],
    )


def fitted(request, directory):
    """The twin of the largest setting, from the levels of its search, at every setting."""
    facts = facts_of(directory)
    frame, load = frame_of(facts.records), facts.header.scenario.load
    levels = [
        observation(frame, stage, load.loop, think_s=load.think_s, since_ns=facts.header.started_ns)
        for stage in facts.stages
    ]
    server = fit(levels, None, max_num_seqs=max(PARALLEL), max_num_batched_tokens=TOKENS)
    print(server.text, server.server, file=sys.stderr)
    settings = [Setting(max_num_seqs=cap, max_num_batched_tokens=TOKENS) for cap in PARALLEL]
    return predictions(server.server, request, settings, server.scatter)


def cells_of(cell, said):
    at = cell.figures
    span = f"{at.low:g} to {at.high:g}" if at.low is not None and at.high is not None else "–"
    off = f"{said.load / at.load - 1:+.1%}" if at.load else "–"
    runs = f"{at.batch_p50:g} / {at.batch_p95:g}" if at.batch_p50 is not None else "–"
    return [str(cell.setting.max_num_seqs), span, f"{at.rps or 0:.1f}", runs, f"{said.load:.3g}", off]


def main(argv=None):
    parser = argparse.ArgumentParser(description="A twin at other batch sizes.")
    parser.add_argument("--engines", type=int, default=12, help="0: none")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--real", nargs="*", choices=["closed", "open"], default=[])
    args = parser.parse_args(argv)
    tables = [virtual(args)] if args.engines else []
    show("batches", tables + [real(loop) for loop in args.real])


if __name__ == "__main__":
    main()
