"""Every rendering of a Report, on a plausible one and on awkward ones."""

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from report_example import HOSTILE, awkward, example, level, of_levels, sample
from rich.console import Console

from harness.findings import Knee, Located, Report, Spread, Usl, Verdict
from harness.report import (
    document,
    figures,
    laws,
    load_figures,
    markdown,
    page,
    sentences,
    stream_figures,
    terminal,
    words,
)

REPORTS = {"example": example()} | awkward()
every_report = pytest.mark.parametrize("report", REPORTS.values(), ids=REPORTS.keys())


# --- words ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "–"),
        (float("nan"), "–"),
        (0, "0"),
        (0.0512, "0.0512"),
        (9.996, "10.0"),
        (50.07, "50.1"),
        (254.4, "254"),
        (1234, "1230"),
        (-3.14159, "-3.14"),
        (1e-9, "~0"),
    ],
)
def test_three_significant_digits(value: float | None, said: str) -> None:
    assert words.number(value) == said


@settings(deadline=None)
@given(st.floats(min_value=0.001, max_value=1e9))
def test_a_number_is_never_off_by_more_than_half_a_percent(value: float) -> None:
    assert float(words.number(value)) == pytest.approx(value, rel=0.0051)


@settings(deadline=None)
@given(st.floats(min_value=0, max_value=1))
def test_only_a_whole_share_reads_100_and_only_none_reads_0(share: float) -> None:
    said = words.percent(share)
    assert (said == "100") == (share == 1)
    assert (said == "0") == (share == 0)


@pytest.mark.parametrize(
    ("value", "said"), [(9870, "9870"), (12_345, "12.3k"), (999_900, "1.00M"), (999_499, "999k"), (None, "–")]
)
def test_large_rates_are_scaled(value: float | None, said: str) -> None:
    assert words.scaled(value) == said


@pytest.mark.parametrize(
    ("value_ms", "said"), [(51.26, "51.3 ms"), (998, "998 ms"), (999.9, "1.00 s"), (61_000, "61.0 s"), (None, "–")]
)
def test_durations_carry_the_unit_that_reads_best(value_ms: float | None, said: str) -> None:
    assert words.duration(value_ms) == said


def test_a_quantile_is_absent_or_too_few_or_marked_or_sure() -> None:
    sure = Spread(n=900, p99=51.34, interval={"p99": (50.0, 55.0)})
    assert words.quantile(None, "p99") == words.quantile(Spread(n=0, absent=9), "p99") == "–"
    assert words.quantile(replace(sure, p99=None), "p99") == "too few"
    assert words.quantile(replace(sure, interval={"p99": None}), "p99") == "51.3†"
    assert words.quantile(sure, "p99") == "51.3"
    assert words.interval(replace(sure, interval={}), "p99") == "too few"
    assert words.interval(sure, "p99") == "50.0 … 55.0"


def test_clauses_read_as_they_were_written() -> None:
    assert words.clause_label("ttft_p99_ms") == "TTFT P99"
    assert words.clause_label("anything_else") == "anything_else"
    assert words.clause_limit("itl_p99_ms", 60.0) == "≤ 60 ms"
    assert words.clause_limit("error_share", 0.015) == "≤ 1.5 %"
    assert words.clause_limit("tps_per_user_min", 20.0) == "≥ 20"


# --- sentences --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("knee", "span", "line"),
    [
        (
            Knee(found="bracket", axis="users", holds=64, breaks=80, binding="ttft_p99_ms"),
            "64 – 80 users",
            "Holds at 64 users, breaks at 80: TTFT P99",
        ),
        (
            Knee(found="none_up_to", axis="rate", holds=4.25),
            "above 4.25 requests/s",
            "Holds up to 4.25 requests/s, the highest load tried",
        ),
        (
            Knee(found="breaks_at_first", axis="users", breaks=1),
            "below 1 users",
            "Breaks already at 1 user, the lowest load tried",
        ),
        (Knee(found="undecided", axis="users"), "undecided", "The knee could not be decided"),
        (Knee(found="undecided", axis="users", text="odd run"), "undecided", "Odd run"),
    ],
)
def test_a_knee_in_words(knee: Knee, span: str, line: str) -> None:
    assert (sentences.knee_span(knee), sentences.knee_line(knee)) == (span, line)


