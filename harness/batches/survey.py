"""The whole map: the largest setting first, the twin's word for the others, searches where that matters. I/O."""

from collections.abc import Mapping, Sequence
from statistics import median

from msgspec import structs, to_builtins

from harness.batches import cells, written
from harness.batches.command import template
from harness.batches.searches import Say, Searched, Searches
from harness.batches.serving import Hook
from harness.batches.settings import Asked, hook, settings
from harness.batches.twins import fitted, foretold, predictions, scattered
from harness.findings import Report
from harness.knee.map import BatchMap, Cell, Setting, best, conclusion, flips, ordered
from harness.knee.map_choice import is_believed, next_setting
from harness.twin.server import Server

NO_HOOK = "nobody restarts the server (no serve: in the scenario): one setting was observed"


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
        self._fitted_at: Setting | None = None
        self._model = ""
        self._notes: list[str] = []

    def mapped(self, order: Sequence[Setting]) -> BatchMap:
        """With servers that can be started: largest setting first."""
        setting = self._next(order)
        while setting is not None:
            known = self._cells.get(setting)
            near = known.predicted or known.figures if known else None
            searched = self._searches.at(setting, near.load if near else None)
            self._keep(structs.replace(searched.cell, predicted=near), searched)
            if self._twin is None:
                self._ask_twin(searched, setting, order)
            self._written()
            setting = self._next(order)
        return self._found()

    def observed(self, order: Sequence[Setting]) -> BatchMap:
        """With a server that is there and stays as it is: its own setting is what the search took it for."""
        self._notes.append(NO_HOOK)
        searched = self._searches.at(order[0])
        cell = _as_it_was(searched)
        self._keep(cell, searched)
        self._ask_twin(searched, cell.setting, order)
        return self._written()

    def _next(self, order: Sequence[Setting]) -> Setting | None:
        if self._twin is not None and not self._asked.measure_all:
            return next_setting(self._cells.values(), self._asked.objective)
        return next(iter(self._unmeasured(order)), None)

    def _unmeasured(self, order: Sequence[Setting]) -> list[Setting]:
        known = {setting for setting, cell in self._cells.items() if cell.how in ("measured", "observed")}
        return [setting for setting in order if setting not in known]

    def _keep(self, cell: Cell, searched: Searched) -> None:
        self._cells[cell.setting] = cell
        self._model = searched.report.header.model

    # --- the twin -----------------------------------------------------------------------------------------------------

    def _ask_twin(self, searched: Searched, at: Setting, order: Sequence[Setting]) -> None:
        """Cells for what is not measured yet; none from a search without a twin, or one that missed its own knee."""
        if self._asked.scenario.search.method != "twin":
            return
        located, scenario, cell = searched.report.located, self._asked.scenario, self._cells[at]
        if located is not None and located.method == "twin":
            server = fitted(located, at)
            said = predictions(server, self._asked, [at, *self._unmeasured(order)], scattered(located))
            plain = cells.predicted(said[at], cell.figures, correction=1.0, prices=scenario.prices)
            self._cells[at] = cell = structs.replace(cell, predicted=plain)
            if is_believed(cell.figures, plain, whole=scenario.load.loop == "closed"):
                self._twin, self._fitted_at = server, at
                others = foretold(said, cell, scenario, most_running=searched.most_at_the_knee())
                self._cells.update((other.setting, other) for other in others)
                return
        self._notes.append(f"{cell.run}: its twin was not believed, so it predicts no other setting")

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
            model=self._model,
            axis="users" if scenario.load.loop == "closed" else "rate",
            slo=scenario.slo,
            objective=self._asked.objective,
            currency=scenario.prices.currency if scenario.prices else "",
            cells=known,
            best=chosen.setting if chosen else None,
            flips=flips(known),
            correction=_correction(self._cells, self._fitted_at),
            twin=to_builtins(self._twin) if self._twin else {},
            notes=[*self._notes, *_held_against(known, self._fitted_at)],
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
    return int(kept["max_num_seqs"]) if kept else report.header.scenario.search.max_num_seqs


def _correction(known: Mapping[Setting, Cell], fitted_at: Setting | None) -> float | None:
    """Measured / predicted load where the twin was fitted."""
    off = known[fitted_at].off if fitted_at else None
    return None if off is None else 1 / (1 + off)


def _held_against(known: Sequence[Cell], fitted_at: Setting | None) -> list[str]:
    """How far predictions were off where a search followed."""
    offs = [abs(cell.off) for cell in known if cell.off is not None and cell.setting != fitted_at]
    if not offs:
        return []
    return [f"predicted knees were off by {median(offs):.1%} (median of {len(offs)}) and {max(offs):.1%} (most)"]
