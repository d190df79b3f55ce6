"""How many tokens a second can one process time truly, and at what CPU? Beside a C loop and the plain Locust user. I/O.

    python bench/rate.py [--streams 1000 2000 2500 3000] [--tls 500 1000 1500] [--plain 5 10 20 50 100] [--hold-s 4]

One core for the client, one for the emitter; 50 tokens a second on every stream. Answers have 200 tokens where nothing
else is said, as what a request costs is shared by its tokens. About 15 s a row; each client stops climbing after two
levels that are not true. Limits wanted: ≥ 100,000 tokens/s true, ≤ 2 × the CPU of the C loop a token, half the rate
through TLS, ≥ 10 × the plain user.
"""

import argparse

from rig import FLOOR, PLAIN, WHOLE, WIRE, certificate, compiled_floor, run, trial
from tables import Table, show
from truth import quantiles

from harness.calibrate.rung import highest_true, reason_to_stop
from harness.calibrate.words import verdict

COLUMNS = [
    "client",
    "streams",
    "case",
    "tokens/s",
    "µs/token",
    "coalesced",
    "worst error",
    "emitter late P99",
    "verdict",
]
HIDDEN = 0.01
"""Share of coalesced events from which a level does not count, however true its quantiles are."""
ONCE = "all start at once"
SHORT = "100 tokens an answer"


def worst(rung):
    """The largest relative error of the four quantiles, signed."""
    errors = [(ours - sent) / sent for _, ours, sent in quantiles(rung)]
    return f"{max(errors, key=abs):+.2%}" if errors else "–"


def row(client, case, rung):
    return [
        client,
        f"{rung.streams}",
        case,
        f"{rung.tokens_per_s:,.0f}",
        f"{rung.cpu_us_per_token or 0:.2f}",
        "–" if client == PLAIN else f"{rung.coalesced:.2%}",
        worst(rung),
        f"{rung.emitting.late_p99_ms:.2f} ms",
        f"reads only; {rung.disturbed}".rstrip("; ") if client == FLOOR else verdict(rung),
    ]


def climb(client, streams, **options):
    """Level after level until two are untrue."""
    rungs = []
    for count in streams:
        rungs.append(run(client, trial(count, **options)))
        print(f"  {client} {count}: {rungs[-1].tokens_per_s:,.0f}/s {verdict(rungs[-1])}", flush=True)
        if reason_to_stop(rungs) == "untrue":
            break
    return rungs


def best(rungs):
    """Tokens a second of the highest level that is true and hides less than 1 %; None: no such level."""
    found = highest_true([rung for rung in rungs if rung.coalesced < HIDDEN])
    return found.tokens_per_s if found else None


def measure(args):
    """All climbs, then the special cases at the highest true level of ours."""
    hold_s = args.hold_s
    with compiled_floor() as binary:
        floors = [run(FLOOR, trial(count, hold_s=hold_s), binary) for count in args.streams]
    wire = climb(WIRE, args.streams, hold_s=hold_s)
    whole = climb(WHOLE, args.streams, hold_s=hold_s)
    top = highest_true(whole)
    at = top.streams if top else min(args.streams)
    short = run(WHOLE, trial(at, tokens=100, hold_s=hold_s))
    once = run(WHOLE, trial(at, hold_s=hold_s, ramp_s=0.0))
    with certificate() as tls:
        secure = climb(WHOLE, args.tls, hold_s=hold_s, tls=tls)
    plain = climb(PLAIN, args.plain, tokens=100, hold_s=hold_s)
    rows = [(FLOOR, "", rung) for rung in floors] + [(WIRE, "", rung) for rung in wire]
    rows += [(WHOLE, "", rung) for rung in whole] + [(WHOLE, SHORT, short), (WHOLE, ONCE, once)]
    rows += [(WHOLE, "TLS", rung) for rung in secure] + [(PLAIN, SHORT, rung) for rung in plain]
    table = Table(
        title="Tokens a second that one process on one core times truly (200 tokens an answer)",
        columns=COLUMNS,
        cells=[row(*each) for each in rows],
        notes=["worst error: of P50 and P99 of TTFT and ITL, against what was sent; a row counts with < 1 % coalesced"],
    )
    return [table, summary(floors, {"wire": wire, "whole": whole, "TLS": secure, "plain": plain})]


def summary(floors, climbs):
    """The highest true rates, and the CPU ratio where both were measured."""
    facts = {f"{name} true tokens/s": best(rungs) for name, rungs in climbs.items()}
    whole, plain = facts["whole true tokens/s"], facts["plain true tokens/s"]
    for name in ("wire", "whole"):
        facts[f"{name} CPU / floor CPU"] = ratio_at_common_top(climbs[name], floors)
    facts["whole / plain"] = whole / plain if whole and plain else None
    facts["TLS / whole"] = facts["TLS true tokens/s"] / whole if whole and facts["TLS true tokens/s"] else None
    wanted = {
        "whole true tokens/s": "≥ 100,000",
        "wire CPU / floor CPU": "≤ 2",
        "whole CPU / floor CPU": "≤ 2",
        "whole / plain": "≥ 10",
        "TLS / whole": "≥ 0.5",
    }
    cells = [[name, "–" if value is None else f"{value:,.2f}", wanted.get(name, "")] for name, value in facts.items()]
    return Table(title="Rates and ratios", columns=["what", "measured", "wanted"], cells=cells, facts=facts)


def ratio_at_common_top(rungs, floors):
    """CPU a token, ours by the C loop's, at the highest level true for us and read by it."""
    top = highest_true(rungs)
    beside = [rung for rung in floors if top and rung.streams == top.streams]
    if not beside or not beside[0].cpu_us_per_token:
        return None
    return top.cpu_us_per_token / beside[0].cpu_us_per_token


def main(argv=None):
    parser = argparse.ArgumentParser(description="Tokens a second that one process can time truly.")
    parser.add_argument("--streams", type=int, nargs="+", default=[1000, 2000, 2500, 3000])
    parser.add_argument("--tls", type=int, nargs="+", default=[500, 1000, 1500])
    parser.add_argument("--plain", type=int, nargs="+", default=[5, 10, 20, 50, 100])
    parser.add_argument("--hold-s", type=float, default=4.0)
    show("rate", measure(parser.parse_args(argv)))


if __name__ == "__main__":
    main()
