"""Starts, conducts and reports runs on one Locust master (or in the only process). I/O, under gevent."""

import os
import platform
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import gevent
import msgspec
import psutil
from locust.env import Environment
from msgspec import Struct

from harness import __version__, clock
from harness.export import command as export
from harness.findings import Report
from harness.knee.plan import Seen
from harness.model import RunHeader, Scenario, Stage
from harness.record.directory import Held, held, write_header
from harness.run import results
from harness.run.before import Before, before
from harness.run.companions import Companions
from harness.run.conductor import Conductor, Job
from harness.run.progress import Progress


class CannotRun(ValueError):
    """The user's fault; the message is one line: what, got, expected, remedy."""


class Order(Struct, frozen=True, kw_only=True):
    """What is to be run, as the command line said it."""

    scenario: Scenario
    plan: str
    """levels or knee."""
    host: str
    model: str
    directory: Path | None
    """Run directory; None: a new one below runs/ for every run."""
    command: str
    begun: RunHeader | None = None
    """Of the interrupted run that this one goes on with."""


class Master:
    """One `conduct` a run."""

    def __init__(self, environment: Environment, order: Callable[[], Order]) -> None:
        self._environment = environment
        self._order = order
        self._conductor = Conductor(environment)
        self.report: Report | None = None

    def conduct(self) -> None:
        """A whole run: header, levels, report; the verdict's exit code is Locust's."""
        self._environment.process_exit_code = 2  # until it is judged: Locust reads this before it ends a run
        order = self._order()
        header = self._header(order)
        directory = order.directory or Path("runs") / header.run_id
        try:
            with held(directory):
                self._run(order, header, directory)
        except Held as error:
            raise CannotRun(str(error)) from None

    def _run(self, order: Order, header: RunHeader, directory: Path) -> None:
        """From the header on the disk to the report."""
        done = before(directory, order.begun) if order.begun else Before()
        write_header(directory, header)
        beside = Companions(header, directory)
        progress = Progress(sys.stderr, order.scenario.load)
        progress.beside = beside.behind
        if not done.levels and (cost := results.expected_cost(header)):
            sys.stderr.write(f"{cost}\n")
        beating = gevent.spawn(progress.beat)

        def notice(stage: Stage | None, history: Sequence[Seen]) -> None:
            progress.live = self._conductor.live
            if stage is not None:
                progress.level_begins(stage)
            else:
                progress.level_ends(history[-1].level)

        try:
            self._conductor.run(
                Job(
                    header=header,
                    directory=directory,
                    before=done,
                    next_probe=results.next_probe(directory, header),
                    judge=_judge,
                    notice=notice,
                )
            )
        finally:
            beating.kill()
            progress.clear()
            beside.end_scraping()
            self._finish(order, directory)
            beside.end_exporting()
            sys.stderr.write(beside.said())
            if order.scenario.influx and not order.command:
                sys.stderr.write(f"influx  {export.said(directory, order.scenario.influx)}\n")

    def _finish(self, order: Order, directory: Path) -> None:
        self.report = results.report_of(directory)
        page = results.write_report(directory, self.report)
        self._environment.process_exit_code = self.report.verdict.exit_code
        if not order.command:  # nobody else will say it
            sys.stderr.write(f"{self.report.verdict.text}\nReport: {page}\n")

    def _header(self, order: Order) -> RunHeader:
        now_ns = clock.wall_ns()
        if order.begun is not None:
            again = [*order.begun.resumed_ns, now_ns]
            return msgspec.structs.replace(order.begun, scenario=order.scenario, host=order.host, resumed_ns=again)
        stamp = clock.iso(now_ns).replace("-", "").replace(":", "").rstrip("Z")
        return RunHeader(
            run_id=_run_id(order, stamp),
            version=__version__,
            scenario=order.scenario,
            host=order.host,
            model=order.model,
            started_ns=now_ns,
            plan="knee" if order.plan == "knee" else "levels",
            workers=self._conductor.workers(),
            command=order.command or " ".join(sys.argv),
            machine=machine(),
        )


def _run_id(order: Order, stamp: str) -> str:
    """The directory's name if that holds a time already; else one that does: two runs must not share an id."""
    name = order.directory.name if order.directory else order.scenario.name
    return name if re.match(r"\d{8}T\d{6}-", name) else f"{stamp}-{name}"


def machine() -> dict[str, str]:
    """What the load was made on."""
    return {
        "python": platform.python_version(),
        "kernel": f"{platform.system()} {platform.release()}",
        "cpu": _cpu_model(),
        "cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
        "memory_gib": f"{psutil.virtual_memory().total / 2**30:.0f}",
    }


def _cpu_model() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
    except OSError:
        return platform.processor()


def _judge(directory: Path, stage: Stage) -> Seen:
    return results.seen(directory, [stage])[0]
