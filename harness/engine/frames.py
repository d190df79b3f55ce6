"""Answers as bytes: the frames and bodies of /v1/chat/completions and /v1/completions as vLLM shapes them. No I/O."""

import msgspec
from msgspec import Struct

from harness.engine.asks import Dialect

DONE = b"data: [DONE]\n\n"
COMMENT = b": keep-alive\n\n"
LAST_CHUNK = b"0\r\n\r\n"
HTML_PAGE = b"<!DOCTYPE html>\n<html><head><title>Please wait</title></head><body>One moment.</body></html>\n"

_SENTENCE = (
    b"the river turned slowly under a pale bridge while two lamps burned above quiet water and nobody on either bank "
    b"counted how many boats had passed since morning because rain kept falling on empty streets where only wind moved"
)
WORDS = [b" " + word for word in _SENTENCE.split()]
"""Token i of an answer is word i, over and over; all are plain ASCII, so they need no JSON escapes."""


class Shape(Struct, frozen=True, kw_only=True):
    """What differs between the two dialects."""

    id_prefix: str
    object: str
    before: bytes
    """From the choice's beginning to the text."""
    after: bytes
    """From the text to the choice's end, in mid-answer."""
    after_last: bytes
    role: bytes
    """The choice of the frame before the first token; empty: there is none."""
    whole_object: str


SHAPES: dict[Dialect, Shape] = {
    "chat": Shape(
        id_prefix="chatcmpl-",
        object="chat.completion.chunk",
        before=b'{"index":0,"delta":{"content":"',
        after=b'"},"logprobs":null,"finish_reason":null,"token_ids":null}',
        after_last=b'"},"logprobs":null,"finish_reason":"length","stop_reason":null,"token_ids":null}',
        role=b'{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}',
        whole_object="chat.completion",
    ),
    "completions": Shape(
        id_prefix="cmpl-",
        object="text_completion",
        before=b'{"index":0,"text":"',
        after=b'","logprobs":null,"finish_reason":null,"stop_reason":null,"prompt_token_ids":null,"token_ids":null}',
        after_last=(
            b'","logprobs":null,"finish_reason":"length","stop_reason":null,"prompt_token_ids":null,"token_ids":null}'
        ),
        role=b"",
        whole_object="text_completion",
    ),
}


def words(start: int, count: int) -> bytes:
    """The text of `count` tokens from token `start` of an answer; the answer's first has no space before it."""
    if count == 1:
        text = WORDS[start % len(WORDS)]
    else:
        text = b"".join(WORDS[i % len(WORDS)] for i in range(start, start + count))
    return text if start else text[1:]


def usage(prompt_tokens: int, completion_tokens: int) -> bytes:
    """The field `,"usage":{…}` to put behind the choices."""
    total = prompt_tokens + completion_tokens
    return b',"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d}' % (
        prompt_tokens,
        total,
        completion_tokens,
    )


NULL_USAGE = b',"usage":null'


class Frames:
    """The frames of one streamed answer, as SSE events with LF line ends."""

    def __init__(self, dialect: Dialect, number: int, model: str, created_s: int) -> None:
        self._shape = SHAPES[dialect]
        self._head = b'data: {"id":"%s%016x","object":"%s","created":%d,"model":%s,"choices":[' % (
            self._shape.id_prefix.encode(),
            number,
            self._shape.object.encode(),
            created_s,
            msgspec.json.encode(model),
        )
        self._before = self._head + self._shape.before
        self._after = self._shape.after + b"]}\n\n"

    def role(self, extra: bytes = b"") -> bytes:
        """The role-only frame before the first token; empty in a dialect without one."""
        if not self._shape.role:
            return b""
        return self._head + self._shape.role + b"]" + extra + b"}\n\n"

    def content(self, text: bytes, extra: bytes = b"") -> bytes:
        """A frame of text in mid-answer. `extra` is a field with its leading comma."""
        if not extra:
            return self._before + text + self._after
        return self._before + text + self._shape.after + b"]" + extra + b"}\n\n"

    def last(self, text: bytes, extra: bytes = b"") -> bytes:
        """The frame with the finish reason and the last text, which may be empty."""
        return self._before + text + self._shape.after_last + b"]" + extra + b"}\n\n"

    def usage(self, field: bytes) -> bytes:
        """The frame without choices that carries the usage."""
        return self._head + b"]" + field + b"}\n\n"


def whole(dialect: Dialect, number: int, model: str, *, created_s: int, counts: tuple[int, int]) -> bytes:
    """The body of an answer that is not streamed; counts are (prompt tokens, completion tokens)."""
    shape = SHAPES[dialect]
    prompt_tokens, completion_tokens = counts
    text = words(0, completion_tokens).decode()
    content = {"message": {"role": "assistant", "content": text}} if dialect == "chat" else {"text": text}
    return msgspec.json.encode(
        {
            "id": f"{shape.id_prefix}{number:016x}",
            "object": shape.whole_object,
            "created": created_s,
            "model": model,
            "choices": [{"index": 0, **content, "logprobs": None, "finish_reason": "length", "stop_reason": None}],
            "usage": {
                "prompt_tokens": prompt_tokens,
                "total_tokens": prompt_tokens + completion_tokens,
                "completion_tokens": completion_tokens,
            },
        }
    )


def chunk(event: bytes) -> bytes:
    """One HTTP chunk."""
    return b"%x\r\n%b\r\n" % (len(event), event)
