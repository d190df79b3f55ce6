"""Where a worker keeps what the master has not taken yet. Knows the folder for temporary files; no other I/O."""

import os
import tempfile
from pathlib import Path

from harness.model import RunHeader


def spool_of(header: RunHeader, worker: int) -> Path:
    """Where a worker keeps its own copy until the master has it: of this run only, whatever other runs were called."""
    spools = Path(tempfile.gettempdir()) / f"tokenswarm-spool-{os.getuid()}"
    return spools / f"{header.run_id}-{header.started_ns}" / f"worker-{worker}"
