"""The batch map as a value: which setting is best, where the clause flips, what is measured next, how it is told."""

import io

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from rich.console import Console

from harness.findings import Verdict
from harness.knee.map import BatchMap, Cell, Figures, How, Objective, Setting, best, conclusion, flips, rows, value
from harness.knee.map_choice import is_believed, next_setting
from harness.model import Slo
from harness.report import batch_map as rendered
from harness.report.batch_map_figures import figures, heat

TTFT, TPOT = "ttft_p99_ms", "tpot_p99_ms"
TOY = {8: 1.8, 16: 4.0, 24: 5.7, 32: 6.9, 48: 6.7, 64: 6.6}
"""Knees in requests/s that rise while the queue binds, and fall once the time between tokens does."""


def cell(seqs: int, rps: float | None, how: How = "predicted", clause: str = TTFT, tokens: int = 2048) -> Cell:
    cost = None if not rps else 10 / rps
    at = Figures(
        load=rps, binding=clause, rps=rps, output_tps=rps and 100 * rps, goodput_rps=rps and 0.99 * rps,
        cost_per_million_output_tokens=cost,
    )  # fmt: skip
    return Cell(setting=Setting(max_num_seqs=seqs, max_num_batched_tokens=tokens), how=how, figures=at)


def toy(**measured: float) -> list[Cell]:
    """The toy's map, predicted but for the largest."""
    cells = [cell(seqs, rps, clause=TTFT if seqs < 48 else TPOT) for seqs, rps in TOY.items()]
    return [structs.replace(each, how="measured") if each.setting.max_num_seqs == 64 else each for each in cells]


def seqs(of: Cell | Setting | None) -> int | None:
    setting = of.setting if isinstance(of, Cell) else of
    return None if setting is None else setting.max_num_seqs


def map_of(cells: list[Cell], objective: Objective = "rate") -> BatchMap:
    chosen = best(cells, objective)
    return BatchMap(
        scenario="toy",
        axis="rate",
        slo=Slo(ttft_p99_ms=1000, tpot_p99_ms=25),
        objective=objective,
        cells=cells,
        best=chosen.setting if chosen else None,
        flips=flips(cells),
        verdict=conclusion(cells, objective),
    )


# --- best -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", ["rate", "goodput", "cost"])
def test_the_best_setting_carries_most(objective: Objective) -> None:
    assert seqs(best(toy(), objective)) == 32


def test_of_equally_good_settings_the_smallest_batch_is_best() -> None:
    assert seqs(best([cell(16, 5.0), cell(32, 9.9), cell(64, 10.0), cell(128, 10.01)], "rate")) == 32
    assert seqs(best([cell(16, 5.0), cell(32, 9.7), cell(64, 10.0)], "rate")) == 64


def test_what_carries_nothing_or_is_not_known_is_never_best() -> None:
    assert best([cell(8, 0.0), cell(16, None)], "rate") is None
    assert seqs(best([cell(8, 0.0), cell(16, 0.1)], "rate")) == 16
    unpriced = structs.replace(cell(8, 2.0), figures=Figures(load=2.0, rps=2.0))
    assert best([unpriced], "cost") is None
    assert value(unpriced.figures, "rate") == 2.0


# --- flip -------------------------------------------------------------------------------------------------------------


def test_the_flip_lies_between_neighbours() -> None:
    (flip,) = flips(toy())
    assert (flip.below, flip.above, flip.from_, flip.to) == (32, 48, TTFT, TPOT)


def test_clauses_of_one_kind_do_not_flip_and_saturation_says_nothing() -> None:
    assert (
        flips(
            [cell(8, 1, clause="tpot_p99_ms"), cell(16, 2, clause="itl_p95_ms"), cell(32, 3, clause="tps_per_user_min")]
        )
        == []
    )
    (flip,) = flips([cell(8, 1), cell(16, 2, clause="saturation"), cell(32, 3, clause="itl_p99_ms")])
    assert (flip.below, flip.above) == (8, 32)


def test_every_token_budget_has_its_own_flip() -> None:
    wide = [
        cell(8, 1, tokens=512),
        cell(16, 2, tokens=512, clause=TPOT),
        cell(8, 1),
        cell(16, 2),
        cell(32, 3, clause=TPOT),
    ]
    assert [(each.max_num_batched_tokens, each.above) for each in flips(wide)] == [(512, 16), (2048, 32)]
    assert [len(row) for row in rows(wide)] == [2, 3]


# --- what to measure --------------------------------------------------------------------------------------------------


def measured(cells: list[Cell], setting: Setting, load: float | None = None) -> list[Cell]:
    """The same map with one setting measured."""
    at = next(each for each in cells if each.setting == setting)
    figures = at.figures if load is None else structs.replace(at.figures, load=load, rps=load)
    return [each for each in cells if each.setting != setting] + [
        structs.replace(at, how="measured", figures=figures, predicted=at.figures)
    ]


def test_the_best_comes_first_then_the_flip_then_the_neighbours_and_no_more() -> None:
    cells, order = toy(), []
    while (setting := next_setting(cells, "rate")) is not None:
        order.append(setting.max_num_seqs)
        cells = measured(cells, setting)
    assert order == [32, 48, 24]


def test_a_best_that_disappoints_hands_over_to_the_next() -> None:
    cells = measured(toy(), Setting(max_num_seqs=32, max_num_batched_tokens=2048), load=5.0)
    assert seqs(next_setting(cells, "rate")) == 48


def test_a_plateau_is_not_measured() -> None:
    cells = [cell(8, 1.8), cell(16, 6.9, how="plateau"), cell(32, 6.9, how="plateau"), cell(64, 6.9, how="measured")]
    assert seqs(best(cells, "rate")) == 16
    assert seqs(next_setting(cells, "rate")) == 8


