"""An Arrow array of lines as request bodies: slices of its buffer, nothing is built anew. No clock, no I/O."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

MOST_LINES = 5_000
"""Where throughput stops growing with the batch (measured on InfluxDB 1.6), and a bad line is still found soon."""
MOST_BYTES = 8_000_000
"""Below the 10 MiB that InfluxDB 3 takes and the 25 MB of 1.x."""


class Lines:
    """Lines of an array, by index. Each ends in a newline, so that any run of them is a body."""

    def __init__(self, array: Any) -> None:
        """A pyarrow array of (large) binary or string. ValueError: another type, nulls, a line without its newline."""
        wide = pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type)
        if not wide and not pa.types.is_binary(array.type) and not pa.types.is_string(array.type):
            raise ValueError(f"lines: got an array of {array.type}, expected binary or large_binary")
        if array.null_count:
            raise ValueError(f"lines: {array.null_count} of {len(array)} are null")
        self._bounds = _bounds(array, np.int64 if wide else np.int32)
        self._data = array.buffers()[2]
        if not self._end_in_newlines():
            raise ValueError("lines: at least one does not end in a newline")

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def end(self, start: int, most_bytes: int = MOST_BYTES) -> int:
        """Where a body from `start` ends (exclusive): within both limits, but never without a line."""
        fits = int(np.searchsorted(self._bounds, self._bounds[start] + most_bytes, side="right")) - 1
        return min(max(fits, start + 1), start + MOST_LINES, len(self))

    def size(self, start: int, end: int) -> int:
        """Bytes of the body from `start` to `end` (exclusive)."""
        return int(self._bounds[end] - self._bounds[start])

    def body(self, start: int, end: int) -> bytes:
        """The lines from `start` to `end` (exclusive)."""
        data: bytes = self._data.slice(int(self._bounds[start]), self.size(start, end)).to_pybytes()
        return data

    def _end_in_newlines(self) -> bool:
        if not len(self):
            return True
        if not np.all(self._bounds[1:] > self._bounds[:-1]):
            return False
        return bool(np.all(np.frombuffer(self._data, np.uint8)[self._bounds[1:] - 1] == ord("\n")))


def _bounds(array: Any, width: type[np.int32] | type[np.int64]) -> npt.NDArray[np.int64]:
    if not len(array):
        return np.zeros(1, np.int64)
    offsets = np.frombuffer(array.buffers()[1], width)
    return offsets[array.offset : array.offset + len(array) + 1].astype(np.int64)
