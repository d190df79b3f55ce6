"""InfluxQL statements and what comes back: text to rows. No clock, no I/O."""

from collections.abc import Iterator

import msgspec
from msgspec import Struct

from harness.model import Json

COUNTED = {"request": "ok", "token": "index", "second": "due", "client": "cpu", "event": "title", "engine": "told"}
"""The field by which points are counted: one that every point of the measurement has."""


class QueryError(Exception):
    """A query that gave no rows. One line: which database, what it said."""


class NoInfluxQL(QueryError):
    """The server stores points but cannot be asked in InfluxQL, so nothing can be counted or read back."""


class Rows(Struct, frozen=True, kw_only=True):
    """Rows of one series, or some of them: a long series comes in several.

    `time` is in ns. A float without a fraction is an int here: JSON of InfluxDB says `5` for 5.0.
    """

    name: str = ""
    tags: dict[str, str] = {}
    """Those the statement groups by."""
    columns: list[str] = []
    values: list[list[Json]] = []


class _Result(Struct):
    series: list[Rows] = []
    error: str = ""


class _Document(Struct):
    results: list[_Result] = []
    error: str = ""
    message: str = ""
    """2.x's name for `error`."""


_DOCUMENT = msgspec.json.Decoder(_Document)


def rows_of(document: bytes) -> Iterator[Rows]:
    """The series of one JSON document of /query; a chunked answer is one document a line. QueryError: it is none, or
    tells of an error."""
    try:
        found = _DOCUMENT.decode(document)
    except msgspec.DecodeError:
        raise QueryError(f"not an answer to a query: {document[:200].decode(errors='replace')!r}") from None
    if wrong := found.error or found.message:
        raise QueryError(wrong)
    for result in found.results:
        if result.error:
            raise QueryError(result.error)
        yield from result.series


def count_statement(measurement: str, run: str, span_ns: tuple[int, int] | None = None) -> str:
    """How many points of a run there are; the span, both ends included, keeps a server from looking everywhere."""
    field = identifier(COUNTED[measurement])
    within = f" AND time >= {span_ns[0]} AND time <= {span_ns[1]}" if span_ns else ""
    return f'SELECT count({field}) FROM {identifier(measurement)} WHERE "run" = {text(run)}{within}'


def counted(rows: Rows) -> int:
    """The count that a row of `count_statement` holds."""
    return max((int(value) for row in rows.values for value in row[1:] if value is not None), default=0)


def identifier(name: str) -> str:
    """A name of anything, quoted."""
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def text(value: str) -> str:
    """A string literal."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n") + "'"
