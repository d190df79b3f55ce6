"""The knee search on levels whose verdict is a function of their load, and what it may claim."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.findings import Client, Held, Level
from harness.knee.bracket import knee_of
from harness.knee.search import Grid, NextProbe, Probe, Stop, knee, listed

LADDER = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]
USERS = Grid(ladder=LADDER, whole=True, precision=0.05)
RATES = Grid(ladder=[5.0, 10.0, 20.0, 40.0], whole=False, precision=0.05)
HEALTHY = Client(
    lag_p99_ms=0.1, hub_delay_p99_ms=1, cpu=0.1, runnable=0, coalesced_share=0, stamp_source="kernel", limited=False
)


def level(index: int, load: float, held: Held, axis: str = "users", *, limited: bool = False) -> Level:
    return Level(
        index=index, load=load, axis=axis, hold_s=1, due=9, offered_rps=9, achieved_rps=9, output_tps=load * 10,
        input_tps=1, goodput_rps=9, attainment=1, error_share=0, outcomes={"ok": 9}, metrics={}, tokens_per_event=1,
        in_flight=load, running=load, settled=True, client=HEALTHY if not limited else _limited(), clauses=[],
        held=held, why={"broken": "ttft_p99_ms 31 > 20", "unjudged": "client-limited: late"}.get(held, ""),
    )  # fmt: skip


def _limited() -> Client:
    return Client(
        lag_p99_ms=90, hub_delay_p99_ms=1, cpu=1, runnable=0, coalesced_share=0.5, stamp_source="kernel", limited=True
    )


def searched(plan: NextProbe, verdict: Callable[[float], Held], axis: str = "users") -> tuple[list[Level], str]:
    history: list[Level] = []
    while isinstance(step := plan(history), Probe):
        assert len(history) < 60, "the search does not end"
        history.append(level(len(history), step.load, verdict(step.load), axis))
    assert isinstance(step, Stop)
    return history, step.why


def breaking_above(limit: float) -> Callable[[float], Held]:
    return lambda load: "held" if load <= limit else "broken"


@given(st.integers(1, 31))
def test_users_are_bracketed_exactly(limit: int) -> None:
    history, _ = searched(knee(USERS), breaking_above(limit))
    found = knee_of(history, "users")
    assert (found.found, found.holds, found.breaks) == ("bracket", limit, limit + 1)
    assert found.binding == "ttft_p99_ms 31 > 20"
    assert found.output_tps == limit * 10
    assert len(history) <= 6 + 4


@given(st.floats(5, 39.9))
def test_rates_are_bracketed_to_the_precision_asked(limit: float) -> None:
    history, _ = searched(knee(RATES), breaking_above(limit), "rate")
    found = knee_of(history, "rate")
    assert found.holds is not None
    assert found.breaks is not None
    assert found.holds <= limit < found.breaks
    assert (found.breaks - found.holds) / found.holds <= 0.05


def test_no_knee_up_to_the_top() -> None:
    history, why = searched(knee(USERS), breaking_above(1000))
    found = knee_of(history, "users")
    assert (found.found, found.holds, found.breaks) == ("none_up_to", 32, None)
    assert found.text == "no knee up to 32 users: every level held"
    assert why == "the ladder's top held"


def test_breaks_already_at_one_user() -> None:
    history, _ = searched(knee(USERS), breaking_above(0))
    found = knee_of(history, "users")
    assert (found.found, found.holds, found.breaks) == ("breaks_at_first", None, 1)


def test_a_ladder_that_starts_too_high_is_searched_below() -> None:
    history, _ = searched(knee(Grid(ladder=[16.0, 32.0], whole=True, precision=0.05)), breaking_above(3))
    found = knee_of(history, "users")
    assert (found.holds, found.breaks) == (3, 4)
    history, _ = searched(knee(Grid(ladder=[16.0, 32.0], whole=False, precision=0.05)), breaking_above(3), "rate")
    assert knee_of(history, "rate").found == "bracket"


def test_a_level_that_cannot_be_judged_is_tried_twice_and_used_for_nothing() -> None:
    history, why = searched(knee(USERS), lambda load: "held" if load < 8 else "unjudged")
    found = knee_of(history, "users")
    assert [one.load for one in history] == [1, 2, 4, 8, 8]
    assert (found.found, found.holds, found.breaks) == ("undecided", 4, None)
    assert "client-limited" in found.text
    assert "held up to 4 users" in found.text
    assert "8" in why


def test_an_unjudged_level_inside_the_bracket_is_named() -> None:
    history, _ = searched(knee(USERS), lambda load: "unjudged" if load == 6 else "held" if load <= 4 else "broken")
    found = knee_of(history, "users")
    assert (found.found, found.holds, found.breaks) == ("bracket", 4, 8)
    assert "6 users, between them, could not be judged" in found.text


def test_never_above_a_level_that_broke() -> None:
    levels = [level(0, 4, "held"), level(1, 8, "broken"), level(2, 16, "held")]
    found = knee_of(levels, "users")
    assert (found.holds, found.breaks) == (4, 8)
    assert "16 held above it" in found.text


@given(st.lists(st.tuples(st.integers(1, 40), st.sampled_from(["held", "broken", "unjudged"])), min_size=1))
def test_whatever_was_measured_the_claim_was_measured(measured: list[tuple[int, Held]]) -> None:
    levels = [level(index, load, held) for index, (load, held) in enumerate(measured)]
    found = knee_of(levels, "users")
    held = {load for load, verdict in measured if verdict == "held"}
    broken = {load for load, verdict in measured if verdict == "broken"}
    assert found.holds is None or found.holds in held
    assert found.breaks is None or found.breaks == min(broken)
    assert found.holds is None or not broken or found.holds < min(broken)


def test_no_level_at_all_is_undecided() -> None:
    assert knee_of([], "users").found == "undecided"


@pytest.mark.parametrize("loads", [[1.0], [4.0, 2.0, 4.0]])
def test_listed_levels_are_run_as_listed(loads: list[float]) -> None:
    history, _ = searched(listed(loads), breaking_above(2))
    assert [one.load for one in history] == loads
