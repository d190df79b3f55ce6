"""From a run directory to a gate, and the gate to JUnit, Markdown, terminal and JSON."""

import re
from io import StringIO
from pathlib import Path
from xml.etree import ElementTree as Xml

import msgspec
import numpy as np
import pytest
import yaml
from msgspec.structs import replace
from report_example import HOSTILE, level
from rich.console import Console
from written_run import Waits, clustered, scenario, written

from harness import gate
from harness.decisions import Change, Check, Decision, Gate
from harness.findings import Clause, Level
from harness.gate import Against
from harness.knee.gate import Asked, Portion, check, decision_of
from harness.model import Slo
from harness.report import gated, junit
from harness.report.gated import remarks
from harness.run import results
from harness.scenario import load as load_scenario

ASKED = Asked(name="ttft_p99_ms", limit=500, allowed=0.01)
FAST = clustered(2000, 0.5)
SLOW = clustered(2000, 0.5, median_ms=250)


# --- one clause -------------------------------------------------------------------------------------------------------


def settled() -> Level:
    return replace(level(0, 8.0), settled=True, settling="", due=2000, hold_s=40.0, outcomes={"ok": 2000})


@pytest.mark.parametrize(
    ("portion", "decision", "why"),
    [
        (Portion(requests=2000, beyond=0.001, low=0.0, high=0.004), "pass", "0.1 % of 2,000 requests lie beyond"),
        (Portion(requests=2000, beyond=0.01, low=0.0, high=0.01), "pass", "(95 %: 0 % to 1 %), 1 % may"),
        (Portion(requests=2000, beyond=0.03, low=0.02, high=0.05), "fail", "(95 %: 2 % to 5 %), 1 % may"),
        (
            Portion(requests=2000, beyond=0.006, low=0.002, high=0.02, needed=4321),
            "inconclusive",
            "about 4,300 requests",
        ),
        (Portion(requests=2000, beyond=0.01, low=0.002, high=0.02), "inconclusive", "this load lies at the limit"),
        (
            Portion(requests=200, beyond=0.0, needed=1000),
            "inconclusive",
            "too few to say how sure that is: about 1,000",
        ),
        (Portion(requests=0), "inconclusive", "nothing was measured"),
    ],
)
def test_a_clause_is_decided_where_the_interval_leaves_no_doubt(portion: Portion, decision: str, why: str) -> None:
    found = check(ASKED, settled(), portion)
    assert found.decision == decision
    assert why in found.why


def test_what_is_needed_is_told_in_requests_and_in_minutes_of_this_load() -> None:
    found = check(ASKED, settled(), Portion(requests=2000, beyond=0.006, low=0.002, high=0.02, needed=6000))
    assert (found.needed_requests, found.needed_minutes) == (6000, 2.0)
    assert "a hold of about 2.00 min" in gated.told(found)
    decided = check(ASKED, settled(), Portion(requests=2000, beyond=0.03, low=0.02, high=0.05, needed=6000))
    assert (decided.needed_requests, decided.needed_minutes) == (None, None)


@pytest.mark.parametrize(
    ("seen", "decision", "why"),
    [
        (level(0, 128.0, limited=True), "inconclusive", "the client was the limit: 6.0 %"),
        (replace(settled(), due=0), "inconclusive", "no request was due"),
        (replace(settled(), outcomes={"refused": 9}), "fail", "no request succeeded"),
        (
            replace(settled(), settled=False, settling="TTFT still rising"),
            "inconclusive",
            "had not settled: TTFT still",
        ),
    ],
)
def test_a_pass_needs_a_level_that_can_be_trusted(seen: Level, decision: str, why: str) -> None:
    found = check(ASKED, seen, Portion(requests=2000, beyond=0.0, low=0.0, high=0.004, needed=3000))
    assert (found.decision, why in found.why, found.needed_requests) == (decision, True, None)


def test_a_level_that_had_not_settled_can_fail() -> None:
    moving = replace(settled(), settled=False, settling="TTFT still rising")
    assert check(ASKED, moving, Portion(requests=2000, beyond=0.03, low=0.02, high=0.05)).decision == "fail"


