"""Runs side by side: which scenarios differ, which levels match, and how every metric changed. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import msgspec
import numpy as np

from harness.analysis.distributions import tally
from harness.analysis.flat import Floats
from harness.analysis.frame import Frame
from harness.analysis.intervals import FINEST, bounds
from harness.analysis.parts import good_parts, output_parts
from harness.analysis.ratios import Sampled, quantile_ratio, rate_ratio
from harness.analysis.spreads import TENTHS_PER_MS, itl_tally, latencies_ms
from harness.clock import MS, S
from harness.decisions import Change, Compared, Difference, Ends
from harness.findings import Level
from harness.knee.changes import Ratio, change, spoilt
from harness.model import Json, Scenario, Stage

QUANTILE_METRICS = tuple(
    (f"{metric}_{label}_ms", metric, q)
    for metric in ("ttft", "itl", "tpot", "e2e")
    for label, q in (("p50", 0.5), ("p99", 0.99))
)
MAY_DIFFER = ("name", "about", "target.host", "target.model", "influx", "prices")
"""What two deployments, or two readings of one, may differ in and still be compared."""
SAME_NS = MS
"""Requests of two runs due this close to each other since their hold began are the same one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What of one run is compared."""

    frame: Frame
    scenario: Scenario
    stages: Sequence[Stage]
    levels: Sequence[Level]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The same load in two runs."""

    new: Level
    old: Level
    new_stage: Stage
    old_stage: Stage


def differences(scenarios: Sequence[Scenario]) -> list[Difference]:
    """Fields in which they differ, path by path, those aside that may."""
    flat = [dict(_paths(msgspec.to_builtins(each))) for each in scenarios]
    paths = dict.fromkeys(path for each in flat for path in each)
    told = ((path, [each.get(path) for each in flat]) for path in paths if not _may_differ(path))
    return [Difference(path=path, values=values) for path, values in told if any(v != values[0] for v in values)]


def pairs(new: Run, old: Run) -> list[Pair]:
    """Levels of equal load; where one was measured several times, first with first, second with second."""
    stages = [{stage.level: stage for stage in run.stages} for run in (new, old)]
    before = dict(_numbered(old.levels))
    found = ((level, before[key]) for key, level in _numbered(new.levels) if key in before)
    return [Pair(new=a, old=b, new_stage=stages[0][a.index], old_stage=stages[1][b.index]) for a, b in found]


def rows(runs: Sequence[Run], limit: float) -> tuple[list[Compared], list[str]]:
    """Every metric of the levels that all runs measured, against the first run; and what could not be matched."""
    matched = [pairs(run, runs[0]) for run in runs[1:]]
    common = [level for level in runs[0].levels if all(any(pair.old is level for pair in each) for each in matched)]
    found = [row for level in common for row in _rows(runs, matched, level, limit)]
    left = sum(len(run.levels) - len(common) for run in runs)
    return found, [f"{left} levels that not every run measured are left out."] if left else []


def _rows(runs: Sequence[Run], matched: Sequence[Sequence[Pair]], level: Level, limit: float) -> Iterator[Compared]:
    mine = [next(pair for pair in each if pair.old is level) for each in matched]
    against = [changes(run, runs[0], pair, limit) for run, pair in zip(runs[1:], mine, strict=True)]
    levels = [level, *(pair.new for pair in mine)]
    for name in dict.fromkeys(each.metric for found in against for each in found):
        told = [next((each for each in found if each.metric == name), None) for found in against]
        known = next(each for each in told if each is not None)
        yield Compared(
            load=level.load,
            axis=level.axis,
            metric=name,
            better=known.better,
            values=[known.old, *(None if each is None else each.new for each in told)],
            intervals=[_interval(each, name) for each in levels],
            changes=told,
        )


def _interval(level: Level, name: str) -> Ends | None:
    """The 95 % interval of a quantile, as the level has it."""
    metric, _, label = name.removesuffix("_ms").rpartition("_")
    spread = level.metrics.get(f"{metric}_ms")
    return None if spread is None else spread.interval.get(label)


