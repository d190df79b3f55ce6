"""OpenAI completions: POST /v1/completions. No clock, no I/O."""

from typing import Any

import msgspec
from msgspec import Struct

from harness.model import ANSWER, Delta, RequestSpec, Scenario
from harness.protocol.dialects.openai import WireUsage, decoded, error_text, generation_fields, with_body_fields

PATH = "/v1/completions"


class _Choice(Struct, frozen=True, gc=False):
    index: int = 0
    text: str | None = None
    finish_reason: str | None = None
    token_ids: list[int] | None = None


class _Body(Struct, frozen=True, gc=False):
    choices: list[_Choice] = []
    usage: WireUsage | None = None
    error: Any = None
    detail: Any = None


_BODY = msgspec.json.Decoder(_Body | None)
_SILENT = Delta()


def request_body(scenario: Scenario, model: str, spec: RequestSpec) -> dict[str, Any]:
    """The JSON body of one request; `target.body` wins over everything."""
    return with_body_fields({"prompt": spec.prompt} | generation_fields(scenario, model, spec), scenario)


def parse_delta(data: bytes) -> Delta:
    """One frame of a stream. Raises ValueError when it is not a JSON object of the dialect."""
    body = decoded(_BODY, data)
    if body is None:
        return _SILENT
    if len(body.choices) == 1 and body.usage is None and body.error is None:
        choice = body.choices[0]
        if choice.text and choice.finish_reason is None and choice.token_ids is None:
            return ANSWER
    return _delta(body)


def parse_answer(data: bytes) -> Delta:
    """A whole, unstreamed answer: the same shape as a frame."""
    return parse_delta(data)


def _delta(body: _Body) -> Delta:
    stated = [len(choice.token_ids) for choice in body.choices if choice.token_ids is not None]
    finishes = [choice.finish_reason for choice in body.choices if choice.finish_reason and choice.index == 0]
    error = body.error if body.error is not None else (body.detail if not body.choices else None)
    return Delta(
        answer=any(bool(choice.text) for choice in body.choices),
        tokens=sum(stated) if stated else None,
        usage=body.usage.plain() if body.usage else None,
        finish=finishes[-1] if finishes else None,
        error=error_text(error) if error is not None else None,
    )
