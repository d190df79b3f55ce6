"""A database that takes points and answers InfluxQL, whichever version it is. I/O, no clock."""

from collections.abc import Iterator

import urllib3
from urllib3.exceptions import HTTPError

from harness.export.influx.answer import Answer, Meaning, meaning, path_is_unknown, server_of
from harness.export.influx.influxql import NoInfluxQL, QueryError, Rows, count_statement, counted, identifier, rows_of
from harness.export.influx.target import Target, Version
from harness.export.influx.ways import WAYS, Way, pool_of, trouble

ROWS_A_CHUNK = 10_000
READ_BYTES = 256 * 1024


class Database:
    """One target. Mutable: it remembers the way of writing that the first answer proved, and keeps connections open;
    not to be shared between threads or kept over a fork."""

    def __init__(self, target: Target, *, answer_within_s: float = 30.0, rows_within_s: float = 120.0) -> None:
        """A write that is not answered within so long counts as not answered; a query, when a part of it is late.
        TargetError: a CA file that cannot be used."""
        self.target = target
        self.version: Version | None = None
        """None: no write was answered yet. 2 stands for all that write as 2.x does, 3 and VictoriaMetrics too."""
        self._answer_within_s = answer_within_s
        self._queries = pool_of(target, rows_within_s)
        self._way: Way | None = None

    def detect(self, body: bytes) -> Answer:
        """Write these lines, each way that could be right in turn, until one is answered by what knows the path.

        The lines should be of the run: there is no other proof that writing works, and points are not doubled.
        """
        answer = Answer(status=None, message="no way to write")
        for version in self._candidates():
            way = WAYS[version](self.target, self._answer_within_s)
            answer = way.write(body)
            if meaning(answer) is not Meaning.WAIT and (version == "1" or not path_is_unknown(answer)):
                self.version, self._way = version, way
                return answer
            way.close()
            if meaning(answer) is Meaning.WAIT:
                return answer
        return answer

    def write(self, body: bytes) -> Answer:
        """Send these lines once; the first call is a `detect`."""
        return self._way.write(body) if self._way else self.detect(body)

    def create(self) -> Answer:
        """Make the database, which InfluxDB 1.x does not do by itself; 204 when it is there."""
        try:
            list(self._rows(f"CREATE DATABASE {identifier(self.target.database)}"))
        except QueryError as error:
            return Answer(status=403, message=str(error))
        return Answer(status=204)

    def query(self, statement: str) -> Iterator[Rows]:
        """What an InfluxQL statement selects, as it arrives: at most ROWS_A_CHUNK rows at a time. QueryError."""
        try:
            yield from self._rows(statement)
        except QueryError as error:
            words = self.target.without_secrets(str(error))
            raise type(error)(f"{self.target.named}: cannot be queried: {words}") from None

    def count(self, measurement: str, run: str, span_ns: tuple[int, int] | None = None) -> int | None:
        """Points stored of one measurement and run, of those within the span if one is given; None: the server stores
        points but cannot count them, as VictoriaMetrics. QueryError."""
        try:
            return sum(counted(rows) for rows in self.query(count_statement(measurement, run, span_ns)))
        except NoInfluxQL:
            return None

    def close(self) -> None:
        """Close connections; a later call opens them again."""
        self._queries.clear()
        if self._way:
            self._way.close()

    def _candidates(self) -> tuple[Version, ...]:
        """A user is known to 1.x and 1.8 only, and to the latter on /write as well; else the newer path comes first."""
        if self.target.version != "auto":
            return (self.target.version,)
        return ("1",) if self.target.user else ("2", "1")

    def _rows(self, statement: str) -> Iterator[Rows]:
        """As `query`; errors do not name the target."""
        try:
            with self._asked(statement) as response:
                if server_of(response.headers) == "VictoriaMetrics":
                    raise NoInfluxQL("VictoriaMetrics has no InfluxQL; its points can be seen with MetricsQL only")
                for line in _lines(response):
                    yield from rows_of(line)
                if response.status != 200:
                    raise QueryError(f"answered {response.status}")
                response.drain_conn()
        except HTTPError as error:
            raise QueryError(trouble(error)) from None

    def _asked(self, statement: str) -> urllib3.BaseHTTPResponse:
        fields = {
            "db": self.target.database,
            "q": statement,
            "epoch": "ns",
            "chunked": "true",
            "chunk_size": str(ROWS_A_CHUNK),
        }
        rights = self.target.authorization("1" if self.target.user else "2")
        return self._queries.request(
            "POST",
            f"{self.target.url}/query",
            fields=fields,
            encode_multipart=False,
            headers=rights,
            preload_content=False,
        )


def _lines(response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    """Documents of a chunked answer, each whole; no more than one is held."""
    rest = b""
    for read in response.stream(READ_BYTES):
        *whole, rest = (rest + read).split(b"\n")
        yield from (line for line in whole if line.strip())
    if rest.strip():
        yield rest
