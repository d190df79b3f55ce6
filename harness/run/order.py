"""From options and scenario to what a process needs: an Order for the master, an outfit for a worker. Reads a CA file,
asks the server which model it serves; everything else is given.
"""

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from harness import scenario as scenarios
from harness import shipped
from harness.export.command import named_by
from harness.model import INFLUX_URL, RunHeader, Scenario
from harness.protocol.dialects import DIALECTS
from harness.record.directory import HEADER, NoRun, read_header
from harness.run.master import CannotRun, Order
from harness.run.requests import Requests
from harness.twin.misses import clauses
from harness.wire.ask import NoAnswer, models
from harness.wire.client import Client, Wiring
from harness.wire.endpoint import PROXY_LOGIN, Endpoint, endpoint, tls_context


class Asked(Struct, frozen=True, kw_only=True):
    """Options as a command line gives them."""

    scenario: str
    overrides: list[str] = []
    plan: str = "levels"
    run_dir: str = ""
    host: str = ""
    command: str = ""
    resume: bool = False
    """Go on with the interrupted run of `run_dir`, which knows its scenario and plan."""


def scenario_of(asked: Asked) -> Scenario:
    """Raises CannotRun."""
    try:
        found = scenarios.load(shipped.scenario_path(asked.scenario), asked.overrides)
    except (ValueError, FileNotFoundError) as error:
        raise CannotRun(str(error)) from None
    return replace(found, target=replace(found.target, host=asked.host)) if asked.host else found


def recorded(scenario: Scenario, environ: Mapping[str, str]) -> Scenario:
    """With the database that the environment names, where the scenario names none. Raises CannotRun."""
    influx = named_by(environ)
    if scenario.influx is not None or influx is None:
        return scenario
    try:
        return scenarios.parse(scenarios.dump(replace(scenario, influx=influx)), source=INFLUX_URL)
    except scenarios.ScenarioError as error:
        raise CannotRun(str(error)) from None


def order(asked: Asked, environ: Mapping[str, str]) -> Order:
    """What the master runs. Raises CannotRun."""
    if asked.resume:
        return _resumed(asked, environ)
    scenario = recorded(scenario_of(asked), environ)
    if asked.plan == "knee" and scenario.search.method != "bracket":
        _can_be_modelled(scenario)
    where = endpoint_of(scenario, environ)
    directory = Path(asked.run_dir) if asked.run_dir else None
    if directory and (directory / HEADER).exists():
        raise CannotRun(
            f"{directory}: holds a run already; `tokenswarm resume {directory}` goes on with it if it was "
            "interrupted; else choose another directory"
        )
    return Order(
        scenario=scenario,
        plan=asked.plan,
        host=where.url,
        model=scenario.target.model or _served_model(scenario, where, environ),
        directory=directory,
        command=asked.command,
    )


def _resumed(asked: Asked, environ: Mapping[str, str]) -> Order:
    """The run that was interrupted, as its header says it, on the server where that is now."""
    directory = Path(asked.run_dir)
    try:
        begun = read_header(directory)
    except NoRun as error:
        raise CannotRun(str(error)) from None
    target = begun.scenario.target
    scenario = replace(begun.scenario, target=replace(target, host=asked.host or target.host))
    return Order(
        scenario=scenario,
        plan=begun.plan,
        host=endpoint_of(scenario, environ).url,
        model=begun.model,
        directory=directory,
        command=asked.command,
        begun=begun,
    )


def _can_be_modelled(scenario: Scenario) -> None:
    try:
        clauses(scenario.slo)
    except ValueError as error:
        raise CannotRun(f"{error}; or search with --method bracket") from None


def outfit(header: RunHeader, environ: Mapping[str, str]) -> tuple[Requests, Client]:
    """What talks to the server in this process. Raises CannotRun."""
    scenario = header.scenario
    where = endpoint_of(scenario, environ)
    target = scenario.target
    wiring = Wiring(
        endpoint=where,
        timeouts=target.timeouts,
        tls=tls_context(target) if where.secure else None,
        keep_alive=target.keep_alive,
    )
    return Requests(header, where, api_key(scenario, environ)), Client(wiring)


def endpoint_of(scenario: Scenario, environ: Mapping[str, str]) -> Endpoint:
    """Raises CannotRun when there is no host."""
    target = scenario.target
    if not target.host:
        engine = f"; for the embedded engine: tokenswarm engine {target.engine}" if target.engine else ""
        raise CannotRun(f"{scenario.name}: no host to send load to; give --host URL{engine}")
    try:
        return endpoint(target.host, target.proxy, environ.get(PROXY_LOGIN, ""))
    except ValueError as error:
        raise CannotRun(str(error)) from None


def api_key(scenario: Scenario, environ: Mapping[str, str]) -> str:
    """The key, or "" when the target needs none. Raises CannotRun when the named variable is not set."""
    name = scenario.target.api_key_env
    if not name:
        return ""
    if not environ.get(name):
        raise CannotRun(
            f"target.api_key_env: the environment variable {name} is not set; export it, or remove the option"
        )
    return environ[name]


def request_path(scenario: Scenario) -> str:
    """The path requests go to."""
    return scenario.target.path or DIALECTS[scenario.target.dialect].path


def _served_model(scenario: Scenario, where: Endpoint, environ: Mapping[str, str]) -> str:
    tls = tls_context(scenario.target) if where.secure else None
    try:
        names = models(where, tls=tls, api_key=api_key(scenario, environ))
    except NoAnswer as error:
        raise CannotRun(f"which model? {error}; give --model NAME, or check that the server runs") from None
    if not names:
        raise CannotRun(f"which model? {where.url}/v1/models lists none; give --model NAME")
    return names[0]
