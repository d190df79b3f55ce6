"""Raw responses of real servers replay to what an independent reading of them says, in whatever cuts they arrive."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from harness.model import Arrival, Chunk, Outcome, Phase, RequestSpec
from harness.protocol.dialects import DIALECTS
from harness.protocol.exchange import Exchange, Terms

GOLDEN = Path(__file__).parent.parent / "golden"
CASES = sorted(str(path.relative_to(GOLDEN).with_suffix("")) for path in GOLDEN.glob("*/*.json"))
DIALECT_OF = {DIALECTS[name].path: name for name in DIALECTS}
RANDOM_CUTS = 1000


def case(name: str) -> tuple[dict[str, Any], bytes]:
    described = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    return described, (GOLDEN / f"{name}.bin").read_bytes()


def exchange(described: dict[str, Any]) -> Exchange:
    dialect = DIALECTS[DIALECT_OF[described["path"].split("?")[0]]]
    spec = RequestSpec(prompt="", prompt_tokens=1, output_tokens=1)
    arrival = Arrival(request_id=1, due_ns=0, level=0, phase=Phase.HOLD, slot=0, spec=spec)
    made = Exchange(arrival, Terms(dialect=dialect, stream=described["streaming"]))
    made.sent(0, None)
    return made


def replay(described: dict[str, Any], chunks: list[Chunk]) -> Exchange:
    talked = exchange(described)
    for chunk in chunks:
        talked.receive(chunk)
    last_ns = chunks[-1].at_ns if chunks else 0
    if described["end"] == "closed":
        talked.receive(Chunk(last_ns, b""))
    elif described["end"] == "reset":
        talked.fail(Outcome.RESET, "connection reset", last_ns)
    return talked


def in_pieces(stream: bytes, cuts: list[int]) -> list[Chunk]:
    """The stamp of a piece is the offset of its last byte."""
    ends = [*sorted(set(cuts) - {0, len(stream)}), len(stream)]
    return [Chunk(b - 1, stream[a:b]) for a, b in zip([0, *ends], ends, strict=False)]


def as_recorded(described: dict[str, Any], stream: bytes) -> list[Chunk]:
    chunks, at = [], 0
    for at_ns, size in described["recvs"]:
        if size > 0:
            chunks.append(Chunk(at_ns, stream[at : at + size], at_ns - 10_000_000))
            at += size
    assert at == len(stream)
    return chunks


def told(talked: Exchange) -> tuple[Any, ...]:
    """What must not depend on the cuts."""
    if not talked.over:
        return ("open", len(talked.timeline.at_ns))
    record = talked.record()
    k = list(record.timeline.k) if record.timeline.k else None
    events = len(record.timeline.at_ns)
    return (record.outcome, record.status, events, record.timeline.first_answer, record.finish_reason, record.usage, k)


@pytest.mark.parametrize("name", CASES)
def test_as_recorded(name: str) -> None:
    described, stream = case(name)
    expect = described["expect"]
    talked = replay(described, as_recorded(described, stream))
    assert list(talked.timeline.at_ns) == expect["at_ns"]
    assert talked.timeline.coalesced == expect["coalesced"]
    if expect["outcome"] == "open":
        assert not talked.over
        return
    record = talked.record()
    assert (record.outcome, record.status) == (expect["outcome"], expect["status"]), record.detail
    assert len(record.timeline.at_ns) == expect["token_events"]
    assert record.timeline.first_answer == expect["first_answer"]
    assert record.finish_reason == expect["finish_reason"]
    assert record.usage.prompt_tokens == expect["prompt_tokens"]
    assert record.usage.reasoning_tokens == expect["reasoning_tokens"]
    if expect["exact_tokens"]:
        assert list(record.timeline.k or ()) == expect["exact_tokens"]
    counted = sum(expect["exact_tokens"]) if expect["exact_tokens"] else None
    assert record.usage.completion_tokens in (expect["completion_tokens"], counted)


@pytest.mark.parametrize("name", CASES)
def test_any_cut(name: str) -> None:
    """Whole, byte by byte and in random cuts: the same record, each event stamped with its last byte's piece."""
    described, stream = case(name)
    single = replay(described, in_pieces(stream, list(range(len(stream)))))
    expected, ends = told(single), list(single.timeline.at_ns)
    assert told(replay(described, in_pieces(stream, []))) == expected
    rng = random.Random(name)
    for _ in range(RANDOM_CUTS):
        chunks = in_pieces(stream, rng.sample(range(1, len(stream)), min(8, len(stream) - 1)))
        talked = replay(described, chunks)
        assert told(talked) == expected
        pieces = iter(chunk.at_ns for chunk in chunks)
        piece = next(pieces)
        for event, end in zip(talked.timeline.at_ns, ends, strict=True):
            while piece < end:
                piece = next(pieces)
            assert event == piece
