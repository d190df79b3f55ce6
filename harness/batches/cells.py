"""A report, or a prediction, to the figures of one setting at its knee. Pure."""

import math
from collections.abc import Sequence

from msgspec import Struct, structs

from harness.findings import Level, Report
from harness.knee.map import Figures
from harness.knee.verdict import excess
from harness.model import Prices, Stage
from harness.twin.predict import Predicted

SECONDS_PER_HOUR = 3600.0
PER_MILLION = 1e6


class Running(Struct, frozen=True, kw_only=True):
    """The running batch of a server as its metrics said it, look by look."""

    at_ns: Sequence[int]
    batch: Sequence[float]

    def quantile(self, share: float, stage: Stage) -> float | None:
        """Batch not passed in this share of the looks during a hold (nearest rank); None: nobody looked."""
        seen = [
            batch
            for at_ns, batch in zip(self.at_ns, self.batch, strict=True)
            if stage.hold_at_ns <= at_ns < stage.end_at_ns
        ]
        return sorted(seen)[max(0, math.ceil(share * len(seen)) - 1)] if seen else None

    def most(self) -> float | None:
        """The largest batch of the run."""
        return max(self.batch, default=None)


def measured(report: Report, running: Running) -> Figures:
    """The knee of a search, by whichever method, and the level nearest to it."""
    figures = _bracketed(report) if report.located is None else _located(report)
    level, stage = level_at(report, figures.load), stage_at(report, figures.load)
    if level is None or not figures.load:
        return figures
    scale = figures.load / level.load if level.axis == "rate" else 1.0
    output_tps = level.output_tps * scale
    return structs.replace(
        figures,
        rps=level.achieved_rps * scale,
        output_tps=output_tps,
        goodput_rps=level.goodput_rps * scale,
        cost_per_million_output_tokens=cost(report.header.scenario.prices, output_tps),
        batch_p50=running.quantile(0.5, stage) if stage else None,
        batch_p95=running.quantile(0.95, stage) if stage else None,
    )


def _located(report: Report) -> Figures:
    found = report.located
    if found is None:
        return Figures()
    return Figures(load=found.load, low=found.low, high=found.high, binding=found.binding, batch_p99=found.batch_p99)


def _bracketed(report: Report) -> Figures:
    knee = report.knee
    if knee is None or knee.found == "undecided":
        return Figures()
    load = 0.0 if knee.found == "breaks_at_first" else knee.holds
    return Figures(load=load, low=load, high=knee.breaks, binding=_binding(report))


def _binding(report: Report) -> str:
    """The clause that is exceeded most at the load that broke; "" where none was judged there."""
    if report.knee is None or report.knee.breaks is None:
        return ""
    at = [level for level in report.levels if level.index == report.knee.breaks_level]
    broken = [clause for level in at for clause in level.clauses if clause.held == "broken"]
    return max(broken, key=excess).name if broken else report.knee.binding


def level_at(report: Report, load: float | None) -> Level | None:
    """The level nearest to the knee, of equally near ones the last, that the client did not limit; one that held at it
    before any other."""
    fair = [level for level in report.levels if not level.client.limited and level.achieved_rps > 0]
    if not load or not fair:
        return None
    return min(reversed(fair), key=lambda level: (round(abs(math.log(level.load / load)), 6), level.held != "held"))


def stage_at(report: Report, load: float | None) -> Stage | None:
    """When that level was run."""
    level = level_at(report, load)
    return next((stage for stage in report.stages if level is not None and stage.level == level.index), None)


def cost(prices: Prices | None, output_tps: float | None) -> float | None:
    """Of a million output tokens: price an hour / tokens an hour · 10⁶."""
    if prices is None or not output_tps:
        return None
    return prices.per_hour / (output_tps * SECONDS_PER_HOUR) * PER_MILLION


def text(report: Report) -> str:
    """What the search said."""
    found = report.located or report.knee
    return found.text if found is not None else report.verdict.text


def predicted(said: Predicted, like: Figures, *, correction: float, prices: Prices | None) -> Figures:
    """A prediction at its knee. Tokens a request are those of a measured setting; the goodput is at least this much, as
    misses of the binding clause are taken off only."""
    rps = said.rps * correction
    output_tps = rps * like.output_tps / like.rps if like.output_tps and like.rps else None
    return Figures(
        load=said.load * correction,
        binding=said.binding,
        rps=rps if said.load else 0.0,
        output_tps=output_tps if said.load else None,
        goodput_rps=rps * (1 - said.miss_share) if said.load else 0.0,
        cost_per_million_output_tokens=cost(prices, output_tps) if said.load else None,
        batch_p50=said.batch_p50,
        batch_p99=said.batch_p99,
        batch_p999=said.batch_p999,
    )
