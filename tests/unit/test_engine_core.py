"""The engine's core against queueing theory, and against its own promises. Virtual time throughout."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.engine import profile
from harness.engine.blocks import Blocks, prefix_hashes
from harness.engine.core import Engine, Job, StepResult
from harness.engine.profile import KvCache, Profile, Speculation, StepTime
from harness.engine.simulate import Finished, simulate, simulate_closed


def made(
    *,
    seqs: int = 8,
    budget: int = 512,
    model_len: int = 2048,
    step: StepTime | None = None,
    kv: KvCache | None = None,
    speculation: Speculation | None = None,
) -> Profile:
    return Profile(
        name="made",
        source="this test",
        max_num_seqs=seqs,
        max_num_batched_tokens=budget,
        max_model_len=model_len,
        step=step or StepTime(base_ms=10),
        kv=kv or KvCache(num_blocks=4096),
        speculation=speculation,
    )


def job(number: int, prompt: int = 1, output: int = 1, prefix: tuple[int, ...] = ()) -> Job:
    return Job(job_id=number, prompt_tokens=prompt, output_tokens=output, prefix=prefix)


def steps(engine: Engine) -> list[StepResult]:
    out = []
    while not engine.idle:
        out.append(engine.step())
        assert len(out) < 100_000
    return out


def emitted(results: list[StepResult]) -> Counter[int]:
    return Counter({e.job_id: 0 for r in results for e in r.emitted}) + Counter(
        e.job_id for r in results for e in r.emitted for _ in range(e.tokens)
    )


# --- queueing theory --------------------------------------------------------------------------------------------------


def poisson(rate: float, count: int, seed: int) -> list[float]:
    rng, now, times = Random(seed), 0.0, []
    for _ in range(count):
        now += rng.expovariate(rate)
        times.append(now)
    return times


@pytest.mark.parametrize("rho", [0.3, 0.6, 0.8])
def test_one_seat_and_a_fixed_step_is_the_queue_m_d_1(rho: float) -> None:
    service_s = 0.01
    times = poisson(rho / service_s, 20_000, seed=5)  # sampling error 1 … 4 %: that it is exact, the next test says
    done = simulate(made(seqs=1), [(at, job(i)) for i, at in enumerate(times)])
    wait_s = sum(d.ttft_s - service_s for d in done) / len(done)
    theory_s = rho * service_s / (2 * (1 - rho))  # Pollaczek–Khinchine with no variance of service
    assert wait_s == pytest.approx(theory_s, rel=0.03)


def test_every_wait_in_m_d_1_is_lindleys() -> None:
    times = poisson(80.0, 2_000, seed=6)
    done = {d.job.job_id: d for d in simulate(made(seqs=1), [(at, job(i)) for i, at in enumerate(times)])}
    wait_s, before = 0.0, times[0]
    for number, at in enumerate(times):
        wait_s = max(0.0, wait_s + 0.01 - (at - before)) if number else 0.0
        assert done[number].ttft_s - 0.01 == pytest.approx(wait_s, abs=1e-6)
        before = at


@pytest.mark.parametrize("users", [1, 4, 16, 40])
def test_closed_loop_throughput_follows_the_batch_curve(users: int) -> None:
    a_ms, b_ms, seats = 10.0, 0.5, 16
    shape = made(seqs=seats, step=StepTime(base_ms=a_ms, per_sequence_ms=b_ms))
    done = simulate_closed(shape, [job(i, 1, 50) for i in range(users * 20)], users=users)
    batch = min(users, seats)
    tokens_per_s = sum(d.job.output_tokens for d in done) / max(d.at_s[-1] for d in done)
    full = 1e3 * batch / (a_ms + b_ms * batch)
    assert tokens_per_s == pytest.approx(full, rel=0.02 if users <= seats else 0.05)
    assert done[-1].tpot_s is not None


def test_time_per_output_token_is_the_step_of_that_batch() -> None:
    shape = profile.load("vllm-cpu-tiny")
    for users in (1, 16):
        done = simulate_closed(shape, [job(i, 1, 40) for i in range(users)], users=users)
        assert {round(d.tpot_s or 0, 9) for d in done} == {round(shape.step.tau_s(users), 9)}


def test_the_measured_engines_come_out_of_their_profiles() -> None:
    vllm, llama = profile.load("vllm-cpu-tiny").step, profile.load("llama-cpp-np8").step
    assert vllm.tau_s(1) == pytest.approx(0.0025, rel=0.01)
    assert vllm.tau_s(16) == pytest.approx(0.0062, rel=0.01)
    assert [llama.tau_s(n) for n in (1, 2, 4, 8)] == pytest.approx([0.0043, 0.0059, 0.0084, 0.0141])


# --- scheduling -------------------------------------------------------------------------------------------------------


def test_a_long_prompt_is_prefilled_in_chunks_beside_the_decodes() -> None:
    engine = Engine(made(budget=100, step=StepTime(base_ms=1, per_prefill_token_ms=0.5)))
    engine.submit(job(1, 10, 20))
    engine.step()
    engine.submit(job(2, 250, 2))
    results = steps(engine)
    chunks = [r.prefill_tokens for r in results if r.prefill_tokens]
    assert chunks == [99, 99, 52], "the decode takes one of the hundred"
    assert all(any(e.job_id == 1 for e in r.emitted) for r in results[:3]), "no decode waits for a prefill"
    assert results[0].duration_s == pytest.approx((1 + 0.5 * 99) / 1e3)
    assert [e.job_id for e in results[2].emitted] == [1, 2], "the chunk that completes the prompt yields a token"


def test_context_costs_time() -> None:
    engine = Engine(made(step=StepTime(base_ms=1, per_kv_token_ms=0.01)))
    engine.submit(job(1, 100, 3))
    assert [r.duration_s for r in steps(engine)] == pytest.approx([0.00200, 0.00201, 0.00202])


def test_first_come_first_served() -> None:
    engine = Engine(made(seqs=3, budget=64))
    rng = Random(4)
    for number in range(60):
        engine.submit(job(number, rng.randint(1, 200), rng.randint(1, 9)))
    first: list[int] = []
    for result in steps(engine):
        first += [e.job_id for e in result.emitted if e.job_id not in first]
    assert first == sorted(first)


def test_no_seat_stays_empty_while_someone_waits() -> None:
    engine = Engine(made(seqs=4))
    for number in range(40):
        engine.submit(job(number, 3, 1 + number % 7))
    while not engine.idle:
        waiting_before = engine.waiting + engine.running
        assert engine.step().batch == min(4, waiting_before)


def test_a_job_that_arrives_during_a_step_is_seen_at_its_end() -> None:
    done = simulate(made(), [(0.0, job(1)), (0.001, job(2)), (0.5, job(3))])
    assert [d.at_s[0] for d in done] == pytest.approx([0.01, 0.02, 0.51])


def test_think_time_lies_between_an_answer_and_the_next_request() -> None:
    done = simulate_closed(made(), [job(1), job(2)], users=1, think_s=1.0)
    assert [(d.arrived_s, d.e2e_s) for d in done] == [
        (0.0, pytest.approx(0.01)),
        (pytest.approx(1.01), pytest.approx(0.01)),
    ]


# --- memory -----------------------------------------------------------------------------------------------------------


def tight(prefix_cache: bool = False) -> Profile:
    return made(model_len=64, kv=KvCache(block_size=4, num_blocks=20, prefix_cache=prefix_cache))


def test_preemption_takes_the_youngest_and_loses_no_token() -> None:
    engine = Engine(tight())
    for number in range(4):
        engine.submit(job(number, 12, 30))
    results = steps(engine)
    assert engine.preemptions_total == sum(r.preempted for r in results) > 0
    assert emitted(results) == Counter({number: 30 for number in range(4)})
    finished = [e.job_id for r in results for e in r.emitted if e.finished]
    assert finished[0] == 0, "the oldest is never preempted"
    assert engine.kv_usage == 0.0


def test_a_preempted_job_keeps_its_place_before_the_queue() -> None:
    engine = Engine(tight())
    for number in range(6):
        engine.submit(job(number, 12, 30))
    finished = [e.job_id for r in steps(engine) for e in r.emitted if e.finished]
    assert finished == sorted(finished)


def test_usage_counts_blocks_in_use() -> None:
    engine = Engine(tight())
    engine.submit(job(1, 12, 30))
    engine.step()
    assert engine.kv_usage == pytest.approx(3 / 20)
    assert engine.abort(1)
    assert engine.kv_usage == 0.0


def test_abort_of_a_waiting_running_and_unknown_job() -> None:
    engine = Engine(made(seqs=1))
    engine.submit(job(1, 5, 5))
    engine.submit(job(2, 5, 5))
    engine.step()
    assert (engine.running, engine.waiting) == (1, 1)
    assert (engine.abort(2), engine.abort(1), engine.abort(1)) == (True, True, False)
    assert engine.idle
    assert (engine.running, engine.waiting) == (0, 0)
    assert engine.step().duration_s == 0.0


@pytest.mark.parametrize(("prompt", "output"), [(0, 1), (1, 0), (2000, 49)])
def test_a_job_that_could_never_run_is_refused(prompt: int, output: int) -> None:
    with pytest.raises(ValueError, match="job 1"):
        Engine(made()).submit(job(1, prompt, output))


def test_a_job_is_submitted_once() -> None:
    engine = Engine(made())
    engine.submit(job(1))
    with pytest.raises(ValueError, match="already"):
        engine.submit(job(1))


# --- prefix cache -----------------------------------------------------------------------------------------------------


def test_a_prefix_seen_before_is_not_computed_again() -> None:
    shape = made(model_len=64, kv=KvCache(block_size=4, num_blocks=100, prefix_cache=True))
    engine = Engine(shape)
    words = [f"w{i}" for i in range(10)]
    other = [*words[:8], "x", "y"]
    prefilled = []
    for number, prompt in enumerate((words, words, other, words[::-1])):
        engine.submit(job(number, 10, 2, prefix_hashes(prompt, 4)))
        prefilled.append(sum(r.prefill_tokens for r in steps(engine)))
    assert prefilled == [10, 2, 2, 10]
    assert (engine.prefix_queries_total, engine.prefix_hits_total) == (40, 16)


def test_a_prompt_that_is_all_cached_still_computes_its_last_block() -> None:
    engine = Engine(made(model_len=64, kv=KvCache(block_size=4, num_blocks=100, prefix_cache=True)))
    for number in range(2):
        engine.submit(job(number, 8, 1, prefix_hashes(["a", "b", "c", "d", "e", "f", "g", "h"], 4)))
        results = steps(engine)
    assert [r.prefill_tokens for r in results] == [4]


def test_two_equal_prompts_at_once_keep_one_copy() -> None:
    engine = Engine(made(model_len=64, kv=KvCache(block_size=4, num_blocks=100, prefix_cache=True)))
    for number in range(2):
        engine.submit(job(number, 8, 3, prefix_hashes(["a", "b", "c", "d", "e", "f", "g", "h"], 4)))
    engine.step()
    engine.step()
    assert engine.kv_usage == pytest.approx((2 + 1 + 1) / 100)
    steps(engine)
    assert engine.kv_usage == 0.0


def test_the_longest_unused_blocks_go_first_and_the_end_of_a_prefix_before_its_beginning() -> None:
    blocks = Blocks(4)
    assert blocks.take(2)
    for block in (11, 12):
        blocks.publish(block)
    blocks.release(0, [11, 12])
    assert blocks.matched([11, 12]) == 2
    assert blocks.take(3)
    assert blocks.matched([11, 12]) == 1
    assert not blocks.take(2)
    assert blocks.free == 1


def test_hashes_stand_for_all_that_came_before() -> None:
    assert prefix_hashes(["a", "b", "c", "d"], 2)[0] == prefix_hashes(["a", "b", "x"], 2)[0]
    assert prefix_hashes(["a", "b", "c", "d"], 2)[1] != prefix_hashes(["x", "y", "c", "d"], 2)[1]
    assert prefix_hashes(["a"], 2) == ()


# --- speculation ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("acceptance", [0.0, 0.7, 1.0])
def test_speculation_yields_the_expected_tokens_a_step(acceptance: float) -> None:
    drafts = 3
    shape = made(model_len=20_000, speculation=Speculation(draft_tokens=drafts, acceptance=acceptance, draft_ms=1))
    engine = Engine(shape, Random(9))
    engine.submit(job(1, 5, 12_000))
    results = steps(engine)
    assert emitted(results)[1] == 12_000
    expected = sum(acceptance**k for k in range(drafts + 1))  # 1 + p + p² + p³
    assert 12_000 / len(results) == pytest.approx(expected, rel=0.02)
    assert results[5].duration_s == pytest.approx(0.011)


def test_speculation_never_overshoots() -> None:
    engine = Engine(made(speculation=Speculation(draft_tokens=4, acceptance=1.0)))
    for number, output in enumerate((1, 2, 3, 5, 6, 7)):
        engine.submit(job(number, 3, output))
    assert emitted(steps(engine)) == Counter({0: 1, 1: 2, 2: 3, 3: 5, 4: 6, 5: 7})


# --- whatever the load ------------------------------------------------------------------------------------------------


@st.composite
def loads(draw: st.DrawFn) -> tuple[Profile, list[tuple[float, Job]]]:
    seqs = draw(st.integers(1, 6))
    block = draw(st.sampled_from([1, 4, 16]))
    shape = made(
        seqs=seqs,
        budget=seqs + draw(st.integers(0, 40)),
        model_len=64,
        step=StepTime(base_ms=draw(st.integers(1, 20)), per_sequence_ms=1, per_prefill_token_ms=0.1),
        kv=KvCache(
            block_size=block, num_blocks=64 // block + draw(st.integers(0, 20)), prefix_cache=draw(st.booleans())
        ),
        speculation=draw(st.sampled_from([None, Speculation(draft_tokens=2, acceptance=0.5)])),
    )
    jobs = []
    for number in range(draw(st.integers(1, 12))):
        prompt = draw(st.integers(1, 40))
        words = [draw(st.integers(0, 1)) if i % 8 == 0 else i for i in range(prompt)]
        output = draw(st.integers(1, 64 - prompt))
        at_s = draw(st.integers(0, 300)) / 1e3
        jobs.append((at_s, job(number, prompt, output, prefix_hashes(words, block))))
    return shape, jobs


@settings(max_examples=150, deadline=None)
@given(loads())
def test_every_job_finishes_once_with_exactly_its_tokens(load: tuple[Profile, list[tuple[float, Job]]]) -> None:
    shape, arrivals = load
    done = simulate(shape, arrivals, rng=Random(1))
    assert Counter(d.job.job_id for d in done) == Counter(j.job_id for _, j in arrivals)
    for d in done:
        assert sum(d.tokens) == d.job.output_tokens
        assert list(d.at_s) == sorted(set(d.at_s))
        assert d.at_s[0] > d.arrived_s


@settings(max_examples=100, deadline=None)
@given(loads())
def test_every_step_keeps_the_limits(load: tuple[Profile, list[tuple[float, Job]]]) -> None:
    shape, arrivals = load
    engine = Engine(shape, Random(1))
    for _, arrived in arrivals:
        engine.submit(arrived)
    for result in steps(engine):
        assert 0 < result.batch <= shape.max_num_seqs
        assert 0 < result.tokens <= shape.max_num_batched_tokens
        assert result.duration_s > 0
        assert 0 <= engine.kv_usage <= 1
    assert engine.kv_usage == 0.0
    assert (engine.running, engine.waiting) == (0, 0)


def test_the_same_seed_gives_the_same_life() -> None:
    shape = made(speculation=Speculation(draft_tokens=3, acceptance=0.5))
    arrivals = [(0.001 * i, job(i, 20, 30)) for i in range(30)]

    def lives() -> list[tuple[int, list[float]]]:
        return [(d.job.job_id, d.at_s.tolist()) for d in simulate(shape, arrivals, rng=Random(3))]

    assert lives() == lives()


def test_a_frame_of_everything_has_no_time_per_token() -> None:
    done: list[Finished] = simulate(made(), [(0.0, job(1, 4, 1))])
    assert done[0].tpot_s is None


# --- profiles ---------------------------------------------------------------------------------------------------------


def test_every_shipped_profile_loads_and_says_where_its_numbers_come_from() -> None:
    assert {"demo", "toy-64", "vllm-cpu-tiny", "llama-cpp-np8"} <= set(profile.names())
    for name in profile.names():
        shape = profile.load(name)
        assert shape.name == name
        assert len(shape.source) > 40


def test_an_unknown_profile_names_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"'toy-46' is not known: did you mean toy-64"):
        profile.load("toy-46")


GOOD = "{name: a, source: b, max_num_seqs: 2, max_num_batched_tokens: 9, max_model_len: 16, step: STEP, kv: KV}"


@pytest.mark.parametrize(
    ("step", "kv", "complaint"),
    [
        ("{base_ms: 1, speed: 2}", "{num_blocks: 9}", "unknown field `speed`"),
        ("{base_ms: fast}", "{num_blocks: 9}", r"Expected `float \| null`, got `str` - at `\$.step.base_ms`"),
        ("{base_ms: 1, curve: [[1, 1], [2, 2]]}", "{num_blocks: 9}", "either base_ms"),
        ("{}", "{num_blocks: 9}", "either base_ms"),
        ("{base_ms: 0}", "{num_blocks: 9}", "over 0"),
        ("{curve: [[2, 1], [1, 2]]}", "{num_blocks: 9}", "rising"),
        ("{base_ms: 1}", "{num_blocks: 9, block_size: 1}", "room for 9 tokens < max_model_len 16"),
        ("{base_ms: 1", "{num_blocks: 9}", "expected"),
    ],
)
def test_a_wrong_profile_is_one_clear_line(step: str, kv: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint) as caught:
        profile.parse(GOOD.replace("STEP", step).replace("KV", kv), origin="mine.yaml")
    assert str(caught.value).startswith("engine profile mine.yaml: ")
    assert "\n" not in str(caught.value)


def test_a_profile_from_a_file_and_a_missing_one(tmp_path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(GOOD.replace("STEP", "{base_ms: 1}").replace("KV", "{num_blocks: 9}"))
    assert profile.load(str(path)).max_num_seqs == 2
    with pytest.raises(ValueError, match="No such file"):
        profile.load(str(tmp_path / "other.yaml"))


def test_the_curve_goes_on_beyond_its_ends() -> None:
    step = StepTime(curve=[(2, 10.0), (4, 14.0), (8, 30.0)])
    assert [step.tau_s(n) for n in (1, 2, 3, 4, 6, 8, 10)] == pytest.approx(
        [0.008, 0.01, 0.012, 0.014, 0.022, 0.03, 0.038]
    )
