"""The predicted knee against known answers: queueing theory, and a server whose knee was found by very long runs."""

import math

import numpy as np
import pytest
from msgspec import structs
from scipy.optimize import brentq

from harness.model import Fixed, LogNormal, Slo
from harness.twin.predict import SATURATION, at_batches, knee
from harness.twin.server import Server
from harness.twin.traffic import Lengths, Traffic

TOY = Server(knots=((1, 10.15), (64, 19.6)), per_prefill_token_ms=0.03, max_num_seqs=64, max_num_batched_tokens=2048)
"""The profile toy-64: 10 ms + 0.15 ms a sequence + 0.03 ms a prefill token."""
CHAT = Traffic(
    lengths=Lengths(
        prompt_tokens=LogNormal(median=math.exp(6.4), sigma=1.0),
        output_tokens=LogNormal(median=math.exp(4.9), sigma=0.8),
    )
)
ONE_STEP = Traffic(lengths=Lengths(prompt_tokens=Fixed(tokens=1), output_tokens=Fixed(tokens=1)))


def test_the_toy_server_has_the_knee_that_long_runs_found() -> None:
    """9.97 requests/s at P99 TTFT ≤ 1 s under Poisson arrivals, slope 35, misses 120 times as clustered as chance."""
    found = knee(TOY, CHAT, Slo(ttft_p99_ms=1000), loop="open", seed=1, requests=200_000)
    assert found.load == pytest.approx(9.97, rel=0.01)
    assert found.miss_share == pytest.approx(0.01, rel=0.05)
    assert found.binding == "ttft_p99_ms"
    assert 25 < found.slope < 45
    assert 80 < found.vif < 180
    assert (found.batch_p999, found.batch_max) == (64.0, 64)
    assert found.saturation_rps == pytest.approx(11.6, rel=0.02)
    assert found.rps == pytest.approx(found.load, rel=0.01)
    assert found.episodes > 20
    assert 10 < found.episode_requests < 500


def test_the_toy_server_serves_69_users() -> None:
    found = knee(TOY, CHAT, Slo(ttft_p99_ms=1000), loop="closed", seed=2, requests=20_000)
    assert found.load in {68.0, 69.0, 70.0}
    assert found.load == int(found.load)
    assert 1 < found.vif < 15
    assert found.rps == pytest.approx(11.6, rel=0.02)


def md1_wait_share(rho: float, steps: int) -> float:
    """P(W > steps · D) in M/D/1 with utilisation rho (Erlang 1909)."""
    terms = ((-rho * (steps - k)) ** k / math.factorial(k) * math.exp(rho * (steps - k)) for k in range(steps + 1))
    return 1 - (1 - rho) * math.fsum(terms)


def test_one_seat_and_a_fixed_step_break_where_m_d_1_says() -> None:
    """Wait ≤ 6 steps for 95 %: an exact answer to hold the whole path from traces to the root against."""
    server = Server(knots=((1, 10.0), (2, 10.0)), max_num_seqs=1, max_num_batched_tokens=8)
    found = knee(server, ONE_STEP, Slo(ttft_p95_ms=70.0), loop="open", seed=3, requests=60_000)
    rho = brentq(lambda rho: md1_wait_share(rho, 6) - 0.05, 0.1, 0.99)
    assert found.load == pytest.approx(rho / 0.01, rel=0.01)
    step = 1e-4
    logits = [math.log(p / (1 - p)) for p in (md1_wait_share(rho * math.exp(d), 6) for d in (-step, step))]
    assert found.slope == pytest.approx((logits[1] - logits[0]) / (2 * step), rel=0.15)


def small(**changed: float) -> Server:
    made = Server(knots=((1, 10.0), (8, 24.0)), per_prefill_token_ms=0.05, max_num_seqs=8, max_num_batched_tokens=512)
    return structs.replace(made, **changed)


