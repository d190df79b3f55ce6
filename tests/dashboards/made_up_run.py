"""Line protocol of a run that never was, with every measurement the dashboards read: for tests of queries. Pure.

Numbers are plausible, not true: the batch holds twelve streams, further users wait.
"""

import json
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from random import Random
from typing import NamedTuple

from harness.schema import BOUNDS_US

S, MS, US = 1_000_000_000, 1_000_000, 1_000
BATCH = 12
SLO_TTFT_MS, SLO_ITL_MS = 40.0, 45.0


class Made(NamedTuple):
    """What kind of run: each load is a level of `hold_s`, its users spread over the workers."""

    run: str
    scenario: str
    started_ns: int
    loads: tuple[int, ...] = (4, 12, 24)
    hold_s: int = 4
    tokens: int = 12
    workers: int = 2
    seed: int = 1


class Sent(NamedTuple):
    """One made-up request."""

    request: int
    level: int
    worker: int
    slot: int
    due_ns: int
    at_ns: list[int]
    ok: bool

    @property
    def ttft_ms(self) -> float:
        return (self.at_ns[0] - self.due_ns) / MS

    @property
    def worst_ms(self) -> float:
        return max((late - soon) / MS for soon, late in zip(self.at_ns, self.at_ns[1:], strict=False))

    @property
    def class_name(self) -> str:
        return ("chat", "code (long)")[self.slot % 2]

    @property
    def place(self) -> str:
        return f"class={escaped(self.class_name)},level={self.level},worker={self.worker},slot={self.slot}"


def escaped(tag: str) -> str:
    """A tag's value as line protocol writes it."""
    return tag.replace(",", r"\,").replace("=", r"\=").replace(" ", r"\ ")


def quantile(values: list[float], share: float) -> float:
    """Nearest rank, of sorted values."""
    return values[min(len(values) - 1, int(share * len(values)))]


