"""Framing of server-sent events: any cut, any line end, and sseclient-py as an independent oracle."""

from itertools import pairwise

import pytest
import sseclient
from hypothesis import given
from hypothesis import strategies as st

from harness.protocol.sse import FrameError, Framer

TEXT = "\n\n".join(
    [
        'data: {"a": 1}',
        ": ping",
        "event: error\ndata: no",
        "id: 7\nretry: 10\ndata:x\ndata:  y é\U0001f980",
        "data: [DONE]",
        "",
    ]
)
EVENTS = [(b"", b'{"a": 1}'), (b"error", b"no"), (b"", "x\n y é\U0001f980".encode()), (b"", b"[DONE]")]


def framed(pieces: list[bytes]) -> list[tuple[bytes, bytes]]:
    return fed(Framer(), pieces)


def fed(framer: Framer, pieces: list[bytes]) -> list[tuple[bytes, bytes]]:
    return [event for piece in pieces for event in framer.feed(piece)]


def with_line_end(end: str) -> bytes:
    return TEXT.replace("\n", end).encode()


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_whole_and_byte_by_byte(end: str) -> None:
    stream = with_line_end(end)
    assert framed([stream]) == EVENTS
    assert framed([stream[i : i + 1] for i in range(len(stream))]) == EVENTS


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_next_event_glued_on(end: str) -> None:
    stream = with_line_end(end)
    assert framed([stream + stream]) == EVENTS + EVENTS


def test_cr_ends_the_event_at_once_and_a_late_lf_is_skipped() -> None:
    framer = Framer()
    assert list(framer.feed(b"data: a\r\r")) == [(b"", b"a")]
    assert list(framer.feed(b"\ndata: b\n\n")) == [(b"", b"b")]


def test_bom_is_taken_off_the_first_line_only() -> None:
    assert framed([b"\xef\xbb\xbfdata: a\n\n"]) == [(b"", b"a")]
    assert framed([b"\xef", b"\xbb", b"\xbfdata: a\n\n"]) == [(b"", b"a")]
    assert framed([b"data: a\n\n\xef\xbb\xbfdata: b\n\n"]) == [(b"", b"a")]


def test_spaces_are_content() -> None:
    assert framed([b"data:   \n\n"]) == [(b"", b"  ")]


def test_an_event_without_its_blank_line_is_not_an_event() -> None:
    assert framed([b"data: a\n"]) == []


@pytest.mark.parametrize("piece", [b"x" * 100, b"data: " + b"y" * 20 + b"\n"])
def test_an_endless_event_is_an_error_not_memory(piece: bytes) -> None:
    with pytest.raises(FrameError, match="over 1000 bytes"):
        fed(Framer(limit=1000), [piece] * 100)


@given(
    events=st.lists(st.text(st.characters(exclude_characters="\r\n\x00", codec="utf-8"), min_size=1), max_size=8),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    cuts=st.lists(st.integers(0, 400), max_size=30),
)
def test_any_cut_gives_the_same_events(events: list[str], end: str, cuts: list[int]) -> None:
    stream = "".join(f"data: {text}{end}{end}" for text in events).encode()
    at = [0, *sorted(cut for cut in cuts if cut < len(stream)), len(stream)]
    pieces = [stream[a:b] for a, b in pairwise(at)]
    assert framed(pieces) == framed([stream]) == [(b"", text.encode()) for text in events]


@given(st.lists(st.text(st.characters(codec="ascii", categories=["L", "N", "P", "Zs"]), min_size=1), max_size=6))
def test_sseclient_agrees_on_well_formed_streams(texts: list[str]) -> None:
    stream = "".join(f"data: {text}\n\n" for text in texts).encode()
    theirs = [event.data for event in sseclient.SSEClient(iter([stream])).events()]
    assert [data.decode() for _, data in framed([stream])] == theirs


@given(st.lists(st.binary(max_size=300), max_size=20))
def test_random_bytes_raise_nothing_else_and_keep_no_more_than_the_limit(pieces: list[bytes]) -> None:
    framer = Framer(limit=512)
    try:
        for piece in pieces:
            list(framer.feed(piece))
            assert len(framer._line) + framer._size <= 512
    except FrameError:
        pass
