"""What is asked for: settings, and the scenario as it is run at each of them. Pure."""

import math
from pathlib import Path

from msgspec import Struct, structs

from harness.knee.map import Objective, Setting
from harness.knee.search import rounded
from harness.model import Count, Ladder, Load, Scenario, Serve

AROUND = 2.0
"""A search that knows about where the knee is begins at this fraction of it, and climbs to this multiple."""


class Asked(Struct, frozen=True, kw_only=True):
    """One map as the command line asks for it."""

    scenario: Scenario
    caps: list[Count]
    """max_num_seqs."""
    batched_tokens: list[Count] = []
    """max_num_batched_tokens; none: what the scenario's search says."""
    objective: Objective = "rate"
    measure_all: bool = False
    """Measure what the twin could predict too."""
    directory: Path
    """Of the map: the runs lie below it. What it holds of this map already is not measured again."""
    processes: int = 1
    command: str = ""
    requests: Count = 100_000
    """Simulated requests behind each load that a prediction looks at."""


def settings(asked: Asked) -> list[Setting]:
    """Every setting once, largest first. Raises ValueError, one line, for what no server can be or nothing can pay."""
    caps, budgets = asked.caps, asked.batched_tokens or [asked.scenario.search.max_num_batched_tokens]
    if not caps:
        raise ValueError("--batch: got no batch size; expected some, such as --batch 8,16,32,64")
    if asked.objective == "cost" and asked.scenario.prices is None:
        raise ValueError("--objective cost: the scenario has no prices; set prices.per_hour, or choose rate or goodput")
    if min(budgets) < max(caps):
        raise ValueError(
            f"--batched-tokens {min(budgets)}, --batch {max(caps)}: every sequence needs room for one token a step; "
            f"expected {max(caps)} or more"
        )
    pairs = {(cap, tokens) for cap in caps for tokens in budgets}
    return [Setting(max_num_seqs=cap, max_num_batched_tokens=tokens) for cap, tokens in sorted(pairs, reverse=True)]


def hook(scenario: Scenario) -> Serve | None:
    """How servers are started: as the scenario says, else the embedded engine where that is the target; None: not."""
    target, serve = scenario.target, scenario.serve
    if serve is None:
        return Serve(built_in="engine", model=target.engine) if target.engine and not target.host else None
    if serve.built_in == "engine" and serve.model is None:
        return structs.replace(serve, model=target.engine)
    return serve


def scenario_at(scenario: Scenario, setting: Setting, near: float | None) -> Scenario:
    """The scenario of the search at one setting; where about its knee lies, the climb begins there."""
    limits = structs.asdict(setting)
    load = scenario.load if not near else _narrowed(scenario.load, near)
    return structs.replace(scenario, search=structs.replace(scenario.search, **limits), load=load)


def _narrowed(load: Load, near: float) -> Load:
    low, high = near / AROUND, near * AROUND
    if load.loop == "closed":
        low, high = max(1.0, math.floor(low)), max(2.0, math.ceil(high))
    ladder = Ladder(from_=rounded(low), to=rounded(high), factor=AROUND)
    return structs.replace(load, ladder=ladder, levels=None)


def is_same_question(one: Scenario, other: Scenario) -> bool:
    """Do both ask for the same? Where the climb begins, on which port the server listens and where the records also
    go do not matter."""
    return _question(one) == _question(other)


def _question(scenario: Scenario) -> Scenario:
    load = structs.replace(scenario.load, ladder=None, levels=None)
    target = structs.replace(scenario.target, host=None)
    return structs.replace(scenario, load=load, target=target, influx=None)
