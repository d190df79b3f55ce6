"""TPOT that scatters about its twin's: what is read off some levels must say of others how many miss."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from searching import PLAN, SERVER, TRAFFIC, observed

from harness.knee.above import even, soft_misses, softness
from harness.knee.control import correction, loaded
from harness.knee.estimate import Twins, counting_sd, interval
from harness.metrics import limits
from harness.model import Slo
from harness.twin import fast
from harness.twin.observed import Observation
from harness.twin.scatter import EXACT, Scatter
from harness.twin.scatter_tpot import RESIDUALS, RequestScatter, request_scatter

DRAFTS = 0.5
"""Standard deviation of ln TPOT for an answer of two tokens; of n + 1 tokens, 1/√n of it."""
LOADS = (12.0, 15.0, 17.0)
TPOT = limits(Slo(tpot_p99_ms=40.0))[0]


def scattered(level: Observation, seed: int, sd: float = DRAFTS) -> Observation:
    """The same level of a server whose every step varies: answers that are over soon vary most."""
    later = np.maximum(level.trace.output_tokens - 1, 1)
    luck = np.random.default_rng(seed).normal(0, sd, len(later)) / np.sqrt(later)
    return replace(level, tpot_s=level.tpot_s * np.exp(luck))


@pytest.fixture(scope="module")
def found() -> RequestScatter:
    levels = [scattered(observed(SERVER, load, 1500, seed), seed) for seed, load in enumerate(LOADS)]
    made = request_scatter(SERVER, levels)
    assert made is not None
    return made


def test_short_answers_scatter_most(found: RequestScatter) -> None:
    groups = np.array(found.residuals)
    assert groups.shape == (len(found.longest) + 1, RESIDUALS)
    assert np.all(np.diff(groups, axis=1) >= 0)
    spread = groups[:, RESIDUALS * 84 // 100] - groups[:, RESIDUALS * 16 // 100]
    assert spread[0] > 2 * spread[-1]
    assert np.all(np.abs(groups[:, RESIDUALS // 2]) < 0.02), "the middle of each is the twin's own"
    assert np.all(np.array(found.slopes) > 0.7)


@pytest.mark.parametrize("load", [10.0, 16.0, 18.0])
def test_it_says_how_many_miss_at_another_load(found: RequestScatter, load: float) -> None:
    fresh = scattered(observed(SERVER, load, 60_000, 99), 98)
    lives = fast.run(SERVER, fresh.trace)
    told = np.isfinite(fresh.tpot_s)
    for quantile in (0.9, 0.99, 0.995):
        limit_s = float(np.quantile(fresh.tpot_s[told], quantile))
        share = found.missed(lives.tpot_s, lives.output_tokens, limit_s)[told].mean()
        assert share == pytest.approx(1 - quantile, rel=0.35), f"P{100 * quantile:g}"


def test_its_spread_and_its_misses_are_one_distribution(found: RequestScatter) -> None:
    lives = fast.run(SERVER, TRAFFIC.trace(15.0, 2000, 5))
    limit_s = 0.03
    spread = found.spread_ln(lives.tpot_s, lives.output_tokens)
    told = np.isfinite(lives.tpot_s)
    assert len(spread) == RESIDUALS * told.sum()
    misses = found.missed(lives.tpot_s, lives.output_tokens, limit_s)
    assert np.mean(spread > np.log(limit_s)) == pytest.approx(misses[told].mean(), rel=1e-9)
    assert np.all(misses[~told] == 0)


def test_differences_that_only_the_twin_sees_are_not_believed() -> None:
    """All answers of a level took about as long, whatever the twin says of each."""
    levels = []
    for seed, load in enumerate(LOADS):
        level = observed(SERVER, load, 1500, seed)
        even = np.exp(np.nanmean(np.log(level.tpot_s)) + np.random.default_rng(seed).normal(0, 0.05, len(level.trace)))
        levels.append(replace(level, tpot_s=np.where(np.isfinite(level.tpot_s), even, np.nan)))
    found = request_scatter(SERVER, levels)
    assert found is not None
    assert max(found.slopes) < 0.2


def test_a_tail_that_is_longer_than_its_many_say_is_stretched() -> None:
    """One answer in forty took twice as long, but only of those that the twin has among its slowest fourth."""
    levels = []
    for seed, load in enumerate(LOADS):
        level = observed(SERVER, load, 2000, seed)
        slow = level.tpot_s > np.nanquantile(level.tpot_s, 0.75)
        unlucky = slow & (np.random.default_rng(seed).random(len(slow)) < 0.1)
        levels.append(replace(level, tpot_s=np.where(unlucky, 2.0, 1.0) * level.tpot_s))
    found = request_scatter(SERVER, levels)
    assert found is not None
    for level in levels:
        lives, told = fast.run(SERVER, level.trace), np.isfinite(level.tpot_s)
        limit_s = float(np.quantile(level.tpot_s[told], 0.985))
        share = found.missed(lives.tpot_s, lives.output_tokens, limit_s)[told].mean()
        assert 0.008 < share < 0.025


def test_too_few_answers_say_nothing_of_their_scatter() -> None:
    assert request_scatter(SERVER, [observed(SERVER, 12.0, 150, 1)]) is None


def test_it_survives_the_summary(found: RequestScatter) -> None:
    assert msgspec.json.decode(msgspec.json.encode(found), type=RequestScatter) == found


@pytest.mark.parametrize("eta", [-0.08, 0.0, 0.08])
def test_a_correction_looks_through_the_scatter(found: RequestScatter, eta: float) -> None:
    """The server is the twin at another load, and its answers scatter; without knowing that they do, it looks slow."""
    level = observed(SERVER, 17.0, 4000, 9)
    shown = fast.run(SERVER, loaded(level.trace, eta))
    real = scattered(replace(level, ttft_s=shown.ttft_s, tpot_s=shown.tpot_s), 10)
    limit = limits(Slo(tpot_p99_ms=1e3 * float(np.nanquantile(real.tpot_s, 0.99))))[0]
    informed, plain = correction(SERVER, real, limit, Scatter(tpot=found)), correction(SERVER, real, limit)
    assert informed is not None
    assert plain is not None
    assert informed.eta == pytest.approx(eta, abs=0.06)
    assert plain.eta - eta > 0.05


def test_a_search_uses_it_for_tpot_alone() -> None:
    levels = [scattered(observed(SERVER, load, 900, seed), seed) for seed, load in enumerate(LOADS)]
    twins = Twins(PLAN)
    fitted = twins.fitted(levels)
    assert fitted.scatter.tpot is not None
    ttft = twins.estimates(fitted, [levels[-1]])[0]
    assert twins.estimates(msgspec.structs.replace(fitted, scatter=EXACT), [levels[-1]])[0].load == ttft.load


def test_where_misses_hardly_grow_with_load_counting_them_says_little() -> None:
    twins = Twins(PLAN)
    predicted = twins.predicted(twins.fitted([observed(SERVER, 17.0, 900, 3)]), TPOT, 20_000)
    steep, flat = (counting_sd(msgspec.structs.replace(predicted, slope=slope), TPOT, 2000) for slope in (30.0, 3.0))
    assert flat == pytest.approx(10 * steep)
    assert flat == pytest.approx(np.sqrt(99 / 2000) / 3)
    assert counting_sd(msgspec.structs.replace(predicted, slope=0.0), TPOT, 2000) == 0
    assert interval([0.01, 0.0, -0.01], 0.0, flat)[1] > 3 * interval([0.01, 0.0, -0.01], 0.0, steep)[1]


def test_soft_misses_look_at_the_limit_and_not_at_how_far_beyond_the_worst_are() -> None:
    above = np.concatenate((np.full(980, -1.0), np.linspace(-0.2, 0.2, 20)))
    worse = np.where(above > 0.15, above + 5, above)
    assert soft_misses(even(above), 0.1) == soft_misses(even(worse), 0.1) == pytest.approx(np.log(0.01), abs=0.1)
    lower, here, higher = (soft_misses(even(above + by), 0.1) for by in (-0.1, 0.0, 0.1))
    assert lower < here < higher


@pytest.mark.parametrize("quantile", [0.5, 0.9, 0.99, 0.999])
def test_the_width_lets_some_count_wherever_the_limit_is(quantile: float) -> None:
    rng = np.random.default_rng(3)
    for at in (-2.0, -0.1, 0.0, 0.3):
        above = even(at + rng.normal(0, 0.2, 5000) - np.quantile(rng.normal(0, 0.2, 5000), quantile))
        width = softness(above, quantile)
        assert width >= 0.01
        assert soft_misses(above, width) > -12


def test_half_a_miss_makes_the_logarithm_of_a_count_right_in_the_mean() -> None:
    counts = np.random.default_rng(4).poisson(8.0, 4000)
    logs = [soft_misses(even(np.repeat([1.0, -1.0], [count, 800 - count])), 0.1, more=0.5) for count in counts]
    assert np.mean(logs) == pytest.approx(np.log(8 / 800), abs=0.015)