def requests(made: Made) -> Iterator[Sent]:
    """Every slot sends one request after the other for as long as its level is held."""
    random, number = Random(made.seed), 0
    for level, load in enumerate(made.loads):
        begin_ns = made.started_ns + level * made.hold_s * S
        for user in range(load):
            at = begin_ns + user * 500 * US
            while at < begin_ns + made.hold_s * S:
                wait_ms = 8 + max(0, load - BATCH) * 6
                times = [at + int(random.uniform(0.8, 1.4) * wait_ms * MS)]
                for _ in range(made.tokens - 1):
                    times.append(times[-1] + int(random.uniform(9, 9 + min(load, BATCH)) * MS))
                number += 1
                yield Sent(number, level, user % made.workers, user // made.workers, at, times, number % 40 != 0)
                at = times[-1] + MS


def lines(made: Made) -> Iterator[str]:
    """All of the run's points."""
    sent = list(requests(made))
    for one in sent:
        yield request_line(made, one)
        yield from token_lines(made, one)
    yield from second_lines(made, sent)
    yield from rim_lines(made)
    yield from event_lines(made)


def key(measurement: str, made: Made) -> str:
    """Begin of each line."""
    return f"{measurement},run={escaped(made.run)},scenario={escaped(made.scenario)}"


def request_line(made: Made, one: Sent) -> str:
    """Scalars of one request."""
    tpot_ms = (one.at_ns[-1] - one.at_ns[0]) / MS / (len(one.at_ns) - 1)
    good = one.ok and one.ttft_ms <= SLO_TTFT_MS
    return (
        f"{key('request', made)},{one.place} "
        f'request={one.request}i,phase="hold",outcome="{"ok" if one.ok else "reset"}",ok={one.ok:d}i,good={good:d}i,'
        f"lag_ms={0.1 + one.slot / 100},ttft_ms={one.ttft_ms},tpot_ms={tpot_ms},"
        f"e2e_ms={(one.at_ns[-1] - one.due_ns) / MS},worst_gap_ms={one.worst_ms},"
        f"tokens={len(one.at_ns)}.0,events={len(one.at_ns)}i {one.due_ns}"
    )


def token_lines(made: Made, one: Sent) -> Iterator[str]:
    """One point a token."""
    begin = f"{key('token', made)},{one.place} request={one.request}i,index="
    before = one.due_ns
    for index, at in enumerate(one.at_ns):
        yield f"{begin}{index}i,gap_us={(at - before) // US}i,k=1i {at}"
        before = at


def second_lines(made: Made, sent: Iterable[Sent]) -> Iterator[str]:
    """One point a second, class and level."""
    ttfts, gaps, counts = defaultdict(list), defaultdict(list), defaultdict(lambda: defaultdict(int))
    for one in sent:
        group = (one.class_name, one.level)
        counts[one.due_ns // S, *group]["due"] += 1
        end = counts[one.at_ns[-1] // S, *group]
        end["ok" if one.ok else "failed"] += 1
        end["good"] += one.ok and one.ttft_ms <= SLO_TTFT_MS
        end["outcome_reset"] += not one.ok
        ttfts[one.at_ns[0] // S, *group].append(one.ttft_ms)
        for soon, late in zip(one.at_ns, one.at_ns[1:], strict=False):
            gaps[late // S, *group].append((late - soon) / MS)
    for place in sorted(counts.keys() | ttfts.keys() | gaps.keys()):
        yield second_line(made, place, counts[place], (sorted(ttfts[place]), sorted(gaps[place])))


def second_line(
    made: Made, place: tuple[int, str, int], counts: dict[str, int], measured: tuple[list[float], list[float]]
) -> str:
    """Counts, quantiles, buckets and the SLO of one second."""
    second, class_name, level = place
    fields = [f"{name}={counts[name]}i" for name in ("due", "ok", "failed", "good")]
    fields += [f"outcome_reset={counts['outcome_reset']}i"] if counts["outcome_reset"] else []
    for name, bucket, values in zip(("ttft", "itl"), ("ttft", "gap"), measured, strict=True):
        if values:
            fields += [f"{name}_p50_ms={quantile(values, 0.5)}", f"{name}_p99_ms={quantile(values, 0.99)}"]
            fields += [f"{bucket}_le_{bound}={count}i" for bound, count in buckets(values).items()]
    tokens = sum(map(len, measured))
    load = made.loads[level]
    fields += [f"tokens={tokens}.0", f"events={tokens}i", f"load={load}.0", f"in_flight={load / 2}"]
    fields += [f"running={min(load, BATCH) / 2}", f"slo_ttft_p99_ms={SLO_TTFT_MS}", f"slo_itl_p99_ms={SLO_ITL_MS}"]
    return f"{key('second', made)},class={escaped(class_name)},level={level} {','.join(fields)} {second * S}"


def buckets(values_ms: list[float]) -> dict[int, int]:
    """How many values lie in the bucket that ends at a bound in µs."""
    found: dict[int, int] = defaultdict(int)
    for value in values_ms:
        found[BOUNDS_US[bisect_left(BOUNDS_US, value * 1000)]] += 1
    return found


def rim_lines(made: Made) -> Iterator[str]:
    """Each second of the engine and of every worker."""
    for number in range(len(made.loads) * made.hold_s):
        level = number // made.hold_s
        load, at = made.loads[level], made.started_ns + number * S + 10 * MS
        running = min(load, BATCH)
        yield (
            f"{key('engine', made)},level={level},server=engine:8000 running={running}.0,waiting={load - running}.0,"
            f"kv_usage={running / 20},preemptions_total={number // 3}.0,generation_tokens_total={number * 900}.0 {at}"
        )
        for worker in range(made.workers):
            yield (
                f"{key('client', made)},level={level},worker={worker} span_ns={S}i,cpu={load / 60},runnable=0.02,"
                f"stolen=0.01,hub_delay_ns={2 * MS + number}i,lag_ns={MS // 2}i,due={number * 10}i,ended={number * 9}i,"
                f"in_flight={load // made.workers}i,token_events=450i,coalesced={number % 3}i,"
                f"wall_minus_mono_ns={1_700_000_000 * S + number * 100}i {at + worker}"
            )


def event_lines(made: Made) -> Iterator[str]:
    """The run, its levels, its knee and its verdict."""
    start, end = made.started_ns, made.started_ns + len(made.loads) * made.hold_s * S
    marks = [("run", f"Run {made.run}", start, "")]
    for level, load in enumerate(made.loads):
        at = start + level * made.hold_s * S
        marks.append(("stage", f"Level {level}: {load} users", at, f",end_ns={at + made.hold_s * S}i"))
    marks += [("knee", "12 users hold, 24 break", end, ""), ("verdict", "The SLO breaks above 12 users", end, "")]
    for kind, title, at, more in marks:
        value = json.dumps(json.dumps({"kind": kind}))
        yield f'{key("event", made)},kind={kind} title="{title}",value={value}{more} {at}'
