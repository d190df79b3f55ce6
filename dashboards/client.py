"""Was the load generator itself in the way? A panel is a row; pure.

The limits are those by which a report calls a run client-limited; a test holds them equal.
"""

from dashboards.panels import Panel
from dashboards.queries import per_second, quantile, series

PANELS = (
    Panel(
        title="Lateness of requests: lag",
        about="Start − due. P99 over the requests due in each interval, and each worker's largest lag in a second. "
        "Above 2 ms (or 1 % of the tightest TTFT limit) an open-loop run counts as limited by its own generator.",
        unit="ms",
        limit=2.0,
        queries=(
            series("request", **{"P99": quantile("lag_ms", 99)}),
            series("client", "worker", largest='max("lag_ns") / 1000000'),
        ),
        aliases=("$col", "$col, worker $tag_worker"),
    ),
    Panel(
        title="Hub delay",
        about="How late a timer of each worker fired, at worst, in a second. The kernel stamps arrivals, so a late "
        "loop costs no truth until many segments wait in a socket: above 100 ms the run counts as client-limited.",
        unit="ms",
        limit=100.0,
        queries=(series("client", "worker", largest='max("hub_delay_ns") / 1000000'),),
        aliases=("worker $tag_worker",),
    ),
    Panel(
        title="CPU of each worker",
        about="Cores used and waited for; one process has one. Above 0.95 together, work queues inside the client.",
        limit=0.95,
        most=1.2,
        queries=(series("client", "worker", used='mean("cpu")', used_or_waited_for='mean("cpu") + mean("runnable")'),),
        aliases=("$col, worker $tag_worker",),
    ),
    Panel(
        title="CPU that the host took away",
        about="Share of this machine's CPU time that its host gave to other machines. Above 2 % it "
        "explains what is late, and no number of workers mends it.",
        unit="percentunit",
        limit=0.02,
        queries=(series("client", "worker", stolen='mean("stolen")'),),
        aliases=("worker $tag_worker",),
    ),
    Panel(
        title="Coalesced events",
        about="Share of token events whose true arrival a late read hid. Above 1 % it reaches the P99 of ITL: the "
        "client, not the server, is then what is measured.",
        unit="percentunit",
        limit=0.01,
        queries=(series("client", "worker", coalesced='sum("coalesced") / sum("token_events")'),),
        aliases=("worker $tag_worker",),
    ),
    Panel(
        title="Wall clock against monotonic clock",
        about="How far the two moved apart within an interval. A step here (NTP) puts every gap across it in doubt.",
        unit="ms",
        limit=5.0,
        queries=(series("client", "worker", moved='spread("wall_minus_mono_ns") / 1000000'),),
        aliases=("worker $tag_worker",),
    ),
    Panel(
        title="In flight on each worker",
        about="Requests under way. Workers should carry like shares; one that carries less came late or was lost.",
        queries=(series("client", "worker", in_flight='mean("in_flight")'),),
        aliases=("worker $tag_worker",),
    ),
    Panel(
        title="Token events on each worker",
        about="Events of the answers that ended in each second; an answer counts when it is over.",
        queries=(series("client", "worker", events=per_second("token_events")),),
        aliases=("worker $tag_worker",),
    ),
)
