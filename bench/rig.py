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
from harness.calibrate.level import measured, tokenswarm_run
from harness.calibrate.rung import Compared, Emitting, Rung, Times
from harness.calibrate.source import emitter, pin
from harness.calibrate.trial import Trial, scenario_of, split_cores
from harness.clock import S

ROOT = Path(__file__).resolve().parent.parent
BENCH = ROOT / "bench"
WHOLE, WIRE, PLAIN, FLOOR = "tokenswarm", "its wire alone", "plain Locust user", "C loop (floor.c)"


def trial(streams, *, tokens=200, hold_s=4.0, ramp_s=2.0, tls=None):
    """50 tokens a second a stream. Streams begin evenly over the ramp; 0: all at once, so they march in step.

    The hold is at least as long as an answer, so that every stream begins one in it.
    """
    asked = Trial(streams=streams, tokens=tokens, ramp_s=ramp_s, warmup_s=ramp_s + 0.2, cores=split_cores(), tls=tls)
    return replace(asked, hold_s=max(hold_s, asked.stream_s + 0.1))


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
    written = directory.with_suffix(".yaml")
    written.write_text(scenario.dump(scenario_of(asked, host)), encoding="utf-8")
    output([sys.executable, str(BENCH / "wire_alone.py"), "--scenario", str(written), "--out", str(directory)], asked)


def plain(asked):
    """What it reported in its window, beside what was sent in the same seconds."""

    def command(host):
        times_of = ["--ramp-s", str(asked.warmup_s), "--window-s", str(asked.hold_s)]
        return [sys.executable, str(BENCH / "plain_user.py"), "--host", host, "--users", str(asked.streams), *times_of]

    said, source = against(command, asked)
    sent = sent_in_window(asked, source, said)
    ttft, gap = (both(said[name], values) for name, values in zip(("ttft_ms", "gap_ms"), sent, strict=True))
    return replace(rung(asked, source, said), requests=said["requests"], ttft=ttft, gap=gap)


def floor(asked, binary):
    """It reports no latencies: only what reading costs."""

    def command(host):
        return [binary, host.rsplit(":", 1)[1], str(asked.streams), str(asked.warmup_s), str(asked.hold_s), "0"]

    said, source = against(command, asked)
    said["cpu_share"] = said["cpu_s"] / said["window_s"]
    return replace(rung(asked, source, said), coalesced=said["coalesced_reads"] / max(said["reads"], 1))


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


def both(said_ms, sent_ns):
    """None where the client or the emitter has nothing."""
    if said_ms["p50"] is None or not len(sent_ns):
        return None
    return Compared(reported=Times(p50_ms=said_ms["p50"], p99_ms=said_ms["p99"]), sent=times(sent_ns))


def sent_in_window(asked, source, said):
    """TTFTs (from the emitter's own reading of the request) and gaps in the client's window, told by its first request.

    The plain user's requests are on the wire tens of ms after it notes their start when it is busy; that wait is what
    is to be seen, so it must not be part of what was sent.
    """
    whole = [one for one in source.streams if len(one.sent_ns) == one.tokens]
    from_ns = min(one.request_at_ns for one in source.streams) + int(asked.warmup_s * S)
    to_ns = from_ns + int(said["window_s"] * S)
    ttfts = [one.sent_ns[0] - one.request_at_ns for one in whole if from_ns <= one.request_at_ns < to_ns]
    stamps = [np.frombuffer(one.sent_ns, np.int64) for one in whole]
    gaps = [np.diff(at)[(at[1:] >= from_ns) & (at[1:] < to_ns)] for at in stamps]
    return np.array(ttfts, np.int64), np.concatenate(gaps) if gaps else np.array([], np.int64)


def rung(asked, source, said):
    """What a client tells of itself and the emitter of itself; no latencies yet."""
    late = np.concatenate([late_ns(one, asked.beat) for one in source.streams])
    return Rung(
        streams=asked.streams,
        asked_per_s=asked.asked_per_s,
        tokens_per_s=said["tokens_per_s"],
        requests=0,
        failed=said.get("errors", 0),
        ttft=None,
        gap=None,
        coalesced=0.0,
        cpu=said["cpu_share"],
        queued=said["queued"],
        stolen=source.stolen,
        emitting=Emitting(
            queued=source.queued,
            late_p99_ms=times(late).p99_ms,
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