def test_no_failure_at_all_may_be_asked_for() -> None:
    none = Asked(name="error_share", limit=0.0, allowed=0.0)
    assert check(none, settled(), Portion(requests=2000, beyond=0.0, low=0.0, high=0.002)).decision == "pass"
    assert check(none, settled(), Portion(requests=2000, beyond=0.001, low=0.0, high=0.003)).decision == "fail"


def test_the_check_carries_what_was_measured() -> None:
    clause = Clause(name="ttft_p99_ms", limit=500, value=432.1, held="held")
    found = check(ASKED, replace(settled(), clauses=[clause]), Portion(requests=2000, beyond=0.0, low=0.0, high=0.004))
    assert (found.value, found.limit, found.level, found.load) == (432.1, 500, 0, 8.0)


@pytest.mark.parametrize(
    ("decisions", "whole"),
    [
        (["pass", "pass"], "pass"),
        (["pass", "inconclusive"], "inconclusive"),
        (["inconclusive", "fail", "pass"], "fail"),
        ([], "inconclusive"),
    ],
)
def test_one_decision_for_all(decisions: list[Decision], whole: Decision) -> None:
    assert decision_of(decisions) == whole


# --- a run directory --------------------------------------------------------------------------------------------------


def judged(tmp_path: Path, levels: list[Waits], slo: Slo | None = None) -> Gate:
    loads = [50.0 * (1 + place) for place in range(len(levels))]
    asked = scenario(levels=loads) if slo is None else scenario(slo, levels=loads)
    return gate.judged(written(tmp_path / "run", levels, asked))


def decisions(found: Gate) -> dict[str, str]:
    return {each.clause: each.decision for each in found.checks}


def test_a_good_server_passes_every_clause(tmp_path: Path) -> None:
    found = judged(tmp_path, [FAST])
    assert decisions(found) == {"ttft_p99_ms": "pass", "itl_p50_ms": "pass", "error_share": "pass"}
    assert (found.decision, found.exit_code, found.text) == ("pass", 0, "all 3 checks passed")


def test_a_slow_server_fails_the_clause_that_it_breaks(tmp_path: Path) -> None:
    found = judged(tmp_path, [FAST, SLOW])
    assert [(each.load, each.clause) for each in found.checks if each.decision == "fail"] == [(100, "ttft_p99_ms")]
    assert (found.decision, found.exit_code) == ("fail", 1)
    assert "1 of 6 checks failed; ttft_p99_ms at 100 requests/s" in found.text


def test_few_requests_are_inconclusive_and_say_how_many_would_do(tmp_path: Path) -> None:
    found = judged(tmp_path, [FAST[:300]])
    (ttft,) = (each for each in found.checks if each.clause == "ttft_p99_ms")
    assert (ttft.decision, ttft.needed_requests) == ("inconclusive", 1000)
    assert ttft.needed_minutes == pytest.approx(1000 / 50 / 60)
    assert (found.decision, found.exit_code) == ("inconclusive", 2)


def test_refused_requests_fail_the_error_clause_only(tmp_path: Path) -> None:
    broken = np.where(np.arange(2000) % 25 == 0, np.inf, FAST)
    found = judged(tmp_path, [broken], Slo(ttft_p95_ms=500, itl_p50_ms=30, error_share=0.01))
    assert decisions(found) == {"ttft_p95_ms": "pass", "itl_p50_ms": "pass", "error_share": "fail"}


def test_speed_a_user_is_a_clause_on_the_median(tmp_path: Path) -> None:
    """Gaps of 20 ms are 50 tokens a second."""
    assert judged(tmp_path, [FAST[:600]], Slo(tps_per_user_min=49)).checks[0].decision == "pass"
    (slow,) = judged(tmp_path / "2", [FAST[:600]], Slo(tps_per_user_min=51)).checks
    assert (slow.decision, slow.limit, slow.value) == ("fail", 51, pytest.approx(50))


def test_every_latency_clause_is_checked(tmp_path: Path) -> None:
    slo = Slo(ttft_p90_ms=1e4, tpot_p95_ms=1e4, e2e_p50_ms=1e4, itl_p99_ms=1e4)
    found = judged(tmp_path, [FAST], slo)
    assert decisions(found) == dict.fromkeys(["ttft_p90_ms", "itl_p99_ms", "tpot_p95_ms", "e2e_p50_ms"], "pass")


