"""A Calibration in words: one line a level, and the answer. No clock, no I/O."""

from harness.calibrate.rung import Calibration, Compared, Rung

HEADING = (
    f"{'streams':>7} {'tokens/s':>9}  {'TTFT P50 / P99 ms (error)':>31}  {'ITL P50 / P99 ms (error)':>31}  "
    f"{'coalesced':>9}  {'CPU':>4}  {'µs/token':>8}  verdict"
)
WHY_STOPPED = {
    "untrue": "",
    "emitter": "the emitter could not send faster, so the client may well time more than this",
    "top": "no higher level was planned, so the client may well time more than this",
    "time": "time was up, so the client may well time more than this",
}


def line(rung: Rung) -> str:
    """One level."""
    cost = rung.cpu_us_per_token
    return (
        f"{rung.streams:7d} {rung.tokens_per_s:9,.0f}  {_pair(rung.ttft)}  {_pair(rung.gap)}  {rung.coalesced:9.2%}  "
        f"{rung.cpu:4.2f}  {'–' if cost is None else f'{cost:.1f}':>8}  {verdict(rung)}"
    )


def verdict(rung: Rung) -> str:
    """true, or what is not; and what disturbed it: a core that others queued for, or that the host took."""
    marks = ["true" if not rung.faults else f"untrue: {rung.faults[0]}"]
    if not rung.kept_up:
        marks.append(f"the emitter was {rung.emitting.late_p99_ms:.1f} ms late at P99")
    if rung.disturbed:
        marks.append(f"disturbed: {rung.disturbed}")
    return "; ".join(marks)


def text(found: Calibration) -> str:
    """The table and the answer."""
    return "\n".join([HEADING, *map(line, found.rungs), "", answer(found), *_remarks(found)])


def answer(found: Calibration) -> str:
    """The highest token rate that is timed truly, in one sentence."""
    who = "one process" if found.processes == 1 else f"{found.processes} processes"
    if found.true_per_s is None:
        return f"No level was timed truly by {who}: P50 or P99 of TTFT or ITL was off by more than 1 % and 0.2 ms."
    bound = "at least " if found.at_least else ""
    return (
        f"With {who} this machine times {bound}{found.true_per_s:,.0f} tokens/s truly ({found.true_streams} streams): "
        "P50 and P99 of TTFT and ITL within 1 % or 0.2 ms of what was sent."
    )


def _remarks(found: Calibration) -> list[str]:
    said = [f"Why no more: {WHY_STOPPED[found.stopped]}."] if WHY_STOPPED[found.stopped] else []
    said.append(f"Measured with {found.cores}, as a run would be.")
    if any(rung.disturbed for rung in found.rungs):
        said.append(
            "Something else used these cores meanwhile (or their host did); measure again when the machine is quiet."
        )
    return said


def _pair(both: Compared | None) -> str:
    if both is None:
        return f"{'–':>31}"
    reported, error = both.reported, both.error
    shown = f"{reported.p50_ms:.2f} / {reported.p99_ms:.2f}"
    return f"{shown:>17} ({error.p50_ms:+.2f} {error.p99_ms:+.2f})".rjust(31)
