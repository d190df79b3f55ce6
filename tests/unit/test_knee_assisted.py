"""The model-assisted search against a server in virtual time that is slower than any twin can see from one level."""

import math
from dataclasses import replace

import numpy as np
import pytest
from msgspec import structs
from searching import HEALTHY, PLAN, SERVER, TRAFFIC, TRUE_KNEE, TTFT, counted, observed, searched, seen

from harness.findings import Located
from harness.knee.answer import answer
from harness.knee.assisted import Assisted
from harness.knee.climb import broken, counted_bracket, inside, of
from harness.knee.control import correction, loaded
from harness.knee.estimate import Twins, interval
from harness.knee.plan import REQUESTS, Seen, misses, plan_cost, requests_spent
from harness.knee.search import Probe, Stop
from harness.model import Slo
from harness.twin import fast
from harness.twin.observed import Observation
from harness.twin.server import Server


@pytest.fixture(scope="module")
def search() -> Assisted:
    return Assisted(PLAN)


@pytest.fixture(scope="module")
def whole(search: Assisted) -> tuple[list[Seen], str, Located]:
    history, why = searched(search, SERVER, [])
    return history, why, answer(search, history)


def test_the_knee_is_found_within_its_interval_and_the_budget(whole: tuple[list[Seen], str, Located]) -> None:
    history, _, said = whole
    assert said.method == "twin"
    assert said.load == pytest.approx(TRUE_KNEE, rel=0.04)
    assert said.low is not None
    assert said.high is not None
    assert said.low < TRUE_KNEE < said.high
    assert said.binding == "ttft_p99_ms"
    assert said.requests == requests_spent(history) <= PLAN.budget_requests
    assert said.confirmed is not False
    assert abs(said.drift or 0) < 0.01


def test_stages_come_in_order(whole: tuple[list[Seen], str, Located]) -> None:
    stages = [one.why for one in whole[0]]
    order = ["ladder", "calibrate", "verify", "anchor", "confirm"]
    assert sorted(stages, key=order.index) == stages
    assert stages.count("verify") >= 3
    assert [stages.count(stage) for stage in ("calibrate", "anchor", "confirm")] == [3, 1, 1]


def test_verification_surrounds_the_answer(whole: tuple[list[Seen], str, Located]) -> None:
    history, _, said = whole
    loads = [one.level.load for one in of(history, "verify")]
    assert said.load is not None
    assert min(loads) < said.load < max(loads)


def test_a_search_that_was_interrupted_asks_for_the_same_level(whole: tuple[list[Seen], str, Located]) -> None:
    """A fresh search has no memory of results; the levels alone decide."""
    history = whole[0]
    first = [one.why for one in history].index("calibrate")
    for done in (first - 2, first):
        step = Assisted(PLAN).next_probe(history[:done])
        assert isinstance(step, Probe)
        assert (step.load, step.why) == (history[done].level.load, history[done].why)


def test_a_finished_search_stays_finished(search: Assisted, whole: tuple[list[Seen], str, Located]) -> None:
    history, why, said = whole
    assert search.next_probe(history) == Stop(why)
    assert answer(search, history) == said


def test_a_server_that_slows_down_gets_a_band_and_the_reason(
    search: Assisted, whole: tuple[list[Seen], str, Located]
) -> None:
    verified = [one.why for one in whole[0]].index("verify")
    history, why = searched(search, slower(SERVER, 1.08), whole[0][: verified + 2])
    said = answer(search, history)
    assert said.method == "band"
    assert "the server changed" in why
    assert said.drift is not None
    assert 0.06 < said.drift < 0.25, "a step is 8 % longer, and more sequences share it"
    assert "anchor" in said.sure
    assert not of(history, "confirm")


def test_preemptions_send_the_search_to_pooled_misses(search: Assisted, whole: tuple[list[Seen], str, Located]) -> None:
    history = [replace(one, preemptions=2) for one in whole[0] if one.why != "confirm"]
    said, believed = answer(search, history), whole[2]
    assert said.method == "pooled"
    assert "preempted" in said.sure
    assert said.load == pytest.approx(believed.load, rel=0.08)
    step = search.next_probe(history)
    assert isinstance(step, Probe)
    assert (step.why, step.requests) == ("fallback", REQUESTS["fallback"])