def test_a_run_that_stopped_early_passes_nothing(tmp_path: Path) -> None:
    found = gate.judged(written(tmp_path / "run", [FAST], scenario(levels=[50, 100])))
    assert {each.decision for each in found.checks} == {"pass"}
    assert (found.decision, found.exit_code) == ("inconclusive", 2)
    assert "stopped early, before 100 requests/s" in found.text


def test_a_run_without_clauses_or_of_a_search_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no slo clauses"):
        judged(tmp_path, [FAST[:100]], Slo())
    search = written(tmp_path / "knee", [FAST[:100]], plan="knee")
    with pytest.raises(ValueError, match="is a knee search"):
        gate.judged(search)
    with pytest.raises(ValueError, match="not a run directory"):
        gate.judged(tmp_path / "nothing")


def test_the_report_is_read_where_it_was_written(tmp_path: Path) -> None:
    run = written(tmp_path / "run", [FAST])
    before = gate.judged(run)
    results.write_report(run, results.report_of(run))
    assert gate.judged(run) == before


# --- against a baseline -----------------------------------------------------------------------------------------------


def test_the_same_server_again_shows_no_regression(tmp_path: Path) -> None:
    noise = np.exp(0.02 * np.random.default_rng(3).standard_normal(2000))
    old, new = written(tmp_path / "old", [FAST]), written(tmp_path / "new", [FAST * noise])
    found = gate.judged(new, Against(baseline=old))
    assert found.baseline == "old"
    assert {each.metric for each in found.changes} >= {"ttft_p50_ms", "e2e_p99_ms", "output_tps", "goodput_rps"}
    assert not [each for each in found.changes if each.decision == "fail"]
    assert {each.metric: each.decision for each in found.changes}["ttft_p50_ms"] == "pass"


def test_a_slower_server_fails_where_the_whole_interval_lies_beyond_the_limit(tmp_path: Path) -> None:
    old, new = written(tmp_path / "old", [FAST]), written(tmp_path / "new", [1.12 * FAST], gap_ms=20.4)
    found = gate.judged(new, Against(baseline=old))
    told = {each.metric: each for each in found.changes}
    assert told["ttft_p50_ms"].decision == "fail"
    assert told["ttft_p50_ms"].text.startswith("slower by 12 %")
    assert (told["itl_p50_ms"].decision, told["itl_p50_ms"].ratio) == ("pass", pytest.approx(1.02))
    assert (found.decision, found.exit_code) == ("fail", 1)
    lenient = gate.judged(new, Against(baseline=old, regression=0.2))
    assert {each.metric: each.decision for each in lenient.changes}["ttft_p50_ms"] == "pass"


def test_a_baseline_alone_is_enough_to_judge(tmp_path: Path) -> None:
    asked = scenario(Slo())
    old, new = (written(tmp_path / name, [FAST[:600]], asked) for name in ("old", "new"))
    found = gate.judged(new, Against(baseline=old))
    assert not found.checks
    assert found.changes


def test_a_baseline_of_another_scenario_is_refused_unless_asked_for(tmp_path: Path) -> None:
    old = written(tmp_path / "old", [FAST[:600]], scenario(Slo(ttft_p99_ms=400)))
    new = written(tmp_path / "new", [FAST[:600]])
    with pytest.raises(ValueError, match=r"(?s)differ.*slo.ttft_p99_ms: 400.0 \| 500.0"):
        gate.judged(new, Against(baseline=old))
    found = gate.judged(new, Against(baseline=old, anyway=True))
    assert "slo.ttft_p99_ms" in [each.path for each in found.differences]
    assert "Scenario differs from the baseline in slo.ttft_p99_ms." in remarks(found)


def test_a_baseline_without_these_loads_is_refused(tmp_path: Path) -> None:
    old = written(tmp_path / "old", [FAST[:50]], scenario(levels=[50, 100]))
    new = written(tmp_path / "new", [FAST[:50]], scenario(levels=[50, 100]))
    (old / "stages.jsonl").unlink()
    with pytest.raises(ValueError, match=r"measured none of this run's loads \(it measured: none\)"):
        gate.judged(new, Against(baseline=old))


# --- renderings -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Gate:
    """Passes, fails and checks that could not be decided, with a baseline."""
    place = tmp_path_factory.mktemp("mixed")
    asked = scenario(levels=[50, 100])
    old = written(place / "old", [FAST[:300], SLOW], asked)
    new = written(place / "new", [1.3 * FAST[:300], SLOW], asked)
    return gate.judged(new, Against(baseline=old))


