"""Looks at an endpoint: one request, and all that came back. I/O, blocking; the requests are the bytes a run sends."""

import ssl

import msgspec
from msgspec import Struct

from harness import __version__, clock
from harness.doctor.anatomy import anatomy
from harness.doctor.line import Deadline, Line, open_line
from harness.doctor.seen import Bond, Listing, Look, Question, Way
from harness.model import Arrival, Chunk, Outcome, Phase, RunHeader
from harness.protocol.dialects import DIALECTS
from harness.protocol.exchange import Exchange
from harness.run.requests import Requests
from harness.wire.ask import NoAnswer, get
from harness.wire.endpoint import Endpoint

MODELS_S = 5.0
"""What a run allows the list of models."""
AFTER_DONE_S = 2.0
"""How long a stream may stay open after [DONE]."""
PATIENCE = 2.5
"""Once so many times the limit of one request has gone by, nothing more is asked."""
BEGINS_BYTES = 64


class Looks:
    """Takes looks at one endpoint, keeping the connection between them as a run does. Close it."""

    def __init__(self, where: Endpoint, tls: ssl.SSLContext | None, api_key: str, timeout_s: float) -> None:
        self._where = where
        self._tls = tls
        self._api_key = api_key
        self._timeout_s = timeout_s
        self._patience = Deadline(PATIENCE * timeout_s)
        self._line: Line | None = None
        self._used = False

    @property
    def exhausted(self) -> bool:
        """All looks together took too long; a further one would fail at once."""
        return self._patience.passed

    def way(self) -> Way:
        """Connect, say how that went, and hang up: a server may close what stays idle until the first look."""
        line, way = open_line(self._where, self._tls, self._timeout_s)
        if line is not None:
            line.close()
        return way

    def listing(self) -> Listing:
        """Ask for the list of models, on a connection of its own, as a run does."""
        limit_s = min(MODELS_S, self._timeout_s)
        try:
            status, body = get(self._where, "/v1/models", tls=self._tls, api_key=self._api_key, timeout_s=limit_s)
        except NoAnswer as error:
            return Listing(detail=str(error).removeprefix(f"{self._where.url}/v1/models: "))
        return Listing(status=status, names=_names(body), detail=body.decode("utf-8", "replace"))

    def take(self, question: Question) -> Look:
        """One look. What goes wrong is in its record; raises nothing of the network's."""
        kept = self._line is not None and self._used
        exchange, chunks = self._conversation(question)
        line: Bond = "kept" if kept else "fresh"
        if kept and not exchange.answered and exchange.record().outcome is Outcome.RESET:
            self.close()
            line = "dropped"  # a server may close an idle connection at any time: no failure of the request
            exchange, chunks = self._conversation(question)
        return look(question, exchange, chunks, line)

    def close(self) -> None:
        """Drop the connection."""
        if self._line is not None:
            self._line.close()
        self._line, self._used = None, False

    def _conversation(self, question: Question) -> tuple[Exchange, list[Chunk]]:
        requests = Requests(_header(question), self._where, self._api_key)
        now_ns = clock.wall_ns()
        arrival = Arrival(request_id=0, due_ns=now_ns, level=0, phase=Phase.HOLD, slot=-1, spec=question.spec)
        exchange = Exchange(arrival, requests.terms(0))
        if self._line is None:
            self._line, way = open_line(self._where, self._tls, self._timeout_s)
        if self._line is None:
            exchange.fail(Outcome.UNREACHABLE, str(way.error), clock.wall_ns())
            return exchange, []
        exchange.sent(clock.wall_ns(), None if self._used else self._line.connect_ns)
        chunks = converse(
            self._line,
            exchange,
            requests.encoded(arrival.request_id, arrival.spec),
            self._patience.sooner(self._timeout_s),
        )
        self._used = True
        if not keeps(exchange):
            self.close()
        return exchange, chunks


def look(question: Question, exchange: Exchange, chunks: list[Chunk], line: Bond) -> Look:
    """What an exchange that is over has shown."""
    closed = bool(chunks) and not chunks[-1].data
    return Look(
        question=question,
        record=exchange.record(),
        headers=exchange.response.headers,
        anatomy=anatomy(chunks, DIALECTS[question.target.dialect].parse_delta),
        done=exchange.done,
        ended="whole" if exchange.response.complete else "closed" if closed else "open",
        begins=b"".join(chunk.data for chunk in chunks)[:BEGINS_BYTES],
        line=line,
        keeps=keeps(exchange),
    )


def keeps(exchange: Exchange) -> bool:
    """The connection may carry another request."""
    response = exchange.response
    return response.complete and response.keep_alive and not response.surplus


def converse(line: Line, exchange: Exchange, request: bytes, deadline: Deadline) -> list[Chunk]:
    """Send, and read until the exchange is over or time is up; failures become its outcome. Returns what was read."""
    chunks: list[Chunk] = []
    try:
        line.send(request, deadline)
        while not exchange.over:
            at_ns, data, by_kernel = line.read(deadline)
            if data:  # an end of file is never stamped by the kernel
                exchange.stamp_source = "kernel" if by_kernel else "user"
            chunks.append(Chunk(at_ns, data))
            exchange.receive(chunks[-1])
            if exchange.done and not exchange.over:
                deadline = deadline.sooner(AFTER_DONE_S)
    except TimeoutError:
        late = Outcome.TIMEOUT_BETWEEN_TOKENS if exchange.has_token else Outcome.TIMEOUT_FIRST_TOKEN
        now_ns = clock.wall_ns()
        exchange.fail(late, f"given up after {(now_ns - (exchange.start_ns or now_ns)) / clock.S:.1f} s", now_ns)
    except RecursionError:
        exchange.fail(Outcome.MALFORMED, "JSON nested too deeply", clock.wall_ns())
    except OSError as error:
        exchange.fail(Outcome.RESET, error.strerror or str(error), clock.wall_ns())
    return chunks


def _header(question: Question) -> RunHeader:
    return RunHeader(
        run_id="doctor",
        version=__version__,
        scenario=question.scenario,
        host=question.target.host or "",
        model=question.model,
        started_ns=clock.wall_ns(),
    )


class _Model(Struct):
    id: str


class _Models(Struct):
    data: list[_Model]


def _names(body: bytes) -> list[str] | None:
    try:
        return [model.id for model in msgspec.json.decode(body, type=_Models).data]
    except (msgspec.DecodeError, RecursionError):  # RecursionError: a thousand brackets
        return None
