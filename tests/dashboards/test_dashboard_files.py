"""What the files of dashboards/ say of each other, of the schema and of the code that judges a run."""

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafana_rules import annotation_queries, panel_queries, variable_queries

from dashboards import build, queries
from dashboards.panels import SOURCE, WIDE
from harness.analysis import client as judged
from harness.schema import BOUNDS_US, MEASUREMENTS

PLACE = Path(__file__).parents[2] / "dashboards"
PROVISIONED = PLACE / "provisioning"
BOARDS = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(PLACE.glob("*.json"))}
RULES = [
    rule
    for group in yaml.safe_load((PROVISIONED / "alerting" / "rules.yaml").read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
]
QUERIES = {
    f"{name}: {asked.where}": asked.query
    for name, board in BOARDS.items()
    for asked in [*panel_queries(board), *annotation_queries(board), *variable_queries(board)]
} | {rule["uid"]: rule["data"][0]["model"]["query"] for rule in RULES}

# Words of InfluxQL that 1.x, 2.x and 3 Core all know. INTEGRAL, SAMPLE, HOLT_WINTERS, SLIMIT, SOFFSET and SHOW SERIES
# are not among them.
WORDS = {
    *("SELECT", "FROM", "WHERE", "AND", "OR", "AS", "GROUP", "BY", "LIMIT", "SHOW", "TAG", "VALUES", "WITH", "KEY"),
    *("fill", "none", "time", "now", "sum", "mean", "median", "percentile", "max", "count", "spread", "top"),
    *("non_negative_difference", "ms", "s", "m"),
}


def bare(query: str) -> str:
    """The query without what stands in quotes, in regular expressions and in Grafana's own macros."""
    query = query.replace("$timeFilter", "").replace("$__interval_ms", "1").replace("$__interval", "1s")
    query = re.sub(r'"[^"]*"|\'[^\']*\'', " ", query)
    return re.sub(r"/[\^.][^/]*/", " ", query)


def named(query: str) -> set[str]:
    """Names in double quotes that are not given by the query itself."""
    return set(re.findall(r'"([^"]*)"', query)) - set(re.findall(r'AS "([^"]*)"', query))


def test_the_files_are_what_the_tables_make() -> None:
    assert set(BOARDS) == set(build.DASHBOARDS)
    for name in BOARDS:
        said = (PLACE / f"{name}.json").read_text(encoding="utf-8")
        assert said == build.text(name), f"{name}.json: run python -m dashboards.build"


@pytest.mark.parametrize("where", QUERIES)
def test_a_query_uses_only_what_all_three_databases_know(where: str) -> None:
    words = set(re.findall(r"[A-Za-z_]\w*", bare(QUERIES[where])))
    assert words <= WORDS | {f"{number}s" for number in range(9)}, (
        "an unquoted name, or a function not everywhere known"
    )


@pytest.mark.parametrize("where", QUERIES)
def test_a_query_names_only_what_the_schema_has(where: str) -> None:
    query = QUERIES[where]
    source = re.search(r'FROM "(\w+)"', query)
    assert source
    measurement = MEASUREMENTS[source[1]]
    known = {measurement.name, *measurement.tags, *measurement.forms}
    assert named(query) <= known
    for pattern in re.findall(r"\w+\(/(.*?)/\)", query):
        assert any(re.search(pattern, field) for field in measurement.forms), pattern


def test_every_measurement_is_read() -> None:
    assert {name for query in QUERIES.values() for name in re.findall(r'FROM "(\w+)"', query)} == set(MEASUREMENTS)


def test_buckets_are_those_of_the_schema() -> None:
    assert tuple(map(int, queries.BOUNDS_US)) == BOUNDS_US


@pytest.mark.parametrize("name", BOARDS)
def test_panels_lie_side_by_side(name: str) -> None:
    panels = BOARDS[name]["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= WIDE for panel in panels)
    for one, other in combinations((panel["gridPos"] for panel in panels), 2):
        assert not (overlap(one, other, "x", "w") and overlap(one, other, "y", "h")), (one, other)


def overlap(one: dict[str, int], other: dict[str, int], begin: str, length: str) -> bool:
    """Do the two share a part of this axis?"""
    return one[begin] < other[begin] + other[length] and other[begin] < one[begin] + one[length]


@pytest.mark.parametrize("name", BOARDS)
def test_a_panel_says_how_to_read_it(name: str) -> None:
    for panel in BOARDS[name]["panels"]:
        assert len(panel["description"]) > 60, panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"]


@pytest.mark.parametrize("name", BOARDS)
def test_a_column_that_is_drawn_is_asked_for(name: str) -> None:
    for panel in BOARDS[name]["panels"]:
        asked = {column for target in panel["targets"] for column in re.findall(r'AS "([^"]*)"', target["query"])}
        drawn = [series[axis]["matcher"]["options"] for series in panel["options"].get("series", []) for axis in "xy"]
        by_name = [each["matcher"] for each in panel["fieldConfig"]["overrides"]]
        drawn += [each["options"] for each in by_name if each["id"] == "byName"]
        assert set(drawn) <= asked | named(" ".join(target["query"] for target in panel["targets"])) | {"Time"}


# --- provisioning -----------------------------------------------------------------------------------------------------


def provisioned(path: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((PROVISIONED / path).read_text(encoding="utf-8"))
    return found


def test_dashboards_ask_the_database_that_is_provisioned() -> None:
    (source,) = provisioned("datasources/influxdb.yaml")["datasources"]
    assert {"type": source["type"], "uid": source["uid"]} == SOURCE
    assert source["jsonData"]["timeInterval"] == "1s"
    for board in BOARDS.values():
        sources = [*board["panels"], *board["templating"]["list"], *board["annotations"]["list"]]
        sources += [target for panel in board["panels"] for target in panel["targets"]]
        assert all(each["datasource"] == SOURCE for each in sources)


def test_dashboards_have_addresses_of_their_own() -> None:
    addresses = [board["uid"] for board in BOARDS.values()]
    assert len(set(addresses)) == len(addresses)
    links = re.findall(r"/d/([\w-]+)", "".join(build.text(name) for name in BOARDS))
    assert links
    assert set(links) <= set(addresses)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["uid"])
def test_an_alert_asks_reduces_and_compares(rule: dict[str, Any]) -> None:
    asks, reduces, compares = rule["data"]
    assert asks["datasourceUid"] == SOURCE["uid"]
    assert reduces["model"]["expression"] == asks["refId"]
    assert compares["model"]["expression"] == reduces["refId"]
    assert rule["condition"] == compares["refId"]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["uid"])
def test_an_alert_leads_to_the_panel_that_shows_it(rule: dict[str, Any]) -> None:
    (board,) = [board for board in BOARDS.values() if board["uid"] == rule["dashboardUid"]]
    (panel,) = [panel for panel in board["panels"] if panel["id"] == rule["panelId"]]
    fields = named(rule["data"][0]["model"]["query"]) - {"run", "scenario", "worker", "second", "client"}
    shown = " ".join(target["query"] for target in panel["targets"])
    families = re.findall(r"\w+\(/(.*?)/\)", shown)
    assert any(field in named(shown) or any(re.search(each, field) for each in families) for field in fields)
    assert rule["annotations"]["__panelId__"] == str(rule["panelId"])
    assert rule["annotations"]["__dashboardUid__"] == rule["dashboardUid"]


def test_no_alert_holds_what_grafana_would_take_for_a_variable() -> None:
    said = (PROVISIONED / "alerting" / "rules.yaml").read_text(encoding="utf-8")
    assert "$" not in said


def test_limits_are_those_by_which_a_run_is_judged() -> None:
    limits = {
        panel["title"]: panel["fieldConfig"]["defaults"]["thresholds"]["steps"][-1]["value"]
        for panel in BOARDS["client"]["panels"]
    }
    assert limits["Lateness of requests: lag"] == judged.LAG.limit
    assert limits["Hub delay"] == judged.HUB.limit
    assert limits["CPU of each worker"] == judged.BUSY.limit
    assert limits["Coalesced events"] == judged.COALESCED.limit
    assert limits["CPU that the host took away"] == judged.STOLEN
    assert limits["Wall clock against monotonic clock"] == judged.STEP.limit
    alerts = {rule["uid"]: rule["data"][2]["model"]["conditions"][0]["evaluator"]["params"][0] for rule in RULES}
    assert alerts["tokenswarm-busy"] == judged.BUSY.limit
    assert alerts["tokenswarm-coalesced"] == judged.COALESCED.limit
