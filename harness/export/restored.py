"""A run out of the database alone: header, stages, record table, health table. I/O (queries)."""

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from harness.export.influx.database import Database
from harness.export.influx.influxql import QueryError, identifier, text
from harness.export.lines import tag_value
from harness.model import Json, RunHeader, Stage
from harness.record.columns import HEALTH, RECORDS, SERVER
from harness.record.facts import Facts
from harness.record.vitals import TOLD

LISTS = ("gaps_us", "k")
TAGS = ("class", "level", "worker", "slot")
OF_TAG = {"class": "request_class"}
"""Columns of the log that have another name in the database."""


class NotThere(ValueError):
    """The database has no such run, or not all of it. The message is one line."""


def restored(database: Database, run_id: str) -> Facts:
    """As `record` would give them from the run directory, requests by due time. Raises NotThere."""
    try:
        header, stages = _events(database, run_id)
        rows = list(_rows(database, "request", run_id, TAGS))
        records = _records(rows, *_tokens(database, run_id))
        health = [_beat(row) for row in _rows(database, "client", run_id, ("level", "worker"))]
        server = [_look(row) for row in _rows(database, "engine", run_id, ("level", "server"))]
    except QueryError as error:
        raise NotThere(str(error)) from None
    return Facts(
        header=header,
        stages=stages,
        records=records,
        health=pa.Table.from_pylist(health, schema=HEALTH).sort_by("at_ns"),
        server=pa.Table.from_pylist(server, schema=SERVER).sort_by("at_ns"),
    )


def _events(database: Database, run_id: str) -> tuple[RunHeader, list[Stage]]:
    values: dict[str, list[str]] = {"run": [], "stage": []}
    for row in _rows(database, "event", run_id, ("kind",)):
        if row["kind"] in values and row.get("value"):
            values[row["kind"]].append(row["value"])
    if not values["run"]:
        raise NotThere(f"{database.target.named}: no run {run_id!r} there; first: tokenswarm push runs/{run_id}")
    stages = [msgspec.json.decode(value, type=Stage) for value in values["stage"]]
    return msgspec.json.decode(values["run"][0], type=RunHeader), sorted(stages, key=lambda stage: stage.level)


def _rows(database: Database, measurement: str, run_id: str, tags: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Points as dicts of tags and fields, `time` in ns."""
    grouped = ", ".join(identifier(tag) for tag in tags)
    where = f'FROM {identifier(measurement)} WHERE "run" = {text(_tag(run_id))}'
    for series in database.query(f"SELECT * {where} GROUP BY {grouped}"):
        for values in series.values:
            yield series.tags | dict(zip(series.columns, values, strict=True))


def _tokens(database: Database, run_id: str) -> tuple["np.ndarray[Any, Any]", "np.ndarray[Any, Any]"]:
    """(request, index, gap_us, k) of every token event, k −1 where it is not said; and where each request begins."""
    asked = f'SELECT "request", "index", "gap_us", "k" FROM "token" WHERE "run" = {text(_tag(run_id))}'
    parts = [np.array([_token(row[1:]) for row in series.values], np.int64) for series in database.query(asked)]
    events = np.concatenate(parts) if parts else np.empty((0, 4), np.int64)
    events = events[np.lexsort((events[:, 1], events[:, 0]))]
    return events, np.flatnonzero(events[:, 1] == 0)


def _tag(run_id: str) -> str:
    return str(tag_value(run_id).as_py())


def _token(row: list[Json]) -> list[Json]:
    return [*row[:3], -1 if row[3] is None else row[3]]


def _records(rows: list[dict[str, Any]], events: "np.ndarray[Any, Any]", starts: "np.ndarray[Any, Any]") -> pa.Table:
    rows.sort(key=lambda row: (row["time"], row["request"]))
    parts = dict(zip(events[starts, 0].tolist(), np.split(events, starts[1:]), strict=True)) if len(starts) else {}
    missing = sum(len(parts.get(row["request"], ())) != row["events"] for row in rows)
    if missing:
        raise NotThere(
            f"token points of {missing:,} of {len(rows):,} requests are not there; push the run with --token-points all"
        )
    columns = {field.name: _column(rows, field) for field in RECORDS if field.name not in LISTS}
    none = np.empty((0, 4), np.int64)
    timelines = [parts.get(row["request"], none) for row in rows]
    columns["gaps_us"] = pa.array([each[:, 2] for each in timelines], pa.list_(pa.int32()))
    columns["k"] = pa.array([_k(each) for each in timelines], pa.list_(pa.int32()))
    return pa.table([columns[field.name] for field in RECORDS], schema=RECORDS)


def _k(timeline: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any] | None":
    return timeline[:, 3] if len(timeline) and timeline[0, 3] >= 0 else None


def _column(rows: list[dict[str, Any]], field: pa.Field) -> pa.Array:
    """Texts that are never absent are stored only where they say something; times of the point and tags come back."""
    name = {"request_id": "request", "due_ns": "time", "request_class": "class"}.get(field.name, field.name)
    empty = "" if pa.types.is_string(field.type) else None
    values: list[Any] = [row.get(name) for row in rows]
    if name in TAGS and pa.types.is_integer(field.type):
        values = [int(value) for value in values]
    if pa.types.is_boolean(field.type):
        values = [bool(value) for value in values]
    return pa.array([empty if value is None else value for value in values], field.type)


def _beat(row: dict[str, Any]) -> dict[str, Any]:
    values = {**row, "at_ns": row["time"], "level": int(row["level"]), "worker": int(row["worker"])}
    return {field.name: values[field.name] for field in HEALTH}


def _look(row: dict[str, Any]) -> dict[str, Any]:
    values = {name: None if row.get(name) is None else float(row[name]) for name in TOLD}
    return values | {"at_ns": row["time"], "level": -1, "server": row["server"]}
