"""Hand-built Reports for tests: a plausible search for a knee, and awkward ones. Pure."""

import math
from typing import Literal

from msgspec.structs import replace

from harness.findings import Clause, Client, Curve, Held, Knee, Ledger, Level, Report, Sample, Spread, Verdict
from harness.knee.saturation import laws_of
from harness.model import Ladder, Load, LogNormal, Prices, RunHeader, Scenario, Slo, Stage, Target

S = 1_000_000_000
STARTED_NS = 1_790_000_000 * S
HOLD_S = 30.0
TTFT_LIMIT_MS = 500.0
ITL_LIMIT_MS = 60.0
HOSTILE = "</script><b>bold</b>[red]*x*|y"
"""A name that tries to be markup everywhere at once."""

Axis = Literal["users", "rate"]


def spread(n: int, p50: float, tail: float, absent: int = 0) -> Spread:
    """A distribution whose P99 is `tail` times its median; intervals only where 368 values allow one."""
    p99 = p50 * tail
    few = n < 368
    return Spread(
        n=n,
        absent=absent,
        mean=p50 * (1 + (tail - 1) / 8),
        p50=p50,
        p90=p50 * (1 + (tail - 1) / 3),
        p95=p50 * (1 + (tail - 1) / 2),
        p99=p99,
        max=p99 * 1.6,
        interval={"p50": (p50 * 0.96, p50 * 1.05), "p99": None if few else (p99 * 0.9, p99 * 1.25)},
    )


def queueing(load: float, full: float = 84.0) -> float:
    """How many times slower than idle: 1 at no load, steep as the load nears `full`."""
    return 1 / max(0.045, 1 - load / full)


def client(load: float, limited: bool) -> Client:
    """Health of a client that does its work easily, or not."""
    return Client(
        lag_p99_ms=0.21 + load / 90 + 40 * limited,
        hub_delay_p99_ms=1.4 + load / 30 + 90 * limited,
        cpu=min(0.97, 0.04 + load / 240 + 0.5 * limited),
        runnable=0.01 + 0.2 * limited,
        coalesced_share=0.0004 + 0.06 * limited,
        stamp_source="kernel",
        limited=limited,
        reasons=["6.0 % of token events were coalesced (limit 1 %)", "lag P99 41 ms (limit 5 ms)"] if limited else [],
        advice="add client processes (--processes 2) or spread over machines" if limited else "",
    )


def clauses(ttft: Spread, itl: Spread) -> list[Clause]:
    """The two clauses of the example's SLO, judged."""
    pairs = (("ttft_p99_ms", TTFT_LIMIT_MS, ttft), ("itl_p99_ms", ITL_LIMIT_MS, itl))
    return [clause(name, limit, each) for name, limit, each in pairs]


def clause(name: str, limit: float, metric: Spread) -> Clause:
    """One clause on a P99."""
    value, bounds = metric.p99, metric.interval.get("p99")
    held: Held = "unjudged" if value is None else "held" if value <= limit else "broken"
    low, high = bounds or (None, None)
    return Clause(name=name, limit=limit, value=value, low=low, high=high, held=held)


def metrics(load: float, due: int, failed: int) -> dict[str, Spread]:
    """All ten metrics of one level."""
    slow, n = queueing(load), due - failed
    itl = spread(200 * n, 11 + load / 6, 1.4 + slow / 12)
    return {
        "ttft_ms": spread(n, 42 * slow**0.7, 1.3 + slow / 7, failed),
        "itl_ms": itl,
        "gap_ms": spread(200 * n, 11 + load / 6, 1.6 + slow / 11, failed),
        "tpot_ms": spread(n - 3, 11.2 + load / 6, 1.2 + slow / 20, failed + 3),
        "e2e_ms": spread(n, 2300 + 34 * load, 1.9, failed),
        "lag_ms": spread(due, 0.05, 4.4),
        "ttfb_ms": spread(n, 40 * slow**0.7, 1.3 + slow / 8, failed),
        "ttfat_ms": spread(n, 42 * slow**0.7, 1.3 + slow / 7, failed),
        "connect_ms": spread(12, 0.31, 2.5, due - 12),
        "worst_gap_ms": spread(n, 19 + load / 4, 3.1, failed),
    }


