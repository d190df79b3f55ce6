"""Do 95 % intervals of ratios hold the truth? Simulated pairs of runs whose ratio is known, seeded."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.signal import lfilter

from harness.analysis.distributions import tally
from harness.analysis.intervals import FINEST, Array, bounds
from harness.analysis.ratios import Sampled, quantile_ratio, rate_ratio
from harness.findings import Level
from harness.knee.changes import Ratio, change, decided, said, spoilt

RUNS = 120


def logs(correlation: float, requests: int, seed: int, runs: int = RUNS) -> Array:
    """Standard normal AR(1) series of this lag-1 correlation, one run a row."""
    shocks = np.random.default_rng(seed).standard_normal((runs, requests))
    shocks[:, 1:] *= np.sqrt(1 - correlation**2)
    return np.asarray(lfilter([1.0], [1.0, -correlation], shocks, axis=1))


def sampled(values: Array) -> Sampled:
    return Sampled(blocks=[tally(values[a:b]) for a, b in pairwise(bounds(len(values)))], requests=len(values))


def ratios(new: Array, old: Array, q: float, *, same: bool = False) -> list[Ratio]:
    return [quantile_ratio(sampled(a), sampled(b), q, same_arrivals=same) for a, b in zip(new, old, strict=True)]


def held(found: list[Ratio], truth: float) -> tuple[float, float]:
    """Share of pairs that were given an interval, and share of these whose interval holds the truth."""
    given = [each.ends for each in found if each.ends is not None]
    return len(given) / len(found), sum(low <= truth <= high for low, high in given) / max(len(given), 1)


def width(found: list[Ratio]) -> float:
    return float(np.median([each.ends[1] / each.ends[0] for each in found if each.ends is not None]))


@pytest.mark.parametrize(
    ("correlation", "requests", "q"), [(0.0, 400, 0.5), (0.0, 2000, 0.99), (0.5, 1000, 0.9), (0.9, 2000, 0.5)]
)
def test_intervals_of_ratios_hold_the_truth(correlation: float, requests: int, q: float) -> None:
    """At least 92 % of 120 pairs: 95 % less one and a half standard errors."""
    new, old = (np.exp(0.5 * logs(correlation, requests, seed)) for seed in (1, 2))
    given, right = held(ratios(1.1 * new, old, q), 1.1)
    assert given >= 0.8
    assert right >= 0.92


@pytest.mark.parametrize("q", [0.5, 0.99])
def test_what_both_runs_met_alike_cancels_and_the_truth_is_still_held(q: float) -> None:
    """The same arrivals, and a tenth of the variance of each run's own: a narrower interval that holds as often."""
    met = logs(0.5, 2000, 3)
    new, old = (np.exp(0.5 * (np.sqrt(0.9) * met + np.sqrt(0.1) * logs(0.0, 2000, seed))) for seed in (4, 5))
    alone, shared = (ratios(1.1 * new, old, q, same=same) for same in (False, True))
    given, right = held(shared, 1.1)
    assert given >= 0.8
    assert right >= 0.93
    assert width(shared) - 1 < 0.75 * (width(alone) - 1)


def test_arrivals_that_are_said_to_be_the_same_and_are_not_do_no_harm() -> None:
    new, old = (np.exp(0.5 * logs(0.0, 1000, seed)) for seed in (6, 7))
    assert held(ratios(new, old, 0.9, same=True), 1.0)[1] >= 0.92


def test_a_quantile_without_an_interval_gives_a_ratio_without_one() -> None:
    new, old = (np.exp(logs(0.0, 400, seed, runs=1)) for seed in (8, 9))
    (few,) = ratios(new, old, 0.99)
    assert few.point is not None
    assert few.ends is None


def test_a_run_without_values_has_no_ratio() -> None:
    something = sampled(np.exp(logs(0.0, 400, 1, runs=1)[0]))
    none = quantile_ratio(sampled(np.empty(0)), something, 0.5, same_arrivals=False)
    assert (none.new, none.point, none.ends) == (None, None, None)
    assert none.old is not None
    assert quantile_ratio(sampled(np.zeros(400)), something, 0.5, same_arrivals=False).point is None


def test_units_of_blocks_are_taken_out() -> None:
    new, old = (np.exp(logs(0.0, 400, seed, runs=1)[0]) for seed in (8, 9))
    tenths = quantile_ratio(
        Sampled(blocks=sampled(10 * new).blocks, requests=400, per_ms=10.0), sampled(old), 0.5, same_arrivals=False
    )
    plain = quantile_ratio(sampled(new), sampled(old), 0.5, same_arrivals=False)
    assert (tenths.new, tenths.point) == pytest.approx((plain.new, plain.point))
    assert tenths.ends == pytest.approx(plain.ends)


# --- rates ------------------------------------------------------------------------------------------------------------


