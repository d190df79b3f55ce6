"""What may take the twin's word away, and what may not."""

import math
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from harness.knee.veto import (
    Check,
    Correction,
    Counted,
    Veto,
    drifted,
    failing,
    far,
    miscounted,
    moved,
    preempted,
    rank_correlation,
    trend,
    unfit,
    unlike,
    vetoes,
)

STEEP = 30.0


def corrections(etas: list[float], loads: list[float] | None = None, rank: float = 0.9) -> list[Correction]:
    at = loads or [10.3, 9.8] * len(etas)
    return [
        Correction(load=load, at_s=100.0 * place, eta=eta, rank=rank)
        for place, (eta, load) in enumerate(zip(etas, at, strict=False))
    ]


@given(st.lists(st.floats(-0.015, 0.015), min_size=1, max_size=8))
def test_small_corrections_pass(etas: list[float]) -> None:
    assert vetoes(corrections(etas), STEEP) == []


def test_nothing_verified_is_no_veto() -> None:
    assert vetoes([], STEEP) == []


@pytest.mark.parametrize(("eta", "pace"), [(0.12, "12% slower"), (-0.12, "12% faster")])
def test_a_mean_of_more_than_ten_percent_is_another_engine(eta: float, pace: str) -> None:
    found = vetoes(corrections([eta] * 3), STEEP)
    assert [veto.check for veto in found] == ["mean eta"]
    assert pace in found[0].text


@pytest.mark.parametrize(
    ("slope", "eta", "passes"), [(5, 0.19, True), (5, 0.21, False), (2, 0.31, False), (0, 0.11, False)]
)
def test_where_misses_hardly_grow_with_load_more_is_let_pass(slope: float, eta: float, passes: bool) -> None:
    assert (far(np.full(3, eta), slope) is None) == passes


def counted(*pairs: tuple[float, float]) -> list[Counted]:
    return [Counted(load=10.0 + place, missed=missed, expected=said) for place, (missed, said) in enumerate(pairs)]


def test_a_twin_that_misses_otherwise_where_it_was_fitted_is_not_believed() -> None:
    found = miscounted(counted((0, 31), (54, 46), (4, 58), (1, 20)))
    assert found is not None
    assert found.check == "misses"
    assert found.text == "at 12, which it was fitted to, 4 requests missed and the twin expects 58"


@pytest.mark.parametrize("pairs", [[], [(0, 0)] * 4, [(7, 12), (9, 5), (14, 14)], [(0, 3), (2, 5), (6, 2), (1, 0)]])
def test_counts_as_far_apart_as_luck_brings_them_are_let_pass(pairs: list[tuple[float, float]]) -> None:
    assert miscounted(counted(*pairs)) is None


@pytest.mark.parametrize(
    ("checks", "band"),
    [
        (["drift"], True),
        (["trend with time", "rank"], True),
        (["drift", "fit"], True),
        (["drift", "mean eta"], False),
        (["misses", "drift"], False),
        (["rank"], False),
        ([], False),
    ],
)
def test_a_band_is_for_a_server_that_moved_and_no_other_than_its_twin(checks: list[Check], band: bool) -> None:
    assert moved([Veto(check, "") for check in checks]) == band


def test_luck_is_mistaken_for_a_miscount_in_few_searches() -> None:
    rng = np.random.default_rng(8)
    means = rng.uniform(0, 40, (2000, 4))
    false = sum(miscounted(counted(*zip(*rng.poisson((mean, mean)), strict=True))) is not None for mean in means)
    assert false <= 30


def test_a_server_that_slows_is_seen_as_a_trend_with_time() -> None:
    found = vetoes(corrections([-0.05, -0.021, 0.01, 0.04, 0.071]), STEEP)
    assert [veto.check for veto in found] == ["trend with time"]
    assert "+12.1%" in found[0].text


def test_a_correction_that_grows_with_load_is_seen() -> None:
    loads = [10.6, 9.4, 10.0, 9.7, 10.3]
    etas = [0.5 * math.log(load / 10) + tiny for load, tiny in zip(loads, (0.001, 0, -0.001, 0, 0), strict=True)]
    assert [veto.check for veto in vetoes(corrections(etas, loads), STEEP)] == ["trend with load"]


def test_three_points_make_no_trend() -> None:
    assert trend(np.array([0.0, 0.04, 0.08]), np.array([0.0, 1.0, 2.0]), "time") is None


def test_noise_is_seldom_called_a_trend() -> None:
    rng = np.random.default_rng(5)
    called = sum(trend(rng.normal(0, 0.03, 5), np.arange(5.0), "time") is not None for _ in range(1000))
    assert called <= 35


def test_requests_that_wait_in_another_order_speak_against_the_twin() -> None:
    found = vetoes(corrections([0.01, 0.0, -0.01], rank=0.3), STEEP)
    assert [veto.check for veto in found] == ["rank"]
    assert unlike(np.array([math.nan, math.nan])) is None


def test_far_of_nothing_is_nothing() -> None:
    assert far(np.zeros(0), STEEP) is None


def test_preemptions_errors_and_drift() -> None:
    assert preempted(None) is None
    assert preempted(0) is None
    assert preempted(3) is not None
    assert failing(0, 0) is None
    assert failing(5, 5000) is None
    assert failing(6, 5000) is not None
    assert drifted(None) is None
    assert drifted(0.029) is None
    veto = drifted(-0.041)
    assert veto is not None
    assert "-4.1%" in veto.text


@given(st.lists(st.integers(0, 30), min_size=10, max_size=200), st.randoms(use_true_random=False))
def test_rank_correlation_with_ties_is_spearmans(values: list[int], random: Random) -> None:
    x = np.array(values, float)
    y = np.array(random.sample(values, len(values)), float)
    expected = spearmanr(x, y).statistic if len(set(values)) > 1 else math.nan
    assert rank_correlation(x, y) == pytest.approx(expected, abs=1e-9, nan_ok=True)


def test_rank_correlation_is_that_of_ranks() -> None:
    x = np.arange(20.0)
    assert rank_correlation(x, np.exp(x)) == pytest.approx(1)
    assert rank_correlation(x, -x) == pytest.approx(-1)
    assert math.isnan(rank_correlation(x, np.full(20, 3.0)))
    assert math.isnan(rank_correlation(x[:9], x[:9]))
    assert rank_correlation(np.append(x, np.nan), np.append(x, 5.0)) == pytest.approx(1)


def test_a_twin_that_misses_its_own_levels_is_not_believed() -> None:
    assert unfit(0.25) is None
    veto = unfit(0.36)
    assert veto is not None
    assert veto.text == "the twin is 36% off at the levels it was fitted to; expected within 25%"
