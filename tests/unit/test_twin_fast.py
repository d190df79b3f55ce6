"""The fast core against the reference core: the same requests, the same numbers. Virtual time throughout."""

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.engine.core import Engine, Job
from harness.engine.simulate import Finished, simulate, simulate_closed
from harness.twin.fast import run
from harness.twin.server import Server
from harness.twin.trace import Lives, Trace

MS_PER_TICK = 1000 / 64
"""A 64th of a second is exact in binary: sums of ticks tie exactly, however they are added up. So slopes between knots
are whole ticks too: five steps of 1.2 ticks would meet an arrival after six or just miss it, as rounding has it."""
NEVER_TIES_MS = MS_PER_TICK / 500**0.5


class Case(NamedTuple):
    server: Server
    prompts: list[int]
    outputs: list[int]
    ticks: list[int]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Small servers, often with a budget far below a prompt, and requests that tie with each other and with steps."""
    seats = draw(st.integers(1, 6))
    n = draw(st.integers(1, 25))
    slopes = draw(st.lists(st.integers(0, 6), min_size=2, max_size=4))
    batches = sorted(draw(st.sets(st.integers(1, 12), min_size=len(slopes), max_size=len(slopes))))
    rises = np.multiply(slopes, np.diff(batches, prepend=0))
    server = Server(
        knots=tuple(zip(batches, MS_PER_TICK * (1 + np.cumsum(rises)), strict=True)),
        per_prefill_token_ms=draw(st.sampled_from([0.0, MS_PER_TICK, MS_PER_TICK / 4])),
        per_kv_token_ms=draw(st.sampled_from([0.0, MS_PER_TICK / 2, NEVER_TIES_MS])),
        max_num_seqs=seats,
        max_num_batched_tokens=seats + draw(st.integers(0, 20)),
    )
    lengths = st.lists(st.integers(1, 30), min_size=n, max_size=n)
    gaps = draw(st.lists(st.integers(0, 40), min_size=n, max_size=n))
    return Case(server, draw(lengths), draw(lengths), np.cumsum(gaps).tolist())


def jobs(case: Case) -> list[Job]:
    pairs = enumerate(zip(case.prompts, case.outputs, strict=True))
    return [Job(job_id=i, prompt_tokens=p, output_tokens=o) for i, (p, o) in pairs]


def same(lives: Lives, finished: list[Finished]) -> None:
    """Arrivals and stamps agree to 1e-9; so do the metrics."""
    done = sorted(finished, key=lambda life: life.job.job_id)
    assert len(done) == len(lives)
    for ours, theirs in [
        (lives.arrived_s, [life.arrived_s for life in done]),
        (lives.first_s, [life.at_s[0] for life in done]),
        (lives.last_s, [life.at_s[-1] for life in done]),
        (lives.ttft_s, [life.ttft_s for life in done]),
        (lives.e2e_s, [life.e2e_s for life in done]),
        (lives.tpot_s, [np.nan if life.tpot_s is None else life.tpot_s for life in done]),
    ]:
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


@settings(max_examples=150, deadline=None)
@given(cases())
def test_open_loop_is_the_reference(case: Case) -> None:
    arrival_s = np.array(case.ticks) / 64
    trace = Trace(prompt_tokens=np.array(case.prompts), output_tokens=np.array(case.outputs), arrival_s=arrival_s)
    same(run(case.server, trace), simulate(case.server.profile(), list(zip(arrival_s, jobs(case), strict=True))))


@settings(max_examples=150, deadline=None)
@given(cases(), st.integers(1, 8), st.sampled_from([0.0, 3 / 64, 0.31]))
def test_closed_loop_is_the_reference(case: Case, users: int, think_s: float) -> None:
    trace = Trace(
        prompt_tokens=np.array(case.prompts), output_tokens=np.array(case.outputs), users=users, think_s=think_s
    )
    theirs = simulate_closed(case.server.profile(), jobs(case), users=users, think_s=think_s)
    same(run(case.server, trace), theirs)


@settings(max_examples=60, deadline=None)
@given(cases())
def test_steps_and_gaps_are_the_references(case: Case) -> None:
    """All arrive at once, so that the engine is never idle: every step of it, and every gap of every request."""
    zeros = np.zeros(len(case.prompts))
    trace = Trace(prompt_tokens=np.array(case.prompts), output_tokens=np.array(case.outputs), arrival_s=zeros)
    lives, engine = run(case.server, trace), Engine(case.server.profile())
    for job in jobs(case):
        engine.submit(job)
    batches, seconds = [], []
    while not engine.idle:
        step = engine.step()
        batches.append(step.batch)
        seconds.append(step.duration_s)
    runs = lives.steps
    assert np.repeat(runs.batch, runs.count).tolist() == batches
    assert runs.seconds.sum() == pytest.approx(sum(seconds), rel=1e-9)
    theirs = simulate(case.server.profile(), [(0.0, job) for job in jobs(case)])
    gaps = [np.diff(life.at_s) for life in sorted(theirs, key=lambda life: life.job.job_id)]
    for limit_s in {round(value, 6) + 1e-7 for value in np.quantile(seconds, [0, 0.3, 0.7, 1])}:
        assert lives.slow_gaps(limit_s).tolist() == [int((gap > limit_s).sum()) for gap in gaps]


def test_the_toy_server_under_load_is_the_reference() -> None:
    """Thousands of steps near the cap, where an error of one step would grow into another history."""
    rng = np.random.default_rng(3)
    n = 1500
    server = Server(
        knots=((1, 10.15), (64, 19.6)),
        per_prefill_token_ms=0.03,
        per_kv_token_ms=1e-4,
        max_num_seqs=64,
        max_num_batched_tokens=2048,
    )
    prompts = np.rint(np.exp(rng.normal(6.4, 1.0, n))).astype(np.int64)
    outputs = np.rint(np.exp(rng.normal(4.9, 0.8, n))).clip(1).astype(np.int64)
    arrival_s = np.cumsum(rng.exponential(1 / 9.5, n))
    lives = run(server, Trace(prompt_tokens=prompts, output_tokens=outputs, arrival_s=arrival_s))
    case = Case(server, prompts.tolist(), outputs.tolist(), [])
    same(lives, simulate(server.profile(), list(zip(arrival_s, jobs(case), strict=True))))
    assert lives.steps.batch.max() == 64


def small(**changed: float) -> Server:
    made = {"knots": ((1, 10.0), (4, 16.0)), "max_num_seqs": 4, "max_num_batched_tokens": 64}
    return Server(**{**made, **changed})  # type: ignore[arg-type]  # a dict of mixed types


def test_the_constant_delays_the_first_token_and_nothing_else() -> None:
    rng = np.random.default_rng(5)
    prompts, outputs = rng.integers(1, 40, 50), rng.integers(1, 30, 50)
    arrival_s = np.cumsum(rng.exponential(0.1, 50))
    trace = Trace(prompt_tokens=prompts, output_tokens=outputs, arrival_s=arrival_s)
    without, delayed = run(small(), trace), run(small(constant_ms=7.0), trace)
    np.testing.assert_allclose(delayed.ttft_s - without.ttft_s, 0.007)
    np.testing.assert_allclose(delayed.tpot_s, without.tpot_s)


def test_a_user_waits_for_the_constant_in_every_cycle() -> None:
    """One user, one token a request: a cycle is step + constant + think."""
    ones = np.ones(10, np.int64)
    lives = run(small(constant_ms=5.0), Trace(prompt_tokens=ones, output_tokens=ones, users=1, think_s=0.1))
    np.testing.assert_allclose(lives.ttft_s, 0.015)
    np.testing.assert_allclose(np.diff(lives.arrived_s), 0.115)


def test_users_start_when_they_are_told_to() -> None:
    ones = np.ones(6, np.int64)
    trace = Trace(prompt_tokens=ones, output_tokens=50 * ones, users=3, starts_s=np.array([2.0, 0.0, 1.0]))
    assert run(small(), trace).arrived_s[:3].tolist() == [0.0, run(small(), trace).last_s[0], 1.0]


def test_time_is_shared_out_among_batch_sizes() -> None:
    """Idle 1 s, one alone for 11 steps of 10 ms (the first of them its prefill), idle 1 s, one step."""
    trace = Trace(
        prompt_tokens=np.array([1, 1]), output_tokens=np.array([11, 1]), arrival_s=np.array([1.0, 1.0 + 0.11 + 1.0])
    )
    steps = run(small(), trace).steps
    np.testing.assert_allclose(steps.seconds[steps.batch == 0], [1.0, 1.0])
    assert steps.seconds[steps.batch == 1].sum() == pytest.approx(0.12)
    assert steps.batch_quantiles([0.5, 0.99]) == [0.0, 1.0]
    assert steps.batch_quantiles([0.5], since_s=1.0, until_s=1.1) == [1.0]


def test_no_request_takes_no_time() -> None:
    nothing = np.array([], np.int64)
    lives = run(small(), Trace(prompt_tokens=nothing, output_tokens=nothing, arrival_s=np.array([])))
    assert (len(lives), len(lives.steps.batch)) == (0, 0)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"output_tokens": np.array([1])}, "2 prompts and 1 outputs"),
        ({"output_tokens": np.array([1, 0])}, "below one token"),
        ({"arrival_s": np.array([1.0, 0.0])}, "2 rising times"),
        ({"arrival_s": None}, "0 users"),
        ({"arrival_s": None, "users": 2, "starts_s": np.array([0.0])}, "1 starts for 2 users"),
    ],
)
def test_what_cannot_be_asked_is_refused(wrong: dict[str, object], said: str) -> None:
    right = {"prompt_tokens": np.array([1, 1]), "output_tokens": np.array([1, 1]), "arrival_s": np.array([0.0, 0.0])}
    with pytest.raises(ValueError, match=said):
        Trace(**{**right, **wrong})  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize("knots", [((1, 2.0),), ((2, 2.0), (1, 3.0)), ((2, 2.0), (2, 3.0))])
def test_knots_rise(knots: tuple[tuple[int, float], ...]) -> None:
    with pytest.raises(ValueError, match="two or more, rising"):
        Server(knots=knots, max_num_seqs=2, max_num_batched_tokens=8)


def test_a_budget_below_the_seats_is_refused() -> None:
    with pytest.raises(ValueError, match="room for one token"):
        Server(knots=((1, 1.0), (2, 2.0)), max_num_seqs=9, max_num_batched_tokens=8)
