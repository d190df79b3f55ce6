"""The dashboards of saturation.py, tokens.py, client.py and compare.py, as one JSON file each, beside this file.

python -m dashboards.build
"""

import json
from pathlib import Path

from dashboards import client, compare, saturation, tokens
from dashboards.panels import AMBER, BLUE, RED, SOURCE, placed
from dashboards.queries import events, tag_values

# --- variables and annotations ----------------------------------------------------------------------------------------


def variable(name, label, query, **more):
    """A choice that a query offers; asked again when the time range changes."""
    asked = {"name": name, "label": label, "type": "query", "datasource": SOURCE, "query": query, "refresh": 2}
    return {**asked, "sort": 1, "includeAll": False, "multi": False, **more}


ANY = {"includeAll": True, "multi": True, "allValue": ".*"}
NEWEST = {"sort": 2}  # a run's name begins with its date
NUMBERS = {"sort": 3}
SCENARIO = variable("scenario", "Scenario", tag_values("scenario"), **ANY)
RUN = variable("run", "Run", tag_values("run", "scenario"), **NEWEST)
CLASS = variable("class", "Class", tag_values("class", "run"), **ANY)
LEVEL = variable("level", "Level", tag_values("level", "run"), **ANY, **NUMBERS)
OTHER = variable("other", "Run B", tag_values("run", "scenario", unlike="run"), **NEWEST)
WORKER = variable("worker", "Worker", tag_values("worker", "run", source="token"), **NUMBERS)
SLOT = variable("slot", "Slot", tag_values("slot", "run", "worker", source="token"), **NUMBERS)
ONE_RUN = (SCENARIO, RUN, CLASS, LEVEL)


def annotation(name, kind, colour, columns='"title"', end=""):
    """Marks of one kind; those with an end are spans."""
    target = {
        "refId": "Anno",
        "fromAnnotations": True,
        "rawQuery": True,
        "query": events(kind, columns),
        "textColumn": "title",
        "titleColumn": "",
        "tagsColumn": "",
        "timeEndColumn": end,
    }
    return {"name": name, "enable": True, "iconColor": colour, "datasource": SOURCE, "target": target}


ANNOTATIONS = (
    annotation("Run", "run", BLUE),
    annotation("Levels", "stage", AMBER, '"title", "end_ns" / 1000000 AS "end_ms"', "end_ms"),
    annotation("Knee", "knee", RED),
)
LINK = {
    "type": "dashboards",
    "title": "Tokenswarm",
    "tags": ["tokenswarm"],
    "asDropdown": False,
    "icon": "",
    "tooltip": "",
    "targetBlank": False,
    "includeVars": True,
    "keepTime": True,
}
"""Leads from each dashboard to the others, with the same run and time range."""

# --- the files --------------------------------------------------------------------------------------------------------


def dashboard(title, module, variables=ONE_RUN):
    """The JSON model of one dashboard; the first sentence of its table's docstring says what it is for."""
    return {
        "uid": uid(title),
        "title": title,
        "description": module.__doc__.partition(" A panel is a row")[0],
        "tags": ["tokenswarm"],
        "schemaVersion": 41,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-15m", "to": "now"},
        "timezone": "browser",
        "links": [LINK],
        "templating": {"list": list(variables)},
        "annotations": {"list": list(ANNOTATIONS)},
        "panels": list(placed(module.PANELS)),
    }


def uid(title):
    """The end of a dashboard's address."""
    return f"tokenswarm-{title.split()[0].lower()}"


DASHBOARDS = {
    "saturation": dashboard("Saturation", saturation),
    "tokens": dashboard("Tokens", tokens, (*ONE_RUN, WORKER, SLOT)),
    "client": dashboard("Client health", client),
    "compare": dashboard("Compare runs", compare, (SCENARIO, {**RUN, "label": "Run A"}, OTHER, CLASS, LEVEL)),
}
"""Name of the file to what is in it."""


def text(name):
    """A dashboard as its file holds it."""
    return json.dumps(DASHBOARDS[name], indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for each in DASHBOARDS:
        (Path(__file__).parent / f"{each}.json").write_text(text(each), encoding="utf-8")
