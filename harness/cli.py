"""The command `tokenswarm`: verbs, options, what is printed. No other file prints. stdout = result, stderr = progress.

Nothing heavy is imported before a verb needs it: `--help` answers at once, and verbs that make no load import neither
locust nor gevent.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click

from harness import __version__

EXAMPLES = """\b
Examples:
  tokenswarm demo
  tokenswarm knee chat --host http://127.0.0.1:8000 -s slo.ttft_p99_ms=400
  tokenswarm run --host http://127.0.0.1:8000 --users 400 --hold 10 --prompt-tokens 32 --output-tokens 100
"""

Command = TypeVar("Command", bound=Callable[..., Any])


def fail(message: str) -> NoReturn:
    """The user's fault: one line on stderr, exit 2."""
    click.echo(f"tokenswarm: {message}", err=True)
    sys.exit(2)


@click.group(epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="tokenswarm")
def main() -> None:
    """Load tests for streaming LLM inference: every token timed by the kernel, and the knee where P99 breaks the SLA.

    Exit codes: 0 the SLO held (or the knee was found), 1 it broke, 2 could not judge, and one line says why.
    """


# --- options that several verbs share ---------------------------------------------------------------------------------


def target_options(command: Command) -> Command:
    """Where the load goes."""
    for option in reversed(
        [
            click.option("--host", metavar="URL", help="Server to measure, e.g. http://127.0.0.1:8000."),
            click.option("--model", metavar="NAME", help="Model name. [default: the first the server lists]"),
            click.option("--api-key-env", metavar="NAME", help="Environment variable that holds the API key."),
            click.option("--dialect", type=click.Choice(["openai-chat", "openai-completions"]), help="API to speak."),
            click.option("--proxy", metavar="URL", help="HTTP proxy; its user:password from TOKENSWARM_PROXY_LOGIN."),
        ]
    ):
        command = option(command)
    return command


def load_options(command: Command) -> Command:
    """What a run needs beside its target."""
    for option in reversed(
        [
            click.option(
                "-s",
                "--set",
                "overrides",
                multiple=True,
                metavar="PATH=VALUE",
                help="Set a scenario field, e.g. -s load.levels=[1,2,4]. Repeatable.",
            ),
            click.option(
                "--processes",
                type=click.IntRange(min=1),
                default=1,
                show_default=True,
                help="Load-making processes on this machine.",
            ),
            click.option("--out", type=click.Path(path_type=Path), help="Run directory. [default: runs/<run-id>]"),
        ]
    ):
        command = option(command)
    return command


def influx_options(command: Command) -> Command:
    """Where every token is recorded besides the log."""
    for option in reversed(
        [
            click.option(
                "--influx", metavar="URL", help="Also record in InfluxDB: http://HOST:8086/DATABASE_OR_BUCKET."
            ),
            click.option("--influx-org", metavar="NAME", help="Organisation, for InfluxDB 2."),
            click.option("--influx-version", type=click.Choice(["auto", "1", "2", "3"]), help="[default: auto]"),
            click.option("--token-points", metavar="all|none|sample=N", help="Points a token event. [default: all]"),
        ]
    ):
        command = option(command)
    return command


def search_options(command: Command) -> Command:
    """How the knee is looked for."""
    for option in reversed(
        [
            click.option(
                "--method", type=click.Choice(["bracket", "twin", "fit"]), help="[default: the scenario's, bracket]"
            ),
            click.option("--precision", type=float, help="twin, fit: half-width of the interval. [default: 0.03]"),
            click.option("--budget", type=click.IntRange(min=1), help="twin, fit: requests at most. [default: 15000]"),
            click.option("--confirm/--no-confirm", default=None, help="twin, fit: end with a hold-out. [default: yes]"),
        ]
    ):
        command = option(command)
    return command


