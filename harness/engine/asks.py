"""Request bodies read, refusals written, in vLLM's shapes. No clock, no I/O.

A prompt's tokens are its whitespace words, plus a few for the chat template. A job always generates as many tokens as
were asked for: nothing here knows an end-of-sequence token, so `ignore_eos` is accepted and changes nothing.
"""

from typing import Any, Literal

import msgspec
from msgspec import Struct

from harness.engine.faults import Fault, fault

CHAT_OVERHEAD_TOKENS = 4
"""Per message, for what a chat template adds; its role is one of them."""
DEFAULT_OUTPUT_TOKENS = 16
"""When the request names no number (the default of OpenAI's completions)."""

Dialect = Literal["chat", "completions"]


class Refusal(Exception):
    """A request that gets an error instead of an answer."""

    def __init__(self, status: int, message: str, *, kind: str = "BadRequestError", param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.body = error_body(status, message, kind=kind, param=param)


class _Part(Struct):
    text: str = ""


class _Message(Struct):
    role: str
    content: str | list[_Part] | None = None

    def words(self) -> list[str]:
        if isinstance(self.content, list):
            return [word for part in self.content for word in part.text.split()]
        return (self.content or "").split()


class _StreamOptions(Struct):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class _Body(Struct):
    model: str | None = None
    messages: list[_Message] | None = None
    prompt: Any = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    ignore_eos: bool | None = None
    temperature: float | None = None
    n: int | None = None
    tokenswarm_fault: Any = None


_DECODER = msgspec.json.Decoder(_Body)


class Ask(Struct, frozen=True, kw_only=True):
    """What a request asks for, checked."""

    dialect: Dialect
    words: list[str] | list[int]
    prompt_tokens: int
    output_tokens: int
    stream: bool
    include_usage: bool
    continuous_usage: bool
    fault: Fault | None


def ask(dialect: Dialect, data: bytes, *, model: str, max_model_len: int) -> Ask:
    """The request body as an Ask. Raises Refusal on anything vLLM would refuse that can be told from here."""
    body = _decoded(data)
    if body.model not in (None, model):
        message = f"The model `{body.model}` does not exist. Valid aliases: {model}."
        raise Refusal(404, message, kind="NotFoundError", param="model")
    if (body.n or 1) != 1:
        raise Refusal(400, f"n={body.n} is not supported: this engine gives one answer a request.", param="n")
    words, prompt_tokens = _prompt(dialect, body)
    output_tokens = _output_tokens(body, prompt_tokens, max_model_len)
    options = body.stream_options or _StreamOptions()
    return Ask(
        dialect=dialect,
        words=words,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        stream=bool(body.stream),
        include_usage=bool(options.include_usage),
        continuous_usage=bool(options.include_usage and options.continuous_usage_stats),
        fault=_fault(body.tokenswarm_fault),
    )


def error_body(status: int, message: str, *, kind: str, param: str | None = None) -> bytes:
    """`{"error": {message, type, param, code}}`, as vLLM writes it."""
    return msgspec.json.encode({"error": {"message": message, "type": kind, "param": param, "code": status}})


def _decoded(data: bytes) -> _Body:
    try:
        return _DECODER.decode(data)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$.")
        param = "body." + where.rstrip("`") if where else "body"
        raise Refusal(400, f"1 validation error: {what} ({param})", kind="Bad Request", param=param) from None
    except msgspec.DecodeError as error:
        raise Refusal(
            400, f"1 validation error: JSON decode error: {error}", kind="Bad Request", param="body"
        ) from None


def _prompt(dialect: Dialect, body: _Body) -> tuple[list[str] | list[int], int]:
    """Words to hash for the prefix cache, and the number of prompt tokens."""
    field = "messages" if dialect == "chat" else "prompt"
    if getattr(body, field) is None:
        raise Refusal(400, f"1 validation error: Field required ({field})", kind="Bad Request", param=f"body.{field}")
    if dialect == "chat":
        words = [word for message in body.messages or [] for word in (message.role, *message.words())]
        messages = len(body.messages or [])
        return words, max(1, len(words) + messages * (CHAT_OVERHEAD_TOKENS - 1))
    match body.prompt:
        case str(text) | [str(text)]:
            words = text.split()
            return words, max(1, len(words))
        case [int(), *_] as ids if all(type(token) is int for token in ids):
            return ids, len(ids)
    raise Refusal(400, "prompt must be one text or one list of token ids.", param="prompt")


def _output_tokens(body: _Body, prompt_tokens: int, max_model_len: int) -> int:
    limit = f"maximum context length is {max_model_len} tokens"
    if prompt_tokens >= max_model_len:
        message = f"This model's {limit}. However, your prompt contains {prompt_tokens} input tokens."
        raise Refusal(400, message, param="input_tokens")
    wanted = body.max_completion_tokens if body.max_completion_tokens is not None else body.max_tokens
    if wanted is None:
        return min(DEFAULT_OUTPUT_TOKENS, max_model_len - prompt_tokens)
    if wanted < 1:
        raise Refusal(400, f"max_tokens must be at least 1, got {wanted}.", param="max_tokens")
    if prompt_tokens + wanted > max_model_len:
        message = (
            f"This model's {limit}. However, you asked for {wanted} output tokens on {prompt_tokens} input tokens."
        )
        raise Refusal(400, message, param="max_tokens")
    return wanted


def _fault(wanted: Any) -> Fault | None:
    if wanted is None:
        return None
    try:
        return fault(wanted)
    except ValueError as error:
        raise Refusal(400, str(error), param="tokenswarm_fault") from None