def changes(new: Run, old: Run, pair: Pair, limit: float) -> list[Change]:
    """Every metric of one level that either run has, new against old; `limit`: see `knee.changes`."""
    found = [(name, ratio) for name, ratio in _ratios(new, old, pair) if (ratio.old, ratio.new) != (None, None)]
    told = [change(pair.new, name, ratio, limit) for name, ratio in found]
    limited = [name for name, level in (("new", pair.new), ("old", pair.old)) if level.client.limited]
    return [spoilt(each, f"the client was the limit in the {limited[0]} run") for each in told] if limited else told


def _ratios(new: Run, old: Run, pair: Pair) -> Iterator[tuple[str, Ratio]]:
    sampled = [_sampled(run, level.index) for run, level in ((new, pair.new), (old, pair.old))]
    same = _same_arrivals(new, old, pair)
    for name, metric, q in QUANTILE_METRICS:
        yield name, quantile_ratio(sampled[0][metric], sampled[1][metric], q, same_arrivals=same)
    fewer = min(pair.new.due, pair.old.due)
    parts = [_rates(new, pair.new_stage), _rates(old, pair.old_stage)]
    for name in ("output_tps", "goodput_rps"):
        yield name, rate_ratio(parts[0][name], parts[1][name], fewer)


def _sampled(run: Run, index: int) -> dict[str, Sampled]:
    """TTFT, ITL, TPOT and E2E in ms, in blocks of requests in due order."""
    rows = run.frame.judged(index)
    each = latencies_ms(run.frame.rows.iloc[rows], run.scenario.load.loop)
    found = {}
    for metric in ("ttft", "tpot", "e2e"):
        values = each[f"{metric}_ms"][~np.isnan(each[f"{metric}_ms"])]
        blocks = [tally(values[a:b]) for a, b in pairwise(bounds(len(values)))]
        found[metric] = Sampled(blocks=blocks, requests=len(values))
    edges = pairwise(bounds(rows.stop - rows.start))
    itl = [itl_tally(run.frame, rows.start + a, rows.start + b) for a, b in edges]
    found["itl"] = Sampled(blocks=itl, requests=rows.stop - rows.start, per_ms=TENTHS_PER_MS)
    return found


def _rates(run: Run, stage: Stage) -> dict[str, Floats]:
    """By part of the hold, a second."""
    part_s = (stage.end_at_ns - stage.hold_at_ns) / S / FINEST
    good = good_parts(run.frame, stage, run.scenario.slo, run.scenario.load.loop)
    return {"output_tps": output_parts(run.frame, stage) / part_s, "goodput_rps": good / part_s}


def _same_arrivals(new: Run, old: Run, pair: Pair) -> bool:
    """An open loop in both, and the judged requests due at the same instants since their hold began: one trace."""
    if new.scenario.load.loop != "open" or old.scenario.load.loop != "open":
        return False
    due = [
        run.frame.rows["due_ns"].to_numpy()[run.frame.judged(stage.level)] - stage.hold_at_ns
        for run, stage in ((new, pair.new_stage), (old, pair.old_stage))
    ]
    return len(due[0]) == len(due[1]) and bool(np.all(np.abs(due[0] - due[1]) < SAME_NS))


def _numbered(levels: Sequence[Level]) -> Iterator[tuple[tuple[float, int], Level]]:
    """Each level with its load, and how often that was measured before."""
    seen: dict[float, int] = {}
    for level in levels:
        seen[level.load] = seen.get(level.load, -1) + 1
        yield (level.load, seen[level.load]), level


def _paths(value: Json, path: str = "") -> Iterator[tuple[str, Json]]:
    """Leaves of a document with their paths; an empty list or mapping is a leaf."""
    if isinstance(value, Mapping) and value:
        for name, each in value.items():
            yield from _paths(each, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list) and value:
        for place, each in enumerate(value):
            yield from _paths(each, f"{path}[{place}]")
    else:
        yield path, value


def _may_differ(path: str) -> bool:
    return any(path == free or path.startswith((f"{free}.", f"{free}[")) for free in MAY_DIFFER)
