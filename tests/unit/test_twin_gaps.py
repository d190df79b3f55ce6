"""Gaps between tokens: counted, unfolded into how they scatter about a twin's steps, and searched for their knee."""

import math
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from searching import PLAN, SERVER, TRAFFIC, observed, seen

from harness.knee.answer import answer
from harness.knee.assisted import Assisted
from harness.knee.control import correction, loaded
from harness.knee.estimate import Twins
from harness.knee.plan import Seen, misses
from harness.knee.search import Probe, Stop
from harness.metrics import limits
from harness.model import Slo
from harness.twin import fast
from harness.twin.gaps import CELL_LN, CELLS, LN, Gaps, gaps
from harness.twin.misses import misses as simulated
from harness.twin.observed import Observation
from harness.twin.predict import knee
from harness.twin.scatter import Scatter
from harness.twin.scatter_itl import GapScatter, gap_scatter, unfolded

SLO = Slo(itl_p99_ms=30.0)
ITL = limits(SLO)[0]
LOADS = (12.0, 15.0, 17.0)


def normal(sd: float, late: float = 0.0) -> GapScatter:
    """Residuals of this standard deviation, and a share `late` of 100 to 400 % more."""
    cells = np.arange(-80, 400)
    core = np.exp(-0.5 * (cells * CELL_LN / sd) ** 2)
    tail = ((cells * CELL_LN > math.log(2)) & (cells * CELL_LN < math.log(5))).astype(float)
    chances = (1 - late) * core / core.sum() + late * tail / tail.sum()
    return GapScatter(shortest=-80, chances=tuple(chances.tolist()))


JITTER = normal(0.05, late=0.002)


def jittered(level: Observation, seed: int, scatter: GapScatter = JITTER) -> Observation:
    assert level.gaps is not None
    tokens = np.random.default_rng(seed).poisson(scatter.spread(level.gaps).tokens).astype(float)
    return replace(level, gaps=Gaps(tokens))


def test_gaps_are_counted_by_length() -> None:
    counted = gaps(np.array([0.01, 0.02, 0.04]), np.array([90.0, 9.0, 1.0]))
    assert counted.total == 100
    assert counted.share_beyond(0.03) == pytest.approx(0.01)
    assert counted.share_beyond(0.015) == pytest.approx(0.10)
    assert np.exp(counted.quantile_ln([0.5, 0.95])) == pytest.approx([0.01, 0.02], rel=CELL_LN)


def test_what_lies_beyond_the_grid_is_counted_at_its_ends() -> None:
    counted = gaps(np.array([0.0, 1e9]), np.array([3.0, 1.0]))
    assert (counted.tokens[0], counted.tokens[-1]) == (3, 1)
    assert counted.share_beyond(1e-9) == 1
    assert counted.share_beyond(1e12) == 0


def test_no_gaps_are_no_share() -> None:
    none = Gaps(np.zeros(CELLS))
    assert none.share_beyond(0.03) == 0
    assert np.isnan(none.quantile_ln([0.5])).all()


def test_a_cell_is_split_evenly_at_the_limit() -> None:
    counted = Gaps(np.eye(CELLS)[1500] * 8)
    edges = LN[1500] + CELL_LN * np.array([-0.5, -0.25, 0.25, 0.5])
    assert [counted.share_beyond(math.exp(edge)) for edge in edges] == pytest.approx([1, 0.75, 0.25, 0], abs=1e-6)


def test_a_run_has_the_gaps_of_its_requests_and_no_others() -> None:
    lives = fast.run(SERVER, TRAFFIC.trace(16.0, 900, 4))
    some = np.arange(900) % 3 == 0
    counted = lives.gaps(some)
    assert counted.total == (lives.output_tokens[some] - 1).sum()
    for limit_s in (0.012, 0.02, 0.03):
        slow = lives.slow_gaps(limit_s)[some].sum() / counted.total
        assert counted.share_beyond(limit_s) == pytest.approx(slow, abs=0.02), "to the width of a cell"


@pytest.mark.parametrize("late", [0.0, 0.004])
@pytest.mark.parametrize("sd", [0.01, 0.04, 0.12])
def test_a_scatter_is_found_again_from_what_it_did(sd: float, late: float) -> None:
    levels = [jittered(observed(SERVER, load, 1500, seed), seed, normal(sd, late)) for seed, load in enumerate(LOADS)]
    found = gap_scatter(SERVER, levels)
    assert found is not None
    fresh = fast.run(SERVER, TRAFFIC.trace(18.0, 30_000, 77))
    steps, truth = fresh.gaps(np.ones(30_000, bool)), normal(sd, late)
    for quantile in (0.9, 0.97, 0.99, 0.995):
        limit_s = float(np.exp(truth.spread(steps).quantile_ln([quantile])[0]))
        assert found.spread(steps).share_beyond(limit_s) == pytest.approx(1 - quantile, rel=0.2), f"P{100 * quantile:g}"


def test_one_step_at_a_time_says_the_same_as_all_together() -> None:
    step_s = np.array([0.011, 0.02, 0.029, 0.05])
    each = JITTER.missed(step_s, np.ones(4), 0.03)
    folded = [JITTER.spread(gaps(step_s[place : place + 1], np.ones(1))).share_beyond(0.03) for place in range(4)]
    assert each == pytest.approx(folded, abs=0.06), "a step is as long as the middle of its cell"
    assert np.all(np.diff(each) > 0)


