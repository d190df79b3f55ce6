"""Departures from a correct answer, on demand. No clock, no I/O.

A request asks for one with `"tokenswarm_fault": {…}` or `"tokenswarm_fault": "name"` (a row of FAULTS); the server can
give one to every n-th request. Fields combine: CR LF line ends and a cut after ten tokens is one fault.
"""

from difflib import get_close_matches
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from harness.model import Count, NotNegative, Positive

Break = Literal["stall", "freeze", "cut", "rst", "error", "endless_line"]


class Fault(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is wrong with one answer; the default is nothing. Only the first block concerns answers without stream."""

    status: Annotated[int, Meta(ge=400, le=599)] | None = None
    """Refuse with this status, in the usual error shape."""
    retry_after_s: Count | None = None
    """Retry-After header of that refusal."""
    html: bool = False
    """A proxy's HTML page with status 200."""
    headers_after_s: NotNegative = 0.0
    """Nothing at all is sent before this long after the request."""

    breaks: Break | None = None
    """Happens before the first frame that follows `after_tokens` tokens.

    stall: this answer is held back for `seconds`, then what has gathered is sent at once. freeze: the whole engine
    stops for `seconds`. cut: closed without an end. rst: reset. error: an error frame, then [DONE], as vLLM does.
    endless_line: `data: xxxx…` until the client leaves.
    """
    after_tokens: Annotated[int, Meta(ge=0)] = 0
    seconds: Positive = 1.0

    line_end: Literal["lf", "crlf", "cr"] = "lf"
    usage: Literal["asked", "none", "finish", "cumulative", "null"] = "asked"
    """asked: a frame of its own if the request wants it. finish: in the last content frame. cumulative: in every
    frame. null: the field is there and empty."""
    tokens_per_frame: Count = 1
    """The first frame carries one token, each later one this many (a stream interval)."""
    comment_every_s: Positive | None = None
    """Comment lines while waiting for the first token."""
    done: bool = True
    """False: no [DONE]."""
    content: bool = True
    """False: role frame, finish frame, nothing between."""
    only_done: bool = False
    """[DONE] instead of the answer."""


NO_FAULT = Fault()

FAULTS: dict[str, Fault] = {
    "stall": Fault(breaks="stall", after_tokens=3),
    "freeze": Fault(breaks="freeze", after_tokens=3),
    "cut": Fault(breaks="cut", after_tokens=3),
    "rst": Fault(breaks="rst", after_tokens=3),
    "error-first": Fault(breaks="error"),
    "error-later": Fault(breaks="error", after_tokens=3),
    "endless-line": Fault(breaks="endless_line", after_tokens=3),
    "429": Fault(status=429, retry_after_s=1),
    "503": Fault(status=503),
    "500": Fault(status=500),
    "html": Fault(html=True),
    "slow-headers": Fault(headers_after_s=1.0),
    "role-only": Fault(content=False),
    "only-done": Fault(only_done=True),
    "no-done": Fault(done=False),
    "usage-none": Fault(usage="none"),
    "usage-finish": Fault(usage="finish"),
    "usage-cumulative": Fault(usage="cumulative"),
    "usage-null": Fault(usage="null"),
    "crlf": Fault(line_end="crlf"),
    "cr": Fault(line_end="cr"),
    "comments": Fault(comment_every_s=1.0),
    "interval": Fault(tokens_per_frame=8),
}


def fault(wanted: Any) -> Fault:
    """A fault from a row's name or from fields, as they stand in JSON or YAML. Raises ValueError in one line."""
    if isinstance(wanted, str):
        if wanted in FAULTS:
            return FAULTS[wanted]
        near = get_close_matches(wanted, FAULTS, n=2, cutoff=0.4) or sorted(FAULTS)
        raise ValueError(f"fault {wanted!r} is not known: did you mean {' or '.join(near)}?")
    try:
        return msgspec.convert(wanted, Fault)
    except msgspec.ValidationError as error:
        raise ValueError(f"fault: {error}") from None
