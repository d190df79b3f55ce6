"""Saturation laws over the levels of a run: what is fitted, what is left out, and why a number is missing."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from report_example import level

from harness.findings import Laws, Level, Usl
from harness.knee.saturation import laws_of, throughput

USERS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
TURNS_DOWN = Usl(lone_rps=10, contention=0.05, coherence=0.001, error=0)
"""N* = √(0.95 / 0.001) = 30.8 users."""


def settled(index: int, load: float, rps: float) -> Level:
    return replace(level(index, load), achieved_rps=rps, settled=True)


def ladder(law: Usl, users: tuple[float, ...] = USERS) -> list[Level]:
    """Levels of a server that obeys a law to the letter."""
    return [settled(index, load, law.rps(load)) for index, load in enumerate(users)]


def test_a_law_with_its_peak_among_the_levels_is_found() -> None:
    found = laws_of(ladder(TURNS_DOWN))
    assert found.levels == [0, 1, 2, 3, 4, 5, 6]
    assert found.usl is not None
    assert found.usl.contention == pytest.approx(0.05)
    assert found.usl.coherence == pytest.approx(0.001)
    assert found.peak == pytest.approx(math.sqrt(0.95 / 0.001))
    assert found.kneedle == 16
    assert found.missing == {}


@pytest.mark.parametrize("change", [{"settled": False}, {"client": level(0, 1.0, limited=True).client}])
def test_a_level_that_tells_of_more_than_the_server_enters_no_fit(change: dict[str, object]) -> None:
    levels = ladder(TURNS_DOWN)
    odd = replace(settled(7, 24.0, 1.5), **change)
    assert laws_of([*levels[:3], odd, *levels[3:]]) == laws_of(levels)
    assert laws_of([*levels, replace(odd, settled=True, client=levels[0].client)]) != laws_of(levels)


def test_a_level_that_answered_nothing_enters_no_fit() -> None:
    assert laws_of([*ladder(TURNS_DOWN), settled(7, 128.0, 0.0)]) == laws_of(ladder(TURNS_DOWN))


def test_a_load_measured_twice_counts_as_its_mean() -> None:
    assert throughput([settled(0, 8.0, 30.0), settled(1, 2.0, 9.0), settled(2, 8.0, 40.0)]) == [(2, 9), (8, 35)]
    levels = ladder(TURNS_DOWN)
    again = [replace(levels[3], index=7, achieved_rps=levels[3].achieved_rps + d) for d in (-1.0, 1.0)]
    found = laws_of([*levels, *again])
    assert found.levels == [0, 1, 2, 3, 4, 5, 6, 7, 7]
    assert found.peak == pytest.approx(math.sqrt(0.95 / 0.001))


def law(contention: float, coherence: float) -> Usl:
    return Usl(lone_rps=10, contention=contention, coherence=coherence, error=0)


@pytest.mark.parametrize(
    ("levels", "why"),
    [
        (ladder(law(0, 0)), "no saturation is visible up to 64 users"),
        (ladder(law(0.0005, 1e-5)), "no saturation is visible up to 64 users"),
        ([*ladder(law(0.1, 0)), settled(7, 128.0, 95.0)], "throughput levels off and never falls (κ = 0)"),
        (ladder(law(0.05, 0.0001)), "beyond 64 users, the most fitted"),
        (ladder(law(0.5, 0.8)), "throughput does not grow from the first level on"),
        (ladder(law(1.5, 0)), "throughput does not grow from the first level on"),
    ],
)
def test_a_peak_that_was_not_measured_is_not_told(levels: list[Level], why: str) -> None:
    found = laws_of(levels)
    assert found.usl is not None
    assert found.peak is None
    assert found.missing["peak"] == why


def test_a_law_that_misses_its_levels_is_no_law() -> None:
    found = laws_of([settled(index, load, load if index % 2 else 5 * load) for index, load in enumerate(USERS)])
    assert (found.usl, found.peak) == (None, None)
    assert found.missing["usl"] == found.missing["peak"]
    assert found.missing["usl"].startswith("the closest law of this form is off by ")
    assert found.levels == [0, 1, 2, 3, 4, 5, 6]


def test_no_law_holds_where_one_user_would_get_nothing_or_all() -> None:
    steep = [settled(index, load, 1 / (load - 1)) for index, load in enumerate((2.0, 3.0, 5.0, 9.0))]
    assert laws_of(steep).missing["usl"] == "no law of this form goes through the levels"


def test_throughput_that_stays_in_proportion_has_no_knee() -> None:
    found = laws_of(ladder(law(0, 0)))
    assert found.kneedle is None
    assert found.missing["kneedle"] == "no bend stands out up to 64 users"


def test_three_loads_are_too_few_and_repeats_do_not_help() -> None:
    levels = ladder(TURNS_DOWN, (4.0, 8.0, 16.0, 16.0))
    why = "of the 4 different loads it takes, 3 settled with the client out of the way"
    assert laws_of(levels) == Laws(missing={"usl": why, "peak": why, "kneedle": why})
    assert laws_of([]).missing["usl"].startswith("of the 4 different loads it takes, 0 settled")


def test_an_open_loop_has_neither_law() -> None:
    found = laws_of([replace(each, axis="rate") for each in ladder(TURNS_DOWN)])
    assert (found.levels, found.usl, found.peak, found.kneedle) == ([], None, None, None)
    assert {"the loop is open, and both laws are of a fixed number of users"} == set(found.missing.values())


@given(st.lists(st.tuples(st.integers(1, 300), st.floats(0, 1e4)), max_size=12))
def test_whatever_was_measured_each_law_is_told_or_excused(measured: list[tuple[int, float]]) -> None:
    found = laws_of([settled(index, float(users), rps) for index, (users, rps) in enumerate(measured)])
    told = {name for name in ("usl", "peak", "kneedle") if getattr(found, name) is not None}
    assert told.isdisjoint(found.missing)
    assert told | found.missing.keys() == {"usl", "peak", "kneedle"}
    assert found.peak is None or min(users for users, _ in measured) <= found.peak <= max(u for u, _ in measured)
