"""One worker process: opens the gate for a stage, gives birth to arrivals, drains, ships records. I/O, under gevent."""

import gc
from collections.abc import Callable, Iterator

import gevent
from gevent.event import Event

from harness import clock
from harness.model import Arrival, Outcome, Phase, Record, RequestSpec, RunHeader, Stage
from harness.protocol.exchange import Exchange
from harness.record.log import Batch, Recorder
from harness.run.alarm import alarm, early_ns, yield_until
from harness.run.health import Pulse
from harness.run.requests import Requests
from harness.run.slots import Slots
from harness.traffic.arrivals import due_offsets
from harness.traffic.plan import requests
from harness.wire.client import Client

ID_BITS = 40
FLUSH_S = 1.0
LOOK_S = 0.05
PORTION = 50
"""Records worth a batch of their own."""
REST_S = 0.01
"""A user whose request failed rests this long: a server that refuses at once would else be asked again as fast as this
machine can."""

Tap = Callable[[Record], None]


class Worker:
    """The load this process makes. `deliver` takes batches of the record log, in the hub; `tap` sees every record."""

    def __init__(self, index: int, deliver: Callable[[Batch], None], tap: Tap) -> None:
        self.index = index
        self._place = 0
        self._deliver = deliver
        self._tap = tap
        self._outbox: list[Batch] = []
        self._recorder: Recorder
        self._pulse: Pulse
        self._users = Slots()
        self._lanes = Slots()
        """Open loop: what a request has as its slot from birth to end, so that no two of a slot overlap."""
        self._born = 0
        self._header: RunHeader | None = None
        self._client: Client | None = None
        self._stage: Stage | None = None
        self._gate = Event()
        self._specs: Iterator[RequestSpec] = iter(())
        self._started: set[int] = set()
        """Slots that have had their first request of this stage."""
        self._running = 0
        self._pacing = False
        self._idle = Event()
        self._flusher: gevent.Greenlet | None = None

    # --- what the master says -----------------------------------------------------------------------------------------

    def begin(self, header: RunHeader, requests_of_run: Requests, client: Client) -> None:
        """A run starts. What lives by now lives on: a full collection over all of it would halt the hub for 80 ms."""
        gc.collect()
        gc.freeze()
        self._header, self._requests, self._client = header, requests_of_run, client
        self._terms = requests_of_run.terms(self.index)
        self._recorder = Recorder(self.index, self._outbox.append)
        self._pulse = Pulse(self.index, self._recorder)
        self._born = 0
        next(requests(header.scenario, level=0, worker=self.index))  # makes the corpus now: 20 ms, late for an arrival
        self._pulse.start()
        self._flusher = gevent.spawn(self._flush_for_ever)

    @property
    def begun(self) -> bool:
        """A run is under way."""
        return self._header is not None

    def open(self, stage: Stage, place: int) -> None:
        """Let users through for this stage, until its end. `place`: rank of this worker among those that take part."""
        assert self._header is not None
        self._place = place
        self._started.clear()
        self._specs = requests(self._header.scenario, level=stage.level, worker=self.index)
        self._pulse.level = stage.level
        self._stage = stage
        self._gate.set()

    def drain(self, stage: Stage) -> None:
        """Wait for the end of the stage and of everything begun in it; censor what outlives the drain; ship it all."""
        assert self._client is not None
        _sleep_until(stage.end_at_ns)
        self._gate.clear()
        while self._pacing:  # the last arrivals may be a little late: they still belong to this level
            gevent.sleep(0.001)
        self._idle.clear()
        if self._running and not self._idle.wait(max(0.0, (stage.drained_by_ns - clock.wall_ns()) / clock.S)):
            self._client.censor(f"still running {(stage.drained_by_ns - stage.end_at_ns) / clock.S:g} s after the hold")
            self._idle.wait(1.0)
        self._pulse.beat()
        self.flush()

    def end(self) -> None:
        """The run is over, or is being stopped: end what runs, ship everything."""
        self._gate.clear()
        self._header = None
        self._stage = None
        if self._client is not None:
            self._client.censor("run stopped")
            gevent.sleep(0)
            self._idle.clear()
            if self._running:
                self._idle.wait(1.0)
            self._client.close()
            self._client = None
        self._pulse.stop()
        if self._flusher is not None:
            self._flusher.kill()
            self._flusher = None
        self.flush()

    def flush(self) -> None:
        """Encode what gathered in a thread of its own (compression stays off the hub), then deliver it here."""
        while not gevent.get_hub().threadpool.apply(self._recorder.flush):  # another flush is under way
            gevent.sleep(0.005)
        while self._outbox:
            self._deliver(self._outbox.pop(0))

    def _flush_for_ever(self) -> None:
        """At least once a second, and sooner when much has gathered: encoding takes the interpreter from the hub, so it
        is done in portions shorter than the gap between two tokens."""
        flushed, waited_s = 0, 0.0
        while True:
            gevent.sleep(LOOK_S)
            waited_s += LOOK_S
            if waited_s >= FLUSH_S or self._recorder.ended - flushed >= PORTION:
                flushed, waited_s = self._recorder.ended, 0.0
                self.flush()

    # --- what users do ------------------------------------------------------------------------------------------------

    def slot_number(self) -> int:
        """The lowest free slot number of this process."""
        return self._users.take()

    def free_slot(self, slot: int) -> None:
        """This slot's user is gone."""
        self._users.free(slot)

    def turn(self, slot: int) -> None:
        """A turn of a user: wait for the gate, then a whole stage, request after request or as the open loop paces."""
        self._gate.wait()
        stage = self._stage
        if stage is None or self._header is None:
            self._gate.clear()
        elif self._header.scenario.load.loop == "open":
            self._pace(stage)
        else:
            self._fill_slot(stage, slot)

    def _fill_slot(self, stage: Stage, slot: int) -> None:
        header = self._header
        assert header is not None
        if slot not in self._started:
            self._started.add(slot)
            _sleep_until(stage.warmup_at_ns + self._stagger_ns(stage, len(self._started) - 1))
        think_s = header.scenario.load.think_s
        while self._stage is stage and (due_ns := clock.wall_ns()) < stage.end_at_ns:
            spec, request = self._next_request()
            outcome = self._perform(self._birth(stage, due_ns, slot, spec), request)
            pause_s = think_s if outcome is Outcome.OK else max(think_s, REST_S)
            if pause_s:
                gevent.sleep(pause_s)
        self._close_gate(stage)

    def _close_gate(self, stage: Stage) -> None:
        if self._stage is stage:  # one who thought long may find the next stage open already
            self._gate.clear()

    def _stagger_ns(self, stage: Stage, turn: int) -> int:
        """Users of all workers start evenly over the ramp: a herd that starts at once stays one for a long time."""
        assert self._header is not None
        phases = self._header.scenario.phases
        ramp_s = phases.warmup_s / 2 if phases.ramp_s is None else phases.ramp_s
        share = (turn * stage.workers + self._place) / max(stage.load, 1)
        return int(min(share, 1.0) * ramp_s * clock.S)

    def _pace(self, stage: Stage) -> None:
        """Start every arrival at its absolute due time, however many are in flight; never skip, never shift."""
        assert self._header is not None
        scenario = self._header.scenario
        seed = (scenario.seed, stage.level)
        offsets = due_offsets(scenario.load.arrivals, stage.load, seed=seed, worker=self._place, workers=stage.workers)
        due_ns = stage.warmup_at_ns + next(offsets)
        timer = alarm()
        self._pacing = True
        try:
            while due_ns < stage.end_at_ns:
                timer.wait_until(early_ns(due_ns))
                spec, request = self._next_request()
                yield_until(due_ns)
                arrival = self._birth(stage, due_ns, self._lanes.take(), spec)
                due_ns = stage.warmup_at_ns + next(offsets)
                gevent.spawn(self._perform_in_lane, arrival, request)
        except gevent.GreenletExit:
            while due_ns < min(stage.end_at_ns, clock.wall_ns()):
                self._never_sent(self._birth(stage, due_ns, self._lanes.take(), next(self._specs)))
                due_ns = stage.warmup_at_ns + next(offsets)
            raise
        finally:
            self._pacing = False
            timer.close()
        self._close_gate(stage)

    @property
    def _next_id(self) -> int:
        return (self.index << ID_BITS) + self._born

    def _next_request(self) -> tuple[RequestSpec, bytes]:
        """What the next birth will ask for, as it will be sent: made before it is due."""
        spec = next(self._specs)
        return spec, self._requests.encoded(self._next_id, spec)

    def _birth(self, stage: Stage, due_ns: int, slot: int, spec: RequestSpec) -> Arrival:
        arrival = Arrival(
            request_id=self._next_id,
            due_ns=due_ns,
            level=stage.level,
            phase=stage.phase_of(due_ns),
            slot=slot,
            spec=spec,
        )
        self._born += 1
        self._running += 1
        self._recorder.born(arrival)
        return arrival

    def _perform(self, arrival: Arrival, request: bytes) -> Outcome:
        exchange = Exchange(arrival, self._terms)
        try:
            if self._client is None:
                exchange.fail(Outcome.NOT_SENT, "run stopped", clock.wall_ns())
            else:
                self._client.perform(exchange, request)
        finally:
            if not exchange.over:  # a fault of ours: the ledger must balance even then
                exchange.fail(Outcome.CANCELLED, "the harness failed; see its log", clock.wall_ns())
            self._put(exchange)
        return exchange.outcome

    def _perform_in_lane(self, arrival: Arrival, request: bytes) -> None:
        try:
            self._perform(arrival, request)
        finally:
            self._lanes.free(arrival.slot)

    def _never_sent(self, arrival: Arrival) -> None:
        exchange = Exchange(arrival, self._terms)
        exchange.fail(Outcome.NOT_SENT, "run stopped before it could start", clock.wall_ns())
        self._put(exchange)
        self._lanes.free(arrival.slot)

    def _put(self, exchange: Exchange) -> None:
        record = exchange.record()
        exchange.release()
        self._recorder.put(record)
        self._pulse.saw(record)
        self._running -= 1
        if not self._running:
            self._idle.set()
        self._tap(record)


def _sleep_until(at_ns: int) -> None:
    while (left_s := (at_ns - clock.wall_ns()) / clock.S) > 0:
        gevent.sleep(left_s)


def phase_left(stage: Stage, now_ns: int) -> tuple[Phase, float]:
    """The phase a stage is in and the seconds until its end."""
    phase = stage.phase_of(now_ns)
    ends = {Phase.WARMUP: stage.hold_at_ns, Phase.HOLD: stage.end_at_ns, Phase.DRAIN: stage.drained_by_ns}
    return phase, max(0.0, (ends[phase] - now_ns) / clock.S)
