"""The engine's core behind HTTP/1.1, in real time, under vLLM's routes and metric names. I/O: sockets and the clock."""

import asyncio
import gc
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from random import Random

import msgspec
from msgspec import Struct

from harness import clock
from harness.engine import exposition, frames
from harness.engine.answers import Answer, answer
from harness.engine.asks import Ask, Dialect, Refusal, ask, error_body
from harness.engine.blocks import prefix_hashes
from harness.engine.core import Emitted, Engine, Job
from harness.engine.faults import NO_FAULT, Fault
from harness.engine.http1 import Connection, Limits, Request
from harness.engine.pacing import Pace, fine_loop
from harness.engine.profile import Profile
from harness.engine.truth import Put, Told, truth
from harness.engine.turn import Stage, Turn
from harness.model import Count

_MOST_LATE_S = 0.02
_BACKLOG = 4096


class Options(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a profile is served."""

    model: str | None = None
    """Name under /v1/models; None: the profile's."""
    api_key: str | None = None
    """When given, /v1/… wants it as a bearer token."""
    truth: str | None = None
    """File to which `truth.Told` lines are appended."""
    fault: Fault | None = None
    """For every `fault_every`-th accepted request that does not ask for one itself."""
    fault_every: Count = 1
    seed: int = 1
    """Of the drafts' acceptance."""
    limits: Limits = Limits()


class _Live(Struct, kw_only=True):
    """A job in the engine and the answer it feeds."""

    answer: Answer
    received_mono_ns: int
    queued: bool = True
    last_mono_ns: int = 0


class Server:
    """Routes requests, submits jobs, paces steps and hands their tokens to answers. Made by `running`."""

    def __init__(self, profile: Profile, options: Options, put: Put) -> None:
        self.port = 0
        self.stepping: asyncio.Future[None]
        """The step loop, once `running` has started it. It never ends by itself: if it is done, it has failed."""
        self.model = options.model or profile.name
        self.engine = Engine(profile, Random(options.seed))
        self.tally = exposition.Tally()
        self.connections: set[Connection] = set()
        self._profile = profile
        self._options = options
        self._put = put
        self._lives: dict[int, _Live] = {}
        self._number = 0
        self._frozen_s = 0.0
        self._awake = asyncio.Event()
        self._started_s = clock.wall_ns() // clock.S

    # --- the step loop --------------------------------------------------------------------------------------------

    async def steps(self) -> None:
        """Step for ever. A step begins where the last one ended, or when the first job comes to an idle engine."""
        pace = Pace(_MOST_LATE_S, self._slip)
        while True:
            if self.engine.idle:
                self._awake.clear()
                await self._awake.wait()
                pace.restart()
            step = self.engine.step()
            self._admit(step.admitted)
            await pace.passed(step.duration_s)
            self._deliver(step.emitted)
            if self._frozen_s:
                pace.restart()
                await pace.passed(self._frozen_s)
                self._frozen_s = 0.0

    def _admit(self, job_ids: list[int]) -> None:
        now_ns = clock.mono_ns()
        for job_id in job_ids:
            live = self._lives.get(job_id)
            if live is not None and live.queued:
                live.queued = False
                self.tally.queue_s.observe((now_ns - live.received_mono_ns) / clock.S)

    def _deliver(self, emitted: list[Emitted]) -> None:
        tally, now_ns = self.tally, clock.mono_ns()
        for item in emitted:
            live = self._lives.get(item.job_id)
            if live is None:
                continue
            tally.generation_tokens += item.tokens
            if live.last_mono_ns:
                tally.gap_s.observe((now_ns - live.last_mono_ns) / clock.S)
            else:
                tally.ttft_s.observe((now_ns - live.received_mono_ns) / clock.S)
            live.last_mono_ns = now_ns
            if item.finished:
                tally.finished["length"] += 1
                tally.e2e_s.observe((now_ns - live.received_mono_ns) / clock.S)
                del self._lives[item.job_id]
            live.answer.tokens(item.tokens, finished=item.finished)

    def _slip(self, seconds: float) -> None:
        self.tally.slipped_s += seconds

    def _freeze(self, seconds: float) -> None:
        self._frozen_s = max(self._frozen_s, seconds)

    # --- requests -------------------------------------------------------------------------------------------------

    def connection(self) -> Connection:
        """For a client that has just connected."""
        return Connection(self.answer, self._options.limits, self.connections)

    def answer(self, connection: Connection, request: Request) -> None:
        """Answer one request, or begin to."""
        key = self._options.api_key
        if key and request.path.startswith("/v1/") and request.headers.get("authorization") != f"Bearer {key}":
            connection.reply(401, b'{"error":"Unauthorized"}')
            return
        route = ROUTES.get(request.path)
        if route is None:
            connection.reply(404, b'{"detail":"Not Found"}')
        elif request.method != route[0]:
            connection.reply(405, b'{"detail":"Method Not Allowed"}', allow=route[0])
        else:
            try:
                route[1](self, connection, request)
            except Refusal as refusal:
                connection.reply(refusal.status, refusal.body)

    def health(self, connection: Connection, request: Request) -> None:
        connection.reply(200, b"")

    def models(self, connection: Connection, request: Request) -> None:
        row = {"id": self.model, "object": "model", "created": self._started_s, "owned_by": "tokenswarm"}
        row |= {"root": self._profile.name, "parent": None, "max_model_len": self._profile.max_model_len}
        connection.reply(200, msgspec.json.encode({"object": "list", "data": [row]}))

    def metrics(self, connection: Connection, request: Request) -> None:
        text = exposition.text(self.tally, self.engine, self.model)
        connection.reply(200, text.encode(), "text/plain; version=0.0.4; charset=utf-8")

    def chat(self, connection: Connection, request: Request) -> None:
        self._generate("chat", connection, request)

    def completions(self, connection: Connection, request: Request) -> None:
        self._generate("completions", connection, request)

    def _generate(self, dialect: Dialect, connection: Connection, request: Request) -> None:
        wanted = ask(dialect, request.body, model=self.model, max_model_len=self._profile.max_model_len)
        self._number += 1
        turn = Turn(
            number=self._number,
            model=self.model,
            ask=wanted,
            fault=wanted.fault or self._due_fault(),
            received_ns=request.received_ns,
        )
        if turn.fault.status is not None or turn.fault.html:
            self._refuse(turn, connection)
        else:
            self._submit(turn, connection, request.received_mono_ns)

    def _due_fault(self) -> Fault:
        due = self._options.fault is not None and self._number % self._options.fault_every == 0
        return self._options.fault if due and self._options.fault is not None else NO_FAULT

    def _refuse(self, turn: Turn, connection: Connection) -> None:
        fault, told = turn.fault, turn.told()
        told.outcome, told.finished_ns = "fault", clock.wall_ns()
        self._put(told)
        if fault.status is None:
            connection.reply(200, frames.HTML_PAGE, "text/html; charset=utf-8")
            return
        kind = {429: "RateLimitError", 503: "ServiceUnavailableError"}.get(fault.status, "InternalServerError")
        retry = {} if fault.retry_after_s is None else {"retry_after": str(fault.retry_after_s)}
        connection.reply(fault.status, error_body(fault.status, "Refused on demand.", kind=kind), **retry)

    def _submit(self, turn: Turn, connection: Connection, received_mono_ns: int) -> None:
        wanted = turn.ask
        self.engine.submit(
            Job(
                job_id=turn.number,
                prompt_tokens=wanted.prompt_tokens,
                output_tokens=wanted.output_tokens,
                prefix=self._prefix(wanted),
            )
        )
        self.tally.prompt_tokens += wanted.prompt_tokens
        begun = answer(turn, connection, Stage(over=self._over, freeze=self._freeze))
        self._lives[turn.number] = _Live(answer=begun, received_mono_ns=received_mono_ns)
        begun.begin()
        self._awake.set()

    def _prefix(self, wanted: Ask) -> tuple[int, ...]:
        kv = self._profile.kv
        return prefix_hashes(wanted.words, kv.block_size) if kv.prefix_cache else ()

    def _over(self, told: Told) -> None:
        """An answer has ended: write its account, and drop its job if that still runs."""
        self._put(told)
        self._lives.pop(told.number, None)
        if self.engine.abort(told.number):
            self.tally.finished["abort"] += 1


ROUTES: dict[str, tuple[str, Callable[[Server, Connection, Request], None]]] = {
    "/v1/chat/completions": ("POST", Server.chat),
    "/v1/completions": ("POST", Server.completions),
    "/v1/models": ("GET", Server.models),
    "/health": ("GET", Server.health),
    "/metrics": ("GET", Server.metrics),
}


@asynccontextmanager
async def running(
    profile: Profile, host: str = "127.0.0.1", port: int = 0, *, options: Options | None = None
) -> AsyncIterator[Server]:
    """A server that listens while the context lasts; `server.port` says where. Timers are fine on a `fine_loop`.

    Raises OSError when the address cannot be had or the truth file cannot be opened.
    """
    options = options or Options()
    with ExitStack() as stack:
        server = Server(profile, options, stack.enter_context(truth(options.truth)))
        loop = asyncio.get_running_loop()
        listener = await loop.create_server(server.connection, host, port, backlog=_BACKLOG)
        server.port = listener.sockets[0].getsockname()[1]
        server.stepping = asyncio.create_task(server.steps())
        try:
            yield server
        finally:
            listener.close()
            for connection in list(server.connections):
                connection.transport.abort()
            server.stepping.cancel()
            await asyncio.wait([server.stepping])
            await listener.wait_closed()


def serve(
    profile: Profile,
    host: str,
    port: int,
    *,
    options: Options | None = None,
    on_ready: Callable[[int], None] = lambda port: None,
) -> None:
    """Serve until SIGTERM or SIGINT, in the main thread of a process of its own. `on_ready` is told the port."""

    async def main() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        async with running(profile, host, port, options=options) as server:
            gc.collect()
            gc.freeze()
            on_ready(server.port)
            stepping = server.stepping
            stepping.add_done_callback(lambda _: stop.set())
            await stop.wait()
            if stepping.done():
                stepping.result()

    with asyncio.Runner(loop_factory=fine_loop) as runner:
        runner.run(main())
