"""What a token and a stream cost: CPU, memory, log and analysis. I/O (processes, files).

    python bench/cost.py [--few 10] [--many 1000] [--hold-s 4] [--analysed 1000000]

Memory a stream is the resident set of the load-making process in the hold with many streams less that with few, by the
difference of streams. Limits wanted: ≤ 40 KB a stream; analysis of 10⁸ tokens ≤ 20 s.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import psutil
from rig import BENCH, trial
from tables import Table, show

from harness.calibrate.level import measured, tokenswarm_run
from harness.calibrate.words import verdict
from harness.record.log import read_records

LOOK_S = 0.1


class Memory:
    """Largest resident set among the Locust processes below this one, until the level has ended. Mutable."""

    def __init__(self, directory):
        self.bytes = 0
        self._until = directory / "stages.jsonl"
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()

    def _watch(self):
        while not self._over.wait(LOOK_S) and not self._until.exists():  # then comes analysis, which is no stream's
            for process in psutil.Process().children(recursive=True):
                try:
                    if "locust" in process.cmdline():
                        self.bytes = max(self.bytes, process.memory_info().rss)
                except psutil.NoSuchProcess:
                    continue


def level(streams, hold_s):
    """(Rung, resident bytes, log bytes a token) of one level of the whole path."""
    with tempfile.TemporaryDirectory(prefix="tokenswarm-bench-") as folder:
        directory = Path(folder) / "run"
        with Memory(directory) as memory:
            rung = measured(trial(streams, hold_s=hold_s), directory, tokenswarm_run)
        stored = sum(path.stat().st_size for path in directory.glob("*.arrows"))
        tokens = len(read_records(directory)["gaps_us"].combine_chunks().flatten())
    return rung, memory.bytes, stored / tokens


def analysis(requests):
    """(seconds a 10⁸ tokens, peak GB, tokens) of a fresh process on a synthetic log of 100 tokens a request."""
    command = [sys.executable, str(BENCH / "analysis_speed.py"), "--requests", str(requests)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    seconds = float(re.search(r"analysis ([\d.]+) s", said)[1])
    return seconds * 1e8 / (requests * 100), float(re.search(r"peak ([\d.]+) GB", said)[1])


def measure(args):
    few, few_bytes, _ = level(args.few, args.hold_s)
    many, many_bytes, log_bytes = level(args.many, args.hold_s)
    seconds, peak_gb = analysis(args.analysed)
    stream_kb = (many_bytes - few_bytes) / (args.many - args.few) / 1000
    at = f"{args.many} streams, 200 tokens an answer"
    cells = [
        ["CPU a token, whole path", f"{many.cpu_us_per_token:.1f} µs", "", at],
        ["memory a stream", f"{stream_kb:.1f} KB", "≤ 40 KB", f"{many_bytes / 1e6:.0f} MB less {few_bytes / 1e6:.0f}"],
        ["log a token", f"{log_bytes:.2f} bytes", "", at],
        [
            "analysis of 10⁸ tokens",
            f"{seconds:.1f} s",
            "≤ 20 s",
            f"of {args.analysed * 100:,} tokens, peak {peak_gb} GB",
        ],
    ]
    return Table(
        title="What a token and a stream cost",
        columns=["what", "measured", "wanted", "how"],
        cells=cells,
        notes=[f"{args.few} streams: {verdict(few)}", f"{args.many} streams: {verdict(many)}"],
        facts={
            "CPU µs a token": many.cpu_us_per_token,
            "KB a stream": stream_kb,
            "log bytes a token": log_bytes,
            "analysis s a 10⁸ tokens": seconds,
        },
    )


def main(argv=None):
    parser = argparse.ArgumentParser(description="CPU, memory, log bytes and analysis time.")
    parser.add_argument("--few", type=int, default=10)
    parser.add_argument("--many", type=int, default=1000)
    parser.add_argument("--hold-s", type=float, default=4.0)
    parser.add_argument("--analysed", type=int, default=1_000_000, help="requests of 100 tokens in the synthetic log")
    show("cost", [measure(parser.parse_args(argv))])


if __name__ == "__main__":
    main()
