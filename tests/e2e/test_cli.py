"""The command as a user meets it: what it prints, how it ends, what it leaves behind."""

import json
import os
import pty
import select
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from command import COMMAND, ROOT, ended, environment, said, settings, soon, summary

from harness.launch import STARTER

pytestmark = pytest.mark.e2e

LOAD_MAKERS = {"locust", "gevent"}
HEAVY = LOAD_MAKERS | {"pandas", "pyarrow", "numpy", "scipy", "plotly", "rich"}
NOBODY = "http://127.0.0.1:9"
SPREAD = {"n", "mean", "p50", "p90", "p95", "p99", "max"}


def imported(cwd: Path, *words: str) -> set[str]:
    """Top-level packages that a command imports until it ends."""
    done = ended([sys.executable, "-X", "importtime", *COMMAND[1:], *words], cwd)
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in lines}


def test_help_imports_nothing_heavy_and_ends_with_three_examples(tmp_path: Path) -> None:
    found = imported(tmp_path, "--help")
    assert "click" in found
    assert not found & HEAVY
    last = said("--help", cwd=tmp_path).stdout.rstrip().splitlines()[-3:]
    assert all(line.strip().startswith("tokenswarm ") for line in last)


@pytest.mark.parametrize(
    "words",
    ["scenarios list", "scenarios show demo", "scenarios check demo chat", "scenarios schema", "engine", "init here"],
)
def test_verbs_that_make_no_load_do_not_import_what_makes_it(tmp_path: Path, words: str) -> None:
    assert not imported(tmp_path, *words.split()) & LOAD_MAKERS