def quick_options(command: Command) -> Command:
    """The form without a scenario file."""
    for option in reversed(
        [
            click.option("--users", type=click.IntRange(min=1), help="Without a scenario: closed loop of N users."),
            click.option(
                "--rate",
                type=click.FloatRange(min=0, min_open=True),
                help="Without a scenario: open loop, Poisson, requests a second.",
            ),
            click.option(
                "--hold",
                type=click.FloatRange(min=0, min_open=True),
                default=10.0,
                show_default=True,
                help="Without a scenario: seconds that are judged.",
            ),
            click.option("--prompt-tokens", type=click.IntRange(min=1), default=32, show_default=True),
            click.option("--output-tokens", type=click.IntRange(min=1), default=100, show_default=True),
        ]
    ):
        command = option(command)
    return command


def overrides_of(options: dict[str, Any]) -> list[str]:
    """Shared options as scenario overrides; `-s` comes last and wins."""
    fields = {
        "model": "target.model",
        "api_key_env": "target.api_key_env",
        "dialect": "target.dialect",
        "proxy": "target.proxy",
        "host": "target.host",
        "influx": "influx.url",
        "influx_org": "influx.org",
        "token_points": "influx.token_points",
    }
    named = [f"{path}={_quoted(options[name])}" for name, path in fields.items() if options.get(name)]
    for name in ("method", "precision", "budget", "confirm"):
        if options.get(name) is not None:
            named.append(f"search.{name}={_quoted(options[name])}")
    if options.get("influx_version"):
        named.append(f"influx.version={options['influx_version']}")
    return named + list(options.get("overrides") or ())


def _quoted(value: str | float | bool) -> str:
    import json

    return json.dumps(value)  # JSON is YAML


# --- verbs that make load ---------------------------------------------------------------------------------------------


@main.command()
@target_options
@load_options
@influx_options
def demo(**options: Any) -> None:
    """Find the knee of an embedded engine: about a minute, nothing else needed."""
    code = _load("demo", "knee", options)
    click.echo(
        "\nNext: open the report above, then measure something real:\n"
        "  tokenswarm doctor --host http://127.0.0.1:8000\n"
        "  tokenswarm knee chat --host http://127.0.0.1:8000\n"
        "  locust -f locustfile.py --scenario scenarios/chat.yaml --host http://127.0.0.1:8000"
    )
    sys.exit(code)


@main.command()
@click.argument("scenario", required=False)
@target_options
@load_options
@influx_options
@quick_options
def run(scenario: str | None, **options: Any) -> None:
    """Run every level of a scenario and judge each against the SLO.

    SCENARIO is a file or the name of a shipped one. Without it, --host and --users (or --rate) describe the load.
    """
    sys.exit(_load(scenario, "levels", options))


@main.command()
@click.argument("scenario")
@target_options
@load_options
@influx_options
@search_options
@click.option("--batch", metavar="8,16,32", help="Also over server batch sizes (max_num_seqs): a map; see serve:.")
@click.option("--batched-tokens", metavar="2048,8192", help="With --batch: also over max_num_batched_tokens.")
@click.option("--objective", type=click.Choice(["rate", "goodput", "cost"]), default="rate", show_default=True)
@click.option("--measure-all", is_flag=True, help="With --batch: measure what the twin could predict, too.")
def knee(scenario: str, batch: str | None, **options: Any) -> None:
    """Search the load at which the SLO breaks.

    bracket: climb the scenario's ladder, then bisect: two loads, each measured. twin: fit a simulated server to short
    levels, let it choose where to measure, verify with real load: one load with a 95 % interval; needs more requests.
    fit: the same interval from misses alone, for servers no twin can be (replicas, hosted APIs); needs more still.
    With --batch the server is started anew with each setting, as the scenario's `serve:` says, and one search made.
    """
    if batch is None and options["batched_tokens"]:
        fail("knee: --batched-tokens without --batch; give --batch 8,16,32 too")
    sys.exit(_load(scenario, "knee", options) if batch is None else _map(scenario, batch, options))


