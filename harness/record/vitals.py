"""What a serving engine says of itself at one instant: a row of the log kind `server`. No clock, no I/O."""

from msgspec import Struct


class Vitals(Struct, frozen=True, kw_only=True):
    """One look at the metrics of one server, all its replicas and models together.

    None: the server does not tell. A `_total` counts since the server started; one that falls says that it started
    again. Of the two prefix counts only the quotient can be compared between engines: most count tokens, some blocks.
    """

    at_ns: int
    """Arrival of the last byte of the answer."""
    level: int = -1
    """Index of the level under way; -1: whoever looked did not know."""
    server: str
    """host:port of the page."""
    running: float | None = None
    """Requests in the batch."""
    waiting: float | None = None
    """Requests in the server's own queue."""
    kv_usage: float | None = None
    """Share of the fullest KV cache in use, 0 … 1."""
    preemptions_total: float | None = None
    """Requests that lost their context to others and had to compute it again."""
    prompt_tokens_total: float | None = None
    """Prompt tokens taken in, those found in a cache included where the server tells them."""
    generation_tokens_total: float | None = None
    prefix_queries_total: float | None = None
    """Tokens (or blocks) looked up in the prefix cache."""
    prefix_hits_total: float | None = None
    """Of these, found."""
    queue_s_total: float | None = None
    """Seconds that requests waited in the server's queue, all together."""
    dequeued_total: float | None = None
    """Requests whose wait `queue_s_total` holds: the quotient of two differences is the mean wait."""


TOLD = tuple(name for name in Vitals.__struct_fields__ if name not in ("at_ns", "level", "server"))
"""What a server may tell, in the order of the columns."""
