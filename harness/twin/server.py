"""What the twin believes a server is: a handful of numbers, most of them a line from batch size to step time. Pure."""

from bisect import bisect_right

from msgspec import Struct

from harness.engine.profile import KvCache, Profile, StepTime
from harness.model import Count, NotNegative, Positive

BLOCK = 16
MODEL_LEN = 2**24
"""Tokens of context a twin's sequence may have: more than any request asks for."""
FLOOR_S = 1e-6
"""No step is shorter; the engine's profile has the same floor."""


class Server(Struct, frozen=True, kw_only=True):
    """A continuous-batching server with memory without limit, no prefix cache and no speculation.

    A step of b sequences takes τ(b) + per_prefill_token · prefill tokens + per_kv_token · tokens of context, in ms.
    Raises ValueError for knots that do not rise, fewer than two of them, or fewer tokens a step than sequences.
    """

    knots: tuple[tuple[Count, Positive], ...]
    """τ: points (sequences in the batch, ms), linear in between and carried on beyond both ends."""
    per_prefill_token_ms: NotNegative = 0.0
    per_kv_token_ms: NotNegative = 0.0
    constant_ms: NotNegative = 0.0
    """Added to the time to first token of every request: network, frontend, tokeniser."""
    max_num_seqs: Count
    max_num_batched_tokens: Count

    def __post_init__(self) -> None:
        batches = [batch for batch, _ in self.knots]
        if len(batches) < 2 or batches != sorted(set(batches)):
            raise ValueError(f"server: knots at batches {batches}: expected two or more, rising")
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError(
                f"server: max_num_batched_tokens {self.max_num_batched_tokens} < max_num_seqs {self.max_num_seqs}: "
                "every sequence needs room for one token a step; raise the first or lower the second"
            )

    def tau_s(self, batch: int) -> float:
        """Seconds of a step of so many sequences, without prefill and context. Never below 1 µs."""
        right = min(max(bisect_right(self.knots, (batch, float("inf"))), 1), len(self.knots) - 1)
        (x0, y0), (x1, y1) = self.knots[right - 1], self.knots[right]
        return max(FLOOR_S, (y0 + (y1 - y0) * (batch - x0) / (x1 - x0)) / 1e3)

    def profile(self, name: str = "twin") -> Profile:
        """The same server for the reference engine, which knows no `constant_ms`; its memory never runs out."""
        return Profile(
            name=name,
            source="fitted by the twin to measured levels",
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=self.max_num_batched_tokens,
            max_model_len=MODEL_LEN,
            step=StepTime(
                curve=list(self.knots),
                per_prefill_token_ms=self.per_prefill_token_ms,
                per_kv_token_ms=self.per_kv_token_ms,
            ),
            kv=KvCache(block_size=BLOCK, num_blocks=self.max_num_seqs * (MODEL_LEN // BLOCK)),
        )
