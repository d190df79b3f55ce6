"""How tokens flow: rate, gaps, stalls, and the slowest streams. A panel is a row; pure."""

from dashboards.panels import Panel, column, renamed
from dashboards.queries import HELD, buckets, family, per_second, quantile, rows, scope, series

SLOT_LINK = (
    "/d/tokenswarm-tokens?${__url_time_range}&${run:queryparam}&${level:queryparam}"
    "&var-worker=${__data.fields.worker}&var-slot=${__data.fields.slot}"
)

PANELS = (
    Panel(
        title="Output tokens a second",
        about="Tokens whose event arrived then, by class of request: which class gets the server's time.",
        queries=(series("second", "class", tokens=per_second("tokens")),),
        aliases=("$tag_class",),
    ),
    Panel(
        title="Tokens a frame",
        about="1: every token travels alone, and gaps are inter-token latencies. More: the server bundles tokens "
        "(speculative decoding, stream intervals), so a gap is several tokens long; ITL is corrected for it.",
        queries=(series("second", **{"tokens a frame": 'sum("tokens") / sum("events")'}),),
    ),
    Panel(
        title="Gaps between frames",
        about="Each column is a histogram: how many gaps of that length in that interval (ok requests, nine buckets "
        "to a decade). A level band is a steady batch; a second band above it is prefill in the way; specks: stalls.",
        kind="heatmap",
        width=24,
        height=10,
        queries=(buckets("gap"),),
    ),
    Panel(
        title="Time to first token",
        about="The same for TTFT, by the second of the first token. A band that climbs while load stands still is a "
        "queue that grows.",
        kind="heatmap",
        width=24,
        height=9,
        queries=(buckets("ttft"),),
    ),
    Panel(
        title="Stalls: worst gap within a request",
        about="Largest gap between two frames of one answer: P99 and maximum over the ok requests due in the "
        "hold within each interval. What a reader sees as a stutter.",
        unit="ms",
        queries=(
            series(
                "request",
                extra=HELD,
                P99=quantile("worst_gap_ms", 99),
                max='max("worst_gap_ms")',
            ),
        ),
    ),
    Panel(
        title="Failures by kind",
        about="Requests that ended so, in each interval. Empty: none failed.",
        queries=(family("second", "sum", "^outcome_"),),
        transformations=(renamed("sum_outcome_(.*)", "$1"),),
        custom={"drawStyle": "bars", "fillOpacity": 80, "stacking": {"mode": "normal", "group": "A"}},
    ),
    Panel(
        title="Slowest streams",
        about="The twenty requests with the largest gap, failed ones included. Click a slot to see its tokens below.",
        kind="table",
        width=24,
        height=9,
        queries=(
            'SELECT top("worst_gap_ms", 20) AS "worst gap", "ttft_ms" AS "TTFT", "tpot_ms" AS "TPOT", '
            '"e2e_ms" AS "E2E", "tokens", "outcome", "request", "class", "level", "worker", "slot" '
            f'FROM "request" WHERE {scope("request")}',
        ),
        transformations=({"id": "sortBy", "options": {"sort": [{"field": "worst gap", "desc": True}]}},),
        units={"worst gap": "ms", "TTFT": "ms", "TPOT": "ms", "E2E": "ms", "request": "none"},
        overrides=(column("slot", links=[{"title": "Tokens of this slot", "url": SLOT_LINK}]),),
    ),
    Panel(
        title="Tokens of worker $worker, slot $slot",
        about="Every token event of one slot: the gap before it. A slot holds one request at a time, so answers stand "
        "one after the other; the first dot of each is its time from start to first token. The first 20,000 events of "
        "the time range.",
        width=24,
        unit="µs",
        queries=(
            rows(
                "token",
                '"gap_us" AS "gap"',
                limit=20_000,
                extra='"worker" =~ /^${worker:regex}$/ AND "slot" =~ /^${slot:regex}$/',
            ),
        ),
        custom={"drawStyle": "points", "pointSize": 3},
    ),
)
