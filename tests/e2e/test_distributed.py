"""Runs of several processes: the master's directory is the whole truth, and nobody's death hides a request."""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from socket import socket

import msgspec
import psutil
import pytest
from command import (
    COMMAND,
    LOCUST,
    balanced,
    begun,
    grown,
    records,
    said,
    settings,
    soon,
    summary,
)

from harness.model import RunHeader, Stage
from harness.record.log import read_health, read_records
from harness.run.spool import spool_of
from harness.traffic.arrivals import due_offsets

pytestmark = pytest.mark.e2e

ASKED = ("--prompt-tokens", "8", "--output-tokens", "40")


def header(directory: Path) -> RunHeader:
    """As the master wrote it."""
    return msgspec.json.decode((directory / "header.json").read_bytes(), type=RunHeader)


def stage(directory: Path) -> Stage:
    """The only one."""
    return msgspec.json.decode((directory / "stages.jsonl").read_bytes(), type=Stage)


def whole(spool: Path) -> bool:
    """The worker has drained, and every request it gave birth to has its final row here."""
    beats, rows = read_health(spool).to_pylist(), read_records(spool)
    return bool(beats) and beats[-1]["in_flight"] == 0 and beats[-1]["due"] == rows.num_rows


@contextmanager
def two_workers(host: str, cwd: Path, **fields: object) -> Iterator[tuple[psutil.Process, list[psutil.Process]]]:
    """Four users in two worker processes, records of both on the master's disk: the command and its workers."""
    command = [*COMMAND, "run", "--host", host, "--users", "4", "--processes", "2", *ASKED, *settings(**fields)]
    with begun([*command, "--out", "run"], cwd) as process:
        soon(lambda: grown(cwd / "run", 0)() and grown(cwd / "run", 1)())
        (master,) = psutil.Process(process.pid).children()
        yield psutil.Process(process.pid), master.children()


def test_two_processes_share_the_users_and_leave_one_directory(host: str, tmp_path: Path) -> None:
    asked = ("--users", "5", "--processes", "2", *ASKED, *settings())
    done = said("run", "--host", host, *asked, "--out", "run", cwd=tmp_path)
    assert done.returncode in (0, 2), done.stderr
    assert "Traceback" not in done.stderr
    balanced(tmp_path / "run")
    assert {path.name for path in (tmp_path / "run").glob("*.arrows")} == {
        *(f"{kind}-{worker}.arrows" for kind in ("records", "health") for worker in (0, 1)),
        "server-0.arrows",
    }
    slots = {(row["worker"], row["slot"]) for row in records(tmp_path / "run")}
    assert sorted(sum(worker == each for each, _ in slots) for worker in (0, 1)) == [2, 3]
    assert header(tmp_path / "run").workers == 2
    assert not spool_of(header(tmp_path / "run"), 0).parent.exists(), "nothing is kept once the master has it all"


def test_a_master_and_two_workers_make_one_poisson_stream(host: str, tmp_path: Path) -> None:
    with socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = str(unused.getsockname()[1])
    sets = [word if word != "-s" else "--set" for word in settings(load={"loop": "open", "levels": [60]})]
    quiet = ["--headless", "--only-summary", "--scenario", "demo", "--host", host]
    with ExitStack() as stack:
        address = ["--master-bind-host", "127.0.0.1", "--master-bind-port", port]
        asked = [*LOCUST, "--master", "--expect-workers", "2", *address, *quiet, *sets, "--run-dir", "run"]
        master = stack.enter_context(begun(asked, tmp_path))
        for _ in range(2):
            join = ["--worker", "--master-host", "127.0.0.1", "--master-port", port]
            stack.enter_context(begun([*LOCUST, *join], tmp_path))
        assert master.wait(40) in (0, 1, 2)
    run, ran = tmp_path / "run", stage(tmp_path / "run")
    assert balanced(run)["outcomes"].keys() == {"ok"}

    asked_for = {
        (worker, ran.warmup_at_ns + at_ns)
        for worker in (0, 1)
        for at_ns in takewhile(
            lambda at_ns: ran.warmup_at_ns + at_ns < ran.end_at_ns,
            due_offsets("poisson", 60, seed=(header(run).scenario.seed, 0), worker=worker, workers=2),
        )
    }
    assert {(row["worker"], row["due_ns"]) for row in records(run)} == asked_for
    assert abs(len(asked_for) - 60 * 1.3) < 4 * (60 * 1.3) ** 0.5


def test_a_worker_that_is_killed_hides_nothing(host: str, tmp_path: Path) -> None:
    with two_workers(host, tmp_path, phases__hold_s=3) as (command, workers):
        workers[0].kill()
        code = command.wait(30)
    outcomes = balanced(tmp_path / "run")["outcomes"]
    assert set(outcomes) == {"ok", "censored"}
    assert outcomes["censored"] == 2, "the two it had under way"
    rows = records(tmp_path / "run")
    lost = next(row["worker"] for row in rows if row["outcome"] == "censored")
    assert {row["worker"] for row in rows if row["outcome"] == "censored"} == {lost}
    assert max(row["due_ns"] for row in rows if row["worker"] != lost) > stage(tmp_path / "run").end_at_ns - 10**9

    found = summary(tmp_path / "run")
    assert code == found["verdict"]["exit_code"] == 2, "half of the load was missing"
    assert f"worker {lost}" in found["verdict"]["text"]
    shutil.rmtree(spool_of(header(tmp_path / "run"), lost).parent)


def test_a_master_that_is_killed_leaves_everything_in_the_spools(host: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with two_workers(host, tmp_path, phases__hold_s=2) as (command, workers):
        (master,) = command.children()
        master.kill()
        assert command.wait(10) == 2
        told = header(run)
        spools = [spool_of(told, worker) for worker in (0, 1)]
        soon(lambda: all(whole(spool) for spool in spools))
        for each in workers:
            with suppress(psutil.NoSuchProcess):  # it may have found by itself that its master is gone
                each.kill()
    at_master = len(records(run))
    for spool in spools:
        for path in spool.glob("*.arrows"):
            shutil.copy(path, run / path.name)
        shutil.rmtree(spool)
    spools[0].parent.rmdir()
    done = said("report", "run", cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert balanced(run)["outcomes"].keys() == {"ok"}
    assert len(records(run)) > at_master
