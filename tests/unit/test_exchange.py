"""Every outcome of a response, from bytes alone."""

import json
import sys
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.model import Arrival, Chunk, Outcome, Phase, Record, RequestSpec
from harness.protocol.dialects import DIALECTS
from harness.protocol.exchange import DETAIL_BYTES, Exchange, Terms

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
DONE = b"data: [DONE]\n\n"
ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n'
FINISH = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}\n\n'
ERROR = b'data: {"error":{"message":"engine died","code":500}}\n\n'
END = b"0\r\n\r\n"
LONG_AGO = -10_000_000


def frame(**delta: object) -> bytes:
    return b"data: " + json.dumps({"choices": [{"index": 0, "delta": delta}]}).encode() + b"\n\n"


def chunked(*pieces: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)


def exchange(*, stream: bool = True, **terms: Any) -> Exchange:
    spec = RequestSpec(prompt="", prompt_tokens=3, output_tokens=2)
    arrival = Arrival(request_id=7, due_ns=0, level=2, phase=Phase.HOLD, slot=0, spec=spec)
    made = Exchange(arrival, Terms(**({"dialect": DIALECTS["openai-chat"], "stream": stream} | terms)))
    made.sent(0, None)
    return made


def judged(*reads: bytes, eof: bool = False, stream: bool = True) -> Record:
    talked = exchange(stream=stream)
    for at_ns, data in enumerate(reads, start=1):
        talked.receive(Chunk(at_ns, data, LONG_AGO))
    if eof:
        talked.receive(Chunk(len(reads) + 1, b""))
    assert talked.over
    return talked.record()


A, B = frame(content="a"), frame(content="b")


def answer(status: bytes, body: bytes, *headers: bytes) -> bytes:
    lines = b"".join(header + b"\r\n" for header in headers)
    return b"HTTP/1.1 %s\r\n%sContent-Length: %d\r\n\r\n%s" % (status, lines, len(body), body)


@pytest.mark.parametrize(
    ("reads", "eof", "outcome"),
    [
        ([HEAD, chunked(ROLE, A), chunked(B, FINISH, USAGE, DONE) + END], False, Outcome.OK),
        ([HEAD, chunked(A, FINISH) + END], False, Outcome.OK),
        ([HEAD, chunked(A, FINISH, DONE)], True, Outcome.OK),
        ([HEAD, chunked(A, FINISH)], True, Outcome.TRUNCATED),
        ([HEAD, chunked(A, DONE) + END], False, Outcome.TRUNCATED),
        ([HEAD, chunked(A)], True, Outcome.TRUNCATED),
        ([HEAD, chunked(A)[:-4]], True, Outcome.TRUNCATED),
        ([HEAD[:30]], True, Outcome.TRUNCATED),
        ([], True, Outcome.RESET),
        ([HEAD, chunked(ROLE, FINISH, DONE) + END], False, Outcome.EMPTY),
        ([HEAD, chunked(DONE) + END], False, Outcome.EMPTY),
        ([HEAD, END], False, Outcome.EMPTY),
        ([HEAD, chunked(ERROR, DONE) + END], False, Outcome.ERROR_IN_STREAM),
        ([HEAD, chunked(A, B, ERROR, DONE) + END], False, Outcome.ERROR_IN_STREAM),
        ([HEAD, chunked(A, b"event: error\ndata: {}\n\n") + END], False, Outcome.ERROR_IN_STREAM),
        ([HEAD, chunked(b"data: {nonsense\n\n")], False, Outcome.MALFORMED),
        ([HEAD, b"zz\r\n"], False, Outcome.MALFORMED),
        ([b"SSH-2.0-OpenSSH\r\n"], False, Outcome.MALFORMED),
        ([answer(b"200 OK", b"<html>", b"Content-Type: text/html")], False, Outcome.MALFORMED),
        ([answer(b"200 OK", b'{"error":{"message":"no"}}', b"Content-Type: application/json")], False,
         Outcome.ERROR_IN_STREAM),
        ([answer(b"200 OK", b'{"choices":[{"message":{"content":"hi"}}]}', b"Content-Type: application/json")], False,
         Outcome.MALFORMED),
        ([answer(b"404 Not Found", b"no such model")], False, Outcome.REFUSED),
        ([answer(b"500 Oops", b"")], False, Outcome.REFUSED),
        ([answer(b"302 Found", b"", b"Location: /login")], False, Outcome.REFUSED),
        ([answer(b"429 Slow", b"later", b"Retry-After: 3")], False, Outcome.RATE_LIMITED),
        ([answer(b"503 Busy", b"later", b"Retry-After: 3")], False, Outcome.RATE_LIMITED),
        ([answer(b"503 Busy", b"later")], False, Outcome.REFUSED),
        ([b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD, chunked(A, FINISH) + END], False, Outcome.OK),
        ([b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + A + FINISH + DONE], True, Outcome.OK),
    ],
)  # fmt: skip
def test_outcome(reads: list[bytes], eof: bool, outcome: Outcome) -> None:
    whole = judged(*reads, eof=eof)
    assert whole.outcome is outcome, whole.detail
    bytewise = judged(*[bytes([byte]) for read in reads for byte in read], eof=eof)
    assert (bytewise.outcome, bytewise.status, len(bytewise.timeline.at_ns)) == (
        whole.outcome,
        whole.status,
        len(whole.timeline.at_ns),
    )


