"""What the two OpenAI dialects share: sampling fields, usage, errors. No clock, no I/O."""

from typing import Any

import msgspec
from msgspec import Struct

from harness.model import RequestSpec, Scenario, Usage


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


def decoded(decoder: "msgspec.json.Decoder[Any]", data: bytes) -> Any:
    """`data` as the decoder's type. Raises ValueError with a short reason when it is not that."""
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(str(error)) from None


def error_text(error: Any) -> str:
    """The readable part of an error object of any shape; "" when there is none."""
    if isinstance(error, dict):
        return str(error.get("message") or error)
    return "" if error is None else str(error)