def test_junit_has_a_case_for_every_check_and_change(mixed: Gate) -> None:
    root = Xml.fromstring(junit.xml(mixed))
    found = [each.decision for each in (*mixed.checks, *mixed.changes)]
    assert set(found) == {"pass", "fail", "inconclusive"}
    cases = root.findall("./testsuite/testcase")
    assert len(cases) == len(found) == int(root.attrib["tests"])
    states = [
        "fail" if case.find("failure") is not None else "inconclusive" if case.find("error") is not None else "pass"
        for case in cases
    ]
    assert states == found
    assert [int(root.attrib[name]) for name in ("failures", "errors")] == [
        found.count("fail"),
        found.count("inconclusive"),
    ]
    assert len({case.attrib["name"] for case in root.findall("./testsuite[1]/testcase")}) == len(mixed.checks)


def test_junit_says_why_a_run_without_a_failed_check_is_not_trusted(tmp_path: Path) -> None:
    found = gate.judged(written(tmp_path / "run", [FAST], scenario(levels=[50, 100])))
    root = Xml.fromstring(junit.xml(found))
    assert [error.attrib["message"] for error in root.iter("error")] == [found.text]


def test_names_that_would_be_markup_stay_text(mixed: Gate) -> None:
    hostile = replace(mixed, scenario=HOSTILE + "\x00", model="<b>|", host="`x`", notes=[HOSTILE])
    assert Xml.fromstring(junit.xml(hostile)).attrib["name"] == HOSTILE + "�"
    said = gated.text(hostile)
    assert "</script>" not in said
    assert "<b>" not in said
    assert "[red]" in printed(hostile)


def test_markdown_holds_every_check_and_its_reason(mixed: Gate) -> None:
    said = gated.text(mixed)
    rows = [line for line in said.splitlines() if line.startswith("|")]
    assert len(rows) == len(mixed.checks) + len(mixed.changes) + 4
    assert len({line.count(" | ") for line in rows[: len(mixed.checks) + 2]}) == 1
    assert "❌ staging-chat: the gate failed" in said
    assert "Against the baseline old:" in said
    assert "too few to say how sure that is: about 1,000 requests would tell, a hold of about 0.333 min" in said


def printed(found: Gate, width: int = 100) -> str:
    console = Console(file=StringIO(), width=width)
    console.print(gated.render(found))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [80, 140])
def test_the_terminal_fits(mixed: Gate, width: int) -> None:
    said = printed(mixed, width)
    assert max(len(line) for line in said.splitlines()) <= width
    assert "exit 1" in said


def test_one_reason_for_several_clauses_is_told_once(mixed: Gate) -> None:
    (first, second) = (replace(mixed.checks[0], clause=name, decision="fail", why="why") for name in ("a", "b"))
    assert remarks(replace(mixed, checks=[first, second], notes=[], changes=[]))[0].startswith("a, b at ")


def test_the_files_of_a_gate_are_whole_and_read_back(mixed: Gate, tmp_path: Path) -> None:
    paths = gate.write(tmp_path, mixed)
    assert [path.name for path in paths] == ["gate.json", "junit.xml", "gate.md"]
    assert msgspec.json.decode(paths[0].read_bytes(), type=Gate) == mixed
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in paths)


# --- the document -----------------------------------------------------------------------------------------------------

GUIDE = (Path(__file__).parents[2] / "docs" / "ci.md").read_text(encoding="utf-8")


def test_every_pipeline_file_of_the_guide_is_yaml_and_its_scenario_loads(tmp_path: Path) -> None:
    staging, github, gitlab = re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL)
    (tmp_path / "staging.yaml").write_text(staging, encoding="utf-8")
    asked = load_scenario(tmp_path / "staging.yaml")
    assert asked.load.levels == [8]
    assert yaml.safe_load(github)["jobs"]["gate"]["steps"]
    assert yaml.safe_load(gitlab)["gate"]["artifacts"]["reports"]["junit"] == "$OUT/junit.xml"


def test_every_field_of_a_gate_is_documented() -> None:
    for struct in (Gate, Check, Change):
        assert not {name for name in struct.__struct_fields__ if f"`{name}`" not in GUIDE}
