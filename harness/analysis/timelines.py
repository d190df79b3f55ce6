"""Token timelines of telling requests, for the report to draw. Pure."""

import math

import numpy as np

from harness.analysis.frame import Frame
from harness.clock import MS, US
from harness.findings import Level, Sample

SAMPLES = 12
PER_LEVEL = 3
"""Median TTFT, worst TTFT, worst gap."""


def samples(frame: Frame, levels: list[Level]) -> list[Sample]:
    """Up to twelve requests: of up to four levels, evenly picked and the last among them, three each."""
    room = SAMPLES // PER_LEVEL
    picked = levels if len(levels) <= room else [levels[i * (len(levels) - 1) // (room - 1)] for i in range(room)]
    places = [(level.index, place) for level in picked for place in _telling(frame, level.index)]
    return [_sample(frame, level, place) for level, place in places]


def _telling(frame: Frame, level: int) -> list[int]:
    part = frame.judged(level)
    rows = frame.rows.iloc[part]
    waits = rows["first"].to_numpy()
    streamed = np.flatnonzero(~np.isnan(waits))
    if not len(streamed):
        return []
    by_wait = streamed[np.argsort(waits[streamed], kind="stable")]
    chosen = [by_wait[(len(by_wait) - 1) // 2], by_wait[-1]]
    gaps = rows["worst_gap"].to_numpy()
    if not np.isnan(gaps).all():
        chosen.append(np.nanargmax(gaps))
    return [part.start + int(row) for row in dict.fromkeys(chosen)]


def _sample(frame: Frame, level: int, place: int) -> Sample:
    row = frame.rows.iloc[place]
    gaps, _ = frame.gaps_of(place, place + 1)
    since_due_us = np.concatenate([[0], np.cumsum(gaps, dtype=np.int64)]) + row["first"] / US
    return Sample(
        request_id=int(row["request_id"]),
        level=level,
        outcome=str(row["outcome"]),
        events_ms=[round(float(us) / 1e3, 3) for us in since_due_us],
        e2e_ms=None if math.isnan(row["last"]) else round(float(row["last"]) / MS, 3),
    )
