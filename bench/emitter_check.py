"""How fast and how exact the known emitter is, and what the cheapest and the usual client make of it. I/O.

The emitter runs on core 0. On core 1 runs, one after the other, the floor (a C loop; see floor.c) with rising numbers
of streams and the plain Locust user (see plain_user.py). What was sent is read from the emitter's truth file, for the
streams that began in the client's window. Two cores that do nothing else are wanted; `queued` says how much of the
time the emitter waited for its core, and a row with more than 2 % there describes the neighbours. The emitter spins
when it has nothing to send, so its CPU a token is a cost only where it is short of time (most streams).

    python -m bench.emitter_check [--window-s 5] [--streams 400 1000 2000 2500] [--plain 100 400] [--nap-us 0]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness.engine.emitter import SentStream, read_truth

ROOT = Path(__file__).resolve().parent.parent
RAMP_S = 2.15  # one stream's length, so that streams begin and end evenly ever after
MS, S = 1e6, 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One client against a fresh emitter: what was sent in the window, what the client said, what the emitter used."""

    ttft_ms: tuple[float, float]
    gap_ms: tuple[float, float]
    tokens_per_s: float
    blocked: int
    emitter_us: float
    """CPU of the emitter's whole life a token, waiting in a spin included."""
    queued_share: float
    said: dict


def pinned(command, core):
    """Starts a process whose stdout we read, on that core where there are two."""
    cores = sorted(os.sched_getaffinity(0))
    mine = {cores[core]} if len(cores) > 1 else set(cores)
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, mine),
    )


def p50_p99(values_ns):
    if not len(values_ns):
        return (float("nan"), float("nan"))
    p50, p99 = np.percentile(np.asarray(values_ns) / MS, [50, 99])
    return float(p50), float(p99)


def sent_in(streams: list[SentStream], from_ns, to_ns):
    """TTFTs and gaps of the whole streams that began in the window, and the tokens of all streams in it."""
    stamps = [np.array(stream.sent_ns) for stream in streams]
    tokens = sum(int(np.count_nonzero((sent >= from_ns) & (sent < to_ns))) for sent in stamps)
    whole = [
        (stream.request_at_ns, sent)
        for stream, sent in zip(streams, stamps, strict=True)
        if from_ns <= stream.request_at_ns < to_ns and len(sent) == stream.tokens
    ]
    ttfts = np.array([sent[0] - request_at_ns for request_at_ns, sent in whole])
    gaps = np.concatenate([np.diff(sent) for _, sent in whole]) if whole else np.array([])
    return ttfts, gaps, tokens


def queued_s(pid):
    """Seconds this process was ready to run and had no core."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / S


def run(client, window_s):
    """Runs `client(port)`, a command that prints JSON, against a fresh emitter."""
    with tempfile.TemporaryDirectory() as folder:
        truth = Path(folder) / "truth"
        emitter = pinned([sys.executable, "-m", "harness.engine.emitter", "--truth", str(truth)], 0)
        port = int(emitter.stdout.readline().split()[1])
        out, _ = pinned(client(port), 1).communicate()
        waited_s = queued_s(emitter.pid)
        emitter.terminate()
        _, status, used = os.wait4(emitter.pid, 0)
        emitter.returncode = os.waitstatus_to_exitcode(status)
        emitter.stdout.close()
        streams = read_truth(truth)
    from_ns = min(stream.request_at_ns for stream in streams) + RAMP_S * S
    ttfts, gaps, tokens = sent_in(streams, from_ns, from_ns + window_s * S)
    cpu_s = used.ru_utime + used.ru_stime
    return Run(
        ttft_ms=p50_p99(ttfts),
        gap_ms=p50_p99(gaps),
        tokens_per_s=tokens / window_s,
        blocked=sum(stream.blocked for stream in streams),
        emitter_us=cpu_s * 1e6 / sum(len(stream.sent_ns) for stream in streams),
        queued_share=waited_s / (waited_s + cpu_s),
        said=json.loads(out),
    )


def sent_text(done):
    return (
        f"sent: ttft {done.ttft_ms[0]:7.2f} / {done.ttft_ms[1]:7.2f} ms  gap {done.gap_ms[0]:6.3f} / "
        f"{done.gap_ms[1]:6.3f} ms  {done.tokens_per_s:8.0f}/s  blocked {done.blocked}  "
        f"emitter {done.emitter_us:5.1f} us/token (spin included)  queued {done.queued_share:.1%}"
    )


def check_floor(streams, window_s, nap_us, binary):
    done = run(lambda port: [binary, str(port), str(streams), str(RAMP_S), str(window_s), str(nap_us)], window_s)
    said = done.said
    print(f"floor  {streams:5d}  {sent_text(done)}")
    print(
        f"              read: {said['tokens_per_s']:8.0f}/s  floor {said['cpu_us_per_token']:5.2f} us/token  "
        f"coalesced {said['coalesced_reads']} of {said['reads']}  without stamp {said['unstamped_reads']}",
        flush=True,
    )


def check_plain(users, window_s):
    def client(port):
        where = ["--host", f"http://127.0.0.1:{port}", "--users", str(users)]
        return [sys.executable, "-m", "bench.plain_user", *where, "--ramp-s", str(RAMP_S), "--window-s", str(window_s)]

    done = run(client, window_s)
    said, ttft, gap = done.said, done.said["ttft_ms"], done.said["gap_ms"]
    print(f"plain  {users:5d}  {sent_text(done)}")
    print(
        f"          reported: ttft {ttft['p50']} / {ttft['p99']} ms  gap {gap['p50']} / {gap['p99']} ms  "
        f"{said['tokens_per_s']}/s  {said['cpu_us_per_token']} us/token  cpu {said['cpu_share']}  "
        f"errors {said['errors']}",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description="How fast and how exact the known emitter is.")
    parser.add_argument("--window-s", type=float, default=5.0)
    parser.add_argument("--streams", type=int, nargs="*", default=[400, 1000, 2000, 2500])
    parser.add_argument("--plain", type=int, nargs="*", default=[100, 400])
    parser.add_argument("--nap-us", type=int, default=0, help="how the floor waits; see floor.c")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        binary = str(Path(folder) / "floor")
        subprocess.run(["cc", "-O2", "-o", binary, str(ROOT / "bench" / "floor.c")], check=True)
        for streams in args.streams:
            check_floor(streams, args.window_s, args.nap_us, binary)
    for users in args.plain:
        check_plain(users, args.window_s)


if __name__ == "__main__":
    main()