def parts(mean: float, correlation: float, seed: int, runs: int = 400) -> Array:
    """Counts in FINEST parts of a hold: Poisson about a mean that wanders by 10 %."""
    wander = np.exp(0.1 * logs(correlation, FINEST, seed, runs))
    return np.random.default_rng(seed).poisson(mean * wander).astype(np.float64)


@pytest.mark.parametrize("correlation", [0.0, 0.3, 0.5])
@pytest.mark.parametrize("mean", [20, 200])
def test_intervals_of_rates_hold_the_truth(mean: float, correlation: float) -> None:
    new, old = (parts(mean, correlation, seed) for seed in (1, 2))
    found = [rate_ratio(a, b, FINEST * int(mean)) for a, b in zip(new, old, strict=True)]
    given, right = held(found, 1.0)
    assert given >= 0.95
    assert right >= 0.93


def test_a_rate_of_too_few_requests_or_of_nothing_has_no_interval() -> None:
    some = np.full(FINEST, 2.0)
    assert rate_ratio(some, some, 49) == Ratio(old=2.0, new=2.0, point=1.0)
    assert rate_ratio(some, some, 50).ends == (1.0, 1.0)
    assert rate_ratio(np.zeros(FINEST), some, 500) == Ratio(old=2.0, new=0.0)


def test_a_rate_that_rises_all_the_time_against_one_that_does_not_says_next_to_nothing() -> None:
    low, high = rate_ratio(np.linspace(1.0, 3.0, FINEST), np.full(FINEST, 2.0), 1000).ends or (0.0, 99.0)
    assert high / low > 3


# --- decisions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("point", "ends", "higher", "decision", "text"),
    [
        (1.12, (1.08, 1.17), False, "fail", "slower by 12 % (8 to 17 %)"),
        (1.12, (1.01, 1.24), False, "inconclusive", "slower by 12 % (1 to 24 %): a regression of 5 % is neither shown"),
        (1.03, (1.02, 1.04), False, "pass", "slower by 3 % (2 to 4 %)"),
        (0.80, (0.70, 0.91), False, "pass", "faster by 20 % (9 to 30 %)"),
        (1.00, (0.98, 1.03), False, "pass", "no difference beyond ±3 %"),
        (1.00, (1.00, 1.00), False, "pass", "no difference"),
        (1.00, (0.90, 1.10), False, "inconclusive", "no difference beyond ±10 %: a regression of 5 % is neither"),
        (0.88, (0.83, 0.92), True, "fail", "less by 12 % (8 to 17 %)"),
        (1.12, (1.08, 1.17), True, "pass", "more by 12 % (8 to 17 %)"),
        (0.97, (0.93, 0.99), True, "inconclusive", "less by 3 % (1 to 7 %)"),
    ],
)
def test_only_a_whole_interval_decides(
    point: float, ends: tuple[float, float], higher: bool, decision: str, text: str
) -> None:
    found = decided(Ratio(old=1.0, new=point, point=point, ends=ends), higher, 0.05)
    assert found[0] == decision
    assert found[1].startswith(text)


@pytest.mark.parametrize(
    ("ratio", "higher", "decision", "text"),
    [
        (Ratio(old=1.0, new=1.2, point=1.2), False, "inconclusive", "too few; measured +20 %"),
        (Ratio(old=1.0, new=None), False, "inconclusive", "not measured in the new run"),
        (Ratio(old=None, new=1.0), False, "inconclusive", "not measured in the old run"),
        (Ratio(old=2.0, new=0.0), True, "fail", "fell to nothing"),
        (Ratio(old=0.0, new=2.0), True, "pass", "was nothing before"),
    ],
)
def test_what_has_no_interval_is_told_as_it_is(ratio: Ratio, higher: bool, decision: str, text: str) -> None:
    assert decided(ratio, higher, 0.05) == (decision, text)


def test_a_limit_of_nought_fails_on_any_regression_that_is_shown() -> None:
    assert decided(Ratio(old=1.0, new=1.02, point=1.02, ends=(1.01, 1.03)), False, 0.0)[0] == "fail"


def test_what_the_client_spoilt_decides_nothing(example_level: Level) -> None:
    slower = change(example_level, "ttft_p50_ms", Ratio(old=1.0, new=2.0, point=2.0, ends=(1.9, 2.1)))
    assert (slower.decision, slower.better) == ("fail", "lower")
    assert spoilt(slower, "the client was the limit").decision == "inconclusive"
    assert change(example_level, "goodput_rps", Ratio(old=1.0, new=2.0)).better == "higher"


@pytest.fixture
def example_level() -> Level:
    from report_example import level

    return level(0, 8.0)


def test_the_direction_is_in_the_words() -> None:
    assert said(1.12, (1.08, 1.17), higher=True) == "more by 12 % (8 to 17 %)"
