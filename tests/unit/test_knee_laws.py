"""Saturation laws on curves whose law is known."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.findings import Usl
from harness.knee.laws import kneedle, little, usl

USERS = (1, 2, 4, 8, 16, 32, 64)


@given(st.floats(0.1, 100), st.floats(0, 0.2), st.floats(0, 0.01))
def test_usl_finds_the_law_that_made_the_points(lone_rps: float, contention: float, coherence: float) -> None:
    law = Usl(lone_rps=lone_rps, contention=contention, coherence=coherence, error=0)
    found = usl([(users, law.rps(users)) for users in USERS])
    assert found is not None
    assert found.lone_rps == pytest.approx(lone_rps, rel=1e-6)
    assert found.contention == pytest.approx(contention, abs=1e-6)
    assert found.coherence == pytest.approx(coherence, abs=1e-6)
    assert found.error < 1e-6


def test_usl_peaks_where_gunther_says() -> None:
    law = Usl(lone_rps=10, contention=0.1, coherence=0.001, error=0)
    assert law.peak == pytest.approx(math.sqrt(0.9 / 0.001))
    assert law.rps(30) > max(law.rps(25), law.rps(36))
    assert Usl(lone_rps=10, contention=0.1, coherence=0, error=0).peak is None


def test_usl_needs_four_different_loads() -> None:
    assert usl([(1, 5), (2, 9), (4, 15)]) is None
    assert usl([(1, 5), (2, 9), (4, 15), (4, 15.1)]) is None


def test_kneedle_finds_the_bend_of_a_hockey_stick() -> None:
    points = [(users, min(users, 8) * 3.0) for users in range(1, 21)]
    assert kneedle(points) == 8


@given(st.floats(0.5, 50), st.floats(-10, 10))
def test_kneedle_sees_no_bend_in_a_line(slope: float, start: float) -> None:
    assert kneedle([(x, start + slope * x) for x in (1.0, 2.0, 4.0, 8.0, 16.0)]) is None


def test_kneedle_sees_nothing_in_three_points_or_on_a_plain() -> None:
    assert kneedle([(1, 1), (2, 2), (3, 2)]) is None
    assert kneedle([(1, 5), (2, 5), (3, 5), (4, 5)]) is None


def test_little_is_one_where_the_level_was_steady() -> None:
    assert little(in_flight=20, arrivals_rps=10, time_in_system_s=2) == pytest.approx(1)
    assert little(in_flight=30, arrivals_rps=10, time_in_system_s=2) == pytest.approx(1.5)
    assert little(in_flight=3, arrivals_rps=0, time_in_system_s=2) is None
    assert little(in_flight=0, arrivals_rps=4, time_in_system_s=0) is None
