"""The fit against servers whose numbers are known: what it finds, what it adds, what it refuses."""

import math

import numpy as np
import pytest
from msgspec import structs

from harness.model import Fixed, LogNormal
from harness.twin.descent import descended, soft
from harness.twin.fast import run
from harness.twin.fit import Observation, fit
from harness.twin.observed import figures, measured
from harness.twin.server import Server
from harness.twin.start import means, starts
from harness.twin.trace import Trace
from harness.twin.traffic import Lengths, Traffic

TRAFFIC = Traffic(
    lengths=Lengths(
        prompt_tokens=LogNormal(median=300, sigma=0.8), output_tokens=LogNormal(median=60, sigma=0.7, min=1)
    )
)
STRAIGHT = Server(
    knots=((1, 8.0), (24, 16.0)),
    per_prefill_token_ms=0.04,
    constant_ms=3.0,
    max_num_seqs=24,
    max_num_batched_tokens=1024,
)
LIMITS = {"max_num_seqs": 24, "max_num_batched_tokens": 1024}


def seen(server: Server, trace: Trace, load: float) -> Observation:
    lives = run(server, trace)
    return Observation(
        load=load,
        loop=trace.loop,
        trace=trace,
        counts=np.arange(len(trace)) >= 20,
        ttft_s=lives.ttft_s,
        tpot_s=lives.tpot_s,
    )


def levels(server: Server, n: int = 300) -> list[Observation]:
    closed = [seen(server, TRAFFIC.closed(users, 120, (1, users)), users) for users in (1, 6, 24)]
    opened = [seen(server, TRAFFIC.trace(load, n, (2, int(load))), load) for load in (8.0, 12.0, 14.0)]
    return closed + opened


def test_a_straight_server_is_found_again() -> None:
    found = fit(levels(STRAIGHT), None, **LIMITS)
    assert found.goodness < 0.01
    assert found.knots == len(found.server.knots) == 2
    assert found.text.startswith("close: within 0.")
    assert found.server.per_prefill_token_ms == pytest.approx(0.04, rel=0.05)
    assert found.server.constant_ms == pytest.approx(3.0, rel=0.3)
    for batch in (1, 6, 12, 24):
        assert found.server.tau_s(batch) == pytest.approx(STRAIGHT.tau_s(batch), rel=0.03)


def test_a_bend_gets_a_knot() -> None:
    bent = structs.replace(STRAIGHT, knots=((1, 8.0), (10, 8.5), (24, 20.0)))
    found = fit(levels(bent), None, **LIMITS)
    assert found.knots >= 3
    assert found.goodness < 0.02
    for batch in (3, 10, 16, 24):
        assert found.server.tau_s(batch) == pytest.approx(bent.tau_s(batch), rel=0.1)


def test_a_server_without_a_constant_is_given_none() -> None:
    """With users who ask again in the very step in which they were answered, any constant at all costs a step."""
    found = fit(levels(structs.replace(STRAIGHT, constant_ms=0.0)), None, **LIMITS)
    assert found.server.constant_ms == 0.0
    assert found.goodness < 0.01


def test_residuals_are_above_nothing_where_the_server_is_slower() -> None:
    slower = structs.replace(STRAIGHT, knots=((1, 8.8), (24, 17.6)))
    level = measured(seen(slower, TRAFFIC.trace(6.0, 400, 1), 6.0), 1000)
    of = {(residual.metric, residual.figure): residual.ln for residual in level.residuals(STRAIGHT)}
    assert len(of) == 8
    assert 0.05 < of["tpot", "mean"] < 0.3
    assert all(residual.ln == 0 for residual in level.residuals(slower))


def test_a_start_is_taken_and_the_limits_are_those_asked_for() -> None:
    start = structs.replace(STRAIGHT, knots=((1, 9.0), (24, 15.0)), max_num_seqs=4, max_num_batched_tokens=64)
    found = fit(levels(STRAIGHT, 200), start, **LIMITS)
    assert (found.server.max_num_seqs, found.server.max_num_batched_tokens) == (24, 1024)
    assert found.goodness < 0.02


