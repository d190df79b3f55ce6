"""A whole search over levels in virtual time: the server, its traffic, its true knee, and a level as judged."""

from dataclasses import replace

import numpy as np

from harness.findings import Client, Level
from harness.knee.assisted import Assisted
from harness.knee.modelfree import ModelFree
from harness.knee.plan import Plan, Seen, misses
from harness.knee.search import Probe, Stop
from harness.metrics import limits
from harness.model import LogNormal, Slo
from harness.twin import fast
from harness.twin.observed import Observation
from harness.twin.server import Server
from harness.twin.traffic import Lengths, Traffic

SERVER = Server(
    knots=((1, 10.0), (32, 24.0)),
    per_prefill_token_ms=0.02,
    constant_ms=4.0,
    max_num_seqs=32,
    max_num_batched_tokens=2048,
)
PROMPT, OUTPUT = LogNormal(median=300, sigma=0.7, max=4000), LogNormal(median=40, sigma=0.6, max=300)
TRAFFIC = Traffic(lengths=Lengths(prompt_tokens=PROMPT, output_tokens=OUTPUT))
SLO = Slo(ttft_p99_ms=300.0)
TRUE_KNEE = 18.2
"""By `predict.knee` with 200,000 requests: 18.05 and 18.29 with two seeds."""
TTFT = limits(SLO)[0]
PLAN = Plan(
    slo=SLO, traffic=TRAFFIC, loop="open", ladder=[2.0, 20.0], max_num_seqs=32, max_num_batched_tokens=2048,
    long_run=20_000, precision=0.04,
)  # fmt: skip
HEALTHY = Client(
    lag_p99_ms=0.1, hub_delay_p99_ms=1, cpu=0.1, runnable=0, coalesced_share=0, stamp_source="kernel", limited=False
)


def observed(server: Server, load: float, n: int, seed: int, at_s: float = 0.0) -> Observation:
    trace = TRAFFIC.trace(load, n, seed)
    lives = fast.run(server, trace)
    counts = np.arange(n) >= n // 11
    return Observation(
        load=load, loop="open", trace=trace, counts=counts, ttft_s=lives.ttft_s, tpot_s=lives.tpot_s, at_s=at_s,
        gaps=lives.gaps(counts),
    )  # fmt: skip


def seen(server: Server, probe: Probe, history: list[Seen]) -> Seen:
    assert probe.requests is not None
    before_s = sum(one.level.hold_s for one in history)
    found = observed(server, probe.load, probe.requests * 11 // 10, 100 + len(history), before_s)
    missed, due = misses(TTFT, found)
    level = Level(
        index=len(history), load=probe.load, axis="rate", hold_s=due / probe.load, due=due, offered_rps=probe.load,
        achieved_rps=probe.load, output_tps=1, input_tps=1, goodput_rps=1, attainment=None, error_share=0,
        outcomes={"ok": due}, metrics={}, tokens_per_event=1, in_flight=1, running=1, settled=True, client=HEALTHY,
        clauses=[], held="broken" if missed > 0.01 * due else "held",
    )  # fmt: skip
    return Seen(level=level, observed=found, why=probe.why)  # type: ignore[arg-type]  # a stage is text in a Probe


def counted(*levels: tuple[float, int, int], why: str = "verify") -> list[Seen]:
    """Levels of these (loads, misses of TTFT, requests)."""
    found = []
    for load, missed, requests in levels:
        plain = seen(SERVER, Probe(load, requests=200, why=why), [])
        ttft_s = np.where(np.arange(requests) < missed, 9.0, 0.01)
        level = replace(plain.observed, ttft_s=ttft_s, counts=np.ones(requests, bool), load=load)
        found.append(replace(plain, observed=level))
    return found


def searched(search: Assisted | ModelFree, server: Server, before: list[Seen]) -> tuple[list[Seen], str]:
    """The levels of a whole search, those before included, and why it ended."""
    history = list(before)
    while isinstance(step := search.next_probe(history), Probe):
        assert len(history) < 40, "the search does not end"
        history.append(seen(server, step, history))
    assert isinstance(step, Stop)
    return history, step.why