def test_retry_after_is_kept_in_the_detail() -> None:
    assert judged(answer(b"429 Slow", b"later", b"Retry-After: 3")).detail == "Retry-After 3: later"


def test_only_content_counts_and_first_answer_is_not_reasoning() -> None:
    tool = frame(tool_calls=[{"function": {"arguments": "{"}}])
    record = judged(HEAD, chunked(ROLE), chunked(frame(reasoning_content="hm")), chunked(frame(reasoning="hm")),
                    chunked(tool), chunked(A), chunked(frame(content=None)), chunked(FINISH, USAGE) + END)  # fmt: skip
    assert list(record.timeline.at_ns) == [3, 4, 5, 6]
    assert record.timeline.first_answer == 3
    assert record.usage.completion_tokens == 2
    assert record.usage_source == "usage"


def test_headers_first_byte_and_end_have_their_own_stamps() -> None:
    record = judged(HEAD[:9], HEAD[9:], chunked(A), chunked(FINISH) + END)
    assert (record.first_byte_ns, record.headers_ns, record.end_ns) == (1, 2, 4)


def test_coalesced_counts_events_of_two_http_chunks_in_one_read() -> None:
    assert judged(HEAD, chunked(A, B, A), chunked(A, FINISH) + END).timeline.coalesced == 2


@pytest.mark.parametrize(("since_ns", "coalesced"), [(9_999_999, 0), (1, 1), (0, 1)])
def test_events_that_arrived_within_a_moment_are_not_coalesced(since_ns: int, coalesced: int) -> None:
    talked = exchange()
    talked.receive(Chunk(10_000_000, HEAD + chunked(A, B), since_ns))
    assert talked.timeline.coalesced == coalesced


def test_events_packed_into_one_http_chunk_by_the_server_are_not_coalesced() -> None:
    assert judged(HEAD, chunked(A + B + A, FINISH) + END).timeline.coalesced == 0


def test_cumulative_usage_in_every_frame_gives_exact_counts() -> None:
    def counted(text: str, total: int) -> bytes:
        body = {"choices": [{"index": 0, "delta": {"content": text}}], "usage": {"completion_tokens": total}}
        return b"data: " + json.dumps(body).encode() + b"\n\n"

    record = judged(HEAD, chunked(counted("a", 1)), chunked(counted("bcd", 4)), chunked(FINISH) + END)
    assert list(record.timeline.k or ()) == [1, 3]


def test_usage_only_in_the_last_token_frame_says_nothing_of_the_others() -> None:
    last = b'data: {"choices":[{"delta":{"content":"b"},"finish_reason":"stop"}],"usage":{"completion_tokens":9}}\n\n'
    record = judged(HEAD, chunked(A), chunked(last) + END)
    assert record.timeline.k is None
    assert record.usage.completion_tokens == 9


def test_absent_usage_is_none_not_zero() -> None:
    record = judged(HEAD, chunked(A, FINISH) + END)
    assert record.usage.completion_tokens is None
    assert record.usage_source == ""


def test_an_unstreamed_answer_has_no_events_but_usage() -> None:
    body = b'{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}],"usage":{"completion_tokens":5}}'
    record = judged(answer(b"200 OK", body, b"Content-Type: application/json"), stream=False)
    assert (record.outcome, record.usage.completion_tokens, len(record.timeline.at_ns)) == (Outcome.OK, 5, 0)


def test_a_stream_left_open_after_done_is_whole() -> None:
    talked = exchange()
    talked.receive(Chunk(1, HEAD + chunked(A, FINISH, DONE)))
    assert not talked.over
    talked.fail(Outcome.TIMEOUT_BETWEEN_TOKENS, "left open", 5)
    assert talked.record().outcome is Outcome.OK


def test_fail_ends_with_the_outcome_the_wire_saw() -> None:
    talked = exchange()
    talked.receive(Chunk(1, HEAD + chunked(A)))
    talked.fail(Outcome.TIMEOUT_TOTAL, "over 1 s", 5)
    talked.receive(Chunk(6, chunked(B)))
    record = talked.record()
    assert (record.outcome, record.end_ns, len(record.timeline.at_ns)) == (Outcome.TIMEOUT_TOTAL, 5, 1)


