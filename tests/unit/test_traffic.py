"""Traffic: lengths within their laws, prompts apart, due times Poisson or even, plans reproducible and divisible."""

from collections import Counter
from itertools import chain, islice, pairwise
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from harness.clock import S
from harness.model import Choice, Exponential, Fixed, Length, LogNormal, Quantiles, RequestSpec, Scenario, Uniform
from harness.scenario import parse
from harness.traffic import plan
from harness.traffic.arrivals import due_offsets
from harness.traffic.lengths import draw
from harness.traffic.prompts import CORPUS_WORDS, HEAD_WORDS, MASK, WORDS, Prompts

N = 20_000
SURE = 1e-4
"""Tests are seeded, so each passes or fails for good; P values below this would be a wrong law, not bad luck."""


def drawn(length: Length, n: int = N, seed: int = 1) -> NDArray[np.int64]:
    return draw(length, np.random.default_rng(seed), n)


# --- lengths ----------------------------------------------------------------------------------------------------------

whole = st.integers(1, 1_000_000)
ends = st.tuples(whole, whole).map(sorted)
lengths = st.one_of(
    st.builds(Fixed, tokens=whole),
    ends.map(lambda e: Uniform(min=e[0], max=e[1])),
    st.tuples(ends, st.floats(1e-3, 1e9), st.floats(1e-3, 1e3)).map(
        lambda t: LogNormal(min=t[0][0], max=t[0][1], median=t[1], sigma=t[2])
    ),
    st.tuples(ends, st.floats(1e-3, 1e12)).map(lambda t: Exponential(min=t[0][0], max=t[0][1], mean=t[1])),
    st.lists(whole, min_size=2, max_size=5).map(
        lambda tokens: Quantiles(shares=np.linspace(0, 1, len(tokens)).tolist(), tokens=sorted(tokens))
    ),
    st.lists(whole, min_size=1, max_size=5).map(lambda tokens: Choice(tokens=tokens)),
)


def limits(length: Length) -> tuple[int, int]:
    if isinstance(length, Uniform | LogNormal | Exponential):
        return length.min, length.max
    tokens = [length.tokens] if isinstance(length, Fixed) else length.tokens
    return min(tokens), max(tokens)


@given(lengths, st.integers(0, 2**32), st.integers(0, 50))
def test_lengths_stay_within_their_limits(length: Length, seed: int, n: int) -> None:
    tokens = drawn(length, n, seed)
    low, high = limits(length)
    assert tokens.dtype == np.int64
    assert tokens.shape == (n,)
    assert all(low <= one <= high for one in tokens.tolist())


@given(lengths, st.integers(0, 2**32))
def test_same_generator_same_lengths(length: Length, seed: int) -> None:
    assert drawn(length, 20, seed).tolist() == drawn(length, 20, seed).tolist()


def test_uniform_reaches_both_ends_equally_often() -> None:
    seen = Counter(drawn(Uniform(min=3, max=6)).tolist())
    assert set(seen) == {3, 4, 5, 6}
    assert stats.chisquare(list(seen.values())).pvalue > SURE


def test_lognormal_law() -> None:
    tokens = drawn(LogNormal(median=100_000, sigma=0.5))
    assert stats.kstest(np.log(tokens / 100_000) / 0.5, "norm").pvalue > SURE


def test_exponential_law() -> None:
    tokens = drawn(Exponential(mean=50_000))
    assert stats.kstest(tokens / 50_000, "expon").pvalue > SURE


def test_cut_values_sit_on_the_limits() -> None:
    tokens = drawn(LogNormal(median=100, sigma=1, min=50, max=200))
    beyond = stats.norm.sf(np.log(2))
    for limit in (50, 200):
        assert np.mean(tokens == limit) == pytest.approx(beyond, abs=0.02)
    assert np.median(tokens) == pytest.approx(100, rel=0.03)


