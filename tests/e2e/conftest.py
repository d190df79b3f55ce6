"""What end-to-end tests share: one engine, and one run that several of them look at."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import engine, said, settings

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it, and so would children


@pytest.fixture(scope="session")
def host() -> Iterator[str]:
    """The URL of an engine `demo`: twelve seats, about 10 ms a token."""
    with engine() as url:
        yield url


@pytest.fixture(scope="session")
def finished(host: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run of four users that ended well, made with the quick form; what it said lies beside it."""
    place = tmp_path_factory.mktemp("finished")
    quick = ("--users", "4", "--hold", "1", "--prompt-tokens", "8", "--output-tokens", "8")
    done = said("run", "--host", host, *quick, *settings(seed=7), "--out", "run", cwd=place)
    assert "Report: run/report.html" in done.stdout, done.stderr
    (place / "stdout.txt").write_text(done.stdout)
    (place / "stderr.txt").write_text(done.stderr)
    return place / "run"
