"""The whole map: the largest setting first, the twin's word for the others, searches where that matters. I/O."""

from collections.abc import Sequence
from statistics import median

from msgspec import structs, to_builtins

from harness.batches import cells, written
from harness.batches.command import template
from harness.batches.searches import Say, Searched, Searches
from harness.batches.serving import Hook
from harness.batches.settings import Asked, hook, settings
from harness.batches.twins import fitted, foretold, predictions
from harness.findings import Report
from harness.knee.map import BatchMap, Cell, Setting, best, conclusion, flips, ordered
from harness.knee.map_choice import is_believed, next_setting
from harness.twin.server import Server

NO_HOOK = "nobody restarts the server (no serve: in the scenario): one setting was observed"
NOT_BELIEVED = "the twin was not believed at the setting it was fitted at, so it predicts no other"


def batch_map(asked: Asked, say: Say) -> BatchMap:
    """Measure, predict and write the map; it is written anew after every search. Raises ValueError, one line,
    launch.AlreadySaid, or KeyboardInterrupt; asked again with the same directory it goes on."""
    order = settings(asked)
    serve = hook(asked.scenario)
    started = None
    if serve is not None:
        started = Hook(serve=serve, template=template(serve), host=asked.scenario.target.host)
        _check_budgets(asked, started)
    survey = Survey(asked, started, say)
    if started is None:
        return survey.observed(order)
    return survey.mapped(order)


def _check_budgets(asked: Asked, hook: Hook) -> None:
    if len(set(asked.batched_tokens)) > 1 and not hook.template.has("max_num_batched_tokens"):
        raise ValueError(
            "--batched-tokens: serve.command has no {max_num_batched_tokens}, so every budget would be the same "
            "server; put it in, or give one budget"
        )


class Survey:
    """One map in the making. Mutable: what is known of each setting."""

    def __init__(self, asked: Asked, hook: Hook | None, say: Say) -> None:
        self._asked = asked
        self._searches = Searches(asked, hook, say)
        self._say = say
        self._cells: dict[Setting, Cell] = {}
        self._twin: Server | None = None
        self._first: Searched
        self._correction: float | None = None
        self._notes: list[str] = []

    def mapped(self, order: Sequence[Setting]) -> BatchMap:
        """With servers that can be started: largest setting first."""
        self._first = self._searches.at(order[0])
        self._keep(self._first.cell)
        self._ask_twin(order)
        found = self._written()
        while (setting := self._next(order)) is not None:
            known = self._cells.get(setting)
            near = known.predicted or known.figures if known else None
            searched = self._searches.at(setting, near.load if near else None)
            self._keep(structs.replace(searched.cell, predicted=near))
            found = self._written()
        return found

    def observed(self, order: Sequence[Setting]) -> BatchMap:
        """With a server that is there and stays as it is: its own setting is what the search took it for."""
        self._notes.append(NO_HOOK)
        self._first = self._searches.at(order[0])
        self._keep(_as_it_was(self._first))
        self._ask_twin(order)
        return self._written()

    def _next(self, order: Sequence[Setting]) -> Setting | None:
        if self._twin is not None and not self._asked.measure_all:
            return next_setting(self._cells.values(), self._asked.objective)
        measured = {setting for setting, cell in self._cells.items() if cell.how == "measured"}
        return next((setting for setting in order if setting not in measured), None)

    def _keep(self, cell: Cell) -> None:
        self._cells[cell.setting] = cell

    # --- the twin -----------------------------------------------------------------------------------------------------

    def _ask_twin(self, order: Sequence[Setting]) -> None:
        """Cells for all other settings; none without a twin, or with one that missed its own setting's knee."""
        if self._asked.scenario.search.method != "twin":
            return
        first = next(iter(self._cells.values()))
        located = self._first.report.located
        if located is None or located.method != "twin":
            self._notes.append(NOT_BELIEVED)
            return
        server = fitted(located, first.setting)
        said = predictions(server, self._asked, [first.setting, *order])
        own = said[first.setting]
        whole = self._asked.scenario.load.loop == "closed"
        plain = cells.predicted(own, first.figures, correction=1.0, prices=self._asked.scenario.prices)
        self._keep(structs.replace(first, predicted=plain))
        if not is_believed(first.figures, plain, whole=whole):
            self._notes.append(NOT_BELIEVED)
            return
        self._twin = server
        self._correction = (first.figures.load or 0.0) / own.load
        for cell in foretold(said, first, self._asked.scenario, most_running=self._first.most_at_the_knee()):
            self._keep(cell)

    # --- what is known ------------------------------------------------------------------------------------------------

    def _written(self) -> BatchMap:
        found = self._found()
        page = written.write(self._asked.directory, found)
        self._say(f"map so far: {found.verdict.text} ({page})")
        return found

    def _found(self) -> BatchMap:
        scenario, known = self._asked.scenario, ordered(self._cells.values())
        chosen = best(known, self._asked.objective)
        return BatchMap(
            scenario=scenario.name,
            model=self._first.report.header.model,
            axis="users" if scenario.load.loop == "closed" else "rate",
            slo=scenario.slo,
            objective=self._asked.objective,
            currency=scenario.prices.currency if scenario.prices else "",
            cells=known,
            best=chosen.setting if chosen else None,
            flips=flips(known),
            correction=self._correction,
            twin=to_builtins(self._twin) if self._twin else {},
            notes=[*self._notes, *_held_against(known, self._first.cell.setting)],
            verdict=conclusion(known, self._asked.objective),
        )


def _as_it_was(searched: Searched) -> Cell:
    """The setting of a server that nobody restarted: by the twin's own limits, the scenario's, or the largest batch it
    told of; where nothing tells, the one that was asked for."""
    report, cell = searched.report, searched.cell
    seqs = _limit_of(report) or searched.running.most() or cell.setting.max_num_seqs
    setting = Setting(max_num_seqs=int(seqs), max_num_batched_tokens=cell.setting.max_num_batched_tokens)
    return structs.replace(cell, setting=setting)


def _limit_of(report: Report) -> int | None:
    kept = report.located.twin if report.located else {}
    return int(kept["max_num_seqs"]) if kept else None


def _held_against(known: Sequence[Cell], first: Setting) -> list[str]:
    """How far predictions were off where a search followed."""
    offs = [abs(cell.off) for cell in known if cell.off is not None and cell.setting != first]
    if not offs:
        return []
    return [f"predicted knees were off by {median(offs):.1%} (median of {len(offs)}) and {max(offs):.1%} (most)"]
