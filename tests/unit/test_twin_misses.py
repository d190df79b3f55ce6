"""Misses of SLO clauses over simulated requests: shares, clustering, episodes."""

import numpy as np
import pytest

from harness.metrics import Limit, limits
from harness.model import Slo
from harness.twin.fast import run
from harness.twin.misses import Misses, clauses, misses
from harness.twin.server import Server
from harness.twin.trace import Lives, Trace


def lived(n: int = 400) -> Lives:
    rng = np.random.default_rng(2)
    server = Server(knots=((1, 5.0), (8, 12.0)), per_prefill_token_ms=0.1, max_num_seqs=8, max_num_batched_tokens=256)
    prompts, outputs = rng.integers(1, 300, n), rng.integers(1, 40, n)
    return run(
        server,
        Trace(prompt_tokens=prompts, output_tokens=outputs, arrival_s=np.cumsum(rng.exponential(0.05, n))),
    )


def clause(metric: str, ms: float, quantile: float = 0.99) -> Limit:
    return Limit(name=f"{metric}_p{quantile:.0%}", metric=f"{metric}_ms", quantile=quantile, ms=ms)


def flags(values: list[int], quantile: float = 0.99) -> Misses:
    return Misses(
        limit=clause("ttft", 1, quantile), missed=[np.array(values, np.float64)], chances=[np.ones(len(values))]
    )


def test_shares_are_those_of_requests_and_for_itl_those_of_tokens() -> None:
    lives, part = lived(), slice(50, 350)
    share = {metric: misses(clause(metric, 20), [lives], [part]).share for metric in ("ttft", "tpot", "itl", "e2e")}
    tpot_s, some = lives.tpot_s[part], lives.output_tokens[part] > 1
    assert share["ttft"] == pytest.approx((lives.ttft_s[part] > 0.02).mean())
    assert share["e2e"] == pytest.approx((lives.e2e_s[part] > 0.02).mean())
    assert share["tpot"] == pytest.approx((tpot_s[some] > 0.02).mean())
    tokens = (lives.output_tokens[part] - 1).sum()
    assert share["itl"] == pytest.approx(lives.slow_gaps(0.02)[part].sum() / tokens)
    assert 0 < share["itl"] < 1
    assert 0 < share["tpot"] < 1


def test_runs_are_pooled() -> None:
    lives = lived()
    whole = misses(clause("ttft", 20), [lives], [slice(0, 400)])
    halves = misses(clause("ttft", 20), [lives, lives], [slice(0, 200), slice(200, 400)])
    assert (halves.n, halves.share) == (whole.n, whole.share)


def test_excess_changes_sign_at_the_allowed_share() -> None:
    assert flags([1] * 100 + [0] * 9900).excess == pytest.approx(0, abs=0.01)
    assert flags([1] * 150 + [0] * 9850).excess == pytest.approx(0.41, abs=0.02)
    assert flags([0] * 10_000).excess < -5
    assert np.isfinite(flags([1] * 100).excess)


def test_independent_misses_are_not_inflated_and_clusters_are_by_their_size() -> None:
    rng = np.random.default_rng(8)
    alone = [flags((rng.random(20_000) < 0.02).astype(int).tolist()).vif for _ in range(30)]
    clusters = [flags(np.repeat(rng.random(1000) < 0.02, 20).astype(int).tolist()).vif for _ in range(30)]
    assert np.mean(alone) == pytest.approx(1.0, abs=0.25)
    assert np.mean(clusters) == pytest.approx(20.0, rel=0.25)
    assert np.isnan(flags([0] * 1000).vif)


def test_misses_less_than_an_allowed_gap_apart_are_one_episode() -> None:
    series = [0] * 1000
    for at in (100, 150, 190, 500, 999):
        series[at] = 1
    assert flags(series).episodes == (3, pytest.approx((91 + 1 + 1) / 3))
    assert flags([0] * 10).episodes == (0, 0.0)


def test_clauses_are_the_latency_limits_and_the_speed_of_a_user() -> None:
    slo = Slo(ttft_p99_ms=500, error_share=0.01, tps_per_user_min=20)
    speed = clauses(slo)[-1]
    assert clauses(slo)[:-1] == limits(slo)
    assert (speed.metric, speed.quantile, speed.ms) == ("tpot_ms", 0.5, 50.0)
    with pytest.raises(ValueError, match="no latency clause"):
        clauses(Slo(error_share=0.01))
    with pytest.raises(ValueError, match="knows no lag_ms"):
        misses(clause("lag", 1), [lived(20)], [slice(0, 20)])
