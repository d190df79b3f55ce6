"""How the server streams, as findings: tokens, frames, counts, ends, connections, times. No clock, no I/O.

Every function takes looks that were answered, one at least, all put alike.
"""

from collections.abc import Sequence
from itertools import pairwise
from statistics import mean, median

from harness import clock, metrics
from harness.doctor.finding import Finding, bad, counted, good, ms, note, one_line
from harness.doctor.seen import Look

LUMP_NS = 200 * clock.US
"""Token events nearer than this came together: no model makes them so fast."""
FEW_EVENTS = 2
ROLE_LEAD_NS = 5 * clock.MS
ROLE_LEAD_SHARE = 0.1

UNBUFFER = "buffered by a proxy? switch buffering off (nginx: proxy_buffering off) and gzip off for text/event-stream"
EXACT = (
    "for exact counts with vLLM: -s 'target.body.stream_options={include_usage: true, continuous_usage_stats: true}'"
)


def stream_findings(looks: Sequence[Look]) -> list[Finding]:
    """All of them."""
    return [
        streaming(looks),
        role_frame(looks),
        usage(looks),
        tokens_per_frame(looks),
        lengths(looks),
        ending(looks),
        speed(looks),
    ]


def streaming(looks: Sequence[Look]) -> Finding:
    """Token by token, or in lumps?"""
    events = sum(_events(look) for look in looks)
    lumps = sum(_lumps(look) for look in looks)
    what = f"{counted(events, 'token event')} arrived at {counted(lumps, 'instant')} in {counted(len(looks), 'stream')}"
    if _tokens(looks) >= FEW_EVENTS * len(looks) and events == len(looks):
        return bad("streaming", f"each answer of {_tokens(looks) / len(looks):.0f} tokens came in one frame", UNBUFFER)
    if events < FEW_EVENTS * len(looks):
        return note("streaming", f"{what}: too few to tell", "let the model answer longer, then look again")
    if lumps <= max(len(looks), events // 4):
        return bad("streaming", f"in lumps: {what}", UNBUFFER)
    if lumps < 0.8 * events:
        return note("streaming", f"some tokens come together: {what}", f"speculative decoding? else {UNBUFFER}")
    return good("streaming", f"token by token: {what}")


def role_frame(looks: Sequence[Look]) -> Finding:
    """Does a frame without content come long before the first token?"""
    leads_ns = [lead for look in looks if (lead := _role_lead_ns(look)) is not None]
    if not leads_ns:
        return good("role-frame", "the first frame carries the first token")
    lead_ns, wait_ns = median(leads_ns), median(_ttft_ns(look) for look in looks)
    what = f"a frame without content comes {ms(lead_ns)} before the first token"
    if lead_ns < ROLE_LEAD_NS or lead_ns < ROLE_LEAD_SHARE * wait_ns:
        return good("role-frame", what)
    return note("role-frame", what, "TTFT here counts the first token: tools that count the first frame report less")


def usage(looks: Sequence[Look]) -> Finding:
    """Does the server count its tokens?"""
    counts = [look.record.usage.completion_tokens for look in looks if look.record.usage_source == "usage"]
    if len(counts) == len(looks) and all(counts):
        return good("usage", f"reported: {', '.join(map(str, counts))} completion tokens")
    if all(look.record.usage_source == "frames" for look in looks):
        return good("usage", "none, but every frame states its tokens")
    if counts:
        what = f"reported in {len(counts)} of {counted(len(looks), 'stream')}: {', '.join(map(str, counts))} tokens"
    else:
        what = "none, although stream_options.include_usage was asked for"
    return note("usage", what, "token counts come from frames, one each; have the server report usage for exact ones")


def tokens_per_frame(looks: Sequence[Look]) -> Finding:
    """n / token events: how the gaps read."""
    events, tokens = sum(_events(look) for look in looks), _tokens(looks)
    ratio = tokens / events
    what = f"{ratio:.2f} ({counted(tokens, 'token')} in {counted(events, 'frame')})"
    if all(look.record.timeline.k is not None for look in looks):
        return good("tokens-per-frame", f"{what}, each frame states its own")
    if ratio > 1.05:
        what = f"{what}: speculation, a stream interval, or tokens without text; how many each has is inferred"
        return note("tokens-per-frame", what, EXACT)
    if ratio < 0.95:
        return note("tokens-per-frame", f"{what}: fewer than one", "gaps are those of frames; read tpot, not itl")
    return good("tokens-per-frame", what)


def lengths(looks: Sequence[Look]) -> Finding:
    """Does the server generate exactly what was asked for?"""
    asked = looks[0].question.tokens
    got = [_tokens([look]) for look in looks if not _uncounted(look)]
    if not got:
        return good("lengths", f"asked for {asked} tokens; not counted, but finish_reason says length")
    what = f"asked for {asked} tokens, got {', '.join(map(str, got))}"
    if any(tokens > asked for tokens in got):
        return note("lengths", f"{what}: max_tokens is not kept", "output lengths are the server's, not the scenario's")
    if any(tokens < asked for tokens in got) and looks[0].question.ignore_eos:
        remedy = "set ignore_eos: false and read output_tokens as a limit; lengths are then the model's"
        return note("lengths", f"{what}: ignore_eos is not honoured", remedy)
    return good("lengths", what)


def ending(looks: Sequence[Look]) -> Finding:
    """finish_reason, [DONE], and how the HTTP message ended."""
    reasons = ", ".join(sorted({look.record.finish_reason for look in looks}))
    what = f"finish_reason {one_line(reasons)}; "
    what += "[DONE]; " if all(look.done for look in looks) else "no [DONE]; "
    what += {"whole": "message ended", "closed": "connection closed", "open": "left open"}[looks[-1].ended]
    if any(look.ended == "open" for look in looks):
        return note("end", what, "each request waits for the end of its connection: mend the server or proxy")
    if not all(look.done for look in looks):
        return note("end", what, "the finish_reason is taken as the end; other clients may wait for [DONE]")
    return good("end", what)


def keep_alive(looks: Sequence[Look], *, wanted: bool) -> Finding:
    """Does a second request go over the same connection? Takes looks in their order, answered or not."""
    if not wanted:
        return good("keep-alive", "not asked for")
    kept = sum(look.line == "kept" for look in looks)
    fresh_ns = [look.record.connect_ns for look in looks if look.record.connect_ns is not None]
    cost = f"a new one takes {ms(median(fresh_ns))}" if fresh_ns else "its cost is not known"
    remedy = "connection set-up is recorded apart (connect_ms); let server and proxy keep connections"
    if any(look.line == "dropped" for look in looks):
        return note("keep-alive", f"offered, but the connection was closed before the next request; {cost}", remedy)
    if kept:
        return good("keep-alive", f"{counted(kept, 'further request')} on the connection of the one before")
    if any(look.ended != "open" and look.record.status and not look.keeps for look in looks):
        return note("keep-alive", f"the connection is closed after each answer; {cost}", remedy)
    return note("keep-alive", "not tested", "see the other findings first")


def compression(looks: Sequence[Look]) -> Finding:
    """Was the answer compressed although identity was asked for? Takes looks answered or not."""
    codings = {look.headers.get("content-encoding", "identity").lower() for look in looks} - {"identity"}
    if not codings:
        return good("compression", "none, as asked")
    what = f"{one_line(', '.join(sorted(codings)))}, although Accept-Encoding: identity was sent"
    return bad("compression", what, "switch it off for text/event-stream: a compressor holds tokens back")


def comments(looks: Sequence[Look]) -> Finding:
    """Keep-alive comments in the streams. Takes looks answered or not."""
    seen = sum(look.anatomy.comments for look in looks)
    return good("comments", f"{counted(seen, 'comment line')}: a sign of life, not tokens" if seen else "none seen")


def speed(looks: Sequence[Look]) -> Finding:
    """A first TTFT and mean gap, for orientation only."""
    waits_ns = sorted(_ttft_ns(look) for look in looks)
    gaps_ns = [float(gap) for look in looks for gap in metrics.gaps_ns(look.record.timeline.at_ns)]
    gap = f"mean gap {ms(mean(gaps_ns))}" if gaps_ns else "no gaps"
    span = f"{ms(waits_ns[0])} to {ms(waits_ns[-1])}"
    what = f"TTFT {ms(median(waits_ns))} ({counted(len(looks), 'request')}, {span}), {gap}: orientation, no measurement"
    return good("speed", what)


# --- what one look holds ----------------------------------------------------------------------------------------------


def _events(look: Look) -> int:
    return len(look.record.timeline.at_ns)


def _lumps(look: Look) -> int:
    at_ns = look.record.timeline.at_ns
    return min(len(at_ns), 1) + sum(later - earlier > LUMP_NS for earlier, later in pairwise(at_ns))


def _tokens(looks: Sequence[Look]) -> int:
    return sum(
        metrics.tokens_of(_events(look), look.record.timeline.k, look.record.usage.completion_tokens) for look in looks
    )


def _uncounted(look: Look) -> bool:
    """Frames may hold several tokens each, and the server says that it stopped at the limit."""
    return not look.record.usage_source and look.record.finish_reason == "length"


def _ttft_ns(look: Look) -> int:
    return int(metrics.ttft_ns(look.record.timeline.at_ns[0], look.record.start_ns or 0))


def _role_lead_ns(look: Look) -> int | None:
    frames = look.anatomy.frames
    first = next((frame for frame in frames if frame.is_token), None)
    if first is None or frames[0].is_token:
        return None
    return first.at_ns - frames[0].at_ns
