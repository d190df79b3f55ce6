"""All that is known of a run, wherever it was kept: what a Report is made from. Reads a run directory; no clock."""

from pathlib import Path

import pyarrow as pa
from msgspec import Struct

from harness.model import RunHeader, Stage
from harness.record.directory import read_header, read_stages
from harness.record.reading import read_health, read_records, read_server


class Facts(Struct, frozen=True, kw_only=True):
    """Header, stages run to their end, and the tables of the log as `record.reading` gives them."""

    header: RunHeader
    stages: list[Stage]
    records: pa.Table
    health: pa.Table
    server: pa.Table


def facts_of(directory: Path) -> Facts:
    """Those of a run directory. Raises NoRun, or LogError when the log is damaged in its middle."""
    return Facts(
        header=read_header(directory),
        stages=read_stages(directory),
        records=read_records(directory),
        health=read_health(directory),
        server=read_server(directory),
    )
