"""What a server carries at each size of its batch, which setting is best, where another clause binds. No clock, no I/O.

`BatchMap` is the document `map.json`; its fields are documented here. Within one `schema_version` fields may be added,
none is renamed, removed or given another meaning. null means "not known"; 0 is a figure.
"""

from collections.abc import Collection, Sequence
from itertools import groupby, pairwise
from typing import Literal

from msgspec import Struct

from harness.findings import Verdict
from harness.model import Count, Json, Slo

Objective = Literal["rate", "goodput", "cost"]
How = Literal["measured", "observed", "predicted", "plateau"]
Bound = Literal["first token", "between tokens", "whole answer", ""]
KINDS: dict[str, Bound] = {
    "ttft": "first token",
    "itl": "between tokens",
    "tpot": "between tokens",
    "tps": "between tokens",
    "e2e": "whole answer",
}
"""What a clause speaks of, by how its name begins; any other says nothing of the batch."""
ALIKE = 0.02
"""Settings whose value is within this share of the best are equally good: then the smallest batch is."""


class Setting(Struct, frozen=True, kw_only=True, order=True):
    """Limits that a server is started with."""

    max_num_seqs: Count
    """Sequences in its batch."""
    max_num_batched_tokens: Count
    """Tokens it computes a step."""

    @property
    def name(self) -> str:
        """Of its run directory."""
        return f"seqs-{self.max_num_seqs}-tokens-{self.max_num_batched_tokens}"


class Figures(Struct, frozen=True, kw_only=True):
    """A setting at its knee."""

    load: float | None = None
    """Users, or requests a second; 0: the SLO breaks at any load."""
    low: float | None = None
    high: float | None = None
    """Method twin: the 95 % interval. bracket: the load that held and the one that broke; high None: none broke."""
    binding: str = ""
    """The clause that breaks first, as in the scenario; `saturation` where none does."""
    rps: float | None = None
    """Requests a second answered."""
    output_tps: float | None = None
    goodput_rps: float | None = None
    """Of those, within every clause."""
    cost_per_million_output_tokens: float | None = None
    batch_p50: float | None = None
    batch_p95: float | None = None
    """Running batch by the server's own metrics, seen each second; of a prediction P50 is the twin's."""
    batch_p99: float | None = None
    batch_p999: float | None = None
    """Running batch by the twin, over time."""


class Cell(Struct, frozen=True, kw_only=True):
    """One setting of the map."""

    setting: Setting
    how: How
    """measured: a search of its own. observed: a search on a server that nobody restarted. predicted: by a twin that
    was fitted at a larger setting. plateau: a larger batch never filled this one, so both are one experiment."""
    figures: Figures
    predicted: Figures | None = None
    """Of a measured setting: what the twin had said before."""
    run: str = ""
    """Run directory below the map's: of its own search, or of the one that stands for it."""
    text: str = ""

    @property
    def off(self) -> float | None:
        """Predicted / measured load − 1; None where there are not both."""
        if self.predicted is None or not self.predicted.load or not self.figures.load:
            return None
        return self.predicted.load / self.figures.load - 1


class Flip(Struct, frozen=True, kw_only=True):
    """Between two batch sizes that are neighbours in the map another kind of clause begins to bind."""

    max_num_batched_tokens: Count
    below: Count
    above: Count
    """max_num_seqs on either side."""
    from_: str
    to: str
    """The clauses that bind there."""


class BatchMap(Struct, frozen=True, kw_only=True):
    """Knee, throughput and goodput per setting, and what follows."""

    schema_version: int = 1
    scenario: str
    model: str = ""
    axis: Literal["users", "rate"]
    slo: Slo
    objective: Objective
    """rate: most requests a second within the SLO. goodput: most that meet every clause. cost: cheapest output."""
    currency: str = ""
    cells: list[Cell]
    """By tokens, then by sequences."""
    best: Setting | None = None
    """Of equally good ones the smallest batch. None: no setting carries anything."""
    flips: list[Flip] = []
    correction: float | None = None
    """Measured / predicted load where the twin was fitted; open-loop predictions are multiplied with it."""
    twin: dict[str, Json] = {}
    """The fitted server, as in `summary.json`."""
    notes: list[str] = []
    verdict: Verdict

    def cell(self, setting: Setting | None) -> Cell | None:
        """That of a setting."""
        return next((cell for cell in self.cells if cell.setting == setting), None)


