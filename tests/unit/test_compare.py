"""From run directories to a comparison, and the comparison to terminal, Markdown, page and JSON."""

import json
import re
from io import StringIO
from pathlib import Path

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace
from report_example import HOSTILE
from rich.console import Console
from written_run import clustered, scenario, written

from harness import comparison
from harness.analysis import compare
from harness.analysis.parts import good_parts, output_parts
from harness.decisions import Comparison
from harness.findings import Report
from harness.model import Fixed, Influx, LogNormal, Prices, Slo, Target
from harness.report import compared

FAST = clustered(1200, 0.3)
SLOWER = clustered(1200, 0.3, seed=2) * 1.2
ASKED = scenario(levels=[50, 100])


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Comparison, list[Report]]:
    place = tmp_path_factory.mktemp("two")
    runs = [written(place / "before", [FAST, FAST], ASKED), written(place / "after", [SLOWER, FAST], ASKED)]
    return comparison.compared(runs)


# --- scenarios --------------------------------------------------------------------------------------------------------


def test_what_a_deployment_is_called_may_differ() -> None:
    other = replace(
        ASKED,
        name="other",
        about="words",
        target=Target(host="http://elsewhere", model="m2"),
        influx=Influx(url="http://db/x"),
        prices=Prices(per_hour=3),
    )
    assert compare.differences([ASKED, other]) == []


def test_every_other_field_is_listed_with_its_path_and_values() -> None:
    other = replace(
        ASKED,
        seed=2,
        load=replace(ASKED.load, levels=[50, 120, 200]),
        slo=Slo(ttft_p99_ms=400, itl_p50_ms=30, error_share=0.01),
        target=Target(engine="demo", body={"top_k": 1}),
        prompt_tokens=LogNormal(median=10, sigma=1),
    )
    found = {each.path: each.values for each in compare.differences([ASKED, other, ASKED])}
    assert found["seed"] == [1, 2, 1]
    assert found["load.levels[1]"] == [100, 120, 100]
    assert found["load.levels[2]"] == [None, 200, None]
    assert found["slo.ttft_p99_ms"] == [500, 400, 500]
    assert found["target.engine"] == [None, "demo", None]
    assert found["target.body.top_k"] == [None, 1, None]
    assert found["prompt_tokens.dist"] == ["fixed", "lognormal", "fixed"]
    assert "target.host" not in found


def test_a_comparison_of_different_scenarios_is_refused_with_the_list(tmp_path: Path) -> None:
    runs = [
        written(tmp_path / str(tokens), [FAST[:60]], replace(scenario(), output_tokens=Fixed(tokens=tokens)))
        for tokens in (5, 6)
    ]
    with pytest.raises(ValueError, match=r"(?s)scenarios of 5, 6 differ.*--anyway.*  output_tokens.tokens: 5 \| 6"):
        comparison.compared(runs)
    found, _ = comparison.compared(runs, anyway=True)
    assert [each.path for each in found.differences] == ["output_tokens.tokens"]
    assert "The scenarios differ in output_tokens.tokens: 5 | 6." in compared.remarks(found)


def test_a_long_list_is_cut_and_counted(tmp_path: Path) -> None:
    many = {f"field{place}": place for place in range(20)}
    runs = [
        written(tmp_path / name, [FAST[:60]], replace(scenario(), target=Target(body=body)))
        for name, body in (("a", {}), ("b", many))
    ]
    with pytest.raises(ValueError, match=r"… and 9 more"):
        comparison.compared(runs)


