"""What the doctor has seen: the way to the server, its list of models, looks at its answers. No clock, no I/O."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from msgspec import Struct, structs

from harness.doctor.anatomy import Anatomy
from harness.model import Fixed, Load, Outcome, Record, RequestSpec, Scenario, Target

PROMPT = "Count from one to twenty in words."
PROMPT_WORDS = 7
MAX_RESPONSE_BYTES = 1 << 20

Step = Literal["name", "tcp", "proxy", "tls"]
Bond = Literal["fresh", "kept", "dropped"]
"""kept: the connection of the look before. dropped: that one turned out closed, and a fresh one was used."""


class ProxyRefused(OSError):
    """The proxy answered CONNECT with something else than 200. The message is its status line."""


@dataclass(slots=True, kw_only=True)
class Way:
    """How a connection came about. Mutable: filled in as far as it gets. None: not reached, or not needed."""

    step: Step = "name"
    """The step under way, or the last one."""
    error: OSError | ValueError | None = None
    """Why that step failed; None: connected."""
    addresses: int = 0
    address: str = ""
    """The numeric address that answered, or the last one tried."""
    resolve_ns: int | None = None
    tcp_ns: int | None = None
    tunnel_ns: int | None = None
    tls_ns: int | None = None
    tls_version: str = ""
    certificate: Mapping[str, Any] = field(default_factory=dict)
    """As `getpeercert` gives it: empty unless it was verified."""
    kernel_stamps: bool = False
    """The kernel agreed to stamp what arrives."""

    @property
    def connect_ns(self) -> int:
        """All steps together."""
        return sum(took or 0 for took in (self.resolve_ns, self.tcp_ns, self.tunnel_ns, self.tls_ns))


class Listing(Struct, frozen=True, kw_only=True):
    """What /v1/models said. `names` is None when that was no list of models."""

    status: int | None = None
    names: list[str] | None = None
    detail: str = ""


class Question(Struct, frozen=True, kw_only=True):
    """What one look asks for."""

    target: Target
    model: str
    tokens: int
    ignore_eos: bool = True
    """Strict servers refuse fields they do not know, and this is one."""

    @property
    def scenario(self) -> Scenario:
        """The scenario of which this is the only request."""
        return Scenario(
            name="doctor",
            target=structs.replace(self.target, stream=True, max_response_bytes=MAX_RESPONSE_BYTES),
            load=Load(loop="closed", levels=[1]),
            prompt_tokens=Fixed(tokens=PROMPT_WORDS),
            output_tokens=Fixed(tokens=self.tokens),
            ignore_eos=self.ignore_eos,
        )

    @property
    def spec(self) -> RequestSpec:
        """That request."""
        return RequestSpec(prompt=PROMPT, prompt_tokens=PROMPT_WORDS, output_tokens=self.tokens)


class Look(Struct, frozen=True, kw_only=True):
    """One request and all that came back."""

    question: Question
    record: Record
    headers: Mapping[str, str]
    anatomy: Anatomy
    done: bool
    """[DONE] was seen."""
    ended: Literal["whole", "closed", "open"]
    """whole: the HTTP message had its end. closed: it ended with the connection. open: it was given up."""
    begins: bytes
    """The first bytes of the response."""
    line: Bond
    keeps: bool
    """The server offered to keep the connection."""

    @property
    def ok(self) -> bool:
        """Answered as a run would want it."""
        return self.record.outcome is Outcome.OK

    @property
    def dialect(self) -> str:
        """Name of the dialect that was spoken."""
        return self.question.target.dialect
