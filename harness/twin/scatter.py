"""How what is measured scatters about what a twin says, metric by metric. Pure."""

from collections.abc import Sequence

from msgspec import Struct

from harness.twin.observed import Observation
from harness.twin.scatter_itl import GapScatter, gap_scatter
from harness.twin.scatter_tpot import RequestScatter, request_scatter
from harness.twin.server import Server


class Scatter(Struct, frozen=True, kw_only=True):
    """None: too little was measured to tell, and the twin's own word is taken. Of TTFT and E2E it always is: their
    tails are waits, which the twin has."""

    tpot: RequestScatter | None = None
    itl: GapScatter | None = None


EXACT = Scatter()
"""Whatever the twin says is what is measured."""


def scatter(server: Server, observations: Sequence[Observation]) -> Scatter:
    """The scatter of these levels about this server."""
    return Scatter(tpot=request_scatter(server, observations), itl=gap_scatter(server, observations))
