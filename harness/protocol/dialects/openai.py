"""What the two OpenAI dialects share: sampling fields, usage, errors. No clock, no I/O."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from harness.model import Delta, RequestSpec, Scenario, Usage


class TokenDetails(Struct, frozen=True, gc=False):
    """`usage.completion_tokens_details` and `usage.prompt_tokens_details`."""

    reasoning_tokens: int | None = None
    cached_tokens: int | None = None


class WireUsage(Struct, frozen=True, gc=False):
    """`usage` as servers send it."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    reasoning_tokens: int | None = None
    completion_tokens_details: TokenDetails | None = None
    prompt_tokens_details: TokenDetails | None = None

    def plain(self) -> Usage:
        """In our terms."""
        out, inp = self.completion_tokens_details, self.prompt_tokens_details
        reasoning = out.reasoning_tokens if out else None
        return Usage(
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.completion_tokens,
            reasoning_tokens=self.reasoning_tokens if reasoning is None else reasoning,
            cached_tokens=inp.cached_tokens if inp else None,
        )


class Choice(Struct, frozen=True, gc=False):
    """What a choice of a frame says in both dialects."""

    index: int = 0
    finish_reason: str | None = None
    token_ids: list[int] | None = None


SomeChoice = TypeVar("SomeChoice", bound=Choice)


class Body(Struct, Generic[SomeChoice], frozen=True, gc=False):
    """One frame of a stream, or a whole answer."""

    choices: list[SomeChoice] = []
    usage: WireUsage | None = None
    error: Any = None
    detail: Any = None


class Said(Struct, frozen=True, kw_only=True, gc=False):
    """Which kinds of text a frame carries."""

    answer: bool
    reasoning: bool = False
    tool: bool = False


def delta_of(body: Body[Any], said: Said) -> Delta:
    """A frame in our terms; the finish reason is the first choice's."""
    stated = [len(choice.token_ids) for choice in body.choices if choice.token_ids is not None]
    finishes = [choice.finish_reason for choice in body.choices if choice.finish_reason and choice.index == 0]
    error = body.error if body.error is not None else (body.detail if not body.choices else None)
    return Delta(
        answer=said.answer,
        reasoning=said.reasoning,
        tool=said.tool,
        tokens=sum(stated) if stated else None,
        usage=body.usage.plain() if body.usage else None,
        finish=finishes[-1] if finishes else None,
        error=error_text(error) if error is not None else None,
    )


def generation_fields(scenario: Scenario, model: str, spec: RequestSpec) -> dict[str, Any]:
    """The request fields both dialects have."""
    fields: dict[str, Any] = {"model": model, "max_tokens": spec.output_tokens, "stream": scenario.target.stream}
    if scenario.target.stream:
        fields["stream_options"] = {"include_usage": True}
    if scenario.ignore_eos:
        fields["ignore_eos"] = True
    return fields


def with_body_fields(ours: dict[str, Any], scenario: Scenario) -> dict[str, Any]:
    """`target.body` wins over our fields; null there leaves a field out."""
    return {name: value for name, value in (ours | scenario.target.body).items() if value is not None}


def decoded(decode: Callable[[bytes], Body[SomeChoice] | None], data: bytes) -> Body[SomeChoice]:
    """A frame; `null`, which some servers send first, says nothing. Raises ValueError with a short reason."""
    try:
        return decode(data) or Body()
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(str(error)) from None


def error_text(error: Any) -> str:
    """The readable part of an error object of any shape; "" when there is none."""
    if isinstance(error, dict):
        return str(error.get("message") or error)
    return "" if error is None else str(error)
