"""One level against a fresh emitter, through the same command a person would type. I/O (processes and files)."""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
from msgspec import Struct

from harness import scenario
from harness.calibrate.joined import Joined, joined, keyed, times
from harness.calibrate.rung import Emitting, Rung
from harness.clock import S
from harness.engine.emitter import Beat, SentStream, read_truth
from harness.model import Fixed, Load, Phases, RunHeader, Scenario, Stage, Target, Timeouts
from harness.record.log import read_health, read_records

STOP_S = 10.0
STDERR_BYTES = 400
PROMPT_TOKENS = 32


class Cores(Struct, frozen=True, kw_only=True):
    """Which cores the two sides have. Empty: any, where the system does not let us choose or has only one."""

    emitter: frozenset[int] = frozenset()
    client: frozenset[int] = frozenset()

    def __str__(self) -> str:
        if not self.emitter:
            return "emitter and client share all cores"
        return f"emitter on core {_listed(self.emitter)}, client on {_listed(self.client)}"


class Trial(Struct, frozen=True, kw_only=True):
    """One closed-loop level to measure."""

    streams: int
    tokens: int = 100
    """Of every answer."""
    beat: Beat = Beat()
    ramp_s: float = 1.0
    warmup_s: float = 1.2
    hold_s: float = 2.5
    processes: int = 1
    cores: Cores = Cores()
    tls: tuple[Path, Path, Path] | None = None
    """Certificate, its key, and the CA the client is to trust; None: no TLS."""

    @property
    def stream_s(self) -> float:
        """How long one answer takes."""
        return (self.beat.first_ms + (self.tokens - 1) * self.beat.gap_ms) / 1000

    @property
    def asked_per_s(self) -> float:
        """Tokens a second of all streams, if nothing cost time."""
        return self.streams * self.tokens / self.stream_s


class NoTrial(ValueError):
    """A level could not be run; the message is one line."""


class Source(Struct, kw_only=True):
    """A running emitter. Mutable: what it sent and how long it queued are known once it has ended."""

    url: str
    pid: int
    streams: list[SentStream] = []
    queued: float = 0.0


def split_cores(processes: int = 1) -> Cores:
    """One core for the emitter, the others for the client (at most one a process), of those this process may use."""
    if not hasattr(os, "sched_setaffinity"):
        return Cores()
    mine = sorted(os.sched_getaffinity(0))
    return Cores() if len(mine) < 2 else Cores(emitter=frozenset(mine[:1]), client=frozenset(mine[1 : 1 + processes]))


def measured(trial: Trial, directory: Path) -> Rung:
    """Run the level; its record log stays in the directory. Raises NoTrial."""
    with emitter(trial) as source:
        _run(trial, source.url, directory)
    stage = msgspec.json.decode((directory / "stages.jsonl").read_bytes().splitlines()[0], type=Stage)
    sent = keyed(source.streams, header(directory).run_id)
    found = joined(read_records(directory), sent, stage, trial.beat)
    return rung(trial, found, source, *_client(directory, stage))


def header(directory: Path) -> RunHeader:
    """Of a level that was run there."""
    return msgspec.json.decode((directory / "header.json").read_bytes(), type=RunHeader)


def rung(trial: Trial, found: Joined, source: Source, cpu: float, queued: float) -> Rung:
    """The level in numbers; `cpu` and `queued` of the client in cores and as a share."""
    return Rung(
        streams=trial.streams,
        asked_per_s=trial.asked_per_s,
        tokens_per_s=found.tokens / trial.hold_s,
        requests=len(found.ttft_sent),
        failed=found.failed,
        ttft=found.ttft,
        gap=found.gap,
        coalesced=found.coalesced,
        cpu=cpu,
        queued=queued,
        emitting=Emitting(
            queued=source.queued,
            late_p99_ms=times(found.late).p99_ms if len(found.late) else 0.0,
            blocked=sum(stream.blocked for stream in source.streams),
        ),
        gap_ms=trial.beat.gap_ms,
    )


