"""What one look at a server brought: Vitals, or why not. No clock, no I/O."""

from msgspec import Struct
from msgspec.structs import replace

from harness.record.log import Vitals
from harness.scrape.fold import told
from harness.scrape.vocabulary import TABLE

GOES_ON = "; the run goes on without server metrics"
NOT_TEXT = ("application/json", "text/html")
KEY_WANTED = {401, 403}
PASSING = {408, 425, 429}
"""What a server says when it is busy, as it does with 5xx."""
NO_PAGE = {404, 405, 410, 501}


class Answer(Struct, frozen=True, kw_only=True):
    """An HTTP answer as it came."""

    url: str
    server: str
    """host:port."""
    status: int
    at_ns: int
    """Arrival of its last byte."""
    content_type: str = ""
    location: str = ""
    text: str = ""


class Trouble(Struct, frozen=True, kw_only=True):
    """Why there are no Vitals, in one line."""

    text: str
    final: bool
    """Looking again is of no use."""


def vitals(answer: Answer) -> Vitals | Trouble:
    """What the page says, or what is wrong with it."""
    if answer.status != 200:
        return _refused(answer)
    kind = answer.content_type.partition(";")[0].strip().lower()
    if kind in NOT_TEXT:
        where = "trtllm-serve has it at /prometheus/metrics, Triton on port 8002"
        return Trouble(text=f"{answer.url}: got {kind}, expected Prometheus text; {where}{GOES_ON}", final=True)
    try:
        values = told(answer.text)
    except ValueError as error:
        return Trouble(text=f"{answer.url}: not Prometheus text: {error}; still trying", final=False)
    if not values:
        return Trouble(text=f"{answer.url}: tells nothing of {', '.join(TABLE)}; still trying", final=False)
    return replace(Vitals(at_ns=answer.at_ns, server=answer.server), **values)


def _refused(answer: Answer) -> Trouble:
    said = f"{answer.url}: answered {answer.status}"
    if answer.status in KEY_WANTED:
        key = "it wants a key: name the environment variable that holds it with --api-key-env"
        return Trouble(text=f"{said}: {key}{GOES_ON}", final=True)
    if answer.status in NO_PAGE:
        remedy = "SGLang serves them with --enable-metrics, llama.cpp with --metrics"
        return Trouble(text=f"{said}: there are no metrics; {remedy}{GOES_ON}", final=True)
    if 300 <= answer.status < 400:
        return Trouble(text=f"{said} to {answer.location!r}: give that address{GOES_ON}", final=True)
    if answer.status >= 500 or answer.status in PASSING:
        return Trouble(text=f"{said}; still trying", final=False)
    return Trouble(text=f"{said}{GOES_ON}", final=True)