def test_a_retry_starts_afresh_and_is_recorded() -> None:
    talked = exchange()
    talked.sent(50, 9)
    talked.receive(Chunk(60, HEAD + chunked(A, FINISH) + END))
    record = talked.record()
    assert (record.retried, record.start_ns, record.connect_ns, record.due_ns) == (True, 50, 9, 0)


def test_an_echoed_key_is_blotted_out_and_details_are_short() -> None:
    talked = exchange(secret="sk-secret-1")
    talked.receive(Chunk(1, answer(b"401 No", b"bad key sk-secret-1 " + b"x" * 5000)))
    detail = talked.record().detail
    assert "sk-secret-1" not in detail
    assert "***" in detail
    assert len(detail) <= DETAIL_BYTES


def test_a_response_over_the_limit_is_malformed() -> None:
    talked = exchange(max_response_bytes=500)
    talked.receive(Chunk(1, HEAD))
    for at_ns in range(2, 20):
        talked.receive(Chunk(at_ns, chunked(A)))
    assert talked.over
    assert talked.record().outcome is Outcome.MALFORMED


def test_endlessly_nested_json_is_malformed() -> None:
    nested = b'data: {"x": ' + b"[" * 100_000 + b"\n\n"
    assert judged(HEAD, chunked(nested)).outcome is Outcome.MALFORMED


def test_two_prompts_start_with_a_null_frame() -> None:
    assert judged(HEAD, chunked(b"data: null\n\n", A, FINISH) + END).outcome is Outcome.OK


TEXTS = st.one_of(
    st.sampled_from([" a", "b", "", '"', "\\", "\n", "}", '"content":"', "é", "\U0001f980", "\r\n", "data: "]),
    st.text(max_size=6),
)


@settings(max_examples=200)
@given(st.lists(TEXTS, max_size=12), st.lists(st.integers(0, 2000), max_size=6), st.booleans())
def test_frames_known_by_their_bytes_say_what_parsing_says(texts: list[str], cuts: list[int], compact: bool) -> None:
    """`refrain.py` may only save time: with and without it, the same record from the same reads."""
    separators = (",", ":") if compact else (", ", ": ")
    frames = [
        b"data: " + json.dumps({"choices": [{"index": 0, "delta": {"content": text}}]}, separators=separators,
                               ensure_ascii=False).encode() + b"\n\n"
        for text in texts
    ]  # fmt: skip
    pieces = [HEAD, *[chunked(one) for one in frames], chunked(FINISH) + END]
    stream = b"".join(pieces)
    ends = sorted({sum(len(piece) for piece in pieces[:n]) for n in range(1, len(pieces) + 1)} | set(cuts))
    ends = [end for end in ends if 0 < end <= len(stream)]
    records = []
    for dialect in (DIALECTS["openai-chat"], msgspec.structs.replace(DIALECTS["openai-chat"], markers=())):
        talked = exchange(dialect=dialect)
        for at_ns, (a, b) in enumerate(zip([0, *ends], ends, strict=False), start=1):
            talked.receive(Chunk(at_ns, stream[a:b], LONG_AGO))
        records.append(talked.record())
    assert records[0] == records[1]
    assert len(records[0].timeline.at_ns) == sum(bool(text) for text in texts)


def test_a_stream_of_like_frames_is_known_by_its_bytes() -> None:
    talked = exchange()
    for at_ns, data in enumerate([HEAD, chunked(A), chunked(B)]):
        talked.receive(Chunk(at_ns, data))
    assert talked.refrain is not None
    assert talked.refrain.took(5, chunked(frame(content="plain")))
    for other in (frame(content='qu"ote'), frame(content=""), frame(reasoning="plain"), FINISH):
        assert not talked.refrain.took(6, chunked(other))
    assert list(talked.timeline.at_ns) == [1, 2, 5]


@settings(max_examples=300)
@given(st.lists(st.one_of(st.binary(max_size=200), st.sampled_from([HEAD, chunked(A), A, FINISH, END, b"\r\n"]))))
def test_random_bytes_end_in_an_outcome_and_nothing_else(reads: list[bytes]) -> None:
    talked = exchange(max_response_bytes=100_000)
    for at_ns, data in enumerate(reads):
        talked.receive(Chunk(at_ns, data))
    talked.receive(Chunk(len(reads), b""))
    assert talked.over
    assert isinstance(talked.record().outcome, Outcome)


def test_what_is_released_is_held_by_nobody_but_its_exchange() -> None:
    """Parser and callbacks hold each other: left alone, only a collector would free a finished stream."""
    done = exchange()
    done.sent(1, None)
    done.receive(Chunk(at_ns=2, data=HEAD + chunked(b"data: " + frame(content="a") + b"\n\n"), since_ns=0))
    done.fail(Outcome.RESET, "gone", 3)
    record, response = done.record(), done.response
    assert sys.getrefcount(response) > 3
    done.release()
    assert sys.getrefcount(response) == 3  # this name, the exchange, and the argument just now
    assert done.record() == record