def ordered(cells: Collection[Cell]) -> list[Cell]:
    """By tokens, then by sequences."""
    return sorted(cells, key=lambda cell: (cell.setting.max_num_batched_tokens, cell.setting.max_num_seqs))


def rows(cells: Collection[Cell]) -> list[list[Cell]]:
    """Cells of one token budget each, by sequences."""
    by_tokens = groupby(ordered(cells), key=lambda cell: cell.setting.max_num_batched_tokens)
    return [list(row) for _, row in by_tokens]


def value(figures: Figures, objective: Objective) -> float | None:
    """More is better. None: not known, or nothing is carried."""
    if not figures.load:
        return None
    if objective == "cost":
        cost = figures.cost_per_million_output_tokens
        return 1 / cost if cost else None
    return (figures.rps if objective == "rate" else figures.goodput_rps) or None


def best(cells: Collection[Cell], objective: Objective) -> Cell | None:
    """The smallest batch of those that are as good as the best."""
    valued = [(found, cell) for cell in cells if (found := value(cell.figures, objective)) is not None]
    most = max((found for found, _ in valued), default=0.0)
    alike = [cell for found, cell in valued if found >= most * (1 - ALIKE)]
    return min(alike, key=lambda cell: cell.setting, default=None)


def bound(clause: str) -> Bound:
    """What a clause is about; "" where it says nothing of the batch."""
    return KINDS.get(clause.partition("_")[0], "")


def flips(cells: Collection[Cell]) -> list[Flip]:
    """Where the kind of the binding clause changes from one batch size to the next that has one."""
    found: list[Flip] = []
    for row in rows(cells):
        told = [cell for cell in row if bound(cell.figures.binding)]
        changes = [pair for pair in pairwise(told) if bound(pair[0].figures.binding) != bound(pair[1].figures.binding)]
        found += [_flip(below, above) for below, above in changes]
    return found


def _flip(below: Cell, above: Cell) -> Flip:
    return Flip(
        max_num_batched_tokens=below.setting.max_num_batched_tokens,
        below=below.setting.max_num_seqs,
        above=above.setting.max_num_seqs,
        from_=below.figures.binding,
        to=above.figures.binding,
    )


def conclusion(cells: Sequence[Cell], objective: Objective) -> Verdict:
    """The answer of a map: held with a best setting; broken when each breaks at any load; unjudged when one that might
    be the best has no knee."""
    chosen = best(cells, objective)
    lost = [str(cell.setting.max_num_seqs) for cell in cells if cell.figures.load is None]
    if chosen is not None and lost:
        text = f"{_said(chosen, objective, cells)}, but no knee was found with a batch of {', '.join(lost)}"
        return Verdict(held="unjudged", text=text, exit_code=2)
    if chosen is not None:
        return Verdict(held="held", text=_said(chosen, objective, cells), exit_code=0)
    if cells and all(cell.figures.load == 0 for cell in cells):
        return Verdict(held="broken", text="the SLO breaks at any load with every batch size", exit_code=1)
    reason = next((f"; {cell.setting.max_num_seqs}: {cell.text}" for cell in cells if cell.text), "")
    return Verdict(held="unjudged", text=f"no setting has a knee{reason}", exit_code=2)


FOR: dict[Objective, str] = {"rate": "requests within the SLO", "goodput": "goodput", "cost": "cost"}


def _said(chosen: Cell, objective: Objective, cells: Sequence[Cell]) -> str:
    seqs, figures = chosen.setting.max_num_seqs, chosen.figures
    several = len({cell.setting.max_num_batched_tokens for cell in cells}) > 1
    tokens = f" and {chosen.setting.max_num_batched_tokens} batched tokens" if several else ""
    guess = {"predicted": ", predicted", "plateau": ", and a larger one runs no more"}.get(chosen.how, "")
    return f"best for {FOR[objective]}: a batch of {seqs}{tokens} ({figures.rps or 0:.3g} requests/s{guess})"