@pytest.mark.parametrize("count", [0, 1])
def test_one_run_is_nothing_to_compare(count: int, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected two or more"):
        comparison.compared([tmp_path] * count)


# --- levels and numbers -----------------------------------------------------------------------------------------------


def test_every_metric_of_every_load_stands_side_by_side(two: tuple[Comparison, list[Report]]) -> None:
    found, reports = two
    assert [side.label for side in found.sides] == ["before", "after"]
    assert [len(rows) for rows in compared.loads(found)] == [10, 10]
    for row in found.rows:
        if row.metric.endswith("_ms"):
            metric, label = row.metric.removesuffix("_ms").rsplit("_", 1)
            spreads = [next(x for x in each.levels if x.load == row.load).metrics[f"{metric}_ms"] for each in reports]
            assert row.values == pytest.approx([getattr(spread, label) for spread in spreads])
            assert row.intervals == [spread.interval[label] for spread in spreads]


def test_what_became_slower_is_said_to_be(two: tuple[Comparison, list[Report]]) -> None:
    told = {(row.load, row.metric): row.changes[0] for row in two[0].rows}
    slower, same = told[50, "ttft_p50_ms"], told[100, "ttft_p50_ms"]
    assert slower is not None
    assert slower.low is not None
    assert slower.low < 1.2 < (slower.high or 0)
    assert slower.text.startswith("slower by")
    assert same is not None
    assert same.text.startswith("no difference")


def test_the_same_arrivals_are_known_and_make_intervals_narrow(tmp_path: Path) -> None:
    """Even arrivals in an open loop are the same; of a closed loop each run makes its own."""
    noise = np.exp(0.05 * np.random.default_rng(1).standard_normal(1200))
    widths = {}
    for loop in ("open", "closed"):
        asked = scenario(loop=loop)
        old, new = written(tmp_path / f"{loop}1", [FAST], asked), written(tmp_path / f"{loop}2", [FAST * noise], asked)
        row = comparison.compared([old, new])[0].rows[0]
        change = row.changes[0]
        assert change is not None
        assert change.high is not None
        assert change.low is not None
        widths[loop] = change.high - change.low
    assert widths["open"] < 0.5 * widths["closed"]


def test_three_runs_and_levels_that_not_all_measured(tmp_path: Path) -> None:
    runs = [written(tmp_path / "a", [FAST[:60], FAST[:60]], ASKED)]
    runs += [written(tmp_path / name, [FAST[:60]], ASKED) for name in ("b", "c")]
    found, _ = comparison.compared(runs)
    assert {row.load for row in found.rows} == {50}
    assert all(len(row.values) == 3 and len(row.changes) == 2 for row in found.rows)
    assert found.notes == ["1 levels that not every run measured are left out."]


def test_no_load_in_common_is_an_error_that_lists_the_loads(tmp_path: Path) -> None:
    runs = [written(tmp_path / name, [FAST[:60]], ASKED) for name in ("a", "b")]
    (runs[1] / "stages.jsonl").unlink()
    with pytest.raises(ValueError, match=r"no load was measured in every run \(a: 50; b: \)"):
        comparison.compared(runs)


def test_a_load_that_was_measured_twice_is_matched_in_order(tmp_path: Path) -> None:
    runs = [comparison.read(written(tmp_path / name, [FAST[:60], FAST[:60]], ASKED)).run for name in ("a", "b")]
    again = [replace(each, load=50.0) for each in runs[0].levels]
    both = [compare.Run(frame=run.frame, scenario=run.scenario, stages=run.stages, levels=again) for run in runs]
    assert [(pair.new.index, pair.old.index) for pair in compare.pairs(*both)] == [(0, 0), (1, 1)]


def test_parts_of_a_hold_add_up_to_its_rates(tmp_path: Path) -> None:
    run = comparison.read(written(tmp_path / "a", [np.where(np.arange(1200) % 7 == 0, np.inf, FAST)]))
    (level,), (stage,) = run.run.levels, run.run.stages
    tokens = output_parts(run.run.frame, stage)
    assert len(tokens) == 20
    assert tokens.sum() / level.hold_s == pytest.approx(level.output_tps)
    good = good_parts(run.run.frame, stage, run.run.scenario.slo, "open")
    assert good.sum() / level.hold_s == pytest.approx(level.goodput_rps)
    assert good.min() > 0.7 * good.max()


# --- renderings -------------------------------------------------------------------------------------------------------


def printed(found: Comparison, width: int) -> str:
    console = Console(file=StringIO(), width=width)
    console.print(compared.render(found))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [80, 140])
def test_the_terminal_fits(two: tuple[Comparison, list[Report]], width: int) -> None:
    said = printed(two[0], width)
    assert max(len(line) for line in said.splitlines()) <= width
    assert "at 50 requests/s" in said
    assert "after against before" in " ".join(said.split())


def test_markdown_has_a_table_a_load(two: tuple[Comparison, list[Report]]) -> None:
    said = compared.text(two[0])
    assert said.count("| metric | before | after | after against before |") == 2
    assert sum(line.startswith("|") for line in said.splitlines()) == 2 * (10 + 2)


def test_the_page_needs_nothing_else_and_draws_every_run(two: tuple[Comparison, list[Report]]) -> None:
    page = compared.html(*two)
    assert not re.search(r"<(?:script|img|link)[^>]*(?:src|href)=", page)
    found = re.search(r'<script type="application/json" id="plots">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    plots = json.loads(found[1])
    assert set(plots) == {"ttft-p50", "ttft-p99", "itl-p99", "e2e-p99", "output", "goodput"}
    assert all(f'id="{name}"' in page for name in plots)
    for plot in plots.values():
        assert [len(line["x"]) for line in plot["data"]] == [2, 2]
        assert len({line["line"]["color"] for line in plot["data"]}) == 2
    for row in two[0].rows:
        assert all(change is not None and change.text in page for change in row.changes)


def test_hostile_names_stay_text(two: tuple[Comparison, list[Report]]) -> None:
    found, reports = two
    hostile = replace(
        found, scenario=HOSTILE, sides=[replace(each, label=HOSTILE, model=HOSTILE) for each in found.sides]
    )
    page = compared.html(hostile, reports)
    assert page.count("</script>") == 3
    assert "<b>bold" not in page
    assert "<b>" not in compared.text(hostile)
    assert "[red]" in printed(hostile, 200)


def test_a_latency_that_no_run_has_is_said_to_be_missing(two: tuple[Comparison, list[Report]]) -> None:
    found, reports = two
    bare = [replace(each, levels=[replace(x, metrics={}) for x in each.levels]) for each in reports]
    assert "No run has this latency." in compared.html(found, bare)


def test_the_files_of_a_comparison_are_whole_and_read_back(
    two: tuple[Comparison, list[Report]], tmp_path: Path
) -> None:
    page = comparison.write(tmp_path / "new", *two)
    assert page.name == "comparison.html"
    assert sorted(path.name for path in page.parent.iterdir()) == [
        "comparison.html",
        "comparison.json",
        "comparison.md",
    ]
    assert msgspec.json.decode((page.parent / "comparison.json").read_bytes(), type=Comparison) == two[0]