def test_report_says_the_same_again_without_importing_what_makes_load(finished: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    shutil.copytree(finished, again)
    for name in ("summary.json", "report.html", "report.md"):
        (again / name).unlink()
    assert not imported(tmp_path, "report", "again") & LOAD_MAKERS
    assert summary(again) == summary(finished)
    assert (again / "report.md").read_text() == (finished / "report.md").read_text()
    assert (again / "report.html").stat().st_size == (finished / "report.html").stat().st_size


def test_summary_holds_what_other_programs_look_for(finished: Path) -> None:
    found = summary(finished)
    (level,) = found["levels"]
    for name in ("ttft_ms", "itl_ms", "gap_ms", "tpot_ms", "e2e_ms", "lag_ms"):
        assert set(level["metrics"][name]) >= SPREAD
    ttft = level["metrics"]["ttft_ms"]
    assert 1 < ttft["p50"] <= ttft["p99"] <= ttft["max"]
    assert level["outcomes"] == {"ok": level["due"]}
    assert found["ledger"]["balanced"]
    assert level["client"]["stamp_source"] == "kernel"
    assert found["verdict"]["exit_code"] in (0, 2)
    assert "knee" in found


# --- bad input --------------------------------------------------------------------------------------------------------

BAD_INPUT: dict[str, tuple[str, str]] = {
    "unknown scenario": ("run nosuch --host HOST", "nosuch"),
    "unknown key": ("run demo --host HOST -s slo.ttft_p99=3", 'did you mean "ttft_p99_ms"'),
    "no path=value": ("run demo --host HOST -s nonsense", "expected path=value"),
    "half a user": ("knee demo --host HOST -s load.levels=[1.5]", "whole number"),
    "host without scheme": ("run demo --host 127.0.0.1:8000", "http://127.0.0.1:8000"),
    "nothing to do": ("run", "--users"),
    "both loops": ("run --host HOST --users 2 --rate 2", "exactly one"),
    "no host": ("run --users 2", "--host"),
    "no key": ("run demo --host HOST --api-key-env NO_SUCH_KEY", "NO_SUCH_KEY"),
    "nobody there": (f"run demo --host {NOBODY}", "refused"),
    "not a run": ("report .", "header.json"),
    "nothing to go on with": ("resume .", "header.json"),
    "unknown profile": ("engine nosuch", "did you mean demo"),
    "nothing to model": (
        'knee demo --host HOST --method twin -s slo={"error_share":0.01}',
        "or search with --method bracket",
    ),
    "no database there": ("run demo --host HOST --influx ftp://x/y", "http://HOST:8086/DATABASE"),
    "half a batch": ("knee demo --batch 4,x", "such as 8,16,32"),
    "no baseline": ("gate demo --host HOST --baseline nowhere", "header.json"),
    "no run to push": ("push nowhere --influx http://127.0.0.1:9/x", "header.json"),
    "unknown to show": ("scenarios show nosuch", "shipped ones"),
}


@pytest.mark.parametrize(("words", "hint"), BAD_INPUT.values(), ids=BAD_INPUT)
def test_bad_input_is_one_line_and_exit_2_and_leaves_nothing(host: str, tmp_path: Path, words: str, hint: str) -> None:
    done = said(*words.replace("HOST", host).split(), cwd=tmp_path)
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    assert done.returncode == 2
    assert len(lines) == 1, done.stderr
    assert hint in lines[0]
    assert done.stdout == ""
    assert not list(tmp_path.rglob("*/*"))


def test_a_directory_in_use_is_refused_and_stays_as_it_was(host: str, finished: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("not a run")
    for directory in (tmp_path / "mine", finished):
        before = {path.name: path.stat().st_mtime_ns for path in directory.iterdir()}
        done = said("run", "demo", "--host", NOBODY, "--out", str(directory), cwd=tmp_path)
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
        assert "--out" in done.stderr
        assert {path.name: path.stat().st_mtime_ns for path in directory.iterdir()} == before


# --- progress ---------------------------------------------------------------------------------------------------------


def test_progress_is_a_line_a_level_where_there_is_no_terminal(finished: Path) -> None:
    told = (finished.parent / "stderr.txt").read_text()
    assert "\r" not in told
    assert "\x1b" not in told + (finished.parent / "stdout.txt").read_text()
    assert [line[:8] for line in told.splitlines()] == ["level 1:"] * 2


def on_a_terminal(command: list[str], cwd: Path) -> str:
    """What a command writes to stderr when that is a terminal."""
    ours, theirs = pty.openpty()
    os.set_blocking(ours, False)
    seen = bytearray()
    with os.fdopen(ours, "rb", buffering=0) as screen, os.fdopen(theirs, "wb", buffering=0) as terminal:
        with subprocess.Popen(
            command, cwd=cwd, env=environment(), stdin=terminal, stdout=subprocess.DEVNULL, stderr=terminal
        ) as process:
            while process.poll() is None:
                select.select([screen], [], [], 0.1)
                seen += screen.read(65536) or b""
        seen += screen.read(65536) or b""
    return seen.decode()


def test_progress_moves_in_place_on_a_terminal(host: str, tmp_path: Path) -> None:
    command = [*COMMAND, "run", "demo", "--host", host, *settings(load__levels=[2])]
    seen = on_a_terminal(command, tmp_path)
    painted = [line for line in seen.split("\r") if " left " in line]
    assert len(painted) >= 2
    assert all("tokens/s" in line for line in painted)
    assert "level 1:        2 users" in seen


# --- the wheel --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the wheel holds: all that installing a pure wheel does, but for scripts."""
    place = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(place)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = place.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(place / "site")
    return place / "site"


def test_the_wheel_writes_a_locustfile_that_runs(host: str, installed: Path, tmp_path: Path) -> None:
    alone = environment(PYTHONPATH=str(installed))
    where = ended([sys.executable, "-c", "import harness; print(harness.__file__)"], tmp_path, alone).stdout
    assert where.startswith(str(installed))

    done = said("init", "mine", cwd=tmp_path, env=alone)
    assert done.returncode == 0, done.stderr
    names = {path.name for path in (tmp_path / "mine").iterdir()}
    assert names == {name for name in STARTER if any((ROOT / name).rglob("*")) or (ROOT / name).is_file()}
    assert names >= {"locustfile.py", "scenarios"}
    assert said("init", "mine", cwd=tmp_path, env=alone).returncode == 2, "never overwrites"

    fields = [word for word in settings(load__levels=[2]) if word != "-s"]
    sets = [word for field in fields for word in ("--set", field)]
    locust = [sys.executable, "-m", "locust", "-f", "locustfile.py", "--headless", "--only-summary"]
    asked = ["--scenario", "scenarios/demo.yaml", "--host", host, "--run-dir", "out"]
    ran = ended([*locust, *asked, *sets], tmp_path / "mine", alone)
    assert "Traceback" not in ran.stderr
    found: Any = json.loads((tmp_path / "mine" / "out" / "summary.json").read_text())
    assert found["ledger"]["balanced"]
    assert found["levels"][0]["load"] == 2


def test_engine_says_where_it_listens(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "engine", "demo", "--port", "0"],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with process.stdout as out:
        url, name = out.readline().split()
    process.terminate()
    assert soon(lambda: process.poll() is not None)
    assert url.startswith("http://127.0.0.1:")
    assert name == "demo"
