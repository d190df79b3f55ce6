"""Where the server stops keeping up, and what breaks first. A panel is a row; pure."""

from dashboards.levels import ABOUT, EVERY, FOUND, UNITS, levels
from dashboards.panels import GREEN, GREY, LIMIT, RED, SLO_NAMES, Panel, against, column, fixed, joined, line, ordered
from dashboards.queries import HELD, family, per_second, quantile, series

ENDED = '(sum("ok") + sum("failed"))'

PANELS = (
    FOUND,
    Panel(
        title="Load: offered and achieved",
        about="Requests due, ended ok, and ended ok within the SLO, each second. While ok follows due, the server "
        "keeps up. Grey, on the right axis: load of the level: users (closed loop) or requests a second (open).",
        unit="reqps",
        queries=(
            series("second", due=per_second("due"), ok=per_second("ok"), good=per_second("good"), load='max("load")'),
        ),
        overrides=(
            line(
                "^load$",
                unit="short",
                color=fixed(GREY),
                custom__axisPlacement="right",
                custom__axisLabel="load",
                custom__lineInterpolation="stepAfter",
            ),
        ),
    ),
    Panel(
        title="Batch: running and waiting",
        about="What the server says it decodes and queues, beside what this side sees: requests between origin and end "
        "(in flight) and streams between first and last token (streaming). Saturation is where running stops to grow "
        "and waiting begins.",
        queries=(
            series("engine", "server", running='mean("running")', waiting='mean("waiting")'),
            series("second", in_flight=per_second("in_flight"), streaming=per_second("running")),
        ),
        aliases=("$col $tag_server", "$col"),
        overrides=(
            line("^waiting", color=fixed(RED), custom__fillOpacity=20),
            line("^(in flight|streaming)", custom__lineWidth=1),
        ),
    ),
    Panel(
        title="TTFT of requests due then: P50 and P99",
        about="Exact quantiles (nearest rank) over the ok requests due in the hold within each interval. Dashed: the "
        "SLO's limit. A P99 of fewer than 368 requests is little more than their maximum: widen the time range.",
        unit="ms",
        queries=(
            series("request", extra=HELD, P50=quantile("ttft_ms", 50), P99=quantile("ttft_ms", 99)),
            family("second", "max", "^slo_ttft_"),
        ),
        overrides=(LIMIT,),
        transformations=(SLO_NAMES,),
    ),
    Panel(
        title="ITL: P50, and the P99 of the worst second of each interval",
        about="Each second has its own token-weighted P50 and P99 (within 1.6 %). Shown are the median of the P50s and "
        "the largest P99 of the seconds in an interval: a bad second stays visible however far you zoom out.",
        unit="ms",
        queries=(
            series("second", **{"P50": 'median("itl_p50_ms")', "worst second's P99": 'max("itl_p99_ms")'}),
            family("second", "max", "^slo_itl_"),
        ),
        overrides=(LIMIT,),
        transformations=(SLO_NAMES,),
    ),
    Panel(
        title="Share of ended requests that were good",
        about="Of the requests that ended in each interval: ok, and ok within every clause of the SLO. The gap "
        "between the two is too slow; the gap to 100 % is failed. (The verdict counts by due time: see Levels.)",
        unit="percentunit",
        most=1,
        width=8,
        queries=(series("second", good=f'sum("good") / {ENDED}', ok=f'sum("ok") / {ENDED}'),),
        overrides=(line("^good$", color=fixed(GREEN), custom__fillOpacity=20),),
    ),
    Panel(
        title="Output tokens a second",
        about="Tokens whose event arrived then, whatever became of their request. It stops growing where the server is "
        "saturated.",
        unit="short",
        width=8,
        queries=(series("second", tokens=per_second("tokens")),),
    ),
    Panel(
        title="KV cache in use, and preemptions",
        about="Where the cache is full the server preempts: requests are thrown out of the batch and computed again. "
        "Bars: preemptions in the interval, on the right axis. Empty where the server tells neither.",
        unit="percentunit",
        most=1,
        width=8,
        queries=(
            series("engine", "server", in_use='max("kv_usage")'),
            series("engine", "server", preemptions='non_negative_difference(max("preemptions_total"))'),
        ),
        aliases=("$col $tag_server",),
        overrides=(
            line(
                "^preemptions",
                unit="short",
                max=None,
                color=fixed(RED),
                custom__axisPlacement="right",
                custom__drawStyle="bars",
                custom__fillOpacity=60,
            ),
        ),
    ),
    Panel(
        title="Throughput against concurrency",
        about="One dot a level: tokens a second over requests in flight, in the level's typical second. The knee is "
        "where the curve goes flat: more requests then only wait.",
        kind="xychart",
        queries=levels("in flight", "tokens"),
        transformations=ordered("in flight"),
        options=against(("tokens/s", "in flight", "tokens")),
    ),
    Panel(
        title="TTFT against load: P50 and P99",
        about="One dot a level. P99: exact, over the ok requests due in its hold; P50: of its typical second. Where "
        "P99 turns up while P50 is still flat, the queue begins.",
        kind="xychart",
        unit="ms",
        queries=levels("TTFT P50", "TTFT P99"),
        transformations=joined("load"),
        options=against(
            ("TTFT P50", "load", "TTFT P50"),
            ("TTFT P99", "load", "TTFT P99"),
        ),
        overrides=(column("load", unit="short"),),
    ),
    Panel(
        title="Levels",
        about=ABOUT,
        kind="table",
        width=24,
        height=9,
        queries=levels(*EVERY),
        transformations=joined("load"),
        units=UNITS,
    ),
)
