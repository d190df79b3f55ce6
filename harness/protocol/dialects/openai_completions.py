"""OpenAI completions: POST /v1/completions. No clock, no I/O."""

from typing import Any

import msgspec

from harness.model import ANSWER, Delta, RequestSpec, Scenario
from harness.protocol.dialects.openai import Body, Choice, Said, decoded, delta_of, generation_fields, with_body_fields

PATH = "/v1/completions"


class _Choice(Choice, frozen=True, gc=False):
    text: str | None = None


_decode = msgspec.json.Decoder(Body[_Choice] | None).decode


def request_body(scenario: Scenario, model: str, spec: RequestSpec) -> dict[str, Any]:
    """The JSON body of one request; `target.body` wins over everything."""
    return with_body_fields({"prompt": spec.prompt} | generation_fields(scenario, model, spec), scenario)


def parse_delta(data: bytes) -> Delta:
    """One frame of a stream, or a whole answer. Raises ValueError when it is not a JSON object of the dialect."""
    body = decoded(_decode, data)
    if len(body.choices) == 1 and body.usage is None and body.error is None:
        choice = body.choices[0]
        if choice.text and choice.finish_reason is None and choice.token_ids is None:
            return ANSWER
    return delta_of(body, Said(answer=any(bool(choice.text) for choice in body.choices)))