def test_neighbours_lie_in_both_directions() -> None:
    cells = [cell(8, 1, tokens=512), cell(8, 2, how="measured"), cell(4, 1, how="measured"), cell(4, 0.5, tokens=512)]
    found = next_setting(cells, "rate")
    assert found == Setting(max_num_seqs=8, max_num_batched_tokens=512)


@given(st.dictionaries(st.integers(1, 40), st.floats(0.1, 100), min_size=1, max_size=12), st.data())
def test_choosing_ends_with_a_measured_best(knees: dict[int, float], data: st.DataObject) -> None:
    cells = [cell(each, rps, clause=data.draw(st.sampled_from([TTFT, TPOT]))) for each, rps in knees.items()]
    for _ in range(len(cells) + 1):
        setting = next_setting(cells, "rate")
        if setting is None:
            break
        cells = measured(cells, setting, load=data.draw(st.floats(0.1, 100)))
    else:
        pytest.fail("it measured a setting twice")
    chosen = best(cells, "rate")
    assert chosen is not None
    assert chosen.how == "measured"


def test_a_twin_that_missed_its_own_knee_is_not_believed() -> None:
    assert is_believed(Figures(load=10.0), Figures(load=10.9), whole=False)
    assert not is_believed(Figures(load=10.0), Figures(load=11.2), whole=False)
    assert is_believed(Figures(load=3), Figures(load=4), whole=True)
    assert not is_believed(Figures(load=3), Figures(load=5), whole=True)
    assert not is_believed(Figures(load=None), Figures(load=5), whole=True)


# --- the answer -------------------------------------------------------------------------------------------------------


def test_the_verdict_says_which_and_how_it_is_known() -> None:
    assert conclusion(toy(), "rate") == Verdict(
        held="held", exit_code=0, text="best for requests within the SLO: a batch of 32 (6.9 requests/s, predicted)"
    )
    assert conclusion([cell(8, 0.0), cell(16, 0.0)], "rate").exit_code == 1
    lost = structs.replace(cell(8, None), text="undecided: client-limited")
    partly = conclusion([lost, cell(4, 1.5, how="measured")], "rate")
    assert (partly.held, partly.exit_code) == ("unjudged", 2)
    assert partly.text.endswith("a batch of 4 (1.5 requests/s), but no knee was found with a batch of 8")
    assert conclusion([lost], "rate") == Verdict(
        held="unjudged", exit_code=2, text="no setting has a knee; 8: undecided: client-limited"
    )


def test_a_map_survives_its_json() -> None:
    found = map_of(toy())
    assert msgspec.json.decode(msgspec.json.encode(found), type=BatchMap) == found


def test_off_needs_both() -> None:
    (one,) = [
        each for each in measured(toy(), Setting(max_num_seqs=8, max_num_batched_tokens=2048), 2.0) if each.predicted
    ]
    assert one.off == pytest.approx(-0.1)
    assert cell(8, 1.0).off is None


# --- told -------------------------------------------------------------------------------------------------------------


def terminal(found: BatchMap) -> str:
    said = io.StringIO()
    Console(file=said, width=80).print(rendered.render(found))
    return said.getvalue()


def test_the_terminal_fits_and_marks_the_best() -> None:
    said = terminal(map_of(toy()))
    assert max(len(line) for line in said.splitlines()) <= 80
    assert "★32" in said
    assert "from TTFT P99 to TPOT P99" in " ".join(said.split())
    assert "tokens" not in said.splitlines()[1]


def test_markdown_has_a_row_a_setting() -> None:
    said = rendered.text(map_of(toy()))
    assert sum(line.startswith(("| 8", "| 16", "| 24", "| ★32", "| 48", "| 64")) for line in said.splitlines()) == 6
    assert "Between batches of 32 and 48" in said


def test_the_heat_map_has_a_field_a_setting_and_a_stroke_a_flip() -> None:
    wide = [*toy(), cell(8, 1.0, tokens=512), cell(16, 2.0, tokens=512, clause=TPOT)]
    figure = heat(map_of(wide))
    (plot,) = figure.data
    assert figure.layout["yaxis"]["ticktext"] == ["512", "2048"]
    assert figure.layout["xaxis"]["ticktext"] == [str(seqs) for seqs in TOY]
    assert plot["z"] == [[1.0, 2.0, None, None, None, None], list(TOY.values())]
    strokes = figure.layout["shapes"]
    assert [(each["x0"], each["y0"], each["y1"]) for each in strokes] == [(0.5, -0.5, 0.5), (3.5, 0.5, 1.5)]
    (best_of_all,) = [note for note in figure.layout["annotations"] if note["text"].startswith("★")]
    assert (best_of_all["x"], best_of_all["y"], best_of_all["text"]) == (3, 1, "★ (6.90)")


def test_a_cost_is_drawn_as_a_cost() -> None:
    (plot,) = heat(map_of([cell(8, 2.0), cell(16, 4.0)], "cost")).data
    assert plot["z"] == [[5.0, 2.5]]
    assert plot["reversescale"]


def test_without_a_knee_nothing_is_drawn_and_it_is_said_why() -> None:
    found = map_of([structs.replace(cell(8, None), text="undecided: <b>client</b>")])
    assert all(figure.missing for figure in figures(found))
    page = rendered.html(found)
    assert "<b>client</b>" not in page
    assert "undecided: &lt;b&gt;client" in page
    assert "run directory is removed" in terminal(found)


def test_the_page_holds_both_figures_and_loads_nothing() -> None:
    page = rendered.html(map_of(toy()))
    head = page[: page.index('<script type="application/json"')]
    assert 'id="batch-map"' in head
    assert 'id="batch-knees"' in head
    assert "src=" not in head
    assert "https:" not in head
