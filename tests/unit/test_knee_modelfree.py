"""The search without a twin, against the same server in virtual time: misses are all it goes by."""

import math
from dataclasses import replace

import pytest
from msgspec import structs
from searching import PLAN, SERVER, TRUE_KNEE, TTFT, counted, searched, seen

from harness.findings import Located
from harness.knee.answer import answer
from harness.knee.climb import of
from harness.knee.fallback import Pooled
from harness.knee.modelfree import ModelFree, confirmed
from harness.knee.plan import Seen, misses, plan_cost, requests_spent
from harness.knee.search import Probe, Stop
from harness.model import Slo

AMPLE = structs.replace(PLAN, budget_requests=60_000, precision=0.06)


@pytest.fixture(scope="module")
def whole() -> tuple[list[Seen], str, Located]:
    search = ModelFree(AMPLE)
    history, why = searched(search, SERVER, [])
    return history, why, answer(search, history, stopped=why)


def test_the_knee_is_found_within_its_interval_and_the_budget(whole: tuple[list[Seen], str, Located]) -> None:
    history, why, said = whole
    assert said.method == "pooled"
    assert said.load == pytest.approx(TRUE_KNEE, rel=0.06)
    assert said.low is not None
    assert said.high is not None
    assert said.low < TRUE_KNEE < said.high
    assert math.log(said.high / said.low) / 2 <= AMPLE.precision
    assert why.startswith("known to")
    assert said.binding == "ttft_p99_ms"
    assert said.requests == requests_spent(history) <= AMPLE.budget_requests
    assert said.confirmed is not False
    assert "twin" not in said.text


def test_it_climbs_then_fits_around_the_knee_and_ends_with_a_hold_out(whole: tuple[list[Seen], str, Located]) -> None:
    history, _, said = whole
    stages = [one.why for one in history]
    assert set(stages) == {"ladder", "fit", "confirm"}
    assert sorted(stages, key=["ladder", "fit", "confirm"].index) == stages
    fitted = [one.level.load for one in of(history, "fit")]
    assert said.load is not None
    assert min(sum(load < said.load for load in fitted), sum(load > said.load for load in fitted)) >= 2
    assert history[-1].level.load == pytest.approx(said.low, rel=0.03)


def test_interrupted_anywhere_it_asks_for_the_same_level(whole: tuple[list[Seen], str, Located]) -> None:
    history = whole[0]
    for done in range(len(history)):
        step = ModelFree(AMPLE).next_probe(history[:done])
        assert isinstance(step, Probe)
        assert (step.load, step.why) == (history[done].level.load, history[done].why)
    assert isinstance(ModelFree(AMPLE).next_probe(history), Stop)


def test_a_small_budget_ends_it_with_a_wider_interval() -> None:
    search = ModelFree(structs.replace(AMPLE, budget_requests=9_000))
    history, why = searched(search, SERVER, [])
    assert requests_spent(history) <= 9_000
    assert "was asked for" in why
    said = answer(search, history)
    assert said.low is not None
    assert said.high is not None
    assert said.low < TRUE_KNEE < said.high


def test_a_budget_for_a_single_pair_of_levels_still_says_something() -> None:
    search = ModelFree(structs.replace(AMPLE, budget_requests=6_000))
    history, _ = searched(search, SERVER, [])
    assert len(of(history, "fit")) == 2
    assert answer(search, history).load == pytest.approx(TRUE_KNEE, rel=0.2)


def test_of_two_clauses_the_one_that_breaks_first_binds() -> None:
    both = structs.replace(AMPLE, slo=Slo(ttft_p99_ms=300.0, e2e_p99_ms=60_000.0), budget_requests=12_000)
    search = ModelFree(both)
    assert answer(search, searched(search, SERVER, [])[0]).binding == "ttft_p99_ms"


def test_before_the_fit_nothing_is_known() -> None:
    search = ModelFree(AMPLE)
    first = search.next_probe([])
    assert isinstance(first, Probe)
    assert answer(search, [seen(SERVER, first, [])]).load is None


@pytest.mark.parametrize(("load", "expected"), [(14.0, True), (26.0, False)])
def test_a_hold_out_confirms_or_contradicts(load: float, expected: bool) -> None:
    held_out = replace(seen(SERVER, Probe(load, requests=2000, why="confirm"), []), why="confirm")
    found = Pooled(load=18.0, low=load, high=20.0, slope=30.0, dispersion=20.0)
    assert confirmed([held_out], TTFT, found) is expected, misses(TTFT, held_out.observed)
    assert confirmed([], TTFT, found) is None


def test_the_cost_is_said_before() -> None:
    assert plan_cost(AMPLE, method="fit").text.startswith("up to 60,000 requests")


def test_a_rung_that_broke_by_luck_does_not_say_where_to_fit() -> None:
    rungs = [seen(SERVER, Probe(load, requests=150, why="ladder"), []) for load in (2.0, 4.0, 8.0, 16.0, 32.0)]
    ttft_s = rungs[0].observed.ttft_s.copy()
    ttft_s[-2:] = 1.0
    level = structs.replace(rungs[0].level, held="broken")
    rungs[0] = replace(rungs[0], level=level, observed=replace(rungs[0].observed, ttft_s=ttft_s))
    assert rungs[-1].level.held == "broken"
    step = ModelFree(PLAN).next_probe(rungs)
    assert isinstance(step, Probe)
    assert (step.why, 16 < step.load < 32) == ("fit", True)


def test_an_interval_ends_where_nothing_was_measured() -> None:
    """Misses that do not grow with the load have a curve all the same, and it leads anywhere."""
    flat = counted((2.0, 5, 500), (4.0, 6, 500), (8.0, 5, 500), why="fit")
    said = answer(ModelFree(PLAN), flat)
    assert (said.low, said.high) == (2.0, 8.0)
