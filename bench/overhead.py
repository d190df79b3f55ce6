"""How long before the first request, and how long from the last token to the report? I/O (processes, files).

    python bench/overhead.py [--streams 1000] [--tokens 1000000]

Both against the known emitter, whose truth file says when the first request reached it and when the last token left.
Limits wanted: ≤ 2 s from the command to the first request, ≤ 3 s from the last of 10⁶ tokens to the report.
"""

import argparse
import math
import subprocess
import sys
import tempfile
from pathlib import Path
from time import time_ns

from rig import trial
from tables import Table, show

from harness.calibrate.source import emitter, pin


def timed(streams, hold_s):
    """(s to the first request, s from last token to report.html, s to the end of the command, tokens) of one run."""
    asked = trial(streams, tokens=100, hold_s=hold_s)
    with tempfile.TemporaryDirectory(prefix="tokenswarm-bench-") as folder:
        directory = Path(folder) / "run"
        with emitter(asked) as source:
            began_ns = time_ns()
            code = command(source.url, asked, directory)
            ended_ns = time_ns()
        page = directory / "report.html"
        if not page.exists():
            raise RuntimeError(f"tokenswarm run made no report (exit {code})")
        written_ns = page.stat().st_mtime_ns
    first_ns = min(one.request_at_ns for one in source.streams)
    last_ns = max(max(one.sent_ns) for one in source.streams if one.sent_ns)
    tokens = sum(len(one.sent_ns) for one in source.streams)
    return (first_ns - began_ns) / 1e9, (written_ns - last_ns) / 1e9, (ended_ns - last_ns) / 1e9, tokens


def command(host, asked, directory):
    """What a person would type; its exit code tells of an SLO that does not exist here."""
    typed = ["run", "--host", host, "--users", str(asked.streams), "--hold", f"{asked.hold_s:g}"]
    typed += ["--output-tokens", str(asked.tokens), "-s", f"phases.warmup_s={asked.ramp_s}", "--out", str(directory)]
    process = subprocess.Popen(
        [sys.executable, "-m", "harness.cli", *typed], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    pin(process.pid, asked.cores.client)
    return process.wait()


def measure(args):
    """A short run for the start, a long one for the end."""
    first_s, *_ = timed(10, 0.5)
    rate = trial(args.streams, tokens=100).asked_per_s
    _, report_s, end_s, tokens = timed(args.streams, max(1.0, math.ceil(args.tokens / rate - 2)))
    cells = [
        ["command to first request on the wire", f"{first_s:.2f} s", "≤ 2 s", "`tokenswarm run --host … --users 10`"],
        ["last token to report.html", f"{report_s:.2f} s", "≤ 3 s", f"{tokens:,} tokens, {args.streams} users"],
        ["last token to the end of the command", f"{end_s:.2f} s", "", "the same run"],
    ]
    facts = {"s to first request": first_s, "s to report": report_s, "s to end": end_s, "tokens": tokens}
    return Table(title="Overhead", columns=["what", "measured", "wanted", "how"], cells=cells, facts=facts)


def main(argv=None):
    parser = argparse.ArgumentParser(description="Start and end of a run.")
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--tokens", type=int, default=1_000_000)
    show("overhead", [measure(parser.parse_args(argv))])


if __name__ == "__main__":
    main()