def test_quantiles_come_back_as_quantiles() -> None:
    length = Quantiles(shares=[0, 0.1, 0.5, 0.99, 1], tokens=[2000, 10_000, 30_000, 31_000, 90_000])
    tokens = np.sort(drawn(length))
    law = np.interp(tokens, length.tokens, length.shares)
    assert np.max(np.abs(law - np.arange(1, N + 1) / N)) < stats.kstwo.isf(SURE, N)


def test_a_flat_piece_of_quantiles_is_an_atom() -> None:
    tokens = drawn(Quantiles(shares=[0, 0.25, 0.75, 1], tokens=[1, 5000, 5000, 9000]))
    assert np.mean(tokens == 5000) == pytest.approx(0.5, abs=4 * (0.25 / N) ** 0.5)


@pytest.mark.parametrize(("weights", "share"), [(None, 0.5), ([3.0, 1.0], 0.75)])
def test_choice_weights(weights: list[float] | None, share: float) -> None:
    tokens = drawn(Choice(tokens=[7, 8], weights=weights))
    assert np.mean(tokens == 7) == pytest.approx(share, abs=4 * (0.25 / N) ** 0.5)


# --- prompts ----------------------------------------------------------------------------------------------------------

PROMPTS = Prompts(1)
keys = st.integers(0, MASK)


def test_words_are_plain_and_distinct() -> None:
    assert len(WORDS) == len(set(WORDS)) >= 256
    assert all(word.isascii() and word.isalpha() and word.islower() for word in WORDS)
    assert len(WORDS) ** HEAD_WORDS > MASK


@given(st.integers(1, 3000), keys)
def test_a_prompt_has_so_many_known_words(tokens: int, key: int) -> None:
    words = PROMPTS.text(tokens, key).split(" ")
    assert len(words) == tokens
    assert set(words) <= set(WORDS)


@pytest.mark.parametrize("tokens", [1, HEAD_WORDS - 1, HEAD_WORDS, HEAD_WORDS + 1, CORPUS_WORDS, 1_000_000])
def test_edges_of_a_prompt(tokens: int) -> None:
    assert [len(PROMPTS.text(tokens, key).split(" ")) for key in (0, MASK)] == [tokens, tokens]


def test_corpus_wraps_to_its_beginning() -> None:
    twice = PROMPTS.text(HEAD_WORDS + 2 * CORPUS_WORDS, 5).split(" ")[HEAD_WORDS:]
    assert twice[:CORPUS_WORDS] == twice[CORPUS_WORDS:]


@given(keys, keys)
def test_two_keys_differ_within_the_first_words(one: int, other: int) -> None:
    same = PROMPTS.text(HEAD_WORDS, one) == PROMPTS.text(HEAD_WORDS, other)
    assert same == (one == other)


@given(keys, st.integers(1, 500), st.integers(1, 500))
def test_a_longer_prompt_begins_with_the_shorter(key: int, one: int, other: int) -> None:
    short, long = sorted((one, other))
    assert (PROMPTS.text(long, key) + " ").startswith(PROMPTS.text(short, key) + " ")


def test_neighbours_share_not_even_the_first_word() -> None:
    firsts = [PROMPTS.text(1, key) for key in range(2000)]
    assert sum(one == other for one, other in pairwise(firsts)) == 0
    assert len(set(firsts)) > len(WORDS) * 0.9


def test_prompts_depend_on_the_seed_alone() -> None:
    assert Prompts(1).text(50, 9) == PROMPTS.text(50, 9)
    assert Prompts(2).text(50, 9) != PROMPTS.text(50, 9)


@pytest.mark.parametrize(("tokens", "key"), [(0, 1), (-1, 1), (1, -1), (1, MASK + 1)])
def test_impossible_prompt(tokens: int, key: int) -> None:
    with pytest.raises(ValueError, match=f"tokens {tokens}, key {key}: expected"):
        PROMPTS.text(tokens, key)


# --- arrivals ---------------------------------------------------------------------------------------------------------


def poisson(rate: float, n: int, *, seed: int = 1, worker: int = 0, workers: int = 1) -> NDArray[np.int64]:
    return np.array(list(islice(due_offsets("poisson", rate, seed=seed, worker=worker, workers=workers), n)))