def level(index: int, load: float, axis: Axis = "users", limited: bool = False) -> Level:
    """One level of the example: throughput saturates, latency does not."""
    running = load * 0.94
    in_flight = load * 0.99
    due = max(30, round(HOLD_S * load / (2.3 + load * 0.034)))
    failed = 0 if load < 60 else round(due * 0.012)
    measured = metrics(load, due, failed)
    judged = clauses(measured["ttft_ms"], measured["itl_ms"])
    broken = [each.name for each in judged if each.held == "broken"]
    held: Held = "unjudged" if limited else "broken" if broken else "held"
    why = (
        "client-limited: 6.0 % of token events were coalesced"
        if limited
        else "ttft_p99_ms is 1520, over the limit of 500"
        if broken
        else ""
    )
    rps = (due - failed) / HOLD_S
    return Level(
        index=index,
        load=load,
        axis=axis,
        hold_s=HOLD_S,
        due=due,
        offered_rps=due / HOLD_S,
        achieved_rps=rps,
        output_tps=rps * 197,
        input_tps=rps * 510,
        goodput_rps=rps * (0.41 if broken else 0.998),
        attainment=0.405 if broken else 0.998,
        error_share=failed / due,
        outcomes={"ok": due - failed, "timeout_total": failed // 2, "reset": failed - failed // 2},
        metrics=measured,
        tokens_per_event=1.0,
        in_flight=in_flight,
        time_in_system_s=in_flight / (due / HOLD_S) / 1.01,
        little=1.01,
        running=running,
        cost_per_million_output_tokens=2.5 / (rps * 197 * 3600) * 1e6,
        settled=not broken,
        settling="TTFT still rising: second half 1.8 × the first" if broken else "",
        client=client(load, limited),
        clauses=judged,
        held=held,
        why=why,
    )


def scenario(loop: Literal["closed", "open"] = "closed") -> Scenario:
    """A chat workload with two clauses."""
    return Scenario(
        name="chat-8b-knee",
        about="Short chats with log-normal lengths; where does P99 break?",
        target=Target(host="http://gpu-7.example:8000"),
        load=Load(loop=loop, ladder=Ladder(from_=1.0, to=96.0)),
        prompt_tokens=LogNormal(median=480, sigma=0.6, max=4000),
        output_tokens=LogNormal(median=190, sigma=0.4, max=1000),
        slo=Slo(ttft_p99_ms=TTFT_LIMIT_MS, itl_p99_ms=ITL_LIMIT_MS),
        seed=7,
        prices=Prices(per_hour=2.5),
    )


def header(loop: Literal["closed", "open"] = "closed") -> RunHeader:
    """What the example run was."""
    return RunHeader(
        run_id="20260921-141320-c0ffee",
        version="0.1.0",
        scenario=scenario(loop),
        host="http://gpu-7.example:8000",
        model="example/chat-8b-instruct",
        started_ns=STARTED_NS,
        workers=2,
        command="tokenswarm knee scenarios/chat.yaml --processes 2 --seed 7",
        machine={"python": "3.11.9", "kernel": "Linux 6.18", "cpu": "Example CPU, 16 cores"},
    )


def sample(request_id: int, load: float, index: int, stall_ms: float = 0.0) -> Sample:
    """One request: a first token, then 90 at an even pace that sways a little, with one stall if asked for."""
    first = 42 * queueing(load) ** 0.7 * (1 + 0.3 * (request_id % 3))
    step = 11 + load / 6
    events = [first + step * j + 2 * math.sin(j * (1 + request_id)) + (stall_ms if j > 40 else 0.0) for j in range(91)]
    return Sample(request_id=request_id, level=index, outcome="ok", events_ms=events, e2e_ms=events[-1])


def curve(metric: str, index: int, measured: Spread) -> Curve:
    """A rising curve through the median and P99 of a spread: waits of a log-logistic law."""
    p50, p99 = measured.p50 or 1.0, measured.p99 or 2.0
    shape = math.log(99) / math.log(p99 / p50)
    shares = [k / 100 for k in range(1, 100)]
    x = [p50 * (share / (1 - share)) ** (1 / shape) for share in shares]
    return Curve(metric=metric, level=index, x=x, share=shares)


def curves(levels: list[Level]) -> list[Curve]:
    """TTFT and ITL of every level that has them."""
    pairs = [(each, name) for each in levels for name in ("ttft_ms", "itl_ms") if name in each.metrics]
    measured = [(each, name) for each, name in pairs if each.metrics[name].n]
    return [curve(name, each.index, each.metrics[name]) for each, name in measured]


def ledger(levels: list[Level]) -> Ledger:
    """The sum of the levels, and some warm-up."""
    totals: dict[str, int] = {"ok": 212}
    for each in levels:
        for name, many in each.outcomes.items():
            totals[name] = totals.get(name, 0) + many
    return Ledger(due=sum(totals.values()), outcomes=totals, lost=0, balanced=True)


def stages(levels: list[Level]) -> list[Stage]:
    """Back to back: 5 s of warm-up, the hold, a minute to drain."""
    starts = [STARTED_NS + round(each.index * (5 + HOLD_S + 60) * S) for each in levels]
    hold_ns = round(HOLD_S * S)
    return [
        Stage(
            level=each.index,
            load=each.load,
            warmup_at_ns=at_ns,
            hold_at_ns=at_ns + 5 * S,
            end_at_ns=at_ns + 5 * S + hold_ns,
            drained_by_ns=at_ns + 65 * S + hold_ns,
            workers=2,
        )
        for each, at_ns in zip(levels, starts, strict=True)
    ]


def knee(levels: list[Level]) -> Knee:
    """The bracket of the example, from its own levels."""
    holds = max((each for each in levels if each.held == "held"), key=lambda each: each.load)
    breaks = min((each for each in levels if each.held == "broken"), key=lambda each: each.load)
    return Knee(
        found="bracket",
        axis=holds.axis,
        holds=holds.load,
        breaks=breaks.load,
        binding=breaks.why,
        holds_level=holds.index,
        breaks_level=breaks.index,
        output_tps=holds.output_tps,
        goodput_rps=holds.goodput_rps,
        running=holds.running,
        cost_per_million_output_tokens=holds.cost_per_million_output_tokens,
        probes=[each.index for each in levels],
        text=f"holds at {holds.load:g} {holds.axis}, breaks at {breaks.load:g} {breaks.axis}: {breaks.why}",
    )


def of_levels(levels: list[Level], loop: Literal["closed", "open"] = "closed") -> Report:
    """A report of these levels, without knee or samples."""
    return Report(
        header=header(loop),
        stages=stages(levels),
        levels=levels,
        laws=laws_of(levels),
        ledger=ledger(levels),
        verdict=Verdict(held="unjudged", text="an example judges nothing", exit_code=2),
        curves=curves(levels),
    )


def example(axis: Axis = "users") -> Report:
    """A search that doubled, halved the bracket twice, and once asked more than the client could give."""
    loads = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 96.0, 80.0, 72.0]
    levels = [level(index, load, axis, limited=load > 100) for index, load in enumerate(loads)]
    bracket = knee(levels)
    samples = [sample(100 * each.index + j, each.load, each.index) for each in levels[2:8:2] for j in range(3)]
    return replace(
        of_levels(levels, "open" if axis == "rate" else "closed"),
        knee=bracket,
        verdict=Verdict(held="held", text=bracket.text, exit_code=0),
        notes=["Wall and monotonic clock stayed within 0.1 ms of each other.", "No usage in 3 of 5000 answers."],
        samples=[*samples, sample(777, 64.0, 6, stall_ms=900.0)],
    )


