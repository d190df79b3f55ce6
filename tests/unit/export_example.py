"""A run to export: its header, records as hypothesis makes them, and tables of them. Pure."""

from array import array

import pyarrow as pa
from hypothesis import strategies as st

from harness.model import (
    Fixed,
    Load,
    Outcome,
    Phase,
    Record,
    RunHeader,
    Scenario,
    Slo,
    Stage,
    Timeline,
    Usage,
)
from harness.record.columns import RECORDS, records_batch

S = 1_000_000_000
MS = 1_000_000
T0_NS = 1_760_000_000 * S
SLO = Slo(ttft_p50_ms=100.0, ttft_p99_ms=400.0, itl_p90_ms=30.0007, tpot_p99_ms=25.0, e2e_p95_ms=900.0)


def header(loop: str = "open", run_id: str = "r,1 x", scenario: str = "demo") -> RunHeader:
    load = Load(loop=loop, levels=[4.0])
    asked = Scenario(name=scenario, load=load, slo=SLO, prompt_tokens=Fixed(tokens=5), output_tokens=Fixed(tokens=5))
    return RunHeader(run_id=run_id, version="0", scenario=asked, host="http://h", model="m/1", started_ns=T0_NS)


def stage(level: int, at_s: int = 0) -> Stage:
    at_ns = T0_NS + at_s * S
    instants = {
        "warmup_at_ns": at_ns,
        "hold_at_ns": at_ns + S,
        "end_at_ns": at_ns + 5 * S,
        "drained_by_ns": at_ns + 7 * S,
    }
    return Stage(level=level, load=4.0 + level, **instants)


def table(records: list[Record]) -> pa.Table:
    """As the log would give them back: stamps to the microsecond."""
    return pa.Table.from_batches([records_batch(records)], RECORDS)


nasty = st.text(st.sampled_from(list('a,= "\\\n\r\té😀\x00#')), max_size=6)
counts = st.none() | st.integers(0, 2**31 - 1)


@st.composite
def some_records(draw: st.DrawFn, most: int = 4) -> list[Record]:
    """Requests with any texts, any outcome, with and without a start, tokens, usage and exact counts."""
    numbers = draw(st.lists(st.integers(0, 50), max_size=most, unique=True))
    return [draw(a_record(number)) for number in numbers]


@st.composite
def a_record(draw: st.DrawFn, number: int) -> Record:
    due_ns = T0_NS + number * 50 * MS + draw(st.integers(0, 40 * MS))
    start_ns = draw(st.none() | st.integers(due_ns, due_ns + 3 * MS))
    line, last_ns = (Timeline(), due_ns) if start_ns is None else draw(timelines(start_ns))
    end_ns = draw(st.none() | st.integers(last_ns, last_ns + 2 * S))
    sent = st.none() if start_ns is None else st.none() | st.integers(start_ns, start_ns + MS)
    counted = st.none() if start_ns is None else st.none() | st.integers(0, 40)
    return Record(
        request_id=(draw(st.integers(0, 2)) << 40) + number,
        worker=draw(st.integers(0, 2)),
        slot=number,
        level=draw(st.integers(0, 1)),
        phase=draw(st.sampled_from(Phase)),
        request_class=draw(nasty),
        due_ns=due_ns,
        start_ns=start_ns,
        headers_ns=draw(sent),
        first_byte_ns=draw(sent),
        end_ns=end_ns,
        connect_ns=draw(st.none() | st.integers(0, 10 * MS)),
        outcome=draw(st.sampled_from([Outcome.OK, Outcome.OK, *Outcome])),
        detail=draw(nasty),
        status=draw(st.none() | st.integers(100, 599)),
        retried=draw(st.booleans()),
        stamp_source=draw(st.sampled_from(["kernel", "user", ""])),
        timeline=line,
        finish_reason=draw(nasty),
        prompt_tokens_asked=draw(st.integers(0, 10**6)),
        output_tokens_asked=draw(st.integers(0, 10**6)),
        usage=Usage(prompt_tokens=draw(counts), completion_tokens=draw(counted), cached_tokens=draw(counts)),
        usage_source=draw(st.sampled_from(["usage", "frames", ""])),
        response_bytes=draw(st.integers(0, 2**40)),
    )


@st.composite
def timelines(draw: st.DrawFn, start_ns: int) -> tuple[Timeline, int]:
    """Token events of a request and the instant of the last: several in a microsecond, and seconds without one."""
    gaps = st.sampled_from([0, 0, 1, 999, 1000, 20 * MS, 31 * MS]) | st.integers(0, 3 * S)
    at_ns = array("q")
    for gap_ns in draw(st.lists(gaps, max_size=6)):
        at_ns.append((at_ns[-1] if at_ns else start_ns) + gap_ns)
    stated = draw(st.none() | st.lists(st.integers(1, 9), min_size=len(at_ns), max_size=len(at_ns)))
    k = None if stated is None else array("q", stated)
    answer = draw(st.none() | st.integers(0, len(at_ns) - 1)) if at_ns else None
    return Timeline(at_ns=at_ns, k=k, first_answer=answer), at_ns[-1] if at_ns else start_ns
