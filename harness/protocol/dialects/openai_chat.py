"""OpenAI chat completions: POST /v1/chat/completions. No clock, no I/O."""

from typing import Any

import msgspec
from msgspec import Struct

from harness.model import ANSWER, Delta, RequestSpec, Scenario
from harness.protocol.dialects.openai import Body, Choice, Said, decoded, delta_of, generation_fields, with_body_fields

PATH = "/v1/chat/completions"


class _Function(Struct, frozen=True, gc=False):
    name: str | None = None
    arguments: str | None = None


class _ToolCall(Struct, frozen=True, gc=False):
    function: _Function | None = None


class _Message(Struct, frozen=True, gc=False):
    content: Any = None
    reasoning_content: str | None = None
    reasoning: Any = None
    tool_calls: list[_ToolCall] | None = None


class _Choice(Choice, frozen=True, gc=False):
    delta: _Message | None = None
    message: _Message | None = None


_decode = msgspec.json.Decoder(Body[_Choice] | None).decode


def request_body(scenario: Scenario, model: str, spec: RequestSpec) -> dict[str, Any]:
    """The JSON body of one request; `target.body` wins over everything."""
    messages = [{"role": "user", "content": spec.prompt}]
    return with_body_fields({"messages": messages} | generation_fields(scenario, model, spec), scenario)


def parse_delta(data: bytes) -> Delta:
    """One frame of a stream, or a whole answer. Raises ValueError when it is not a JSON object of the dialect."""
    body = decoded(_decode, data)
    if len(body.choices) == 1 and body.usage is None and body.error is None and _is_plain(body.choices[0]):
        return ANSWER
    return delta_of(body, _said(body))


def _is_plain(choice: _Choice) -> bool:
    """Answer text and nothing else."""
    message = choice.delta
    return (
        message is not None
        and bool(message.content)
        and choice.finish_reason is None
        and choice.token_ids is None
        and message.reasoning_content is None
        and message.reasoning is None
        and message.tool_calls is None
    )


def _said(body: Body[_Choice]) -> Said:
    messages = [choice.delta or choice.message or _Message() for choice in body.choices]
    return Said(
        answer=any(bool(message.content) for message in messages),
        reasoning=any(bool(message.reasoning_content or message.reasoning) for message in messages),
        tool=any(_has_tool(message) for message in messages),
    )


def _has_tool(message: _Message) -> bool:
    calls = message.tool_calls or []
    return any(call.function and (call.function.name or call.function.arguments) for call in calls)