def test_the_ledger_line_says_when_it_does_not_balance() -> None:
    ledger = replace(example().ledger, due=10, outcomes={"reset": 2, "ok": 7, "empty": 0}, lost=1, balanced=False)
    assert sentences.ledger_line(ledger) == "10 due ≠ 7 ok + 2 reset + 1 lost (NOT balanced)"


def test_one_client_advice_is_said_once() -> None:
    lines = sentences.client_lines([level(0, 64.0), level(1, 128.0, limited=True), level(2, 256.0, limited=True)])
    assert len(lines) == 1
    assert lines[0].startswith("Client-limited at 128, 256 users: 6.0 % of token events were coalesced")
    assert "--processes 2" in lines[0]


# --- terminal ---------------------------------------------------------------------------------------------------------


def printed(report: Report, width: int = 80) -> str:
    out = StringIO()
    Console(file=out, width=width, no_color=True, force_terminal=False).print(terminal.render(report))
    return out.getvalue()


@every_report
def test_the_terminal_fits_80_columns_and_cuts_nothing(report: Report) -> None:
    text = printed(report)
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    assert "…" not in text
    rows = [line.split() for line in text.splitlines()]
    for each in report.levels:
        assert any(row[:2] == [words.load(each.load), str(each.due)] and len(row) >= 12 for row in rows)


def test_the_terminal_holds_to_80_columns_when_numbers_are_long() -> None:
    wide = replace(level(0, 1536.0), due=148_213, output_tps=109_000.0, goodput_rps=1234.5)
    text = printed(of_levels([wide]))
    row = next(line for line in text.splitlines() if line.split()[:1] == ["1536"])
    assert row.split()[1] == "148213"
    assert "109k" in row
    assert len(row.rstrip()) <= 80


def test_the_terminal_says_everything_that_matters() -> None:
    report = example()
    text = printed(report, width=200)
    assert sentences.headline(report) in text
    assert "Knee found, exit 0" in text
    assert sentences.ledger_line(report.ledger) in text
    assert all(note in text for note in report.notes)
    assert "Client-limited at 128 users" in text
    assert "too few requests for an interval" in text


def test_the_terminal_reads_no_markup_in_names() -> None:
    assert printed(REPORTS["hostile"], width=200).count("[red]") > 5


# --- markdown ---------------------------------------------------------------------------------------------------------


@every_report
def test_markdown_tables_keep_their_shape(report: Report) -> None:
    text = markdown.text(report)
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == (len(report.levels) + 2 if report.levels else 0)
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} <= {13}
    assert markdown.plain(sentences.ledger_line(report.ledger)) in text
    assert text.endswith("\n")


def test_markdown_lets_no_markup_through() -> None:
    text = markdown.text(REPORTS["hostile"])
    assert "<b>" not in text
    assert "&lt;/script&gt;&lt;b&gt;bold&lt;/b&gt;\\[red\\]\\*x\\*\\|y" in text


def test_markdown_keeps_a_text_on_its_line() -> None:
    assert markdown.plain("a\n# b\r\n- c") == "a \\# b - c"


# --- document ---------------------------------------------------------------------------------------------------------


@every_report
def test_the_document_reads_back_as_the_report(report: Report) -> None:
    assert document.read(document.summary(report)) == report


def test_the_document_holds_what_others_build_on() -> None:
    said = json.loads(document.summary(example()))
    assert said["schema_version"] == document.VERSION
    assert {"header", "ledger", "knee", "verdict"} <= said.keys()
    for each in said["levels"]:
        assert {"outcomes", "client"} <= each.keys()
        for metric in ("ttft_ms", "itl_ms", "gap_ms", "tpot_ms", "e2e_ms", "lag_ms"):
            assert {"n", "mean", "p50", "p90", "p95", "p99", "max"} <= each["metrics"][metric].keys()
    assert said["levels"][6]["metrics"]["ttft_ms"]["p99"] == example().levels[6].metrics["ttft_ms"].p99


def test_equal_reports_give_equal_bytes() -> None:
    report = example()
    backwards = dict(reversed(report.ledger.outcomes.items()))
    turned = replace(report, ledger=replace(report.ledger, outcomes=backwards))
    assert document.summary(turned) == document.summary(report)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"schema_version": 1}', b"\xff\xfe", b'{"schema_version": "1"}'])
def test_what_is_no_summary_is_refused_in_one_line(data: bytes) -> None:
    with pytest.raises(document.Unreadable, match=r"^summary: .*expected[^\n]*$"):
        document.read(data)


