"""The rules of the house, read off the code: who may import whom, what things are called, what every file owes."""

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from harness import scenario

ROOT = Path(__file__).parents[1]
HARNESS = ROOT / "harness"
STARTER = ROOT / "locustfile.py"
MODULES = sorted([*HARNESS.rglob("*.py"), STARTER])
WRITTEN = sorted([*MODULES, *(ROOT / "tests").rglob("*.py"), *(ROOT / "bench").rglob("*.py")])
SCENARIOS = sorted((ROOT / "scenarios").glob("*.yaml"))

# --- rooms ------------------------------------------------------------------------------------------------------------

NOUNS = {"model", "findings", "decisions", "clock", "schema", "metrics"}
PURE = {"analysis", "knee", "protocol", "report", "scenario", "traffic", "twin"}
"""No sockets, processes or clocks; `report` and `scenario` open files that they are told to."""

VIRTUAL = {"core", "profile", "simulate"}
"""Files of the engine that are pure: all that pure rooms may know of it."""

MAY_IMPORT: dict[str, set[str]] = {
    # entry points
    "locustfile": {"run", "users"},
    "cli": {
        *{
            "batches",
            "calibrate",
            "comparison",
            "doctor",
            "engine",
            "export",
            "gate",
            "launch",
            "model",
            "record",
            "report",
        },
        *{"run", "scenario", "shipped", "wire"},
    },
    "launch": {"clock", "model", "record", "scenario", "shipped"},
    # rim
    "users": {"run"},
    "run": {
        *{"analysis", "clock", "export", "findings", "knee", "metrics", "model", "protocol", "record", "report"},
        *{"scenario", "scrape", "shipped", "traffic", "twin", "wire"},
    },
    "batches": {"clock", "engine", "findings", "knee", "launch", "model", "record", "report", "twin"},
    "comparison": {"analysis", "decisions", "findings", "knee", "record", "report", "run"},
    "gate": {"analysis", "comparison", "decisions", "findings", "knee", "record", "report", "run"},
    "export": {"analysis", "clock", "findings", "metrics", "model", "record", "report", "schema"},
    "scrape": {"clock", "model", "record", "wire"},
    "doctor": {"clock", "metrics", "model", "protocol", "run", "wire"},
    "calibrate": {"clock", "engine", "model", "record", "scenario"},
    "engine": {"clock", "model"},
    "record": {"model"},
    "wire": {"clock", "model", "protocol"},
    "shipped": set(),
    # pure ring
    "analysis": {"clock", "decisions", "findings", "knee", "metrics", "model", "twin"},
    "knee": {"decisions", "findings", "metrics", "model", "twin"},
    "protocol": {"model"},
    "report": {"clock", "decisions", "findings", "knee", "model", "schema"},
    "scenario": {"model"},
    "traffic": {"clock", "model"},
    "twin": {"engine", "metrics", "model", "traffic"},
    # nouns
    "metrics": {"model"},
    "findings": {"model"},
    "decisions": {"model"},
    "schema": set(),
    "model": set(),
    "clock": set(),
}
"""Room to the rooms it may import, itself aside. An arrow that nothing needs any more is taken out of the table."""

HOMES: dict[str, set[str]] = {
    "click": {"cli"},
    "gevent": {"run", "wire"},
    "httptools": {"engine", "protocol"},
    "influxdb_client": {"export"},
    "jinja2": {"report"},
    "locust": {"locustfile", "run", "users"},
    "markupsafe": {"report"},
    "numpy": {"analysis", "calibrate", "export", "knee", "metrics", "record", "run", "traffic", "twin"},
    "pandas": {"analysis"},
    "plotly": {"report"},
    "prometheus_client": {"scrape"},
    "psutil": {"run"},
    "pyarrow": {"analysis", "calibrate", "export", "record", "run"},
    "rich": {"cli", "report"},
    "scipy": {"analysis", "knee", "twin"},
    "urllib3": {"export"},
    "yaml": {"engine", "scenario"},
}
"""Third-party package to the rooms it lives in; msgspec lives everywhere."""

OUTSIDE = {
    "asyncio",
    "ctypes",
    "os",
    "select",
    "selectors",
    "signal",
    "socket",
    "ssl",
    "subprocess",
    "threading",
    "time",
}
"""Modules by which a file reaches the world; no pure file imports one."""


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def room_of(path: Path) -> str:
    """The first name below `harness`; a file at the top is a room of its own."""
    return path.stem if path.parent in (HARNESS, ROOT) else path.relative_to(HARNESS).parts[0]


