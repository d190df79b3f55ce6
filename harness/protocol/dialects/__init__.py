"""Dialects: how a request is written and a frame is read, per API. A dialect is two functions and a path; no classes.

To add one: a module with `PATH`, `request_body` and `parse_delta`, and its row here.
"""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from harness.model import Delta, RequestSpec, Scenario
from harness.protocol.dialects import openai_chat, openai_completions


class Dialect(Struct, frozen=True, kw_only=True):
    """`parse_delta` reads one frame of a stream, or a whole answer; it raises ValueError on nonsense."""

    path: str
    request_body: Callable[[Scenario, str, RequestSpec], dict[str, Any]]
    parse_delta: Callable[[bytes], Delta]
    markers: tuple[bytes, ...] = ()
    """What stands right before the text in a frame, for `refrain.py`."""


DIALECTS: dict[str, Dialect] = {
    "openai-chat": Dialect(
        path=openai_chat.PATH,
        request_body=openai_chat.request_body,
        parse_delta=openai_chat.parse_delta,
        markers=(b'"content":"', b'"content": "'),
    ),
    "openai-completions": Dialect(
        path=openai_completions.PATH,
        request_body=openai_completions.request_body,
        parse_delta=openai_completions.parse_delta,
        markers=(b'"text":"', b'"text": "'),
    ),
}
