"""Every query of every dashboard, with Grafana's own substitutions, on a real database."""

import json
import re
from pathlib import Path

import local_influx
import pytest
import yaml
from grafana_rules import (
    ALL,
    Asked,
    Window,
    annotation_queries,
    as_regex,
    interval_ms,
    panel_queries,
    sent,
    variable_queries,
)
from seed import DATABASE, Seeded

PLACE = Path(__file__).parents[2] / "dashboards"
BOARDS = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(PLACE.glob("*.json"))}
ASKED = [
    pytest.param(name, each, id=f"{name}: {each.where}")
    for name, board in BOARDS.items()
    for each in [*panel_queries(board), *annotation_queries(board)]
]
ALERTS = yaml.safe_load((PLACE / "provisioning" / "alerting" / "rules.yaml").read_text(encoding="utf-8"))
TAGS = 'SHOW TAG VALUES FROM "second" WITH KEY = "{tag}" WHERE "run" =~ /^${{run:regex}}$/'
RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]


def choices(two_runs: Seeded) -> dict[str, str | list[str]]:
    """The first run beside the second, everything in it, one slot."""
    first, second = two_runs.runs
    return {"scenario": ALL, "run": first, "other": second, "class": ALL, "level": ALL, "worker": "0", "slot": "1"}


def values(series: list[dict]) -> list:
    """All that is not null and not a time."""
    return [
        value
        for one in series
        for row in one["values"]
        for name, value in zip(one["columns"], row, strict=True)
        if name != "time" and value is not None
    ]


@pytest.mark.parametrize(("name", "asked"), ASKED)
def test_a_query_finds_what_was_written(name: str, asked: Asked, influx: str, two_runs: Seeded) -> None:
    query = sent(asked.query, two_runs.window, choices(two_runs), BOARDS[name])
    assert not re.search(r"\$[\w{]", query), "a name that Grafana would not know"
    assert values(local_influx.asked(influx, DATABASE, query)), query


@pytest.mark.parametrize(("name", "asked"), ASKED)
def test_a_query_takes_several_values_of_each_variable(name: str, asked: Asked, influx: str, two_runs: Seeded) -> None:
    chosen = choices(two_runs) | {tag: tags(influx, tag, two_runs.runs[0]) for tag in ("class", "level")}
    query = sent(asked.query, two_runs.window, chosen, BOARDS[name])
    assert values(local_influx.asked(influx, DATABASE, query)), query


def tags(influx: str, tag: str, run: str) -> list[str]:
    """All values of a tag in a run."""
    query = sent(TAGS.format(tag=tag), Window(0, 1), {"run": run}, BOARDS["tokens"])
    return [row[1] for row in local_influx.asked(influx, DATABASE, query)[0]["values"]]


@pytest.mark.parametrize("name", BOARDS)
def test_every_column_of_a_panel_has_a_value(name: str, influx: str, two_runs: Seeded) -> None:
    for asked in panel_queries(BOARDS[name]):
        if "_le_" in asked.query:
            continue  # a bucket without a value is a bucket without a value
        found = local_influx.asked(
            influx, DATABASE, sent(asked.query, two_runs.window, choices(two_runs), BOARDS[name])
        )
        for number, column in enumerate(found[0]["columns"]):
            assert any(row[number] is not None for one in found for row in one["values"]), (asked.where, column)


@pytest.mark.parametrize("name", BOARDS)
def test_a_variable_offers_what_is_there(name: str, influx: str, two_runs: Seeded) -> None:
    chosen: dict[str, str | list[str]] = {}
    for asked in variable_queries(BOARDS[name]):
        query = sent(asked.query, two_runs.window, chosen, BOARDS[name])
        offered = [row[1] for one in local_influx.asked(influx, DATABASE, query) for row in one["values"]]
        assert offered, asked.where
        chosen[asked.where] = sorted(offered)[-1 if asked.where in ("run", "other") else 0]
    assert chosen["run"] == two_runs.runs[1], "the newest run comes first"
    if "other" in chosen:
        assert chosen["other"] == two_runs.runs[0], "the run to compare with is another one"


def test_another_run_is_another_answer(influx: str, two_runs: Seeded) -> None:
    board, query = BOARDS["saturation"], 'SELECT count("ok") FROM "request" WHERE "run" =~ /^${run:regex}$/'
    counts = [
        values(local_influx.asked(influx, DATABASE, sent(query, two_runs.window, {"run": run}, board)))
        for run in [*two_runs.runs, list(two_runs.runs)]
    ]
    assert counts[0][0] + counts[1][0] == counts[2][0] > counts[0][0] > 0


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["uid"])
def test_an_alert_finds_what_was_written(rule: dict, influx: str, two_runs: Seeded) -> None:
    query = rule["data"][0]["model"]["query"].replace("now()", f"{two_runs.window.to_ms}ms")
    query = query.replace("- 1m", "- 3m")  # the runs end a while before the window does
    assert values(local_influx.asked(influx, DATABASE, query)), query


def test_grafana_rounds_an_interval_up_and_down() -> None:
    assert interval_ms(Window(0, 60_000)) == 1_000
    assert interval_ms(Window(0, 3_600_000)) == 5_000
    assert interval_ms(Window(0, 3_600_000), 500) == 5_000
    assert interval_ms(Window(0, 86_400_000)) == 60_000


def test_a_chosen_value_is_no_regular_expression() -> None:
    assert re.fullmatch(as_regex("a.b (q4)/[1]", {}), "a.b (q4)/[1]")
    assert as_regex(["a", "b|c"], {}) == r"(a|b\|c)"
    assert as_regex(ALL, {"allValue": ".*"}) == ".*"
