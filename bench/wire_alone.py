"""Our wire and protocol without Locust and without the flush thread: what the Python hot path costs. I/O, gevent.

Every stream is a greenlet in a closed loop: encode a request, carry it, keep the record. What is left behind is a run
directory like any other, written after the end, so that it is read and compared in the same way.

    python bench/wire_alone.py --scenario level.yaml --out DIR
"""

import argparse
import resource
from pathlib import Path

import gevent
import msgspec

from harness import __version__, clock, scenario
from harness.model import Arrival, Phases, RequestSpec, RunHeader, Stage
from harness.protocol.exchange import Exchange
from harness.record.log import Recorder, RunLog
from harness.run.health import Pulse
from harness.run.requests import Requests
from harness.wire.client import Client, Wiring
from harness.wire.endpoint import endpoint, tls_context

SPEC = RequestSpec(prompt="as fast as it goes " * 6, prompt_tokens=32, output_tokens=0)


def stage_now(phases: Phases, streams: int) -> Stage:
    at_ns = clock.wall_ns() + clock.S // 20
    hold_ns = at_ns + int(phases.warmup_s * clock.S)
    end_ns = hold_ns + int(phases.hold_s * clock.S)
    return Stage(
        level=0,
        load=streams,
        warmup_at_ns=at_ns,
        hold_at_ns=hold_ns,
        end_at_ns=end_ns,
        drained_by_ns=end_ns + int(phases.drain_s * clock.S),
    )


class Streams:
    """All greenlets of this process. Mutable: counts births."""

    def __init__(self, header: RunHeader, stage: Stage, recorder: Recorder) -> None:
        target = header.scenario.target
        where = endpoint(target.host)
        tls = tls_context(target) if where.secure else None
        self.client = Client(Wiring(endpoint=where, timeouts=target.timeouts, tls=tls))
        self.requests = Requests(header, where, "")
        self.terms = self.requests.terms(0)
        self.spec = msgspec.structs.replace(SPEC, output_tokens=header.scenario.output_tokens.tokens)
        self.stage = stage
        self.recorder = recorder
        self.born = 0

    def one(self, slot: int, first_at_ns: int) -> None:
        gevent.sleep(max(0.0, (first_at_ns - clock.wall_ns()) / clock.S))
        while (due_ns := clock.wall_ns()) < self.stage.end_at_ns:
            phase = self.stage.phase_of(due_ns)
            arrival = Arrival(request_id=self.born, due_ns=due_ns, level=0, phase=phase, slot=slot, spec=self.spec)
            self.born += 1
            exchange = Exchange(arrival, self.terms)
            self.client.perform(exchange, self.requests.encoded(arrival.request_id, arrival.spec))
            self.recorder.put(exchange.record())


def main() -> None:
    parser = argparse.ArgumentParser(description="Our wire and protocol alone, in a closed loop.")
    parser.add_argument("--scenario", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    asked = scenario.load(args.scenario)
    streams = int(scenario.levels(asked.load)[0])
    header = RunHeader(
        run_id=args.out.name,
        version=__version__,
        scenario=asked,
        host=asked.target.host,
        model="known",
        started_ns=clock.wall_ns(),
    )
    log = RunLog(args.out)
    recorder = Recorder(0, log.append)
    pulse = Pulse(0, recorder)
    stage = stage_now(asked.phases, streams)
    work = Streams(header, stage, recorder)
    pulse.level = 0
    pulse.start()
    ramp_ns = int(asked.phases.ramp_s * clock.S)
    gevent.joinall(
        [gevent.spawn(work.one, slot, stage.warmup_at_ns + ramp_ns * slot // streams) for slot in range(streams)],
        raise_error=True,
    )
    pulse.stop()
    work.client.close()
    recorder.flush()
    log.close()
    (args.out / "header.json").write_bytes(msgspec.json.encode(header))
    (args.out / "stages.jsonl").write_bytes(msgspec.json.encode(stage) + b"\n")


if __name__ == "__main__":
    main()