def imports(path: Path) -> Iterator[str]:
    """Dotted names that a file imports, wherever in it."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from (f"{node.module}.{name.name}" for name in node.names)


def rooms_imported() -> dict[str, set[str]]:
    """Room to rooms, from the code."""
    found: dict[str, set[str]] = {room_of(path): set() for path in MODULES if path != HARNESS / "__init__.py"}
    for path in MODULES:
        for name in imports(path):
            parts = name.split(".")
            if parts[0] == "harness" and not parts[1].startswith("__") and parts[1] != room_of(path):
                found[room_of(path)].add(parts[1])
    return found


def test_rooms_import_what_the_table_allows_and_the_table_allows_no_more() -> None:
    assert rooms_imported() == MAY_IMPORT


def test_the_table_points_one_way() -> None:
    assert list(TopologicalSorter(MAY_IMPORT).static_order())
    for room in PURE | NOUNS:
        assert MAY_IMPORT[room] - {"engine"} <= PURE | NOUNS, f"{room} is pure and would import the rim"
    for path in (path for path in MODULES if room_of(path) in PURE):
        used = {name.split(".")[2] for name in imports(path) if name.startswith("harness.engine.")}
        assert used <= VIRTUAL, f"{path.name} is pure and would import an engine that serves"
    for room in NOUNS:
        assert MAY_IMPORT[room] <= NOUNS


def test_the_engine_shares_no_arithmetic_with_those_who_judge_it() -> None:
    assert not MAY_IMPORT["engine"] & {"metrics", "analysis", "knee", "protocol"}


def test_third_party_packages_live_at_home() -> None:
    found: dict[str, set[str]] = {}
    for path in MODULES:
        for package in {name.partition(".")[0] for name in imports(path)}:
            if package not in {"harness", "msgspec"} | sys.stdlib_module_names:
                found.setdefault(package, set()).add(room_of(path))
    assert found == HOMES


@pytest.mark.parametrize("room", sorted(PURE | NOUNS - {"clock"}))
def test_pure_rooms_do_not_reach_outside(room: str) -> None:
    files = [path for path in MODULES if room_of(path) == room]
    assert files
    reaching = {(path.name, name) for path in files for name in imports(path) if name.partition(".")[0] in OUTSIDE}
    assert not reaching


KNOW_THE_LAWS = {
    HARNESS / "knee" / "saturation.py",
    *(HARNESS / "analysis" / name for name in ("levels.py", "report.py")),
    *(HARNESS / "report" / name for name in ("columns.py", "laws.py", "load_figures.py", "page.py")),
    *(HARNESS / "report" / name for name in ("markdown.py", "terminal.py")),
}
"""Files that ask for saturation laws, and files that show them; none of these judges anything by them."""


def test_saturation_laws_decide_nothing() -> None:
    """Whoever judges, searches or gates neither imports a law nor reads one off a report."""
    told = {"laws", "little", "time_in_system_s"}
    by_import = {p for p in MODULES for name in imports(p) if {"laws", "saturation"} & set(name.split("."))}
    nodes = {path: ast.walk(parsed(path)) for path in MODULES}
    by_field = {p for p, found in nodes.items() if any(isinstance(n, ast.Attribute) and n.attr in told for n in found)}
    assert by_import | by_field == KNOW_THE_LAWS


# --- clocks and printing ----------------------------------------------------------------------------------------------

CLOCKS = {"time", "monotonic", "perf_counter", "process_time", "thread_time", "clock_gettime"}
MAY_READ_CLOCKS = {HARNESS / "clock.py"}
MAY_PRINT = {
    HARNESS / "cli.py",
    HARNESS / "engine" / "emitter" / "__main__.py",  # a program of its own: one line says that it is ready
}


def reads_a_clock(node: ast.AST) -> bool:
    """time.time() and its like, or datetime.now() and its like."""
    if isinstance(node, ast.ImportFrom) and node.module == "time":
        return any(name.name.removesuffix("_ns") in CLOCKS for name in node.names)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        of_time = node.value.id == "time" and node.attr.removesuffix("_ns") in CLOCKS
        return of_time or (node.value.id in ("datetime", "date") and node.attr in ("now", "utcnow", "today"))
    return False


def test_only_clock_reads_clocks() -> None:
    reading = {path for path in MODULES if any(reads_a_clock(node) for node in ast.walk(parsed(path)))}
    assert reading == MAY_READ_CLOCKS


def writes_to_stdout(node: ast.AST) -> bool:
    """print(…), sys.stdout or click.echo(…)."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id == "print"
    named = (getattr(node.value, "id", ""), node.attr) if isinstance(node, ast.Attribute) else ("", "")
    return named in {("sys", "stdout"), ("click", "echo"), ("click", "secho")}


def test_only_the_command_prints() -> None:
    printing = {path for path in MODULES if any(writes_to_stdout(node) for node in ast.walk(parsed(path)))}
    assert printing == MAY_PRINT


# --- names ------------------------------------------------------------------------------------------------------------

NO_NOUNS = {"utils", "util", "base", "common", "helpers", "helper", "types", "constants", "misc", "core_utils"}
NO_SUFFIX = r"\w+(Manager|Handler|Helper|Utils?|Processor|Service|Base|Mixin|Factory|Registry)"


def test_every_module_is_named_for_what_it_is() -> None:
    assert not {path for path in WRITTEN if path.stem in NO_NOUNS or path.parent.name in NO_NOUNS}


def test_no_class_is_named_for_its_vagueness() -> None:
    names = {node.name for path in WRITTEN for node in ast.walk(parsed(path)) if isinstance(node, ast.ClassDef)}
    assert len(names) > 100
    assert not {name for name in names if re.fullmatch(NO_SUFFIX, name)}


# --- what every file owes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_first_line_says_what_a_file_is(path: Path) -> None:
    assert len(ast.get_docstring(parsed(path)) or "") > 20


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_a_scenario_loads_and_fits_on_a_page(path: Path) -> None:
    found = scenario.load(path)
    assert found.name == path.stem
    assert found.about
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 40


def test_no_file_knows_the_machine_it_was_written_on() -> None:
    place = re.compile(r"/(?:root|home|Users|work)/\w+")
    assert not {str(path) for path in [*WRITTEN, *SCENARIOS] if place.search(path.read_text(encoding="utf-8"))}


def test_scenarios_were_found() -> None:
    assert len(SCENARIOS) >= 4