@pytest.mark.parametrize("slope", [0.6, 1.0, 1.5])
def test_steps_that_a_server_tells_apart_otherwise_are(slope: float) -> None:
    """The slope is found again, and so are the misses of another load."""
    shown = GapScatter(slope=slope, shortest=JITTER.shortest, chances=JITTER.chances)
    levels = [jittered(observed(SERVER, load, 1500, seed), seed, shown) for seed, load in enumerate(LOADS)]
    found = gap_scatter(SERVER, levels)
    assert found is not None
    assert found.slope == pytest.approx(slope, abs=0.15)
    steps = fast.run(SERVER, TRAFFIC.trace(18.0, 30_000, 77)).gaps(np.ones(30_000, bool))
    limit_s = float(np.exp(shown.spread(steps).quantile_ln([0.99])[0]))
    assert found.spread(steps).share_beyond(limit_s) == pytest.approx(0.01, rel=0.25)


def test_too_few_tokens_say_nothing() -> None:
    assert gap_scatter(SERVER, [observed(SERVER, 12.0, 30, 1)]) is None
    assert gap_scatter(SERVER, [replace(observed(SERVER, 12.0, 900, 1), gaps=None)]) is None
    assert unfolded([]) is None


def test_it_survives_the_summary() -> None:
    scatter = Scatter(itl=JITTER)
    assert msgspec.json.decode(msgspec.json.encode(scatter), type=Scatter) == scatter


@pytest.mark.parametrize("eta", [-0.06, 0.0, 0.06])
def test_a_correction_is_how_much_more_load_the_twin_needs(eta: float) -> None:
    level = observed(SERVER, 17.0, 4000, 9)
    shown = fast.run(SERVER, loaded(level.trace, eta))
    real = jittered(replace(level, ttft_s=shown.ttft_s, tpot_s=shown.tpot_s, gaps=shown.gaps(level.counts)), 10)
    assert real.gaps is not None
    limit = limits(Slo(itl_p99_ms=1e3 * float(np.exp(real.gaps.quantile_ln([0.99])[0]))))[0]
    found = correction(SERVER, real, limit, Scatter(itl=JITTER))
    assert found is not None
    assert found.eta == pytest.approx(eta, abs=0.03)
    assert math.isnan(found.rank)
    assert correction(SERVER, replace(real, gaps=None), limit) is None


def test_the_twin_counts_chances_where_gaps_scatter() -> None:
    """A prediction with scatter is what the scattered gaps of a long run say."""
    lives = fast.run(SERVER, TRAFFIC.trace(17.0, 40_000, 3))
    said = simulated(ITL, [lives], [slice(0, 40_000)], Scatter(itl=JITTER))
    counted = JITTER.spread(lives.gaps(np.ones(40_000, bool))).share_beyond(0.03)
    assert said.share == pytest.approx(counted, rel=0.03)
    assert said.n == (lives.output_tokens - 1).sum()
    assert said.vif > 3, "the tokens of a step are late together"


def test_slow_tokens_stand_for_as_large_a_share_of_requests() -> None:
    level = observed(SERVER, 17.0, 1100, 5)
    assert level.gaps is not None
    missed, requests = misses(ITL, level)
    assert requests == 1000
    assert missed == pytest.approx(1000 * level.gaps.share_beyond(0.03))


def test_counts_are_of_requests_worth_of_tokens() -> None:
    level = jittered(observed(SERVER, 17.0, 2200, 5), 6)
    twins = Twins(msgspec.structs.replace(PLAN, slo=SLO))
    found = twins.counted(twins.fitted([level]), level, ITL)
    assert found is not None
    assert found.missed == pytest.approx(misses(ITL, level)[0], rel=0.2)
    assert found.expected == pytest.approx(found.missed, rel=0.4)
    assert twins.counted(twins.fitted([level]), replace(level, gaps=None), ITL) is None


@pytest.fixture(scope="module")
def whole() -> tuple[Assisted, list[Seen], str]:
    search, history = Assisted(msgspec.structs.replace(PLAN, slo=SLO)), list[Seen]()
    while isinstance(step := search.next_probe(history), Probe):
        plain = seen(SERVER, step, history)
        real = jittered(plain.observed, 1000 + len(history))
        missed, requests = misses(ITL, real)
        level = msgspec.structs.replace(plain.level, held="broken" if missed > 0.01 * requests else "held")
        history.append(replace(plain, level=level, observed=real))
    assert isinstance(step, Stop)
    return search, history, step.why


def test_the_knee_of_itl_is_found_within_its_interval(whole: tuple[Assisted, list[Seen], str]) -> None:
    search, history, _ = whole
    said = answer(search, history)
    truth = knee(SERVER, TRAFFIC, SLO, loop="open", seed=5, requests=150_000, scatter=Scatter(itl=JITTER)).load
    assert (said.method, said.binding) == ("twin", "itl_p99_ms")
    assert said.low is not None
    assert said.high is not None
    assert said.load == pytest.approx(truth, rel=0.06)
    assert said.low < truth < said.high
    assert said.high / said.low < 1.25
    assert said.scatter is not None
    assert said.scatter["tpot"]
    assert msgspec.convert(said.scatter, Scatter).itl is not None


def test_the_interval_knows_that_steps_are_counted(whole: tuple[Assisted, list[Seen], str]) -> None:
    search, history, _ = whole
    usable = [one.observed for one in history if one.why in ("calibrate", "verify")]
    twins = Twins(search.plan)
    fitted = twins.fitted(usable[:3])
    scattered = twins.estimates(fitted, usable[3:5])[0]
    exact = twins.estimates(msgspec.structs.replace(fitted, scatter=Scatter()), usable[3:5])[0]
    assert scattered.counted_sd > 0 == exact.counted_sd
    unverified = twins.estimates(fitted, [])[0]
    assert 0 < unverified.counted_sd < 0.5, "nothing verified yet is no infinite doubt"
