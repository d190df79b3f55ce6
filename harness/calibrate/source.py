"""A known emitter as a process of its own, and what it truly sent. I/O (a process and its truth file)."""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from harness.calibrate.trial import Cores, NoTrial, Trial
from harness.engine.emitter import SentStream, read_truth

STOP_S = 10.0


class Source(Struct, kw_only=True):
    """A running emitter. Mutable: what it sent and how long it queued are known once it has ended."""

    url: str
    pid: int
    streams: list[SentStream] = []
    queued: float = 0.0
    """See `queued_share`."""
    stolen: float = 0.0
    """Of the core that fared worst: time a hypervisor took / time it was wanted, while the emitter lived."""


@contextlib.contextmanager
def emitter(trial: Trial) -> Iterator[Source]:
    """A fresh emitter on its core; once it has ended, the Source holds its truth. Raises NoTrial."""
    with tempfile.TemporaryDirectory(prefix="tokenswarm-") as folder:
        truth = Path(folder) / "truth"
        process = subprocess.Popen(_emitter_command(trial, truth), stdout=subprocess.PIPE, text=True)
        try:
            pin(process.pid, trial.cores.emitter)
            before = _core_ticks(trial.cores)
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line.startswith("port "):
                raise NoTrial(f"the emitter did not start (exit {process.wait(STOP_S)}); the reason stands above")
            scheme = "https" if trial.tls else "http"
            source = Source(url=f"{scheme}://127.0.0.1:{line.split()[1]}", pid=process.pid)
            yield source
            source.queued = queued_share(process.pid)
            source.stolen = _stolen_share(before, _core_ticks(trial.cores))
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


def _core_ticks(cores: Cores) -> dict[str, tuple[int, int]]:
    """(wanted, stolen) ticks of each core in use since boot; empty where the system is silent."""
    try:
        lines = Path("/proc/stat").read_text(encoding="ascii").splitlines()
    except OSError:
        return {}
    named = {f"cpu{core}" for core in cores.emitter | cores.client}
    rows = (line.split() for line in lines if line.startswith("cpu") and not line.startswith("cpu "))
    # user, nice, system, idle, iowait, irq, softirq, steal
    return {
        row[0]: (sum(map(int, row[1:9])) - int(row[4]) - int(row[5]), int(row[8]))
        for row in rows
        if not named or row[0] in named
    }


def _stolen_share(before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]]) -> float:
    shares = (
        (after[core][1] - stolen) / max(after[core][0] - wanted, 1)
        for core, (wanted, stolen) in before.items()
        if core in after
    )
    return max(shares, default=0.0)


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
