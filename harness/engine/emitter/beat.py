"""When the known emitter owes its tokens. No clock, no I/O."""

from typing import Annotated

from msgspec import Meta, Struct

MOST_TOKENS = 100_000  # the number of a token has five digits


class Beat(Struct, frozen=True, kw_only=True):
    """When tokens are due and how many there are. `tokens` holds for requests that do not say `max_tokens`."""

    first_ms: Annotated[float, Meta(ge=0)] = 50.0
    gap_ms: Annotated[float, Meta(ge=0)] = 20.0
    tokens: Annotated[int, Meta(ge=1)] = 100
    tokens_cap: Annotated[int, Meta(ge=1, le=MOST_TOKENS)] = 16_384
    """No stream is longer, whatever its request asks for."""
