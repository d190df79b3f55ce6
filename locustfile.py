"""What `locust -f locustfile.py --scenario scenarios/chat.yaml --host URL` loads: options, classes, wiring. No logic.

`tokenswarm run` and `tokenswarm knee` drive this same file. Its options stand beside Locust's own in `locust --help`.
"""

import os
import sys
from argparse import Namespace
from typing import Any

from locust import events
from locust.runners import MasterRunner, WorkerRunner

from harness.run.master import CannotRun, Master
from harness.run.order import Asked, order, outfit, scenario_of
from harness.run.process import Process
from harness.run.shape import Run
from harness.run.stop import end_on_sigterm
from harness.run.tap import quiet, tap
from harness.users import StreamUser

__all__ = ["Run", "StreamUser"]


@events.init_command_line_parser.add_listener
def add_options(parser: Any) -> None:
    """Beside Locust's own."""
    group = parser.add_argument_group("Tokenswarm")
    group.add_argument("--scenario", default="demo", help="scenario file, or the name of a shipped one")
    group.add_argument("--set", action="append", default=[], metavar="PATH=VALUE", help="set a scenario field")
    group.add_argument("--plan", choices=["levels", "knee"], default="levels", help="all levels, or the knee search")
    group.add_argument("--run-dir", default="", help="directory of the run (default: a new one below runs/)")
    group.add_argument("--resume", action="store_true", help="go on with the interrupted run in --run-dir")
    group.add_argument("--run-command", default="", help="the command to note in the run's header")


@events.init.add_listener
def wire(environment: Any, runner: Any, **_: Any) -> None:
    """A Process where load is made, a Master where the run is conducted; a single process is both."""
    options = environment.parsed_options
    if not isinstance(runner, MasterRunner):
        show = quiet if options.run_command else tap(environment)  # our command shows no page and no table
        process = Process(environment, lambda header: outfit(header, os.environ), show)
        StreamUser.worker = process.worker
        environment.events.test_stop.add_listener(lambda **_: process.end())
    if not isinstance(runner, WorkerRunner):
        said(scenario_of, asked(options, environment.host))  # bad input ends the command here, before any load
        master = Master(environment, lambda: order(asked(options, environment.host), os.environ))
        Run.conduct = staticmethod(lambda: said(master.conduct, last=False))
        if options.headless:
            end_on_sigterm()


def asked(options: Namespace, host: str | None) -> Asked:
    """Locust's options as ours."""
    return Asked(
        scenario=options.scenario,
        overrides=options.set or [],
        plan=options.plan,
        run_dir=options.run_dir,
        host=host or "",
        command=options.run_command,
        resume=options.resume,
    )


def said(make: Any, *given: Any, last: bool = True) -> Any:
    """The user's fault is one line, and exit code 2 if it is the last word: Locust's page waits for a better start."""
    try:
        return make(*given)
    except CannotRun as error:
        sys.stderr.write(f"{error}\n")
        if last:
            sys.exit(2)
