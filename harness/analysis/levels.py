"""A Frame and the stages that were run to Levels: everything measured in each hold, judged. Pure."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa

from harness import metrics
from harness.analysis.client import client, health_frame
from harness.analysis.distributions import curve
from harness.analysis.flat import Floats
from harness.analysis.frame import Frame
from harness.analysis.judging import clauses, good
from harness.analysis.rates import Rates, rates
from harness.analysis.settling import Series, settling
from harness.analysis.spreads import Sample, latencies, tokens, untimed
from harness.clock import MS, S
from harness.findings import Client, Curve, Level
from harness.knee import verdict
from harness.knee.laws import little
from harness.metrics import Loop
from harness.model import Outcome, Phase, Scenario, Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """What one level is computed from."""

    frame: Frame
    stage: Stage
    scenario: Scenario

    @property
    def loop(self) -> Loop:
        return self.scenario.load.loop

    @property
    def seconds(self) -> float:
        return (self.stage.end_at_ns - self.stage.hold_at_ns) / S

    @property
    def due(self) -> pd.DataFrame:
        """Rows due in the hold, whatever became of them."""
        rows = self.frame.rows.iloc[self.frame.level(self.stage.level)]
        return rows[rows["phase"] == Phase.HOLD]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A level, and the distribution curves of its TTFT and ITL."""

    level: Level
    curves: list[Curve]


def levels(frame: Frame, health: pa.Table, scenario: Scenario, stages: list[Stage]) -> list[Level]:
    """One Level for each stage, in the order given."""
    return [each.level for each in measured(frame, health, scenario, stages)]


def measured(frame: Frame, health: pa.Table, scenario: Scenario, stages: list[Stage]) -> list[Measured]:
    """One Measured for each stage, in the order given."""
    beats = health_frame(health)
    holds = [Hold(frame=frame, stage=stage, scenario=scenario) for stage in stages]
    return [_measured(hold, client(frame, beats, hold.stage, scenario)) for hold in holds]


def _measured(hold: Hold, seen: Client) -> Measured:
    index = hold.stage.level
    samples = latencies(hold.frame, index, hold.loop) | tokens(hold.frame, index)
    samples["lag_ms"] = untimed(hold.due["start"].to_numpy() / MS)
    drawn = [curve(name, index, samples[name].tally, 1 / samples[name].per_ms) for name in ("ttft_ms", "itl_ms")]
    return Measured(level=_level(hold, samples, seen), curves=[each for each in drawn if each.x])


def _level(hold: Hold, samples: dict[str, Sample], seen: Client) -> Level:
    due, slo, index = hold.due, hold.scenario.slo, hold.stage.level
    flow = rates(hold.frame, hold.stage, hold.loop)
    outcomes = {str(name): int(count) for name, count in due["outcome"].value_counts().items() if count}
    succeeded = outcomes.get(Outcome.OK, 0)
    judged = clauses(slo, samples, due, hold.loop)
    held, why = verdict.level_held(len(due), succeeded, seen, judged)
    unsettled = _settling(hold, flow)
    offered_rps = metrics.per_second(len(due), hold.seconds)
    met = int(good(hold.frame, index, slo, samples).sum())
    return Level(
        index=index,
        load=hold.stage.load,
        axis="rate" if hold.loop == "open" else "users",
        hold_s=hold.seconds,
        due=len(due),
        offered_rps=offered_rps,
        achieved_rps=flow.achieved_rps,
        output_tps=flow.output_tps,
        input_tps=flow.input_tps,
        goodput_rps=metrics.per_second(met, hold.seconds),
        attainment=metrics.share(met, len(due)),
        error_share=metrics.share(len(due) - succeeded, len(due)),
        outcomes=outcomes,
        metrics={name: sample.spread for name, sample in samples.items()},
        tokens_per_event=_tokens_per_event(hold),
        in_flight=flow.in_flight,
        running=flow.running,
        time_in_system_s=flow.time_in_system_s,
        little=little(flow.in_flight, offered_rps, flow.time_in_system_s or 0.0),
        cost_per_million_output_tokens=_cost(hold.scenario, flow),
        settled=not unsettled,
        settling=unsettled,
        client=seen,
        clauses=judged,
        held=held,
        why="; ".join(filter(None, [why, unsettled and f"not settled: {unsettled}"])),
    )


def _tokens_per_event(hold: Hold) -> float | None:
    rows = hold.frame.rows.iloc[hold.frame.judged(hold.stage.level)]
    streamed = rows[rows["events"] > 0]
    return metrics.share(float(streamed["tokens"].sum()), float(streamed["events"].sum()))


def _cost(scenario: Scenario, flow: Rates) -> float | None:
    if scenario.prices is None:
        return None
    return metrics.cost_per_million_tokens(scenario.prices.per_hour, flow.output_tps)


def _settling(hold: Hold, flow: Rates) -> str:
    rows = hold.frame.rows.iloc[hold.frame.judged(hold.stage.level)]
    origin = rows["start"].to_numpy() if hold.loop == "closed" else 0.0
    ttft, e2e = (rows[column].to_numpy() - origin for column in ("first", "last"))
    in_flight = Series("number in flight", flow.in_flight_parts)
    return settling([Series("TTFT", _present(ttft)), in_flight, Series("E2E", _present(e2e))])


def _present(values: Floats) -> Floats:
    return values[~np.isnan(values)]
