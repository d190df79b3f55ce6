"""Grafana's own types, checked by the TypeScript compiler: every dashboard fits them, and a slip would not."""

import copy
import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
DASHBOARDS = HERE.parents[1] / "dashboards"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tokenswarm" / "grafana"
WANTED = ("package.json", "package-lock.json")
LIMIT_S = 120
BOARD = "import type {{ Board }} from './grafana_types';\nconst board: Board = {json};\nexport default board;\n"

SLIPS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "place": lambda board: board["panels"][1]["gridPos"].update(hight=8),
    "kind": lambda board: board["panels"][1].update(type="timeserie"),
    "legend": lambda board: board["panels"][1]["options"]["legend"].update(placement="botom"),
    "style": lambda board: board["panels"][1]["fieldConfig"]["defaults"]["custom"].update(drawStyle="lines"),
    "query": lambda board: board["panels"][1]["targets"][0].update(resultFromat="table"),
    "unit": lambda board: board["panels"][1]["fieldConfig"]["defaults"].update(units="ms"),
    "variable": lambda board: board["templating"]["list"][0].update(type="querry"),
    "annotation": lambda board: board["annotations"]["list"][0]["target"].update(textColum="title"),
}
"""Mistakes that are easily made in a dashboard."""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Name of each dashboard and each slip to what the compiler says about it."""
    place = tmp_path_factory.mktemp("types")
    shutil.copy(HERE / "grafana_types.ts", place)
    (place / "node_modules").symlink_to(installed() / "node_modules")
    boards = {path.stem: path.read_text(encoding="utf-8") for path in DASHBOARDS.glob("*.json")}
    for name, slip in SLIPS.items():
        board = copy.deepcopy(json.loads(boards["saturation"]))
        slip(board)
        boards[f"slip-{name}"] = json.dumps(board)
    for name, text in boards.items():
        (place / f"{name}.ts").write_text(BOARD.format(json=text), encoding="utf-8")
    said = complaints(place, sorted(boards))
    return {name: [line for line in said if line.startswith(f"{name}.ts")] for name in boards}


def installed() -> Path:
    """Folder with the compiler and Grafana's types as locked; made once for each lock file."""
    if not (shutil.which("npm") and shutil.which("node")):
        pytest.skip("node and npm are not installed; on Debian: apt-get install nodejs npm")
    digest = hashlib.sha256((HERE / "package-lock.json").read_bytes()).hexdigest()[:12]
    place = CACHE / digest
    if not (place / "complete").exists():
        place.mkdir(parents=True, exist_ok=True)
        for name in WANTED:
            shutil.copy(HERE / name, place)
        command = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        if done.returncode:
            pytest.skip(f"npm ci cannot install Grafana's types: {done.stderr.strip()[-300:]}")
        (place / "complete").touch()
    return place


def complaints(place: Path, names: list[str]) -> list[str]:
    """Lines of the compiler, one a mistake."""
    options = ["--noEmit", "--strict", "--skipLibCheck", "--module", "nodenext", "--preserveSymlinks"]
    command = ["node", "node_modules/typescript/bin/tsc", *options, *(f"{name}.ts" for name in names)]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    lines = [line for line in done.stdout.splitlines() if re.match(r"\S+\.ts\(", line)]
    assert done.stderr == ""
    assert not [line for line in lines if line.startswith("grafana_types")], lines
    return lines


@pytest.mark.parametrize("name", sorted(path.stem for path in DASHBOARDS.glob("*.json")))
def test_a_dashboard_is_of_grafanas_types(name: str, compiled: dict[str, list[str]]) -> None:
    assert compiled[name] == []


@pytest.mark.parametrize("slip", SLIPS)
def test_a_slip_would_be_seen(slip: str, compiled: dict[str, list[str]]) -> None:
    assert compiled[f"slip-{slip}"]


def test_no_lock_file_names_an_address() -> None:
    """It holds versions and hashes: from where they come is each machine's own affair."""
    locked = json.loads((HERE / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    assert all(each["integrity"] and "resolved" not in each for name, each in locked.items() if name)
