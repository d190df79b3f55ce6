"""One search at one setting: server up, load on, server down. I/O: processes, files below the map's directory."""

from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from harness import launch
from harness.batches import cells
from harness.batches.serving import Hook, Server, running
from harness.batches.settings import Asked, is_same_question, scenario_at
from harness.batches.watch import Watch
from harness.findings import Report
from harness.knee.map import Cell, Setting
from harness.launch import Launch
from harness.model import Scenario
from harness.record.directory import HEADER, SUMMARY, read_header
from harness.record.log import read_server
from harness.report import document

AS_IT_IS = "as-it-is"
"""Run directory of a server that nobody restarts."""
Say = Callable[[str], None]


class Searched(Struct, frozen=True, kw_only=True):
    """A setting that was measured."""

    cell: Cell
    report: Report
    directory: Path
    running: cells.Running

    def most_at_the_knee(self) -> float | None:
        """The largest batch its server told of there."""
        stage = cells.stage_at(self.report, self.cell.figures.load)
        return self.running.quantile(1.0, stage) if stage else None


class Searches:
    """All searches of one map. What an earlier session finished is read and not run again; what it began goes on."""

    def __init__(self, asked: Asked, hook: Hook | None, say: Say) -> None:
        self._asked = asked
        self._hook = hook
        self._say = say

    def at(self, setting: Setting, near: float | None = None) -> Searched:
        """The search at a setting, around a load where about its knee is. Raises ValueError, or KeyboardInterrupt when
        told to stop; asked again, it goes on from there."""
        directory = self._asked.directory / (setting.name if self._hook else AS_IT_IS)
        asked = scenario_at(self._asked.scenario, setting, near) if self._hook else self._asked.scenario
        if not (directory / SUMMARY).exists():
            self._run(self._launch(asked, directory), setting, directory)
        return self._searched(asked, setting, directory)

    def _launch(self, asked: Scenario, directory: Path) -> Launch:
        begun = (directory / HEADER).exists()
        if begun:
            _check_question(read_header(directory).scenario, asked, directory)
            self._say(f"{directory.name}: goes on where it was interrupted")
        else:
            set_aside(directory)
        directory.parent.mkdir(parents=True, exist_ok=True)
        return Launch(
            scenario=asked,
            plan="knee",
            processes=self._asked.processes,
            directory=directory,
            command=self._asked.command,
            resume=begun,
        )

    def _run(self, launched: Launch, setting: Setting, directory: Path) -> None:
        asked = launched.scenario
        if self._hook is None:
            with launch.engine_for(asked) as host:
                watched(launched, host, None)
            return
        self._say(f"{directory.name}: the server starts ({directory}.server.log)")
        with running(self._hook, setting, directory) as server:
            self._say(f"{directory.name}: ready after {server.ready_after_s:.1f} s")
            watched(launched, server.host, server)

    def _searched(self, asked: Scenario, setting: Setting, directory: Path) -> Searched:
        report = document.read((directory / SUMMARY).read_bytes())
        _check_question(report.header.scenario, asked, directory)
        batch = running_of(directory)
        figures, said = cells.measured(report, batch), cells.text(report)
        self._say(f"{directory.name}: {said}")
        cell = Cell(
            setting=setting,
            how="measured" if self._hook is not None else "observed",
            figures=figures,
            run=directory.name,
            text=said,
        )
        return Searched(cell=cell, report=report, directory=directory, running=batch)


def _check_question(measured: Scenario, asked: Scenario, directory: Path) -> None:
    if not is_same_question(measured, asked):
        raise ValueError(f"{directory}: was measured with another scenario; choose another --out, or remove it")


def watched(launched: Launch, host: str, server: Server | None) -> None:
    """A run to its end. Raises ValueError when its server died: the run is then set aside, as it is no search.

    Raises KeyboardInterrupt when it was told to stop: what the run says by then is no answer, its levels stay.
    """
    directory = launched.directory or Path()
    with Watch(None if server is None else server.process) as watch:
        try:
            if not watch.died:
                launch.load(launched, host)
        except (KeyboardInterrupt, ValueError, launch.AlreadySaid):
            if not watch.died and not watch.told_to_stop:
                raise
    if server is not None and watch.died:
        set_aside(directory)
        raise ValueError(f"serve: the server of {directory.name} died during the search: {server.end_of_it()}")
    if watch.told_to_stop:
        (directory / SUMMARY).unlink(missing_ok=True)
        raise KeyboardInterrupt
    if not (directory / SUMMARY).exists():
        raise ValueError(f"{directory}: the search ended without a report; the reason stands above")


def set_aside(directory: Path) -> None:
    """Rename what is no finished search to NAME.unfinished, .unfinished-2 …: the data may be of use, the name is."""
    if not directory.exists():
        return
    names = [f"{directory.name}.unfinished", *(f"{directory.name}.unfinished-{n}" for n in range(2, 1000))]
    directory.rename(next(path for name in names if not (path := directory.with_name(name)).exists()))


def running_of(directory: Path) -> cells.Running:
    """What the server's own metrics said of its batch."""
    looks = read_server(directory).select(["at_ns", "running"]).to_pylist()
    told = [look for look in looks if look["running"] is not None]
    return cells.Running(at_ns=[look["at_ns"] for look in told], batch=[look["running"] for look in told])
