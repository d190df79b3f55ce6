"""Four clients on one core against the known emitter on another, measured alike. I/O (processes).

A Rung (harness/calibrate/rung.py) is what each gives. Ours is compared with the truth request by request; the plain
user and the C loop send no request id, so theirs are set beside what was sent in the same window.
"""

import json
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import trustme
from msgspec.structs import replace

from harness import scenario
from harness.calibrate.joined import late_ns, times
from harness.calibrate.level import header, measured, tokenswarm_run
from harness.calibrate.rung import Compared, Emitting, Rung, Times
from harness.calibrate.source import emitter, pin
from harness.calibrate.trial import Trial, scenario_of, split_cores
from harness.clock import S

ROOT = Path(__file__).resolve().parent.parent
BENCH = ROOT / "bench"
WHOLE, WIRE, PLAIN, FLOOR = "tokenswarm", "its wire alone", "plain Locust user", "C loop (floor.c)"
WANTED_ERROR = "within 1 % or 0.2 ms"


def trial(streams, *, tokens=200, hold_s=4.0, ramp_s=2.0, tls=None):
    """50 tokens a second a stream. Streams begin evenly over the ramp; 0: all at once, so they march in step."""
    return Trial(
        streams=streams,
        tokens=tokens,
        hold_s=hold_s,
        ramp_s=ramp_s,
        warmup_s=max(ramp_s, 1.0) + 0.2,
        cores=split_cores(),
        tls=tls,
    )


def run(client, asked, binary=None):
    """One client under one trial: a Rung."""
    if client == PLAIN:
        return plain(asked)
    if client == FLOOR:
        return floor(asked, binary)
    with tempfile.TemporaryDirectory(prefix="tokenswarm-bench-") as folder:
        return measured(asked, Path(folder) / "run", tokenswarm_run if client == WHOLE else wire_alone)


def wire_alone(asked, host, directory):
    """As `tokenswarm_run`, with the small script in its place."""
    directory.mkdir(parents=True)
    written = directory / "level.yaml"
    written.write_text(scenario.dump(scenario_of(asked, host)), encoding="utf-8")
    output([sys.executable, str(BENCH / "wire_alone.py"), "--scenario", str(written), "--out", str(directory)], asked)


def plain(asked):
    """What it reported in its window, beside what was sent in the same seconds."""

    def command(host):
        times_of = ["--ramp-s", str(asked.warmup_s), "--window-s", str(asked.hold_s)]
        return [sys.executable, str(BENCH / "plain_user.py"), "--host", host, "--users", str(asked.streams), *times_of]

    said, source = against(command, asked)
    ttft, gap = (reported(said[name]) for name in ("ttft_ms", "gap_ms"))
    return beside(asked, source, said["tokens_per_s"], said["cpu_share"], said["queued"], ttft=ttft, gap=gap)


def floor(asked, binary):
    """It reports no latencies: only what reading costs."""

    def command(host):
        return [binary, host.rsplit(":", 1)[1], str(asked.streams), str(asked.warmup_s), str(asked.hold_s), "0"]

    said, source = against(command, asked)
    rung = beside(asked, source, said["tokens_per_s"], said["cpu_s"] / said["window_s"], said["queued"])
    return replace(rung, coalesced=said["coalesced_reads"] / max(said["reads"], 1))


def against(command, asked):
    """What `command(host)` printed as JSON, with its own queued share, and the emitter it ran against."""
    with emitter(asked) as source:
        said = json.loads(output(command(source.url), asked))
    return said, source


def output(command, asked):
    """Stdout of a client on its core; its failure is ours."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, text=True) as process:
        pin(process.pid, asked.cores.client)
        out, _ = process.communicate()
    if process.returncode:
        raise RuntimeError(f"{Path(command[1]).name}: exit {process.returncode}")
    return out


def reported(spread):
    return None if spread["p50"] is None else Times(p50_ms=spread["p50"], p99_ms=spread["p99"])


def beside(asked, source, tokens_per_s, cpu, queued, *, ttft=None, gap=None):
    """A Rung whose sent side is the window of the client, told by the first request that reached the emitter."""
    streams = [one for one in source.streams if len(one.sent_ns) == one.tokens]
    from_ns = min(one.request_at_ns for one in source.streams) + int(asked.warmup_s * S)
    to_ns = from_ns + int(asked.hold_s * S)
    began = [one for one in streams if from_ns <= one.request_at_ns < to_ns]
    sent_ttft = np.array([one.sent_ns[0] - one.request_at_ns for one in began])
    stamps = [np.frombuffer(one.sent_ns, np.int64) for one in streams]
    gaps = np.concatenate([np.diff(at)[(at[1:] >= from_ns) & (at[1:] < to_ns)] for at in stamps] or [[]])
    late = np.concatenate([late_ns(one, asked.beat) for one in streams] or [[]])

    def both(said, sent_ns):
        return Compared(reported=said, sent=times(sent_ns)) if said and len(sent_ns) else None

    return Rung(
        streams=asked.streams,
        asked_per_s=asked.asked_per_s,
        tokens_per_s=tokens_per_s,
        requests=len(began),
        failed=0,
        ttft=both(ttft, sent_ttft),
        gap=both(gap, gaps),
        coalesced=0.0,
        cpu=cpu,
        queued=queued,
        emitting=Emitting(
            queued=source.queued,
            late_p99_ms=times(late).p99_ms if len(late) else 0.0,
            blocked=sum(one.blocked for one in source.streams),
        ),
    )


@contextmanager
def compiled_floor():
    """Path of the C loop, compiled for this machine."""
    with tempfile.TemporaryDirectory() as folder:
        binary = str(Path(folder) / "floor")
        subprocess.run(["cc", "-O2", "-o", binary, str(BENCH / "floor.c")], check=True)
        yield binary


@contextmanager
def certificate():
    """Certificate, key and CA for 127.0.0.1, as files."""
    with tempfile.TemporaryDirectory() as folder:
        authority, place = trustme.CA(), Path(folder)
        issued = authority.issue_cert("127.0.0.1")
        paths = place / "cert.pem", place / "key.pem", place / "ca.pem"
        issued.cert_chain_pems[0].write_to_path(paths[0])
        issued.private_key_pem.write_to_path(paths[1])
        authority.cert_pem.write_to_path(paths[2])
        yield paths


__all__ = ["FLOOR", "PLAIN", "WHOLE", "WIRE", "certificate", "compiled_floor", "header", "run", "trial"]
