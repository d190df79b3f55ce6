"""Is the share beyond a limit trusted as far as it can be? Simulated levels whose long-run share is known, seeded."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.signal import lfilter
from scipy.special import ndtri

from harness.analysis.distributions import tally, tally_weighted
from harness.analysis.intervals import Array, bounds
from harness.analysis.portions import ends, fewest, portion, portion_of_failed
from harness.knee.gate import Asked, Portion, decided

RUNS = 200


def waits(correlation: float, requests: int, seed: int, runs: int = RUNS) -> Array:
    """Log-normal waits in due order, one run a row, whose logarithms are AR(1) with this lag-1 correlation."""
    shocks = np.random.default_rng(seed).standard_normal((runs, requests))
    shocks[:, 1:] *= np.sqrt(1 - correlation**2)
    return np.exp(np.asarray(lfilter([1.0], [1.0, -correlation], shocks, axis=1)))


def queue(rho: float, requests: int, runs: int, seed: int) -> Array:
    """Waits for one of 16 seats, Poisson arrivals, log-normal stays of mean 1; each run begins in the steady state."""
    rng = np.random.default_rng(seed)
    free, found = np.zeros((runs, 16)), np.empty((runs, requests))
    for place in range(-1500, requests):
        if place >= 0:
            found[:, place] = free[:, 0]
        free[:, 0] += np.exp(0.8 * rng.standard_normal(runs) - 0.32)
        free.sort(axis=1)
        free = np.maximum(free - rng.exponential(1 / (16 * rho), runs)[:, None], 0.0)
    return found


def portion_of(values: Array, limit: float, allowed: float) -> Portion:
    return portion([tally(values[a:b]) for a, b in pairwise(bounds(len(values)))], limit, allowed, len(values))


def rates(values: Array, limit: float, allowed: float) -> dict[str, float]:
    asked = Asked(name="ttft_p99_ms", limit=limit, allowed=allowed)
    said = [decided(asked, portion_of(run, limit, allowed))[0] for run in values]
    return {each: said.count(each) / len(said) for each in ("pass", "fail", "inconclusive")}


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
@pytest.mark.parametrize(("requests", "q"), [(400, 0.5), (1000, 0.9), (2000, 0.99)])
def test_at_the_limit_itself_hardly_any_run_is_decided(correlation: float, requests: int, q: float) -> None:
    """2.5 % may pass and 2.5 % may fail; 200 runs see 5 % by chance in one of forty cases."""
    found = rates(waits(correlation, requests, seed=7), float(np.exp(ndtri(q))), round(1 - q, 9))
    assert found["pass"] <= 0.05
    assert found["fail"] <= 0.05


@pytest.mark.parametrize("correlation", [0.0, 0.9])
def test_far_from_the_limit_nearly_every_run_is_decided(correlation: float) -> None:
    values = waits(correlation, 2000, seed=11, runs=100)
    assert rates(values, float(np.exp(ndtri(0.9999))), 0.05)["pass"] >= 0.9
    assert rates(values, float(np.exp(ndtri(0.80))), 0.05)["fail"] >= 0.9


def test_misses_of_a_queue_come_in_clusters_and_the_gate_knows() -> None:
    """A formula for independent requests decides most runs at the knee; ours few."""
    values = queue(0.8, 2000, 120, seed=3)
    limit = float(np.quantile(values, 0.99))
    naive = [ends(float(np.mean(run > limit)), len(run)) for run in values]
    assert np.mean([low > 0.01 or high < 0.01 for low, high in naive]) > 0.5
    found = rates(values, limit, 0.01)
    assert found["pass"] <= 0.12
    assert found["fail"] <= 0.05


def test_a_server_over_its_knee_fails_long_before_its_p99_has_an_interval() -> None:
    values = queue(0.95, 3000, 60, seed=4)
    assert rates(values, float(np.quantile(queue(0.8, 2000, 60, seed=3), 0.99)), 0.01)["fail"] >= 0.7


def test_requests_that_outwaited_the_limit_count_as_beyond_it() -> None:
    values = waits(0.0, 2000, seed=5, runs=1)[0]
    late = np.where(np.arange(2000) % 20 == 0, np.inf, values)
    assert portion_of(values, 1e6, 0.01).beyond == 0
    assert portion_of(late, 1e6, 0.01).beyond == pytest.approx(0.05)
    assert rates(late[None, :], 1e6, 0.01) == {"pass": 0, "fail": 1, "inconclusive": 0}


@pytest.mark.parametrize(("allowed", "least"), [(0.01, 1000), (0.05, 200), (0.1, 100), (0.5, 50)])
def test_too_few_is_no_interval_and_says_how_many_are_needed(allowed: float, least: int) -> None:
    assert fewest(allowed) == least
    values = waits(0.0, least, seed=2, runs=1)[0]
    short = portion_of(values[:-1], 1e6, allowed)
    assert (short.low, short.needed) == (None, least)
    assert portion_of(values, 1e6, allowed).high is not None


def test_nothing_at_all_says_what_is_needed() -> None:
    empty = portion_of(np.empty(0), 1.0, 0.01)
    assert (empty.beyond, empty.low, empty.needed) == (None, None, 1000)


def test_what_is_needed_would_tell() -> None:
    """Sixty runs below the limit that could not be decided: at the number of requests they asked for most can."""
    limit = float(np.exp(ndtri(0.994)))
    short = [portion_of(run, limit, 0.01) for run in waits(0.0, 1200, seed=8, runs=60)]
    wanted = [each.needed for each in short if each.needed is not None]
    assert len(wanted) > 20
    longer = waits(0.0, 2 * int(np.median(wanted)), seed=9, runs=60)
    assert rates(longer, limit, 0.01)["inconclusive"] < 0.5


def test_at_the_limit_no_number_of_requests_is_promised() -> None:
    values = np.tile(np.concatenate([np.ones(99), [3.0]]), 20)
    assert portion_of(values, 2.0, 0.01).needed is None


def test_a_share_that_grows_all_the_time_is_not_trusted() -> None:
    """The limit is passed from the middle on: blocks stay correlated however long they are made."""
    found = portion_of(np.concatenate([np.ones(1000), np.full(1000, 3.0)]), 2.0, 0.01)
    assert (found.beyond, found.low, found.needed) == (0.5, None, 8000)


def test_tokens_are_trusted_as_far_as_their_requests() -> None:
    """Twenty equal gaps a request carry no more news than one."""
    rows = waits(0.0, 2000, seed=6, runs=1)[0]
    parts = [rows[a:b] for a, b in pairwise(bounds(len(rows)))]
    limit = float(np.exp(ndtri(0.98)))
    one = portion([tally(part) for part in parts], limit, 0.05, len(rows))
    twenty = portion([tally_weighted(part, np.full(len(part), 20.0)) for part in parts], limit, 0.05, len(rows))
    assert twenty.beyond == one.beyond
    assert twenty.high == pytest.approx(one.high, rel=0.15)


def test_failures_that_come_at_once_are_worth_less_than_single_ones() -> None:
    flags = {"single": np.zeros(1000), "outage": np.zeros(1000)}
    flags["single"][25::100] = 1
    flags["outage"][500:510] = 1
    found = {
        name: portion_of_failed([tally(each[a:b]) for a, b in pairwise(bounds(1000))], 0.01, 1000)
        for name, each in flags.items()
    }
    assert found["single"].beyond == found["outage"].beyond == 0.01
    assert (found["outage"].high or 0) > 1.5 * (found["single"].high or 1)


@pytest.mark.parametrize("chance", [0.004, 0.02])
def test_failure_shares_hold_the_truth(chance: float) -> None:
    rng = np.random.default_rng(12)
    runs = [(rng.random(1500) < chance).astype(float) for _ in range(RUNS)]
    found = [portion_of_failed([tally(run[a:b]) for a, b in pairwise(bounds(1500))], 0.01, 1500) for run in runs]
    held = [each.low <= chance <= each.high for each in found if each.low is not None and each.high is not None]
    assert len(held) >= 0.95 * RUNS
    assert np.mean(held) >= 0.92


def test_no_failure_in_few_requests_is_said_to_be_too_few() -> None:
    assert portion_of_failed([tally(np.zeros(2))] * 20, 0.01, 40).needed == 50