def test_another_version_is_named() -> None:
    with pytest.raises(document.Unreadable, match="schema_version is 9, expected 1"):
        document.read(document.summary(replace(example(), schema_version=9)))


# --- page -------------------------------------------------------------------------------------------------------------


class Reader(HTMLParser):
    """What a browser would find: elements with attributes, scripts and styles, cells per table row, text."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.inside: list[str] = []
        self.scripts: list[str] = []
        self.styles: list[str] = []
        self.rows: list[int] = []
        self.text = ""
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "img", "br"):
            self.inside.append(tag)
        if tag == "script":
            self.scripts.append("")
        if tag == "tr":
            self.rows.append(0)
        if tag in ("td", "th"):
            self.rows[-1] += 1

    def handle_endtag(self, tag: str) -> None:
        assert self.inside.pop() == tag

    def handle_data(self, data: str) -> None:
        where = self.inside[-1] if self.inside else ""
        if where == "script":
            self.scripts[-1] += data
        elif where == "style":
            self.styles.append(data)
        else:
            self.text += data


@pytest.fixture(scope="module")
def pages() -> dict[str, Reader]:
    """Every report as a browser would find its page."""
    return {name: Reader(page.html(report)) for name, report in REPORTS.items()}


every_page = pytest.mark.parametrize("name", REPORTS.keys())


@every_page
def test_a_page_loads_nothing(pages: dict[str, Reader], name: str) -> None:
    found = pages[name]
    assert not {tag for tag, _ in found.elements} & {"link", "img", "iframe", "object", "embed", "base", "a", "form"}
    assert not [attrs for _, attrs in found.elements if {"src", "href", "srcset"} & attrs.keys()]
    assert not [css for css in found.styles if "url(" in css or "@import" in css]
    policy = [attrs for tag, attrs in found.elements if tag == "meta" and "http-equiv" in attrs]
    assert (policy[0]["content"] or "").startswith("default-src 'none';")


@every_page
def test_a_page_is_whole(pages: dict[str, Reader], name: str) -> None:
    found = pages[name]
    assert found.inside == []
    assert [len(script) > 1_000_000 for script in found.scripts] == [False, True, False]
    plots = [attrs["id"] for _, attrs in found.elements if attrs.get("class") == "plot"]
    assert plots == list(json.loads(found.scripts[0]))
    assert len(plots) == len(set(plots))


@every_page
def test_the_level_table_has_a_cell_for_every_column(pages: dict[str, Reader], name: str) -> None:
    levels = len(REPORTS[name].levels)
    assert pages[name].rows.count(len(page.columns.FULL)) == (levels + 1 if levels else 0)


def test_the_page_tells_its_story_in_order(pages: dict[str, Reader]) -> None:
    wanted = (
        "run latency throughput laws timelines distributions client clauses outcomes levels ledger notes definitions"
        " again"
    )
    found = [attrs["id"] for tag, attrs in pages["example"].elements if tag == "section"]
    assert found == wanted.split()
    text = pages["example"].text
    for said in ("Holds at 72 users, breaks at 80 users", "72 – 80 users", "example/chat-8b-instruct", "2026-09-21"):
        assert said in text
    assert example().header.command in text


def test_the_page_explains_from_the_schema(pages: dict[str, Reader]) -> None:
    known = {field.name for field in page.schema.FIELDS}
    assert set(page.EXPLAINED) <= known
    assert all(name in pages["example"].text for name in page.EXPLAINED)


def test_names_cannot_become_markup(pages: dict[str, Reader]) -> None:
    found = pages["hostile"]
    assert "b" not in {tag for tag, _ in found.elements}
    assert found.text.count(HOSTILE) > 10
    assert "<" not in found.scripts[0]
    rows = json.loads(found.scripts[0])["timeline"]["layout"]["yaxis"]["ticktext"]
    assert all("&lt;/script&gt;" in row for row in rows)


def test_too_few_stays_too_few(pages: dict[str, Reader]) -> None:
    assert pages["no interval"].text.count("too few") > len(REPORTS["no interval"].levels)


def test_headers_of_the_target_stay_out(pages: dict[str, Reader]) -> None:
    report = example()
    secret = replace(report.header.scenario.target, headers={"authorization": "Bearer hush"})
    scenario = replace(report.header.scenario, target=secret)
    assert "hush" not in page.html(replace(report, header=replace(report.header, scenario=scenario)))


# --- figures ----------------------------------------------------------------------------------------------------------


def test_latency_shows_intervals_limits_knee_and_a_limited_client() -> None:
    report = example()
    figure = load_figures.latency(report, "ttft_ms", "Time to first token")
    p50, p99 = figure.data
    assert p99["x"] == sorted(each.load for each in report.levels)
    assert p99["marker"]["symbol"].count("circle-open") == 1
    assert p99["marker"]["symbol"][-1] == "circle-open"
    assert p99["error_y"]["array"][0] is None
    assert p99["error_y"]["array"][-1] == pytest.approx(0.25 * p99["y"][-1])
    assert all(bar is not None for bar in p50["error_y"]["arrayminus"])
    band, limit = figure.layout["shapes"]
    assert (band["x0"], band["x1"]) == (72.0, 80.0)
    assert (limit["y0"], limit["label"]["text"]) == (500.0, "TTFT P99 ≤ 500 ms")
    assert "P99 goes from 61.2 ms at 1 to 1.65 s at 128 users" in figure.title


def test_latency_of_nothing_says_so() -> None:
    figure = load_figures.latency(REPORTS["no success"], "itl_ms", "Time between tokens")
    assert figure.missing.startswith("No request succeeded")
    ok = replace(level(0, 4.0), metrics={})
    assert "streamed" in load_figures.latency(of_levels([ok]), "itl_ms", "Time between tokens").missing


def test_a_knee_below_the_first_level_is_a_band_from_the_edge() -> None:
    shapes = figures.knee_band(Knee(found="breaks_at_first", axis="users", breaks=2.0), [level(0, 2.0)])
    assert shapes[0]["x0"] < shapes[0]["x1"] == 2.0
    assert figures.knee_band(Knee(found="none_up_to", axis="users", holds=2.0), [level(0, 2.0)]) == []


def test_the_best_output_is_not_that_of_a_limited_client() -> None:
    figure = load_figures.output(example())
    assert max(figure.data[0]["y"]) == figure.data[0]["y"][-1]
    assert figure.title.endswith("at 96 users")


@settings(deadline=None)
@given(st.floats(min_value=1e-3, max_value=1e5), st.floats(min_value=1.2, max_value=1e5))
def test_log_ticks_lie_within_and_rise(low: float, ratio: float) -> None:
    ticks = figures.log_ticks(low, low * ratio)
    assert len(ticks) <= figures.MOST_TICKS
    assert ticks == sorted(set(ticks))
    assert all(low <= tick <= low * ratio for tick in ticks)


@settings(deadline=None)
@given(st.lists(st.floats(min_value=0.01, max_value=1e6), min_size=1, max_size=40))
def test_ticks_of_load_are_loads_that_were_measured(loads: list[float]) -> None:
    axis = figures.load_axis([replace(level(0, 1.0), load=load) for load in loads])
    assert set(axis["tickvals"]) <= set(loads)
    assert max(loads) in axis["tickvals"]
    assert len(axis["tickvals"]) <= 15


def test_the_timeline_keeps_stalls_and_drops_what_no_eye_can_tell_apart() -> None:
    stalled = replace(sample(1, 4.0, 0), events_ms=[10.0, 11.0, 11.001, 500.0, 1000.0])
    figure = stream_figures.timeline(replace(of_levels([level(0, 4.0)]), samples=[stalled]))
    _, dots, first = figure.data
    assert dots["x"] == [11.0, 500.0, 1000.0]
    assert first["x"] == [10.0]
    assert "500 ms, at 4 users" in figure.title


def test_the_timeline_marks_bad_ends() -> None:
    cut = replace(sample(1, 4.0, 0), outcome="reset", e2e_ms=900.0)
    never = replace(sample(2, 4.0, 0), outcome="timeout_first_token", events_ms=[], e2e_ms=None)
    figure = stream_figures.timeline(replace(of_levels([level(0, 4.0)]), samples=[cut, never]))
    assert figure.data[-1]["x"] == [0.0, 900.0]
    assert figure.layout["yaxis"]["ticktext"] == ["4 users, timeout_first_token", "4 users, reset"]


def test_distributions_go_from_light_to_heavy() -> None:
    figure = stream_figures.distribution(REPORTS["30 levels"], "itl_ms", "Time between tokens")
    assert len(figure.data) == 30
    assert figure.data[0]["line"]["color"] == stream_figures.color_at(0)
    assert figure.data[-1]["line"]["color"] == stream_figures.color_at(1)
    assert figure.data[-1]["line"]["dash"] == "dot"
    assert len(figure.keys) == 4


def test_colors_of_the_ramp_all_differ() -> None:
    assert len(set(stream_figures.ramp(30))) == 30
    assert len(stream_figures.ramp(1)) == 1


# --- saturation laws --------------------------------------------------------------------------------------------------


def saturating(law: Usl, users: tuple[float, ...] = (1, 2, 4, 8, 16, 32, 64)) -> Report:
    """A report of levels that obey a law, and of one that the client limited."""
    pairs = enumerate(users)
    levels = [replace(level(index, load), achieved_rps=law.rps(load), settled=True) for index, load in pairs]
    return of_levels([*levels, level(len(users), 128.0, limited=True)])


TURNS_DOWN = Usl(lone_rps=10, contention=0.05, coherence=0.001, error=0)
LEVELS_OFF = Usl(lone_rps=10, contention=0.05, coherence=0.0001, error=0)


def test_the_laws_are_told_with_what_they_were_fitted_to() -> None:
    usl, bend, little = laws.lines(saturating(TURNS_DOWN))
    assert usl == (
        "USL over the 7 of 8 levels that settled with the client out of the way: σ = 0.05 (the share of work that "
        "queues), κ = 0.001 (work that every pair of users adds), off by 0.0% (RMS); peak at N* = 30.8 users."
    )
    assert bend == "Kneedle: throughput bends most at 16 users."
    assert little == "Little's law (mean in flight = arrival rate × mean time in system): within 1.0% at every level."


def test_a_peak_beyond_the_levels_is_no_number() -> None:
    assert laws.lines(saturating(LEVELS_OFF))[0].endswith("; no N*: beyond 64 users, the most fitted.")


def test_a_law_that_could_not_be_had_says_why() -> None:
    few = saturating(TURNS_DOWN, (1, 2, 4))
    why = "of the 4 different loads it takes, 3 settled with the client out of the way"
    assert laws.lines(few)[0] == f"USL and Kneedle: not fitted: {why}."
    assert laws.lines(REPORTS["open loop"])[0].startswith("USL and Kneedle: not fitted: the loop is open")
    missed, bend = laws.lines(REPORTS["example"])[:2]
    assert missed.endswith("out of the way: not fitted: the closest law of this form is off by 26%.")
    assert bend == "Kneedle: throughput bends most at 32 users."
    straight = laws.lines(saturating(Usl(lone_rps=10, contention=0, coherence=0, error=0)))
    assert straight[0].endswith("; no N*: no saturation is visible up to 64 users.")
    assert straight[1] == "Kneedle: no knee: no bend stands out up to 64 users."


def test_users_who_pause_are_said_to_be_counted() -> None:
    report = saturating(TURNS_DOWN)
    thinking = replace(report.header.scenario, load=replace(report.header.scenario.load, think_s=2.0))
    report = replace(report, header=replace(report.header, scenario=thinking))
    assert "out of the way, counting users who pause: σ" in laws.lines(report)[0]


def test_littles_law_names_the_levels_it_fails_at() -> None:
    levels = [replace(level(0, 8.0), little=1.02), replace(level(1, 64.0), little=0.8)]
    (said,) = laws.little_lines([*levels, replace(level(2, 96.0), little=0.9)])
    assert "off by more than 5% at 64, 96 users (ratio 0.800 at 64). Such a level filled up (below 1)" in said
    assert laws.little_lines([replace(level(0, 8.0), little=None)]) == []


def test_the_page_shows_the_laws_and_says_that_they_decide_nothing() -> None:
    report = saturating(TURNS_DOWN)
    text = Reader(page.html(report)).text
    assert laws.SHOWN in text
    assert all(line in text for line in laws.lines(report))


@pytest.mark.parametrize("law", [TURNS_DOWN, LEVELS_OFF])
def test_terminal_and_markdown_have_the_laws_in_two_lines(law: Usl) -> None:
    report = saturating(law)
    text = printed(report)
    told = text.partition("\nlaws ")[2].partition("\nclient ")[0]
    assert 1 <= told.count("\n") + 1 <= 2
    assert " ".join(told.split()) == laws.brief(report)
    assert laws.brief(report).endswith("Shown, deciding nothing.")
    assert f"- **Laws:** {markdown.plain(laws.brief(report))}\n" in markdown.text(report)


@pytest.mark.parametrize("name", ["open loop", "one level", "no success"])
def test_terminal_and_markdown_are_silent_where_no_law_was_fitted(name: str) -> None:
    assert "\nlaws " not in printed(REPORTS[name])
    assert "Laws:" not in markdown.text(REPORTS[name])


def test_the_fitted_law_is_drawn_over_the_levels_it_was_fitted_to() -> None:
    figure = load_figures.requests(saturating(TURNS_DOWN))
    curve = figure.data[-1]
    assert (curve["x"][0], curve["x"][-1]) == (1, pytest.approx(64))
    assert max(curve["y"]) == pytest.approx(TURNS_DOWN.rps(30.8), rel=1e-3)
    assert curve["line"]["width"] < figure.data[0]["line"]["width"]
    assert laws.FIT in figure.keys


def test_no_law_no_curve() -> None:
    figure = load_figures.requests(REPORTS["open loop"])
    assert len(figure.data) == len(load_figures.RATES)
    assert laws.FIT not in figure.keys


def test_a_summary_older_than_the_laws_is_read_and_shown_without_them() -> None:
    old = json.loads(document.summary(saturating(TURNS_DOWN)))
    del old["laws"]
    for each in old["levels"]:
        del each["little"], each["time_in_system_s"]
    report = document.read(json.dumps(old).encode())
    assert (report.laws, report.levels[0].little) == (None, None)
    assert laws.lines(report) == []
    assert "laws" not in [attrs.get("id") for _, attrs in Reader(page.html(report)).elements]
    assert "\nlaws " not in printed(report)


def test_the_summary_holds_the_laws() -> None:
    said = json.loads(document.summary(saturating(TURNS_DOWN)))["laws"]
    assert said["levels"] == [0, 1, 2, 3, 4, 5, 6]
    assert said["usl"]["contention"] == pytest.approx(0.05)
    assert (said["peak"], said["kneedle"], said["missing"]) == (pytest.approx(30.82, abs=0.01), 16.0, {})


# --- the house --------------------------------------------------------------------------------------------------------


def test_a_report_needs_neither_pandas_nor_locust() -> None:
    modules = "terminal, markdown, document, page"
    asked = (
        f"import sys; from harness.report import {modules}; print({{'pandas', 'locust', 'numpy'}} & set(sys.modules))"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True, cwd=root)
    assert done.stdout.strip() == "set()"


# --- a search with the twin -------------------------------------------------------------------------------------------


def located(**given: Any) -> Report:
    """An open-loop report as a search with the twin leaves it."""
    base = example("rate")
    found = Located(
        axis="rate", method="twin", load=48.1, low=46.9, high=49.3, binding="ttft_p99_ms", sure="95 % interval ±2.5%",
        corrections=[-0.001, 0.004], requests=12_874, minutes=5.0, confirmed=True, drift=0.003, saturation_rps=50.0,
        headroom=0.962, batch_p50=50.8, batch_p99=61.0, stopped="known to ±2.5%",
        text="knee at 48.1 requests/s (so sure)",
    )  # fmt: skip
    stages = [replace(stage, why=why) for stage, why in zip(base.stages, ("ladder", "verify"), strict=False)]
    verdict = Verdict(held="held", text=found.text, exit_code=0)
    return replace(base, located=replace(found, **given), stages=stages, verdict=verdict)


def test_a_located_knee_is_said_the_same_everywhere() -> None:
    report = located()
    assert sentences.headline(report) == "Knee at 48.1 requests/s (so sure)"
    assert sentences.verdict_line(report) == "Knee found, exit 0"
    lines = sentences.located_lines(report.located) if report.located else []
    assert "running batch 50.8 at P50, 61.0 at P99; 96% of what the server can do" in lines[0]
    assert "-0.1, +0.4 % of the twin's own knee" in lines[1]
    assert "12,874 requests and 5.0 min of load; known to ±2.5%" in lines[2]
    text, html = markdown.text(report), page.html(report)
    for line in lines:
        assert line.split(";")[0] in text.replace("\\", "")
    assert "Where the search measured" in html
    assert html.count("Knee at 48.1 requests/s (so sure)") == 2, "title and headline, and no lead that repeats them"
    assert document.read(document.summary(report)).located == report.located


def test_a_search_that_located_nothing_says_so() -> None:
    report = located(load=None, low=None, high=None, method="none", batch_p50=None, corrections=[])
    assert sentences.judged(report) == "Could not judge"
    assert figures.drawn_knee(report) == report.knee