SHORT = Traffic(lengths=Lengths(prompt_tokens=LogNormal(median=100, sigma=0.5), output_tokens=Fixed(tokens=30)))


def test_the_strictest_clause_binds_and_sets_the_knee() -> None:
    both = Slo(ttft_p99_ms=300, tpot_p99_ms=20)
    alone = {
        name: knee(small(), SHORT, Slo(**{name: limit}), loop="open", seed=1, requests=10_000).load
        for name, limit in (("ttft_p99_ms", 300.0), ("tpot_p99_ms", 20.0))
    }
    found = knee(small(), SHORT, both, loop="open", seed=1, requests=10_000)
    assert found.load == pytest.approx(min(alone.values()), rel=0.005)
    assert found.binding == min(alone, key=lambda name: alone[name])
    assert max(alone.values()) > 1.05 * found.load


def test_a_gap_clause_looks_at_steps() -> None:
    """P99 ITL ≤ 20 ms: a share of tokens, which no mean over a request shows."""
    found = knee(small(), SHORT, Slo(itl_p99_ms=24.0), loop="open", seed=1, requests=10_000)
    assert found.binding == "itl_p99_ms"
    assert found.miss_share == pytest.approx(0.01, rel=0.1)
    assert 0 < found.load < found.saturation_rps


def test_what_never_breaks_ends_at_saturation() -> None:
    for loop in ("open", "closed"):
        found = knee(small(), SHORT, Slo(tpot_p99_ms=1000), loop=loop, seed=1, requests=10_000)
        assert found.binding == SATURATION
        assert found.slope == 0
        assert found.rps == pytest.approx(found.saturation_rps, rel=0.05)


def test_what_breaks_at_any_load_has_no_knee() -> None:
    for loop in ("open", "closed"):
        found = knee(small(constant_ms=50.0), SHORT, Slo(ttft_p50_ms=40), loop=loop, seed=1, requests=5_000)
        assert (found.load, found.binding) == (0.0, "ttft_p50_ms")


def test_the_map_rises_with_the_seats_until_the_binding_clause_flips() -> None:
    slo = Slo(ttft_p99_ms=400, tpot_p99_ms=22)
    found = at_batches(small(), SHORT, slo, [32, 2, 4, 64], loop="open", seed=1, requests=10_000)
    by_cap = dict(zip([32, 2, 4, 64], found, strict=True))
    assert by_cap[2].load < by_cap[4].load > by_cap[64].load
    assert by_cap[64].batch_max < 32
    assert by_cap[64] is by_cap[32]
    assert (by_cap[2].binding, by_cap[64].binding) == ("ttft_p99_ms", "tpot_p99_ms")
    alone = knee(small(max_num_seqs=4), SHORT, slo, loop="open", seed=1, requests=10_000)
    assert by_cap[4] == alone


def test_the_same_seed_is_the_same_answer_and_another_is_near_it() -> None:
    slo = Slo(ttft_p90_ms=200)
    loads = [knee(small(), SHORT, slo, loop="open", seed=seed, requests=10_000).load for seed in (1, 1, 2)]
    assert loads[0] == loads[1] != loads[2]
    assert loads[2] == pytest.approx(loads[0], rel=0.05)
    assert np.isfinite(loads).all()


def test_a_closed_loop_names_the_clause_that_breaks_with_one_user_more() -> None:
    """With the last user that fits nothing misses, neither TTFT nor TPOT: what breaks next is TPOT, and by far."""
    flat = Fixed(tokens=20)
    traffic = Traffic(lengths=Lengths(prompt_tokens=flat, output_tokens=flat))
    server = Server(knots=((1, 10.0), (32, 41.0)), max_num_seqs=32, max_num_batched_tokens=2048)
    found = knee(server, traffic, Slo(ttft_p99_ms=60_000, tpot_p99_ms=20.5), loop="closed", seed=1, requests=5_000)
    assert found.binding == "tpot_p99_ms"
    assert 10 <= found.load <= 12