def ks_of_exponential(gaps: NDArray[np.float64], mean: float) -> float:
    """Kolmogorov–Smirnov statistic: largest distance between the gaps' distribution and 1 − exp(−x/mean)."""
    law = 1 - np.exp(-np.sort(gaps) / mean)
    steps = np.arange(len(gaps) + 1) / len(gaps)
    return float(max(np.max(steps[1:] - law), np.max(law - steps[:-1])))


def test_ks_statistic_is_scipys() -> None:
    gaps = np.random.default_rng(3).exponential(2.0, 500)
    assert ks_of_exponential(gaps, 2.0) == pytest.approx(stats.kstest(gaps, "expon", args=(0, 2.0)).statistic)


@pytest.mark.parametrize("rate", [0.01, 7.5, 4000.0])
def test_poisson_rate_and_gaps(rate: float) -> None:
    due_ns = poisson(rate, N)
    gaps = np.diff(due_ns, prepend=0) / S
    # N arrivals last N/rate seconds, with a standard deviation of √N/rate.
    assert abs(due_ns[-1] / S - N / rate) < 3 * N**0.5 / rate
    assert ks_of_exponential(gaps, 1 / rate) < stats.kstwo.isf(0.001, N)
    assert abs(np.corrcoef(gaps[1:], gaps[:-1])[0, 1]) < 4 / N**0.5


def test_poisson_counts_vary_as_much_as_they_should() -> None:
    """Variance equals mean in windows of every size: what pacing that catches up would break."""
    due_s = poisson(100.0, N) / S
    for window_s in (0.05, 0.5, 5.0):
        counts = np.bincount((due_s / window_s).astype(int))[:-1]
        assert counts.var() / counts.mean() == pytest.approx(1, abs=5 * (2 / len(counts)) ** 0.5)


@pytest.mark.parametrize("workers", [2, 7])
def test_poisson_workers_merged_are_poisson_of_the_whole_rate(workers: int) -> None:
    rate = 50.0
    streams = [poisson(rate, N, worker=worker, workers=workers) for worker in range(workers)]
    end_ns = min(stream[-1] for stream in streams)
    merged = np.sort(np.concatenate([stream[stream <= end_ns] for stream in streams]))
    expected = rate * end_ns / S
    assert abs(len(merged) - expected) < 3 * expected**0.5
    gaps = np.diff(merged) / S
    assert ks_of_exponential(gaps, 1 / rate) < stats.kstwo.isf(0.001, len(gaps))
    # Equal shares: each worker's count is itself Poisson.
    counts = [int(np.sum(stream <= end_ns)) for stream in streams]
    assert stats.chisquare(counts).pvalue > SURE


def test_poisson_streams_differ_by_seed_and_worker() -> None:
    streams = [poisson(10.0, 100, seed=seed, worker=worker, workers=2).tolist() for seed in (1, 2) for worker in (0, 1)]
    assert len({tuple(stream) for stream in streams}) == 4
    assert poisson(10.0, 100, workers=2).tolist() == streams[0]


def test_levels_of_one_seed_are_told_apart_by_a_pair() -> None:
    first, again, second = (
        list(islice(due_offsets("poisson", 10.0, seed=(1, level), worker=0, workers=1), 50)) for level in (0, 0, 1)
    )
    assert first == again != second


def test_offsets_rise_across_blocks() -> None:
    due_ns = poisson(1000.0, 5000)
    assert np.all(np.diff(due_ns) >= 0)
    assert due_ns[0] > 0
    assert isinstance(next(due_offsets("poisson", 1.0, seed=1, worker=0, workers=1)), int)


def test_constant_slots() -> None:
    assert list(islice(due_offsets("constant", 3.0, seed=1, worker=0, workers=1), 4)) == [0, 333333333, 666666666, S]