def _map(name: str, batch: str, options: dict[str, Any]) -> int:
    from rich.console import Console

    from harness import launch
    from harness.batches import settings, survey
    from harness.report import batch_map

    launch.heed_signals()
    try:
        asked = settings.Asked(
            scenario=launch.scenario_named(name, overrides_of(options)),
            caps=_counts("--batch", batch),
            batched_tokens=_counts("--batched-tokens", options["batched_tokens"] or ""),
            objective=options["objective"],
            measure_all=options["measure_all"],
            directory=options["out"] or Path("runs") / launch.run_id(f"{Path(name).stem}-batches"),
            processes=options["processes"],
            command="tokenswarm " + " ".join(sys.argv[1:]),
        )
        found = survey.batch_map(asked, lambda text: click.echo(text, err=True))
    except ValueError as error:
        fail(str(error))
    except launch.AlreadySaid:
        sys.exit(2)
    except KeyboardInterrupt:
        fail("stopped; the same command with --out on the same directory goes on where it was")
    Console().print(batch_map.render(found))
    click.echo(f"Map: {asked.directory / 'map.html'}")
    return found.verdict.exit_code


def _counts(option: str, text: str) -> list[int]:
    """Whole numbers with commas between. Raises ValueError."""
    try:
        found = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        found = [0]
    if any(count < 1 for count in found):
        raise ValueError(f"{option}: got {text!r}; expected whole numbers >= 1 with commas between, such as 8,16,32")
    return found


