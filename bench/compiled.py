"""The bench's own C, compiled where it runs. Needs cc."""

import ctypes
import subprocess
import tempfile
from functools import cache
from pathlib import Path

BENCH = Path(__file__).resolve().parent
FLAGS = ["-O2", "-ffp-contract=off", "-shared", "-fPIC"]
"""No contraction: sums are rounded as Python rounds them."""


@cache
def library(name):
    """`bench/NAME.c` as a library; the file may go once it is loaded."""
    with tempfile.TemporaryDirectory() as folder:
        binary = str(Path(folder) / f"{name}.so")
        subprocess.run(["cc", *FLAGS, "-o", binary, str(BENCH / f"{name}.c"), "-lm"], check=True)
        return ctypes.CDLL(binary)
