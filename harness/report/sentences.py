"""A Report to the sentences every rendering shares: headline, knee, ledger, client advice. No clock, no I/O."""

from collections.abc import Callable

from msgspec import structs

from harness.findings import Knee, Ledger, Level, Located, Report
from harness.model import Load, Slo
from harness.report import words

JUDGED = {"held": "Held", "broken": "Broken", "unjudged": "Could not judge"}
FOUND = {"bracket": "Knee found", "none_up_to": "No knee", "breaks_at_first": "Broken", "undecided": "Could not judge"}


def judged(report: Report) -> str:
    """The verdict in two words: of the knee where one was looked for, else of the levels."""
    if report.located is not None:
        return JUDGED["unjudged"] if report.located.load is None else FOUND["bracket"]
    return FOUND[report.knee.found] if report.knee is not None else JUDGED[report.verdict.held]


def headline(report: Report) -> str:
    """The answer in one sentence: the knee where one was looked for, else the verdict."""
    if report.located is not None:
        return sentence(report.located.text)
    if report.knee is not None:
        return knee_line(report.knee)
    return sentence(report.verdict.text) or JUDGED[report.verdict.held]


def verdict_line(report: Report) -> str:
    """The verdict, and why where the knee has not said so already."""
    text = report.verdict.text
    said = text in [found.text for found in (report.knee, report.located) if found is not None]
    return f"{judged(report)}, exit {report.verdict.exit_code}{'' if said or not text else f': {text}'}"


def sentence(text: str) -> str:
    """A text with a capital to begin with."""
    return text[:1].upper() + text[1:]


def knee_line(knee: Knee) -> str:
    """What is known of the knee; never more than that."""
    if knee.text:
        return sentence(knee.text)
    if knee.found == "bracket" and knee.holds is not None and knee.breaks is not None:
        why = f": {words.clause_label(knee.binding)}" if knee.binding else ""
        return f"Holds at {words.load_of(knee.holds, knee.axis)}, breaks at {words.load(knee.breaks)}{why}"
    if knee.found == "none_up_to" and knee.holds is not None:
        return f"Holds up to {words.load_of(knee.holds, knee.axis)}, the highest load tried"
    if knee.found == "breaks_at_first" and knee.breaks is not None:
        return f"Breaks already at {words.load_of(knee.breaks, knee.axis)}, the lowest load tried"
    return "The knee could not be decided"


def located_lines(found: Located) -> list[str]:
    """What else a search with the twin knows of the knee: the server there, what was spent, how the twin did."""
    lines = []
    if found.batch_p50 is not None and found.batch_p99 is not None:
        at = f"running batch {words.number(found.batch_p50)} at P50, {words.number(found.batch_p99)} at P99"
        share = f"; {found.headroom:.0%} of what the server can do" if found.headroom is not None else ""
        lines.append(f"At the knee, by the twin: {at}{share}.")
    if found.corrections:
        etas = ", ".join(f"{100 * eta:+.1f}" for eta in found.corrections)
        drift = "" if found.drift is None else f"; first level repeated at the end: {100 * found.drift:+.1f} %"
        lines.append(f"Verified levels put it at {etas} % of the twin's own knee (ln){drift}.")
    ended = f"; {found.stopped}" if found.stopped else ""
    lines.append(f"Spent {words.count(found.requests)} requests and {found.minutes:.1f} min of load{ended}.")
    return lines


def knee_span(knee: Knee) -> str:
    """The knee in as few characters as it can be said."""
    unit = words.UNITS[knee.axis]
    low = words.load(knee.holds) if knee.holds is not None else None
    high = words.load(knee.breaks) if knee.breaks is not None else None
    if low and high:
        return f"{low} – {high} {unit}"
    if low:
        return f"above {low} {unit}"
    return f"below {high} {unit}" if high else "undecided"


def ledger_line(ledger: Ledger) -> str:
    """due = Σ outcomes, in one line."""
    ended = " + ".join(f"{words.count(many)} {name}" for name, many in ranked(ledger.outcomes)) or "0"
    lost = f" + {words.count(ledger.lost)} lost" if ledger.lost else ""
    sign, state = ("=", "balanced") if ledger.balanced else ("≠", "NOT balanced")
    return f"{words.count(ledger.due)} due {sign} {ended}{lost} ({state})"


def ranked(outcomes: dict[str, int]) -> list[tuple[str, int]]:
    """Outcomes that happened: ok first, then the most frequent."""
    happened = [(name, many) for name, many in outcomes.items() if many]
    return sorted(happened, key=lambda pair: (pair[0] != "ok", -pair[1], pair[0]))


def client_lines(levels: list[Level]) -> list[str]:
    """Which levels the client itself limited, why, and what to do: one line for each distinct advice."""
    limited: dict[str, list[Level]] = {}
    for level in levels:
        if level.client.limited:
            limited.setdefault(level.client.advice, []).append(level)
    return [client_line(advice, group) for advice, group in limited.items()]


def client_line(advice: str, group: list[Level]) -> str:
    """One advice, the loads it is for, and the first reason given at the highest of them."""
    worst = max(group, key=lambda level: level.load)
    loads = ", ".join(words.load(level.load) for level in group)
    reason = "; ".join(worst.client.reasons) or "no reason recorded"
    remedy = f" Remedy: {advice}" if advice else ""
    return f"Client-limited at {loads} {words.UNITS[worst.axis]}: {reason}.{remedy}"


def why_lines(levels: list[Level]) -> list[str]:
    """Why levels did not hold, those of one reason together; the client's own fault is told elsewhere."""
    fallen = [level for level in levels if level.held != "held" and not level.client.limited]
    return grouped(fallen, lambda level: f"{words.HELD[level.held]}{': ' if level.why else ''}{level.why}")


def settling_lines(levels: list[Level]) -> list[str]:
    """Levels that had not settled, those of one reason together."""
    moving = [level for level in levels if not level.settled]
    return grouped(moving, lambda level: f"had not settled{': ' if level.settling else ''}{level.settling}")


def grouped(levels: list[Level], said: Callable[[Level], str]) -> list[str]:
    """What is said of levels, once for all of which the same is said."""
    loads: dict[str, list[str]] = {}
    for level in levels:
        loads.setdefault(said(level), []).append(words.load(level.load))
    return [f"At {', '.join(each)} {words.UNITS[levels[0].axis]}: {line}" for line, each in loads.items()]


def by_load(levels: list[Level]) -> list[Level]:
    """Levels from light to heavy; repeats in the order they were run."""
    return sorted(levels, key=lambda level: level.load)


def ok_share(level: Level) -> float | None:
    """Share of due requests that ended ok."""
    return level.outcomes.get("ok", 0) / level.due if level.due else None


def objective(slo: Slo) -> dict[str, float]:
    """The clauses that were given: name to limit."""
    return {name: limit for name, limit in structs.asdict(slo).items() if limit is not None}


def objective_line(slo: Slo) -> str:
    """All clauses in one line."""
    clauses = objective(slo)
    return "; ".join(f"{words.clause_label(n)} {words.clause_limit(n, x)}" for n, x in clauses.items()) or "none given"


def load_line(load: Load) -> str:
    """How load was offered."""
    if load.loop == "open":
        return f"open loop, {load.arrivals} arrivals"
    return f"closed loop, think time {words.number(load.think_s)} s" if load.think_s else "closed loop, no think time"