@main.command()
@click.argument("run_directory", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--host", metavar="URL", help="Where the server is now. [default: where it was]")
@click.option("--processes", type=click.IntRange(min=1), help="Load-making processes. [default: as many as before]")
def resume(run_directory: Path, host: str | None, processes: int | None) -> None:
    """Go on with a run or a search that was interrupted, from its run directory.

    Levels that came to their end count as they were measured; one that was cut short is measured again.
    """
    from harness import launch

    launch.heed_signals()
    try:
        launched = launch.interrupted(run_directory, processes, "tokenswarm " + " ".join(sys.argv[1:]))
    except ValueError as error:
        fail(str(error))
    sys.exit(_show(_launched(launched, host)))


@main.command()
@click.argument("scenario")
@target_options
@load_options
@influx_options
@click.option("--baseline", type=click.Path(path_type=Path), metavar="RUN", help="Run to compare every metric with.")
@click.option(
    "--regression", type=click.FloatRange(min=0), default=0.05, show_default=True, help="Regression that is let pass."
)
@click.option("--anyway", is_flag=True, help="Compare with the baseline although the scenarios differ.")
def gate(scenario: str, baseline: Path | None, regression: float, anyway: bool, **options: Any) -> None:
    """A fixed load for a pipeline: every SLO clause passes (0), fails (1) or is inconclusive (2).

    Writes gate.json, junit.xml and gate.md (for a job summary) into the run directory; see docs/ci.md.
    """
    from rich.console import Console

    from harness import comparison
    from harness import gate as gates
    from harness.report import gated

    against = None if baseline is None else gates.Against(baseline=baseline, regression=regression, anyway=anyway)
    try:
        if baseline is not None:
            comparison.read(baseline)  # a wrong path is said before the load, not after it
        directory = _run(scenario, "levels", options)
        found = gates.judged(directory, against)
        gates.write(directory, found)
    except ValueError as error:
        fail(str(error))
    Console().print(gated.render(found))
    click.echo(f"Gate: {directory / gates.MARKDOWN}, {directory / gates.JUNIT}; report: {directory / 'report.html'}")
    sys.exit(found.exit_code)


@main.command()
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RUN RUN [RUN …]")
@click.option("--anyway", is_flag=True, help="Compare although the scenarios differ.")
@click.option("--out", type=click.Path(path_type=Path), help="Where to write. [default: runs/compare-<first run>]")
def compare(runs: tuple[Path, ...], anyway: bool, out: Path | None) -> None:
    """Finished runs side by side, with intervals of the differences; the first is what the others are held against."""
    from rich.console import Console

    from harness import comparison
    from harness.report import compared

    try:
        found, reports = comparison.compared(runs, anyway=anyway)
        page = comparison.write(out or Path("runs") / f"compare-{found.sides[0].label}", found, reports)
    except ValueError as error:
        fail(str(error))
    Console().print(compared.render(found))
    click.echo(f"Comparison: {page}")


def _load(name: str | None, plan: str, options: dict[str, Any]) -> int:
    return _show(_run(name, plan, options))


def _run(name: str | None, plan: str, options: dict[str, Any]) -> Path:
    """Make a run; its directory. Whatever stands in the way is one line and exit 2."""
    from harness import launch

    overrides = overrides_of(options)
    launch.heed_signals()
    try:
        scenario = _quick(options, overrides) if name is None else launch.scenario_named(name, overrides)
        launched = launch.Launch(
            scenario=scenario,
            plan=plan,
            processes=options["processes"],
            directory=options["out"],
            command="tokenswarm " + " ".join(sys.argv[1:]),
        )
    except ValueError as error:
        fail(str(error))
    return _launched(launched)


def _launched(launched: Any, host: str | None = None) -> Path:
    """Load from the first level to the report, on this host or on the scenario's own."""
    from harness import launch

    try:
        if host:
            return launch.load(launched, host)
        with launch.engine_for(launched.scenario) as own:
            return launch.load(launched, own)
    except ValueError as error:
        fail(str(error))
    except launch.AlreadySaid:
        sys.exit(2)
    except KeyboardInterrupt:
        fail("stopped before the run began")


def _quick(options: dict[str, Any], overrides: list[str]) -> Any:
    from harness import scenario

    if (options["users"] is None) == (options["rate"] is None):
        raise ValueError("run: give a SCENARIO, or exactly one of --users and --rate; see `tokenswarm run --help`")
    if not options["host"]:
        raise ValueError(
            "run: no --host; give --host URL, or a scenario with an embedded engine (`tokenswarm run demo`)"
        )
    ask = scenario.Quick(
        users=options["users"],
        rate=options["rate"],
        hold_s=options["hold"],
        prompt_tokens=options["prompt_tokens"],
        output_tokens=options["output_tokens"],
    )
    return scenario.quick(ask, overrides=overrides)


def _show(directory: Path) -> int:
    """Print the report of a finished run; returns the verdict's exit code."""
    from rich.console import Console

    from harness.report import document, terminal

    try:
        report = document.read((directory / "summary.json").read_bytes())
    except OSError:
        fail(
            f"{directory}: the run ended without a report; `tokenswarm resume {directory}` goes on with it, "
            f"`tokenswarm report {directory}` judges what there is"
        )
    console = Console()
    console.print(terminal.render(report))
    if report.header.scenario.influx is not None and (directory / "header.json").exists():
        from harness.export import command

        said = command.said(directory, report.header.scenario.influx)
        console.print(f"influx  {said}", highlight=False, soft_wrap=True)
    console.print(f"Report: {directory / 'report.html'}", highlight=False, soft_wrap=True)
    if report.verdict.stopped_early:
        console.print(f"To go on: tokenswarm resume {directory}", highlight=False, soft_wrap=True)
    return report.verdict.exit_code


# --- verbs that make none ---------------------------------------------------------------------------------------------


@main.command()
@click.argument("run_directory", metavar="RUN")
@influx_options
def report(run_directory: str, **options: Any) -> None:
    """Judge a run again from its record log, and write its reports anew.

    RUN is a run directory; or influx:RUN_ID, with --influx URL: then the database alone is asked, and the reports are
    written to runs/RUN_ID.influx.
    """
    from harness.run import results

    asked, _, run_id = run_directory.partition(":")
    try:
        if asked == "influx" and run_id:
            directory = Path("runs") / f"{run_id}.influx"
            facts = _from_influx(run_id, options)
            directory.mkdir(parents=True, exist_ok=True)
            found = results.report_from(facts)
        else:
            directory = Path(run_directory)
            found = results.report_of(directory)
        results.write_report(directory, found)
    except ValueError as error:
        fail(str(error))
    sys.exit(_show(directory))


def _from_influx(run_id: str, options: dict[str, Any]) -> Any:
    import os

    from harness.export import push as exports
    from harness.export.restored import restored

    database = exports.database_of(exports.influx_of(None, options, os.environ), os.environ)
    return restored(database, run_id)


@main.command()
@click.argument("run_directory", type=click.Path(path_type=Path), metavar="RUN")
@influx_options
@click.option("--follow", is_flag=True, help="Go on until the run is over: what a run under way starts by itself.")
def push(run_directory: Path, follow: bool, **options: Any) -> None:
    """Take a run's record log to InfluxDB; again or later changes nothing, and goes on where it was left.

    Secrets come from TOKENSWARM_INFLUX_TOKEN, or TOKENSWARM_INFLUX_USER and TOKENSWARM_INFLUX_PASSWORD.
    """
    import os

    from harness.export import command
    from harness.export import push as exports
    from harness.record.directory import read_header

    try:
        influx = exports.influx_of(read_header(run_directory).scenario.influx, options, os.environ)
        state = exports.push(run_directory, influx, os.environ, follow=follow)
    except ValueError as error:
        fail(str(error))
    if not follow:
        click.echo(f"influx  {command.said(run_directory, influx)}")
    sys.exit(0 if state.done and not state.pending and not state.set_aside else 2)


@main.command()
@click.argument("profile", required=False)
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0: any free port.")
@click.option("--bind", default="127.0.0.1", show_default=True, metavar="ADDRESS")
@click.option("--model", metavar="NAME", help="Name under /v1/models. [default: the profile's]")
@click.option("--api-key-env", metavar="NAME", help="Ask for the key that this environment variable holds.")
@click.option("--truth", type=click.Path(), help="Append what was truly sent, and when, to this file.")
@click.option("--fault", metavar="NAME", help="Go wrong in this way, e.g. stall, cut, rst, 429, error-later.")
@click.option("--fault-every", type=click.IntRange(min=1), default=1, show_default=True, help="Only every Nth request.")
def engine(profile: str | None, port: int, bind: str, **options: Any) -> None:
    """Serve an embedded engine: continuous batching in real time, with vLLM's API and metrics.

    PROFILE is a file or the name of a shipped one; without it, those are listed.
    """
    from harness.engine import profile as profiles
    from harness.engine import server

    if profile is None:
        for name in profiles.names():
            click.echo(f"{name:18} {' '.join(profiles.load(name).source.split())}")
        return
    try:
        server.serve(
            profiles.load(profile),
            bind,
            port,
            options=_engine_options(options),
            on_ready=lambda at: click.echo(f"http://{bind}:{at} {profile}"),
        )
    except ValueError as error:
        fail(str(error))
    except OSError as error:
        fail(f"engine: cannot listen on {bind}:{port}: {error.strerror}; choose another --port")


def _engine_options(options: dict[str, Any]) -> Any:
    import os

    from harness.engine import faults, server

    name = options["api_key_env"]
    if name and not os.environ.get(name):
        raise ValueError(f"engine: --api-key-env: the environment variable {name} is not set; export it")
    return server.Options(
        model=options["model"],
        api_key=os.environ[name] if name else None,
        truth=options["truth"],
        fault=faults.fault(options["fault"]) if options["fault"] else None,
        fault_every=options["fault_every"],
    )


@main.command()
@click.option("--processes", type=click.IntRange(min=1), default=1, show_default=True, help="Client processes.")
@click.option("--quick", is_flag=True, help="Three levels instead of ten: a quarter of a minute.")
def calibrate(processes: int, quick: bool) -> None:
    """What can this machine time truly? Our client against an emitter that knows what it sent."""
    from harness import calibrate as calibration
    from harness import launch

    launch.heed_signals()
    click.echo(calibration.HEADING, err=True)
    try:
        found = calibration.calibrate(processes, quick, lambda rung: click.echo(calibration.line(rung), err=True))
    except ValueError as error:
        fail(str(error))
    except KeyboardInterrupt:
        fail("calibrate: stopped before it was done")
    click.echo(calibration.text(found))
    sys.exit(0 if found.true_per_s is not None else 2)


@main.command()
@target_options
@click.option("--ca-file", metavar="FILE", help="CA certificates to trust, in PEM form.")
def doctor(**options: Any) -> None:
    """One short look at an endpoint: what stands in the way of measuring it, each with a remedy."""
    import os

    from harness import doctor as doctors
    from harness.model import Target
    from harness.wire.endpoint import PROXY_LOGIN

    if not options["host"]:
        fail("doctor: no --host; give --host URL")
    options["dialect"] = options["dialect"] or "openai-chat"
    found = doctors.examine(
        Target(**options),
        environ_key=os.environ.get(options["api_key_env"] or "", ""),
        proxy_login=os.environ.get(PROXY_LOGIN, ""),
    )
    for one in found:
        mark = {"good": "ok  ", "note": "note", "bad": "BAD "}[one.status]
        click.echo(f"{mark} {one.check:18} {one.what}" + (f"\n{'':24}→ {one.remedy}" if one.remedy else ""))
    sys.exit(doctors.exit_code(found))


@main.group()
def scenarios() -> None:
    """List, show and check scenarios; print their JSON Schema."""


@scenarios.command("list")
def scenarios_list() -> None:
    """Shipped scenarios, one line each."""
    from harness import scenario, shipped

    for name in shipped.scenario_names():
        click.echo(f"{name:18} {scenario.load(shipped.scenario_path(name)).about}")


@scenarios.command("show")
@click.argument("name")
@click.option("-s", "--set", "overrides", multiple=True, metavar="PATH=VALUE")
def scenarios_show(name: str, overrides: tuple[str, ...]) -> None:
    """A scenario with every default written out."""
    from harness import scenario

    click.echo(scenario.dump(_scenario(name, overrides)), nl=False)


@scenarios.command("check")
@click.argument("names", nargs=-1, required=True)
@click.option("-s", "--set", "overrides", multiple=True, metavar="PATH=VALUE")
def scenarios_check(names: tuple[str, ...], overrides: tuple[str, ...]) -> None:
    """Say what is wrong with scenario files, or that nothing is."""
    from harness import scenario

    for name in names:
        found = _scenario(name, overrides)
        levels = scenario.levels(found.load)
        click.echo(f"{name}: good: {found.load.loop} loop, {len(levels)} levels {levels[0]:g} to {levels[-1]:g}")


@scenarios.command("schema")
def scenarios_schema() -> None:
    """JSON Schema of scenario files, for editors."""
    import json

    from harness import scenario

    click.echo(json.dumps(scenario.json_schema(), indent=2))


def _scenario(name: str, overrides: tuple[str, ...]) -> Any:
    from harness import launch

    try:
        return launch.scenario_named(name, list(overrides))
    except ValueError as error:
        fail(str(error))


@main.command()
@click.argument("directory", type=click.Path(path_type=Path))
def init(directory: Path) -> None:
    """Write locustfile, scenarios and dashboards into DIRECTORY, to change them there. Nothing is overwritten."""
    from harness import launch

    try:
        written = launch.copy_starter(directory)
    except ValueError as error:
        fail(str(error))
    for path in written:
        click.echo(path)
    click.echo(f"\nNext: cd {directory} && locust -f locustfile.py --scenario scenarios/chat.yaml --host URL")


if __name__ == "__main__":
    main()