def failed_level(each: Level) -> Level:
    """The same level, had every request been refused."""
    nothing = Spread(n=0, absent=each.due)
    return replace(
        each,
        achieved_rps=0.0,
        output_tps=0.0,
        input_tps=0.0,
        goodput_rps=0.0,
        attainment=0.0,
        error_share=1.0,
        outcomes={"refused": each.due},
        metrics=dict.fromkeys(each.metrics, nothing),
        tokens_per_event=None,
        running=0.0,
        cost_per_million_output_tokens=None,
        clauses=[replace(clause, value=None, low=None, high=None, held="unjudged") for clause in each.clauses],
        held="broken",
        why="no request succeeded",
    )


def unsure_level(each: Level) -> Level:
    """The same level with too few requests for any interval, and for any P99 of TPOT."""
    vague = {name: replace(was, interval={"p50": None, "p99": None}) for name, was in each.metrics.items()}
    vague["tpot_ms"] = replace(vague["tpot_ms"], p99=None)
    return replace(each, metrics=vague, clauses=[replace(was, low=None, high=None) for was in each.clauses])


def awkward() -> dict[str, Report]:
    """Reports that break renderings, by what is odd about them."""
    usual = example()
    few = usual.levels[:3]
    many = [level(index, 1.0 + 3 * index, limited=index > 26) for index in range(30)]
    return {
        "one level": of_levels(few[:1]),
        "no level": of_levels([]),
        "no knee": replace(usual, knee=None),
        "undecided": replace(usual, knee=Knee(found="undecided", axis="users")),
        "never broke": replace(usual, knee=Knee(found="none_up_to", axis="users", holds=64.0)),
        "broke at once": replace(usual, knee=Knee(found="breaks_at_first", axis="users", breaks=1.0)),
        "no success": of_levels([failed_level(each) for each in few]),
        "no interval": replace(usual, levels=[unsure_level(each) for each in usual.levels]),
        "no samples": replace(usual, samples=[], curves=[]),
        "30 levels": of_levels(many),
        "open loop": example("rate"),
        "nothing due": of_levels([bare(few[0])]),
        "hostile": hostile(usual),
    }


def bare(each: Level) -> Level:
    """Nothing was due, nothing measured."""
    idle = replace(each.client, lag_p99_ms=None, hub_delay_p99_ms=None, cpu=None, runnable=None, stamp_source="")
    return replace(
        each,
        due=0,
        metrics={},
        time_in_system_s=None,
        little=None,
        outcomes={},
        clauses=[],
        attainment=None,
        error_share=None,
        client=idle,
        held="unjudged",
    )


def hostile(usual: Report) -> Report:
    """Every text a stranger may choose says HOSTILE."""
    named = replace(usual.header.scenario, name=HOSTILE, about=HOSTILE)
    strange = replace(
        usual.header, scenario=named, host=HOSTILE, model=HOSTILE, command=HOSTILE, machine={HOSTILE: HOSTILE}
    )
    odd = [replace(each, why=HOSTILE, settling=HOSTILE, settled=False) for each in usual.levels]
    return replace(
        usual,
        header=strange,
        levels=odd,
        notes=[HOSTILE],
        verdict=replace(usual.verdict, text=HOSTILE),
        samples=[replace(each, outcome=HOSTILE) for each in usual.samples],
    )
