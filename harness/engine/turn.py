"""One accepted request and how it is to be answered. No clock, no I/O."""

from array import array
from collections.abc import Callable

from msgspec import Struct

from harness.engine.asks import Ask
from harness.engine.faults import Fault
from harness.engine.truth import Told


class Turn(Struct, frozen=True, kw_only=True):
    """A request that was accepted, its number, and what shall be wrong with its answer."""

    number: int
    model: str
    ask: Ask
    fault: Fault
    received_ns: int

    def told(self) -> Told:
        """Its account, still empty."""
        return Told(
            number=self.number,
            received_ns=self.received_ns,
            prompt_tokens=self.ask.prompt_tokens,
            output_tokens=self.ask.output_tokens,
            sent_ns=array("q"),
            tokens=array("q"),
        )


class Stage(Struct, frozen=True, kw_only=True):
    """What an answer may call: `over` when it is (exactly once), `freeze` to stop the engine for some seconds."""

    over: Callable[[Told], None]
    freeze: Callable[[float], None]
