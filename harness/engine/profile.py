"""What an engine is: its limits and how long its steps take. Reads the YAML files beside it; otherwise pure."""

from bisect import bisect_right
from difflib import get_close_matches
from pathlib import Path

import msgspec
import yaml
from msgspec import Struct

from harness.model import Count, NotNegative, Positive, Share

_FOLDER = Path(__file__).parent / "profiles"


class StepTime(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One step takes τ(batch) + per_prefill_token · prefill tokens + per_kv_token · tokens of context, in ms.

    τ is `base_ms + per_sequence_ms · batch`, or a line from point to point of `curve`, carried on beyond its ends.
    """

    base_ms: NotNegative | None = None
    per_sequence_ms: NotNegative = 0.0
    curve: list[tuple[Count, Positive]] | None = None
    """Points (sequences in the batch, ms), the batch rising; instead of `base_ms`."""
    per_prefill_token_ms: NotNegative = 0.0
    per_kv_token_ms: NotNegative = 0.0

    def __post_init__(self) -> None:
        if (self.base_ms is None) == (self.curve is None):
            raise ValueError("step: give either base_ms (with per_sequence_ms) or curve")
        if self.base_ms is not None and self.base_ms + self.per_sequence_ms <= 0:
            raise ValueError("step: base_ms + per_sequence_ms must be over 0")
        if self.curve is not None:
            batches = [batch for batch, _ in self.curve]
            if len(batches) < 2 or batches != sorted(set(batches)):
                raise ValueError("step: curve needs two points or more, the batch rising")

    def tau_s(self, batch: int) -> float:
        """Seconds for a step of this many sequences, without prefill and context. Never below 1 µs."""
        if self.base_ms is not None:
            return max(1e-6, (self.base_ms + self.per_sequence_ms * batch) / 1e3)
        curve = self.curve or []
        right = min(max(bisect_right(curve, (batch, float("inf"))), 1), len(curve) - 1)
        (x0, y0), (x1, y1) = curve[right - 1], curve[right]
        return max(1e-6, (y0 + (y1 - y0) * (batch - x0) / (x1 - x0)) / 1e3)


class KvCache(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Memory for context, in blocks of tokens."""

    block_size: Count = 16
    num_blocks: Count
    prefix_cache: bool = False
    """Full blocks of prompts stay for later prompts that begin alike."""


class Speculation(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Each decode proposes `draft_tokens`; each is accepted with this chance while all before it were."""

    draft_tokens: Count
    acceptance: Share
    draft_ms: NotNegative = 0.0
    """Added to every step that verifies drafts."""


class Profile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An engine's scheduler limits, memory and step time."""

    name: str
    source: str
    """Where the numbers come from."""
    max_num_seqs: Count
    max_num_batched_tokens: Count
    max_model_len: Count
    step: StepTime
    kv: KvCache
    speculation: Speculation | None = None

    def __post_init__(self) -> None:
        if not self.source.strip():
            raise ValueError("source: say where the numbers come from")
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError(
                f"max_num_batched_tokens {self.max_num_batched_tokens} < max_num_seqs {self.max_num_seqs}: "
                "every sequence needs room for one token a step"
            )
        room = self.kv.block_size * self.kv.num_blocks
        if room < self.max_model_len:
            raise ValueError(f"kv: room for {room} tokens < max_model_len {self.max_model_len}: one prompt must fit")


def names() -> list[str]:
    """The profiles that come with the project, sorted."""
    return sorted(path.stem for path in _FOLDER.glob("*.yaml"))


def load(name_or_path: str) -> Profile:
    """A profile by name, or from a file when the text ends in .yaml. Raises ValueError in one clear line."""
    path = Path(name_or_path) if name_or_path.endswith((".yaml", ".yml")) else _FOLDER / f"{name_or_path}.yaml"
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(_unknown(name_or_path, error)) from None
    return parse(text, origin=name_or_path)


def parse(text: str, *, origin: str) -> Profile:
    """A profile from YAML text, strictly: unknown fields, wrong types and impossible sizes are ValueErrors."""
    try:
        return msgspec.convert(yaml.safe_load(text), Profile)
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise ValueError(f"engine profile {origin}: {' '.join(str(error).split())}") from None


def _unknown(name: str, error: OSError) -> str:
    if name.endswith((".yaml", ".yml")):
        return f"engine profile {name}: {error.strerror}"
    near = get_close_matches(name, names(), n=2, cutoff=0.4) or names()
    return f"engine profile {name!r} is not known: did you mean {' or '.join(near)}? (a path must end in .yaml)"
