"""The pooled fit on misses drawn from a known curve, clustered and not."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, logit

from harness.knee.fallback import SPREAD, Counted, next_load, pooled


def share(load: float, knee: float, slope: float) -> float:
    return float(expit(logit(0.01) + slope * math.log(load / knee)))


@given(st.floats(0.5, 500), st.floats(12, 45), st.sampled_from([2000, 4000, 20_000]))
def test_exact_shares_give_the_knee(knee: float, slope: float, requests: int) -> None:
    probes = [Counted(knee * at, round(requests * share(at, 1, slope)), requests) for at in SPREAD]
    found = pooled(probes, 0.01)
    assert found is not None
    assert found.load == pytest.approx(knee, rel=0.015)
    assert found.low < knee < found.high
    assert found.low < found.load < found.high


def test_intervals_cover_in_clustered_traffic() -> None:
    """Beta-binomial misses with a variance inflation near 60, eight probes of 4,000: 95 % is claimed."""
    rng = np.random.default_rng(3)
    covered = sum(_covers(rng, inflation=60) for _ in range(300))
    assert covered / 300 >= 0.94


def _covers(rng: np.random.Generator, *, inflation: float) -> bool:
    size = 4000 / inflation
    probes = []
    for at in SPREAD:
        mean = share(at, 1, 30)
        luck = rng.beta(mean * size, (1 - mean) * size)
        probes.append(Counted(at, int(rng.binomial(4000, luck)), 4000))
    found = pooled(probes, 0.01)
    return found is not None and found.low <= 1 <= found.high


def test_more_scatter_gives_a_wider_interval() -> None:
    calm = [Counted(at, round(4000 * share(at, 1, 30)), 4000) for at in SPREAD]
    wild = [Counted(one.load, max(0, one.misses + (90 if place % 2 else -90)), 4000) for place, one in enumerate(calm)]
    narrow, wide = pooled(calm, 0.01), pooled(wild, 0.01)
    assert narrow is not None
    assert wide is not None
    assert wide.high / wide.low > narrow.high / narrow.low
    assert wide.dispersion > narrow.dispersion


def test_no_answer_where_nothing_can_be_said() -> None:
    assert pooled([], 0.01) is None
    assert pooled([Counted(1.0, 4, 400)], 0.01) is None
    assert pooled([Counted(1.0, 0, 4000), Counted(0.0, 5, 10)], 0.01) is None


def test_falling_misses_have_no_knee() -> None:
    assert pooled([Counted(0.5, 200_000, 1_000_000), Counted(2.0, 2_000, 1_000_000)], 0.01) is None


def test_a_root_far_from_every_probe_is_not_an_estimate() -> None:
    assert pooled([Counted(10.0, 3900, 4000), Counted(20.0, 3990, 4000)], 0.0001) is None


def test_fallback_probes_surround_the_guess() -> None:
    loads = [next_load(10.0, done) for done in range(8)]
    assert min(loads) >= 8.5
    assert max(loads) <= 11
    assert len(set(loads)) == 8
    assert loads != sorted(loads)