def slower(server: Server, factor: float) -> Server:
    knots = tuple((batch, ms * factor) for batch, ms in server.knots)
    return structs.replace(server, knots=knots, per_prefill_token_ms=server.per_prefill_token_ms * factor)


def test_a_client_that_was_in_the_way_is_asked_again_and_then_ends_it() -> None:
    search = Assisted(PLAN)
    first = search.next_probe([])
    assert first == Probe(2.0, requests=150, why="ladder")
    limited = seen(SERVER, first, [])
    busy = structs.replace(limited.level, client=structs.replace(HEALTHY, limited=True), why="late")
    limited = replace(limited, level=busy)
    assert search.next_probe([limited]) == first
    assert search.next_probe([limited, limited]) == Stop("level 2 could not be used: late")
    robbed = replace(limited, level=structs.replace(busy, client=structs.replace(busy.client, stolen=0.05)))
    assert search.next_probe([robbed] * 4) == first  # the host may be quieter a moment later
    assert search.next_probe([robbed] * 5) == Stop("level 2 could not be used: late")
    assert answer(search, [limited]).method == "none"


def test_the_climb_goes_down_where_its_foot_breaks() -> None:
    search = Assisted(structs.replace(PLAN, ladder=[100.0]))
    history = [seen(SERVER, Probe(100.0, requests=150, why="ladder"), [])]
    assert history[0].level.held == "broken"
    assert search.next_probe(history) == Probe(50.0, requests=150, why="ladder")


def test_a_rung_that_broke_by_luck_is_climbed_over() -> None:
    """Two of 150 beyond a P99 limit break a level, and one rung in four of a server at its knee has them."""
    search = Assisted(PLAN)
    rung = seen(SERVER, Probe(2.0, requests=150, why="ladder"), [])
    for missed, lucky in ((2, True), (4, True), (5, False), (30, False)):
        ttft_s = rung.observed.ttft_s.copy()
        ttft_s[-missed:] = 1.0
        level = replace(
            rung, level=structs.replace(rung.level, held="broken"), observed=replace(rung.observed, ttft_s=ttft_s)
        )
        assert (broken(PLAN, [level]) == []) == lucky
        assert search.next_probe([level]) == Probe(4.0 if lucky else 1.0, requests=150, why="ladder")


def test_a_rung_that_broke_by_a_clause_that_is_not_counted_here_is_broken() -> None:
    rung = seen(SERVER, Probe(2.0, requests=150, why="ladder"), [])
    assert misses(TTFT, rung.observed)[0] == 0
    failing = replace(rung, level=structs.replace(rung.level, held="broken"))
    assert broken(PLAN, [failing]) == [2.0]


@pytest.mark.parametrize("eta", [-0.06, 0.0, 0.05])
def test_a_correction_finds_the_load_that_explains_what_was_measured(eta: float) -> None:
    """The measured level is the twin's own at another load: nothing but eta differs."""
    level = observed(SERVER, 18.5, 2500, 9)
    shown = fast.run(SERVER, loaded(level.trace, eta))
    found = correction(SERVER, replace(level, ttft_s=shown.ttft_s, tpot_s=shown.tpot_s), TTFT)
    assert found is not None
    assert found.eta == pytest.approx(eta, abs=0.015)
    assert found.rank > 0.5


def test_more_users_are_whole_users_and_start_in_the_same_span() -> None:
    trace = TRAFFIC.closed(20, 300, 1, starts_s=np.linspace(0, 5, 20))
    more = loaded(trace, math.log(1.26))
    assert more.users == 25
    assert more.starts_s is not None
    assert (more.starts_s.min(), more.starts_s.max(), len(more.starts_s)) == (0, 5, 25)


def test_a_closed_loop_is_corrected_between_whole_users() -> None:
    trace = TRAFFIC.closed(40, 1500, 1)
    lives = fast.run(SERVER, loaded(trace, math.log(44 / 40)))
    level = Observation(
        load=40, loop="closed", trace=trace, counts=np.arange(1500) >= 100, ttft_s=lives.ttft_s, tpot_s=lives.tpot_s
    )
    found = correction(SERVER, level, TTFT)
    assert found is not None
    assert found.eta == pytest.approx(math.log(44 / 40), abs=0.03)