@contextlib.contextmanager
def emitter(trial: Trial) -> Iterator[Source]:
    """A fresh emitter on its core; once it has ended, the Source holds its truth. Raises NoTrial."""
    with tempfile.TemporaryDirectory(prefix="tokenswarm-") as folder:
        truth = Path(folder) / "truth"
        process = subprocess.Popen(_emitter_command(trial, truth), stdout=subprocess.PIPE, text=True)
        try:
            _pin(process.pid, trial.cores.emitter)
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


def scenario_of(trial: Trial, host: str) -> Scenario:
    """The level as a scenario: no SLO, every answer of the same length."""
    return Scenario(
        name=f"calibrate-{trial.streams}",
        target=Target(
            host=host,
            model="known",
            ca_file=str(trial.tls[2]) if trial.tls else None,
            timeouts=Timeouts(total_s=60.0 + trial.stream_s),
        ),
        load=Load(loop="closed", levels=[float(trial.streams)]),
        phases=Phases(
            warmup_s=trial.warmup_s, ramp_s=trial.ramp_s, hold_s=trial.hold_s, drain_s=2 * trial.stream_s + 1.0
        ),
        prompt_tokens=Fixed(tokens=PROMPT_TOKENS),
        output_tokens=Fixed(tokens=trial.tokens),
    )


def _run(trial: Trial, host: str, directory: Path) -> None:
    """`tokenswarm run` on the client's cores. Its exit code tells of SLOs, which a calibration has none of."""
    directory.mkdir(parents=True, exist_ok=True)
    written = directory / "level.yaml"
    written.write_text(scenario.dump(scenario_of(trial, host)), encoding="utf-8")
    command = [sys.executable, "-m", "harness.cli", "run", str(written), "--out", str(directory)]
    command += ["--processes", str(trial.processes)] if trial.processes > 1 else []
    with open(directory / "run.log", "wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        _pin(process.pid, trial.cores.client)
        try:
            process.wait()
        except BaseException:
            process.terminate()
            raise
    if not (directory / "stages.jsonl").exists():
        said = (directory / "run.log").read_bytes()[-STDERR_BYTES:].decode("utf-8", "replace")
        raise NoTrial(f"{trial.streams} streams: the run failed: {' '.join(said.split())}")


def _client(directory: Path, stage: Stage) -> tuple[float, float]:
    """Cores used by all workers together, and the queued share of the most starved, over the beats of the hold."""
    beats: dict[int, list[tuple[int, float, float]]] = {}
    for beat in read_health(directory).to_pylist():
        began_ns = beat["at_ns"] - beat["span_ns"]
        if began_ns >= stage.hold_at_ns - S // 2 and beat["at_ns"] <= stage.end_at_ns + S // 2:
            beats.setdefault(beat["worker"], []).append((beat["span_ns"], beat["cpu"], beat["runnable"]))
    means = [np.average(rows, axis=0, weights=[row[0] for row in rows]) for rows in beats.values()]
    return sum(float(mean[1]) for mean in means), max((float(mean[2]) for mean in means), default=0.0)


def _emitter_command(trial: Trial, truth: Path) -> list[str]:
    beat = trial.beat
    tls = ["--tls-cert", str(trial.tls[0]), "--tls-key", str(trial.tls[1])] if trial.tls else []
    return [
        sys.executable, "-m", "harness.engine.emitter", "--port", "0", "--truth", str(truth),
        "--first-ms", f"{beat.first_ms:g}", "--gap-ms", f"{beat.gap_ms:g}", *tls,
    ]  # fmt: skip


def _pin(pid: int, cores: frozenset[int]) -> None:
    """At once after its start, so that all it starts itself stays there too."""
    if cores:
        os.sched_setaffinity(pid, cores)


def _listed(cores: frozenset[int]) -> str:
    return ",".join(str(core) for core in sorted(cores))
