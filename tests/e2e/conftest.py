"""What end-to-end tests share: one engine, and one run that several of them look at."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from command import engine, said, settings

UNHURRIED = """
name: unhurried
source: the profile demo, four times slower
max_num_seqs: 12
max_num_batched_tokens: 2048
max_model_len: 8192
step: {base_ms: 12.0, per_sequence_ms: 0.4, per_prefill_token_ms: 0.02}
kv: {block_size: 16, num_blocks: 4096}
"""


@pytest.fixture(scope="session")
def host() -> Iterator[str]:
    """The URL of an engine `demo`: twelve seats, about 3 ms a token."""
    with engine() as url:
        yield url


@pytest.fixture(scope="session")
def unhurried(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of an engine four times slower than `demo`: a client that is late by some milliseconds hides no token."""
    profile = tmp_path_factory.mktemp("profile") / "unhurried.yaml"
    profile.write_text(UNHURRIED)
    with engine(profile) as url:
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
