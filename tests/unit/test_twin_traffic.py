"""Traffic as a distribution over traces: the same history at any load, the laws its gaps obey, lengths as declared."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.model import Fixed, Load, LogNormal, Scenario, Uniform
from harness.twin import traffic
from harness.twin.traffic import Empirical, Lengths, Traffic

LENGTHS = Lengths(prompt_tokens=LogNormal(median=500, sigma=1.0), output_tokens=Uniform(min=1, max=200))


def gaps_s(declared: Traffic, load: float, n: int = 60_000) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    arrival_s = declared.trace(load, n, 7).arrival_s
    assert arrival_s is not None
    return np.diff(arrival_s)


@given(st.floats(0.1, 50), st.sampled_from(["poisson", "constant", "gamma"]))
def test_another_load_is_the_same_history_at_another_speed(load: float, arrivals: str) -> None:
    declared = Traffic(lengths=LENGTHS, arrivals=arrivals)  # type: ignore[arg-type]  # one of three literals
    once, twice = declared.trace(1.0, 200, (3, 1)), declared.trace(load, 200, (3, 1))
    assert once.arrival_s is not None
    assert twice.arrival_s is not None
    np.testing.assert_allclose(twice.arrival_s * load, once.arrival_s)
    assert (twice.prompt_tokens == once.prompt_tokens).all()
    assert (twice.output_tokens == once.output_tokens).all()


def test_bursts_and_pauses_stay_where_they_are_at_another_load() -> None:
    """The pauses are those of the deployment's users: a higher load only puts more requests into the same bursts."""
    declared = Traffic(lengths=LENGTHS, arrivals="on_off", on_s=10, off_s=30)

    def pauses_s(load: float) -> set[float]:
        arrival_s = declared.trace(load, int(1000 * load), 4).arrival_s
        assert arrival_s is not None
        wide = np.flatnonzero(np.diff(arrival_s) > 20)
        return {round(float(at), 0) for at in arrival_s[wide]}

    assert len(pauses_s(20) & pauses_s(60)) >= 5


@pytest.mark.parametrize(
    ("declared", "cv"),
    [
        (Traffic(lengths=LENGTHS), 1.0),
        (Traffic(lengths=LENGTHS, arrivals="constant"), 0.0),
        (Traffic(lengths=LENGTHS, arrivals="gamma", cv=2.0), 2.0),
        (Traffic(lengths=LENGTHS, arrivals="gamma", cv=0.5), 0.5),
    ],
)
def test_gaps_have_the_declared_mean_and_variation(declared: Traffic, cv: float) -> None:
    gaps = gaps_s(declared, 8.0)
    assert gaps.mean() == pytest.approx(1 / 8, rel=0.03)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.03, abs=1e-6)


def test_on_off_keeps_the_rate_and_pauses() -> None:
    gaps = gaps_s(Traffic(lengths=LENGTHS, arrivals="on_off", on_s=17, off_s=43), 8.0)
    assert gaps.mean() == pytest.approx(1 / 8, rel=0.15)  # some 125 bursts: √(2 / 125) = 13 %
    assert np.median(gaps) == pytest.approx(np.log(2) / (8.0 * 60 / 17), rel=0.05)
    assert 90 < (gaps > 5).sum() < 160


def test_arrivals_and_lengths_are_independent_streams() -> None:
    """Another arrival law leaves every length as it was; another output law leaves every prompt."""
    poisson = Traffic(lengths=LENGTHS).trace(5, 100, 1)
    gamma = Traffic(lengths=LENGTHS, arrivals="gamma").trace(5, 100, 1)
    other = Traffic(lengths=Lengths(prompt_tokens=LENGTHS.prompt_tokens, output_tokens=Fixed(tokens=3)))
    assert (poisson.prompt_tokens == gamma.prompt_tokens).all()
    assert (poisson.prompt_tokens == other.trace(5, 100, 1).prompt_tokens).all()
    assert (poisson.prompt_tokens == other.closed(4, 100, 1).prompt_tokens).all()
    assert (poisson.prompt_tokens != Traffic(lengths=LENGTHS).trace(5, 100, 2).prompt_tokens).any()


def test_what_was_seen_is_drawn_in_pairs() -> None:
    drawn = Traffic(lengths=Empirical(pairs=[(10, 1), (20, 2), (30, 3)])).trace(1, 600, 1)
    assert (drawn.prompt_tokens == 10 * drawn.output_tokens).all()
    assert np.bincount(drawn.output_tokens)[1:].min() > 150


def test_a_scenario_declares_its_traffic() -> None:
    scenario = Scenario(
        name="some",
        load=Load(loop="closed", levels=[1.0], think_s=2.0),
        prompt_tokens=Fixed(tokens=9),
        output_tokens=Fixed(tokens=4),
    )
    trace = traffic.of(scenario).closed(3, 5, 1)
    assert (trace.users, trace.think_s, trace.loop) == (3, 2.0, "closed")
    assert trace.prompt_tokens.tolist() == [9] * 5
    assert trace.output_tokens.tolist() == [4] * 5


def test_a_load_is_more_than_nothing() -> None:
    with pytest.raises(ValueError, match="expected more than 0"):
        Traffic(lengths=LENGTHS).trace(0.0, 10, 1)
