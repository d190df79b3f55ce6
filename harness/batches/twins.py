"""The twin of the largest setting, and what it says of the others. Pure."""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import structs

from harness.batches import cells
from harness.batches.settings import Asked
from harness.findings import Located
from harness.knee.map import Cell, Setting
from harness.model import Scenario
from harness.twin import predict, traffic
from harness.twin.scatter import EXACT, Scatter
from harness.twin.server import Server


def fitted(found: Located, setting: Setting) -> Server:
    """The twin that a search fitted to its levels, with the limits of its server."""
    return structs.replace(msgspec.convert(found.twin, Server), **structs.asdict(setting))


def scattered(found: Located) -> Scatter:
    """How what was measured scattered about that twin."""
    return EXACT if found.scatter is None else msgspec.convert(found.scatter, Scatter)


def predictions(
    server: Server, asked: Asked, of: Sequence[Setting], scatter: Scatter = EXACT
) -> dict[Setting, predict.Predicted]:
    """The knee of this server with each of these limits, over the declared traffic."""
    scenario = asked.scenario
    declared = traffic.of(scenario)
    found: dict[Setting, predict.Predicted] = {}
    for tokens in sorted({setting.max_num_batched_tokens for setting in of}):
        caps = sorted({setting.max_num_seqs for setting in of if setting.max_num_batched_tokens == tokens})
        said = predict.at_batches(
            structs.replace(server, max_num_seqs=max(caps), max_num_batched_tokens=tokens),
            declared,
            scenario.slo,
            caps,
            loop=scenario.load.loop,
            seed=scenario.seed,
            requests=asked.requests,
            scatter=scatter,
        )
        settings = [Setting(max_num_seqs=cap, max_num_batched_tokens=tokens) for cap in caps]
        found.update(zip(settings, said, strict=True))
    return found


def foretold(
    said: Mapping[Setting, predict.Predicted], first: Cell, scenario: Scenario, *, most_running: float | None
) -> list[Cell]:
    """Every setting but the first: predicted, or the same experiment as the first where its batch never gets so large.

    `most_running`: the largest batch that the first's server told of at its knee. Rates are corrected by what the twin
    missed at the first setting; users are not, as most of them have a seat however fast it is.
    """
    open_loop = scenario.load.loop == "open"
    correction = (first.figures.load or 0.0) / said[first.setting].load if open_loop else 1.0
    filled = max(said[first.setting].batch_p999, most_running or 0.0)
    found: list[Cell] = []
    for setting in sorted(set(said) - {first.setting}):
        alike = setting.max_num_batched_tokens == first.setting.max_num_batched_tokens
        if alike and filled <= setting.max_num_seqs:
            text = (
                f"at its knee a batch of {first.setting.max_num_seqs} runs {filled:.0f} or fewer: the same experiment"
            )
            found.append(structs.replace(first, setting=setting, how="plateau", predicted=None, text=text))
            continue
        figures = cells.predicted(said[setting], first.figures, correction=correction, prices=scenario.prices)
        found.append(Cell(setting=setting, how="predicted", figures=figures, text="by the twin"))
    return found