def test_one_level_is_enough_to_reproduce_it() -> None:
    found = fit([seen(STRAIGHT, TRAFFIC.trace(12.0, 300, 5), 12.0)], None, **LIMITS)
    assert found.goodness < 0.05
    assert found.knots == 2


def test_failed_requests_are_on_neither_side() -> None:
    whole = seen(STRAIGHT, TRAFFIC.trace(10.0, 400, 1), 10.0)
    failed = np.arange(400) % 7 == 3
    ttft_s, tpot_s = np.where(failed, np.nan, whole.ttft_s), np.where(failed, np.nan, whole.tpot_s)
    level = measured(
        Observation(load=10.0, loop="open", trace=whole.trace, counts=whole.counts, ttft_s=ttft_s, tpot_s=tpot_s), 1000
    )
    assert [residual.ln for residual in level.residuals(STRAIGHT)] == [0.0] * len(level.residuals(STRAIGHT))
    assert level.sides[0].judged.sum() == (whole.counts & ~failed).sum()


def test_a_long_level_is_cut_at_its_end_and_the_disturbed_are_not_judged() -> None:
    for trace in (TRAFFIC.trace(10.0, 900, 1), TRAFFIC.closed(8, 900, 1)):
        level = measured(seen(STRAIGHT, trace, 10.0), 400)
        judged = level.sides[0].judged
        assert (len(level.trace), len(judged)) == (400, 400)
        assert not judged[:20].any()
        assert judged[20:360].all()
        assert not judged[-3:].any()
        assert max(abs(residual.ln) for residual in level.residuals(STRAIGHT)) < 1e-3


def test_nothing_to_fit_is_said() -> None:
    ones = Traffic(lengths=Lengths(prompt_tokens=Fixed(tokens=5), output_tokens=Fixed(tokens=1)))
    for observations in (
        [],
        [seen(STRAIGHT, ones.trace(2.0, 100, 1), 2.0)],
        [seen(STRAIGHT, TRAFFIC.trace(2.0, 30, 1), 2.0)],
    ):
        with pytest.raises(ValueError, match="measure longer levels"):
            fit(observations, None, **LIMITS)
    with pytest.raises(ValueError, match="no level with judged requests"):
        starts([], **LIMITS)


def test_figures_are_as_many_as_the_values_bear() -> None:
    assert figures(np.ones(19)) == {}
    assert list(figures(np.ones(367))) == ["mean", "p50", "p90"]
    assert list(figures(np.ones(368))) == ["mean", "p50", "p90", "p99"]
    assert figures(np.full(30, 0.5))["p90"] == pytest.approx(math.log(0.5))


def test_a_level_says_its_batch_and_step() -> None:
    """Six users who never think: five others and oneself, and the steps of such a batch."""
    fixed = Traffic(lengths=Lengths(prompt_tokens=Fixed(tokens=20), output_tokens=Fixed(tokens=101)))
    found = means(seen(STRAIGHT, fixed.closed(6, 120, 1), 6))
    assert found is not None
    assert found.batch == pytest.approx(6, rel=0.02)
    assert found.context == pytest.approx(70, rel=0.02)
    assert found.step_s == pytest.approx(STRAIGHT.tau_s(6), rel=0.02)


def test_a_descent_ends_in_the_valley_and_not_below_the_bounds() -> None:
    def off(vector: np.ndarray[tuple[int], np.dtype[np.float64]]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        x, y = vector
        return np.array([10 * (y - x * x), x - 0.2, 0.1 * (y - 3)])

    found = descended(off, np.array([4.0, 1.0]), rounds=60, robust=1e6)
    assert (found >= 1).all()
    assert found[0] == pytest.approx(1.0, abs=1e-3)
    least = min(soft(off(np.array([1.0, y])), 1e6) for y in np.linspace(1, 3, 2001))
    assert soft(off(found), 1e6) <= least * 1.01
