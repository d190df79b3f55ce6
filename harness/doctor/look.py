"""Looks at an endpoint: one request, and all that came back. I/O, blocking; the requests are the bytes a run sends."""

import json
import ssl
from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct, structs

from harness import __version__, clock
from harness.doctor.anatomy import Anatomy, anatomy
from harness.doctor.line import Deadline, Line, Way, open_line
from harness.model import Arrival, Chunk, Fixed, Load, Outcome, Phase, Record, RequestSpec, RunHeader, Scenario, Target
from harness.protocol.exchange import Exchange
from harness.run.requests import Requests
from harness.wire.ask import NoAnswer, get
from harness.wire.endpoint import Endpoint

PROMPT = "Count from one to twenty in words."
PROMPT_WORDS = 7
MODELS_S = 5.0
"""What a run allows the list of models."""
AFTER_DONE_S = 2.0
"""How long a stream may stay open after [DONE]."""
PATIENCE = 2.5
"""Once so many times the limit of one request has gone by, nothing more is asked."""
MAX_RESPONSE_BYTES = 1 << 20


class Limits(Struct, frozen=True, kw_only=True):
    """How long to wait, in seconds."""

    look_s: float
    """For one request."""

    @property
    def all_s(self) -> float:
        """For all requests together."""
        return PATIENCE * self.look_s


class Manner(Struct, frozen=True, kw_only=True):
    """What a request asks for beside an answer: strict servers refuse fields they do not know."""

    ignore_eos: bool = True
    usage: bool = True


class Listing(Struct, frozen=True, kw_only=True):
    """What /v1/models said. `names` is None when that was no list of models."""

    status: int | None = None
    names: list[str] | None = None
    detail: str = ""


class Look(Struct, frozen=True, kw_only=True):
    """One request and all that came back."""

    dialect: str
    manner: Manner
    record: Record
    headers: Mapping[str, str]
    anatomy: Anatomy
    done: bool
    """[DONE] was seen."""
    ended: Literal["whole", "closed", "open"]
    """whole: the HTTP message had its end. closed: it ended with the connection. open: it was given up."""
    begins: bytes
    """The first bytes of the response."""
    line: Literal["fresh", "kept", "dropped"]
    """kept: the connection of the look before. dropped: that one turned out closed, and a fresh one was used."""
    keeps: bool
    """The server offered to keep the connection."""

    @property
    def ok(self) -> bool:
        """Answered as a run would want it."""
        return self.record.outcome is Outcome.OK


