"""A map on disk: map.json, map.md and map.html, each whole or not at all. I/O (writes files)."""

from pathlib import Path

import msgspec

from harness.knee.map import BatchMap
from harness.record.directory import put
from harness.report import batch_map as rendered

MAP, TEXT, PAGE = "map.json", "map.md", "map.html"


def write(directory: Path, found: BatchMap) -> Path:
    """All three; returns the path of the page."""
    directory.mkdir(parents=True, exist_ok=True)
    put(directory / MAP, msgspec.json.format(msgspec.json.encode(found, order="deterministic"), indent=2) + b"\n")
    put(directory / TEXT, rendered.text(found).encode())
    return put(directory / PAGE, rendered.html(found).encode())


def read(directory: Path) -> BatchMap:
    """The map as it was written last. Raises ValueError."""
    path = directory / MAP
    try:
        return msgspec.json.decode(path.read_bytes(), type=BatchMap)
    except OSError:
        raise ValueError(f"{directory}: no {MAP}; a map is made by `tokenswarm knee SCENARIO --batch …`") from None
    except msgspec.DecodeError as error:
        raise ValueError(f"{path}: {error}; expected a map of this program") from None
