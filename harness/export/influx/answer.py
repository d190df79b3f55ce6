"""What a database answered to a write, and what that means for the lines sent. No clock, no I/O."""

import re
from collections.abc import Mapping
from enum import StrEnum

import msgspec
from msgspec import Struct

from harness.model import Json

MOST_WORDS = 500
"""Characters kept of what a server said: 1.x repeats every line it could not read."""
_NOT_TLS = re.compile("CERTIFICATE_VERIFY_FAILED|WRONG_VERSION_NUMBER|PACKET_LENGTH_TOO_LONG|HTTP_REQUEST")
_NOT_INFLUX = re.compile("<|Client sent an HTTP request")
"""A page of a proxy, or a TLS server that was spoken to in the clear: its 400 is about no line."""
_ABOUT_ORG = re.compile(r"(?!unable to parse|partial write).*\borg", re.IGNORECASE)


class Answer(Struct, frozen=True, kw_only=True):
    """One response to one write."""

    status: int | None
    """HTTP status. None: nobody answered, and whether the lines were stored is not known."""
    message: str = ""
    """What the server said, or why nobody answered; at most MOST_WORDS characters."""
    code: str = ""
    """InfluxDB 2.x's own word for the kind of error, e.g. `not found`; other servers give none."""
    retry_after_s: float | None = None
    server: str = ""
    """What the server calls itself, e.g. `InfluxDB 1.6.7`."""

    def __str__(self) -> str:
        return " ".join(part for part in (str(self.status or ""), self.message or "no words") if part)


class Meaning(StrEnum):
    """What follows from an answer: exactly one of these."""

    STORED = "stored"
    TOO_LARGE = "too large"
    BAD_LINES = "bad lines"
    """At least one line was refused; whether the others were stored depends on the server."""
    WAIT = "wait"
    """The same request may succeed later."""
    REFUSED = "refused"
    """It will not, until a person changes something."""


def meaning(answer: Answer) -> Meaning:
    """Only 204 proves that lines were stored: 200 comes from something that is no InfluxDB. 201 is how the hosted 3.x
    says that it left some lines out; 400 and 422 are the words of all others for it."""
    status = answer.status
    if status is None:
        return Meaning.REFUSED if _NOT_TLS.search(answer.message) else Meaning.WAIT
    if status == 204:
        return Meaning.STORED
    if status == 413:
        return Meaning.TOO_LARGE
    if status in (201, 400, 422):
        is_about_org = answer.code and _ABOUT_ORG.match(answer.message)
        return Meaning.REFUSED if is_about_org or _NOT_INFLUX.match(answer.message) else Meaning.BAD_LINES
    return Meaning.WAIT if status in (408, 425, 429) or status >= 500 else Meaning.REFUSED


def path_is_unknown(answer: Answer) -> bool:
    """The server has no such path (or, in 1.8's /api/v2/write, no such database): another way of writing may work.
    A 404 of InfluxDB 2.x has a code: its path is right, and the bucket or organisation is not there."""
    return answer.status in (404, 405) and not answer.code


def database_is_missing(answer: Answer) -> bool:
    """As InfluxDB 1.x says it."""
    return answer.status == 404 and answer.message.startswith("database not found")


def answer_of(status: int, headers: Mapping[str, str], body: str) -> Answer:
    """An HTTP response to a write. Header names are looked up as given: pass a mapping that ignores case."""
    document = _document(body)
    words = _words(document) or headers.get("X-Influxdb-Error") or headers.get("Location") or body.strip()
    return Answer(
        status=status,
        message=(words.splitlines() or [""])[0][:MOST_WORDS],
        code=str(document.get("code", "")),
        retry_after_s=_seconds(headers.get("Retry-After", "")),
        server=server_of(headers),
    )


def server_of(headers: Mapping[str, str]) -> str:
    """What answered, by its headers; "" where they do not say. VictoriaMetrics gives itself out as InfluxDB 1.8."""
    version = headers.get("X-Influxdb-Version", "")
    if version and "X-Server-Hostname" in headers and "X-Influxdb-Build" not in headers:
        return "VictoriaMetrics"
    return f"InfluxDB {version.removeprefix('v')}" if version else ""


def _document(body: str) -> dict[str, Json]:
    try:
        document = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return {}
    return document if isinstance(document, dict) else {}


def _words(document: Mapping[str, Json]) -> str:
    """1.x and 3 say `error`, 2.x `message`; 3 adds one entry for each line that it refused."""
    words = str(document.get("error") or document.get("message") or "")
    refused = document.get("data")
    if isinstance(refused, list) and refused and isinstance(refused[0], dict) and "error_message" in refused[0]:
        words = f"{words}: {refused[0]['error_message']}"
    return words


def _seconds(retry_after: str) -> float | None:
    """Only the form in seconds: a date would need a clock, and theirs at that."""
    return float(retry_after) if re.fullmatch(r"\d{1,9}(\.\d+)?", retry_after.strip()) else None
