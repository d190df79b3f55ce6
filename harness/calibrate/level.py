"""One level against a fresh emitter, through the same command a person would type. I/O (processes and files)."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np

from harness import scenario
from harness.calibrate.joined import Joined, joined, keyed, times
from harness.calibrate.rung import Emitting, Rung
from harness.calibrate.source import Source, emitter, pin
from harness.calibrate.trial import NoTrial, Trial, scenario_of
from harness.clock import S
from harness.model import INFLUX_URL, RunHeader, Stage
from harness.record.log import read_health, read_records

LOG_BYTES = 400
"""Of the output of a run that failed: so much is shown."""

Client = Callable[[Trial, str, Path], None]
"""Puts the trial's load on a host and leaves a run directory behind."""


def tokenswarm_run(trial: Trial, host: str, directory: Path, influx: str = "") -> None:
    """`tokenswarm run` on the client's cores, recorded only where `influx` says. Its exit code tells of SLOs; a trial
    has none. Raises NoTrial."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    written, output = directory.with_suffix(".yaml"), directory.with_suffix(".log")  # a run wants its directory empty
    written.write_text(scenario.dump(scenario_of(trial, host)), encoding="utf-8")
    command = [sys.executable, "-m", "harness.cli", "run", str(written), "--out", str(directory)]
    command += ["--processes", str(trial.processes)] if trial.processes > 1 else []
    environ = {name: value for name, value in os.environ.items() if name != INFLUX_URL}
    environ |= {INFLUX_URL: influx} if influx else {}
    with open(output, "wb") as log, subprocess.Popen(command, stdout=log, stderr=log, env=environ) as process:
        pin(process.pid, trial.cores.client)
        try:
            process.wait()
        except BaseException:
            process.terminate()
            raise
    if not (directory / "stages.jsonl").exists():
        said = output.read_bytes()[-LOG_BYTES:].decode("utf-8", "replace")
        raise NoTrial(f"{trial.streams} streams: the run failed: {' '.join(said.split())}")


def measured(trial: Trial, directory: Path, run: Client = tokenswarm_run) -> Rung:
    """Run the level; header, stage, records and health stay in the directory. Raises NoTrial."""
    with emitter(trial) as source:
        run(trial, source.url, directory)
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
        stolen=source.stolen,
        gap_ms=trial.beat.gap_ms,
    )


def _client(directory: Path, stage: Stage) -> tuple[float, float]:
    """Cores used by all workers together, and the queued share of the most starved, over the beats of the hold."""
    beats: dict[int, list[tuple[int, float, float]]] = {}
    for beat in read_health(directory).to_pylist():
        began_ns = beat["at_ns"] - beat["span_ns"]
        if began_ns >= stage.hold_at_ns - S // 2 and beat["at_ns"] <= stage.end_at_ns + S // 2:
            beats.setdefault(beat["worker"], []).append((beat["span_ns"], beat["cpu"], beat["runnable"]))
    means = [np.average(rows, axis=0, weights=[row[0] for row in rows]) for rows in beats.values()]
    return sum(float(mean[1]) for mean in means), max((float(mean[2]) for mean in means), default=0.0)
