"""Do 95 % intervals hold the truth? Simulated levels whose quantiles are known, with fixed seeds."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.signal import lfilter
from scipy.special import ndtri

from harness.analysis.distributions import Tally, merged, tally, tally_weighted, tally_whole
from harness.analysis.intervals import Array, Interval, bounds, inflation, interval

RUNS = 150


def waits(correlation: float, requests: int, seed: int, runs: int = RUNS) -> Array:
    """Log-normal waits in due order, one run a row, whose logarithms are AR(1) with this lag-1 correlation."""
    shocks = np.random.default_rng(seed).standard_normal((runs, requests))
    shocks[:, 1:] *= np.sqrt(1 - correlation**2)
    return np.exp(np.asarray(lfilter([1.0], [1.0, -correlation], shocks, axis=1)))


def interval_of(values: Array, q: float) -> Interval | None:
    blocks = [tally(values[a:b]) for a, b in pairwise(bounds(len(values)))]
    return interval(blocks, tally(values), len(values), q)


def coverage(values: Array, q: float, truth: float) -> tuple[float, float]:
    """Share of runs that were given an interval, and share of these whose interval holds the truth."""
    found = [ends for ends in (interval_of(run, q) for run in values) if ends is not None]
    return len(found) / len(values), sum(low <= truth <= high for low, high in found) / max(len(found), 1)


@pytest.mark.parametrize(
    ("correlation", "requests", "q"),
    [
        (0.0, 100, 0.5),
        (0.0, 400, 0.95),
        (0.0, 2000, 0.99),
        (0.5, 1000, 0.9),
        (0.9, 2000, 0.5),
        (0.9, 2000, 0.95),
        (0.9, 5000, 0.99),
        (0.98, 5000, 0.9),
    ],
)
def test_intervals_hold_the_truth(correlation: float, requests: int, q: float) -> None:
    """At least 91 % of 150 runs: 95 % less two standard errors. Nearly all runs have enough to be given one."""
    given, held = coverage(waits(correlation, requests, seed=7), q, float(np.exp(ndtri(q))))
    assert given >= 0.8
    assert held >= 0.91


def test_a_formula_for_independent_samples_would_not() -> None:
    """The order-statistic interval on the same clustered waits claims 95 % and holds the truth in half of the runs."""
    requests, q = 2000, 0.95
    runs = np.sort(waits(0.9, requests, seed=7), axis=1)
    margin = 1.96 * np.sqrt(q * (1 - q) * requests)
    low, high = (runs[:, round(q * requests + side)] for side in (-margin, margin))
    assert np.mean((low <= np.exp(ndtri(q))) & (np.exp(ndtri(q)) <= high)) < 0.6


def test_where_clusters_are_too_few_nothing_is_claimed() -> None:
    """Episodes of a hundred requests in a run of a thousand: a P99 is hardly ever given an interval."""
    given, _ = coverage(waits(0.98, 1000, seed=3), 0.99, 0.0)
    assert given < 0.05


@pytest.mark.parametrize(("q", "fewest"), [(0.5, 50), (0.9, 100), (0.95, 200), (0.99, 1000)])
def test_too_few_is_none(q: float, fewest: int) -> None:
    values = waits(0.0, fewest, seed=2, runs=20)
    assert all(interval_of(run[:-5], q) is None for run in values)
    assert any(interval_of(run, q) is not None for run in values)


def test_nothing_has_no_interval() -> None:
    assert interval_of(np.empty(0), 0.5) is None


def test_clusters_widen_the_interval() -> None:
    independent, clustered = (
        np.mean([high / low for low, high in (interval_of(run, 0.5) or (1.0, 9.9) for run in waits(r, 2000, 5, 30))])
        for r in (0.0, 0.9)
    )
    assert clustered > 1.3 * independent


def test_the_interval_holds_its_point_and_equal_values_have_no_width() -> None:
    for run in waits(0.5, 1000, seed=9, runs=10):
        low, high = interval_of(run, 0.9) or (np.nan, np.nan)
        assert low <= (tally(run).quantile(0.9) or 0.0) <= high
    assert interval_of(np.full(400, 7.0), 0.5) == (7.0, 7.0)


def test_values_that_may_be_negative_have_intervals_too() -> None:
    values = np.random.default_rng(4).standard_normal(1000)
    low, high = interval_of(values, 0.5) or (np.nan, np.nan)
    assert low < 0 < high


def _tokens(rows: Array) -> tuple[list[Tally], Tally]:
    blocks = [tally_whole(np.repeat(rows[a:b], 20).astype(np.int32)) for a, b in pairwise(bounds(len(rows)))]
    return blocks, merged(blocks)


def test_blocks_of_tokens_are_blocks_of_their_requests() -> None:
    """Twenty equal gaps a request carry no more news than one: the interval is that of the requests."""
    rows = np.rint(waits(0.0, 1000, seed=6, runs=1)[0] * 1e4)
    by_token = interval(*_tokens(rows), len(rows), 0.9)
    by_request = interval_of(rows, 0.9)
    assert by_token == pytest.approx(by_request)


def test_weights_count_in_blocks() -> None:
    rows = waits(0.0, 1000, seed=6, runs=1)[0]
    edges = bounds(len(rows))
    blocks = [tally_weighted(rows[a:b], np.full(b - a, 4.0)) for a, b in pairwise(edges)]
    assert interval(blocks, merged(blocks), len(rows), 0.95) == pytest.approx(interval_of(rows, 0.95))


def test_inflation_is_one_without_correlation_and_bounded_with_it() -> None:
    assert inflation(np.array([1.0, -1.0, 1.0, -1.0])) == 1.0
    assert inflation(np.zeros(5)) == 1.0
    assert 1.0 < inflation(np.array([1.0, 1.0, 1.0, -1.0, -1.0, -1.0])) <= 9.0


def test_bounds_share_the_requests_out_evenly() -> None:
    sizes = np.diff(bounds(1013))
    assert sizes.sum() == 1013
    assert set(sizes.tolist()) == {50, 51}
