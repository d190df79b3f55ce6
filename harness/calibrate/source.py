"""A known emitter as a process of its own, and what it truly sent. I/O (a process and its truth file)."""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from harness.calibrate.trial import NoTrial, Trial
from harness.engine.emitter import SentStream, read_truth

STOP_S = 10.0


class Source(Struct, kw_only=True):
    """A running emitter. Mutable: what it sent and how long it queued are known once it has ended."""

    url: str
    pid: int
    streams: list[SentStream] = []
    queued: float = 0.0


@contextlib.contextmanager
def emitter(trial: Trial) -> Iterator[Source]:
    """A fresh emitter on its core; once it has ended, the Source holds its truth. Raises NoTrial."""
    with tempfile.TemporaryDirectory(prefix="tokenswarm-") as folder:
        truth = Path(folder) / "truth"
        process = subprocess.Popen(_emitter_command(trial, truth), stdout=subprocess.PIPE, text=True)
        try:
            pin(process.pid, trial.cores.emitter)
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line.startswith("port "):
                raise NoTrial(f"the emitter did not start (exit {process.wait(STOP_S)}); the reason stands above")
            scheme = "https" if trial.tls else "http"
            source = Source(url=f"{scheme}://127.0.0.1:{line.split()[1]}", pid=process.pid)
            yield source
            source.queued = queued_share(process.pid)
            process.terminate()
            process.wait(STOP_S)
            source.streams = read_truth(truth)
        finally:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


def queued_share(pid: int) -> float:
    """Of a living process: time it was ready without a core / time it was ready; 0.0 where the system is silent."""
    try:
        on_cpu, queued, _ = Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return 0.0
    return int(queued) / max(int(on_cpu) + int(queued), 1)


def pin(pid: int, cores: frozenset[int]) -> None:
    """At once after its start, so that all it starts itself stays there too."""
    if cores:
        os.sched_setaffinity(pid, cores)


def _emitter_command(trial: Trial, truth: Path) -> list[str]:
    beat = trial.beat
    tls = ["--tls-cert", str(trial.tls[0]), "--tls-key", str(trial.tls[1])] if trial.tls else []
    return [
        sys.executable, "-m", "harness.engine.emitter", "--port", "0", "--truth", str(truth),
        "--first-ms", f"{beat.first_ms:g}", "--gap-ms", f"{beat.gap_ms:g}",
        "--tokens", str(trial.tokens), *tls,
    ]  # fmt: skip