@given(st.floats(0.01, 10_000), st.integers(1, 9))
def test_constant_workers_merged_are_the_slots_of_one(rate: float, workers: int) -> None:
    one = list(islice(due_offsets("constant", rate, seed=1, worker=0, workers=1), 5 * workers))
    shares = [
        list(islice(due_offsets("constant", rate, seed=9, worker=worker, workers=workers), 5))
        for worker in range(workers)
    ]
    assert sorted(chain(*shares)) == one
    assert [share[0] for share in shares] == one[:workers]


def test_constant_does_not_drift() -> None:
    """0.3 a second is no binary fraction: a sum of float gaps would be microseconds off by then."""
    due_ns = next(islice(due_offsets("constant", 0.3, seed=1, worker=0, workers=1), 300_000, None))
    assert abs(due_ns - 1_000_000 * S) <= 1


@pytest.mark.parametrize(
    ("rate", "worker", "workers"),
    [(0.0, 0, 1), (-1.0, 0, 1), (float("nan"), 0, 1), (1.0, 1, 1), (1.0, -1, 1), (1.0, 0, 0)],
)
@pytest.mark.parametrize("arrivals", ["poisson", "constant"])
def test_impossible_arrivals(arrivals: Literal["poisson", "constant"], rate: float, worker: int, workers: int) -> None:
    with pytest.raises(ValueError, match="expected rate > 0 and 0 <= worker < workers"):
        due_offsets(arrivals, rate, seed=1, worker=worker, workers=workers)


# --- plans ------------------------------------------------------------------------------------------------------------


def workload(seed: int = 1, output: str = "{dist: uniform, min: 1, max: 90}") -> Scenario:
    return parse(
        f"""
        name: plan
        seed: {seed}
        load: {{loop: closed, levels: [1]}}
        prompt_tokens: {{dist: uniform, min: 8, max: 40}}
        output_tokens: {output}
        """
    )


def planned(n: int, *, seed: int = 1, level: int = 0, worker: int = 0) -> list[RequestSpec]:
    return list(islice(plan.requests(workload(seed), level=level, worker=worker), n))


def test_a_plan_keeps_its_word() -> None:
    specs = planned(1000)
    assert all(len(spec.prompt.split(" ")) == spec.prompt_tokens for spec in specs)
    assert {spec.request_class for spec in specs} == {"default"}
    assert {spec.prompt_tokens for spec in specs} == set(range(8, 41))
    assert {spec.output_tokens for spec in specs} == set(range(1, 91))
    correlation = np.corrcoef([spec.prompt_tokens for spec in specs], [spec.output_tokens for spec in specs])[0, 1]
    assert abs(correlation) < 4 / 1000**0.5


def test_same_seed_level_and_worker_same_plan() -> None:
    assert planned(600) == planned(600)


@pytest.mark.parametrize("other", [{"seed": 2}, {"level": 1}, {"worker": 1}])
def test_another_seed_level_or_worker_another_plan(other: dict[str, int]) -> None:
    one, two = planned(50), planned(50, **other)
    assert [spec.prompt_tokens for spec in one] != [spec.prompt_tokens for spec in two]
    assert not {spec.prompt for spec in one} & {spec.prompt for spec in two}


def test_prompts_of_a_run_share_no_beginning() -> None:
    specs = [spec for level in range(4) for worker in range(4) for spec in planned(200, level=level, worker=worker)]
    heads = {tuple(spec.prompt.split(" ")[:HEAD_WORDS]) for spec in specs}
    assert len(heads) == len(specs)


def test_another_law_of_answers_leaves_the_prompts() -> None:
    long = list(islice(plan.requests(workload(output="900"), level=0, worker=0), 50))
    assert [spec.prompt for spec in long] == [spec.prompt for spec in planned(50)]


@pytest.mark.parametrize(("level", "worker"), [(-1, 0), (0, -1), (2**14, 0), (0, 2**14)])
def test_impossible_plan(level: int, worker: int) -> None:
    with pytest.raises(ValueError, match=f"level {level}, worker {worker}: expected both from 0 to 16383"):
        plan.requests(workload(), level=level, worker=worker)


def test_last_level_and_worker_fit_a_key() -> None:
    assert len(planned(2, level=2**14 - 1, worker=2**14 - 1)) == 2