def test_three_corrections_that_agree_by_chance_do_not_claim_certainty() -> None:
    _, few = interval([0.01, 0.01, 0.01], 0.0)
    _, many = interval([0.01] * 10, 0.0)
    assert 0.015 < few < 0.04
    assert many < few
    assert interval([0.02, 0.04], 0.0)[0] == pytest.approx(0.03)


def test_the_interval_covers_what_it_claims() -> None:
    rng = np.random.default_rng(8)
    covered = 0
    for _ in range(2000):
        mean, half = interval(list(rng.normal(0.0, 0.03, 4)), 0.0)
        covered += abs(mean) <= half
    assert 0.93 <= covered / 2000 <= 0.99


def test_the_cost_is_said_before() -> None:
    cost = plan_cost(PLAN, guess=15.0)
    assert 10_000 < cost.requests <= PLAN.budget_requests
    assert cost.minutes is not None
    assert 10 < cost.minutes < 25
    assert f"{cost.requests:,} requests" in cost.text
    assert plan_cost(structs.replace(PLAN, loop="closed")).minutes is None


def test_an_slo_the_twin_cannot_judge_is_refused_in_one_line() -> None:
    with pytest.raises(ValueError, match=r"slo: no latency clause: expected one or more of ttft, itl, tpot, e2e"):
        structs.replace(PLAN, slo=Slo(error_share=0.01)).clauses()


@pytest.mark.parametrize(("budget", "stages"), [(6_200, "verify"), (4_000, "")])
def test_a_small_budget_verifies_before_it_confirms(budget: int, stages: str) -> None:
    """What nothing verified is not confirmed: the first of what is left goes into a verification."""
    search = Assisted(structs.replace(PLAN, budget_requests=budget))
    history, why = searched(search, SERVER, [])
    spent = {one.why for one in history} & {"verify", "confirm"}
    assert spent == ({stages} if stages else set())
    assert "budget spent" in why
    assert answer(search, history).load == pytest.approx(TRUE_KNEE, rel=0.1)


def test_a_bracket_is_of_levels_that_hold_or_break_clearly() -> None:
    levels = counted((2.0, 0, 150), (4.0, 2, 2000), (6.0, 12, 2000), (7.0, 90, 2000), (9.0, 40, 700))
    assert counted_bracket(TTFT, levels) == (4.0, 7.0), "none of 150 tells nothing, and 12 of 20 allowed may be luck"
    assert counted_bracket(TTFT, levels[:1]) == (0.0, math.inf)
    assert counted_bracket(TTFT, counted((8.0, 0, 2000), (5.0, 90, 2000))) == (0.0, 5.0), (
        "a broken one below speaks first"
    )


@pytest.mark.parametrize(
    ("guess", "loads", "near"),
    [
        (5.0, (4.0, 7.0), 5.0),
        (3.5, (4.0, 7.0), 3.5),
        (2.0, (4.0, 9.0), 6.0),
        (20.0, (4.0, 9.0), 6.0),
        (1.0, (4.0, None), math.sqrt(32)),
        (20.0, (None, 8.0), math.sqrt(32)),
        (20.0, (None, None), 20.0),
    ],
)
def test_a_guess_far_outside_of_what_was_counted_is_not_followed(
    guess: float, loads: tuple[float | None, float | None], near: float
) -> None:
    holds, breaks = loads
    levels = [(holds, 0, 2000)] * (holds is not None) + [(breaks, 200, 2000)] * (breaks is not None)
    assert inside(guess, TTFT, counted(*levels)) == pytest.approx(near)  # type: ignore[arg-type]


def test_tokens_a_second_are_a_clause_on_the_median_tpot() -> None:
    plan = structs.replace(PLAN, slo=Slo(tps_per_user_min=50.0))
    level, twins = observed(SERVER, 15.0, 900, 4), Twins(plan)
    found = twins.estimates(twins.fitted([level]), [level])[0]
    assert (found.limit.name, found.limit.ms, found.limit.quantile) == ("tps_per_user_min", 20.0, 0.5)
    assert found.load > 2
    assert misses(found.limit, level)[0] > 0


def test_requests_without_a_first_token_are_misses() -> None:
    level = observed(SERVER, 2.0, 100, 1)
    lost = level.ttft_s.copy()
    lost[-5:] = np.nan
    assert misses(TTFT, level)[0] + 5 == misses(TTFT, replace(level, ttft_s=lost))[0]