class Looks:
    """Takes looks at one endpoint, keeping the connection between them as a run does. Close it."""

    def __init__(self, where: Endpoint, tls: ssl.SSLContext | None, api_key: str, limits: Limits) -> None:
        self._where = where
        self._tls = tls
        self._api_key = api_key
        self._limits = limits
        self._patience = Deadline(limits.all_s)
        self._line: Line | None = None
        self._fresh = True

    @property
    def exhausted(self) -> bool:
        """All looks together took too long; a further one would fail at once."""
        return self._patience.passed

    def way(self) -> Way:
        """Connect, and say how that went. The first look uses the connection."""
        self._line, way = open_line(self._where, self._tls, self._limits.look_s)
        return way

    def listing(self) -> Listing:
        """Ask for the list of models, on a connection of its own, as a run does."""
        limit_s = min(MODELS_S, self._limits.look_s)
        try:
            status, body = get(self._where, "/v1/models", tls=self._tls, api_key=self._api_key, timeout_s=limit_s)
        except NoAnswer as error:
            return Listing(detail=str(error).removeprefix(f"{self._where.url}/v1/models: "))
        return Listing(status=status, names=_names(body), detail=body.decode("utf-8", "replace"))

    def take(self, target: Target, model: str, tokens: int, manner: Manner) -> Look:
        """One look. What goes wrong is in its record; raises nothing of the network's."""
        run = header(target, model, tokens, manner)
        requests = Requests(run, self._where, self._api_key)
        kept = self._line is not None and not self._fresh
        exchange, chunks = self._conversation(requests, tokens)
        if kept and not exchange.answered and exchange.record().outcome is Outcome.RESET:
            exchange, chunks = self._conversation(requests, tokens)  # the server may close an idle connection
            return self._look(run.scenario, exchange, chunks, "dropped")
        return self._look(run.scenario, exchange, chunks, "kept" if kept else "fresh")

    def close(self) -> None:
        """Drop the connection."""
        if self._line is not None:
            self._line.close()
        self._line, self._fresh = None, True

    def _conversation(self, requests: Requests, tokens: int) -> tuple[Exchange, list[Chunk]]:
        spec = RequestSpec(prompt=PROMPT, prompt_tokens=PROMPT_WORDS, output_tokens=tokens)
        arrival = Arrival(request_id=0, due_ns=clock.wall_ns(), level=0, phase=Phase.HOLD, slot=-1, spec=spec)
        exchange = Exchange(arrival, requests.terms(0))
        if self._line is None:
            self._line, way = open_line(self._where, self._tls, self._limits.look_s)
            if self._line is None:
                exchange.fail(Outcome.UNREACHABLE, str(way.error), clock.wall_ns())
                return exchange, []
        limit_s = min(self._limits.look_s, max(0.0, (self._patience.at_ns - clock.mono_ns()) / clock.S))
        chunks = converse(self._line, exchange, requests.encoded(arrival), limit_s=limit_s, fresh=self._fresh)
        self._fresh = False
        response = exchange.response
        if not (response.complete and response.keep_alive and not response.surplus):
            self.close()
        return exchange, chunks

    def _look(
        self, scenario: Scenario, exchange: Exchange, chunks: list[Chunk], line: Literal["fresh", "kept", "dropped"]
    ) -> Look:
        response = exchange.response
        closed = bool(chunks) and not chunks[-1].data
        return Look(
            dialect=scenario.target.dialect,
            manner=Manner(ignore_eos=scenario.ignore_eos, usage="stream_options" not in scenario.target.body),
            record=exchange.record(),
            headers=response.headers,
            anatomy=anatomy(chunks, exchange.dialect.parse_delta),
            done=exchange.done,
            ended="whole" if response.complete else "closed" if closed else "open",
            begins=b"".join(chunk.data for chunk in chunks)[:64],
            line=line,
            keeps=response.complete and response.keep_alive,
        )


def converse(line: Line, exchange: Exchange, request: bytes, *, limit_s: float, fresh: bool) -> list[Chunk]:
    """Send, and read until the exchange is over or time is up; failures become its outcome. Returns what was read."""
    chunks: list[Chunk] = []
    deadline = Deadline(limit_s)
    exchange.sent(clock.wall_ns(), line.connect_ns if fresh else None)
    try:
        line.send(request, deadline)
        while not exchange.over:
            at_ns, data, by_kernel = line.read(deadline)
            exchange.stamp_source = "kernel" if by_kernel else exchange.stamp_source or "user"
            chunks.append(Chunk(at_ns, data))
            done_before = exchange.done
            exchange.take(at_ns, data)
            if exchange.done and not done_before:
                deadline = deadline.sooner(AFTER_DONE_S)
    except TimeoutError:
        late = Outcome.TIMEOUT_BETWEEN_TOKENS if exchange.has_token else Outcome.TIMEOUT_FIRST_TOKEN
        exchange.fail(late, f"not finished within {limit_s:.3g} s", clock.wall_ns())
    except OSError as error:
        exchange.fail(Outcome.RESET, error.strerror or str(error), clock.wall_ns())
    return chunks


def header(target: Target, model: str, tokens: int, manner: Manner) -> RunHeader:
    """The run of which a look is the only request."""
    body = target.body if manner.usage else target.body | {"stream_options": None}
    asked = structs.replace(target, stream=True, body=body, max_response_bytes=MAX_RESPONSE_BYTES)
    scenario = Scenario(
        name="doctor",
        target=asked,
        load=Load(loop="closed", levels=[1]),
        prompt_tokens=Fixed(tokens=PROMPT_WORDS),
        output_tokens=Fixed(tokens=tokens),
        ignore_eos=manner.ignore_eos,
    )
    host, started_ns = target.host or "", clock.wall_ns()
    return RunHeader(
        run_id="doctor", version=__version__, scenario=scenario, host=host, model=model, started_ns=started_ns
    )


def _names(body: bytes) -> list[str] | None:
    try:
        listed: Any = json.loads(body)
        return [str(entry["id"]) for entry in listed["data"]]
    except (ValueError, KeyError, TypeError):
        return None
