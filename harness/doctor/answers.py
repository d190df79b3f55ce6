"""What the server answered at all, as findings: models, API key, dialects. No clock, no I/O."""

from collections.abc import Sequence

from harness.doctor.finding import Finding, bad, counted, good, note, one_line
from harness.doctor.seen import Listing, Look
from harness.model import Outcome, Target
from harness.wire.endpoint import Endpoint

SHUT = (401, 403)
SHOWN_NAMES = 5
TLS_ALERT = b"\x15\x03"
"""How a TLS server answers plain HTTP."""
KEY_ENV = "--api-key-env NAME"
OTHER = "nothing, unless you want this dialect"

OUTCOME_REMEDIES = {
    Outcome.UNREACHABLE: "the server went away after the first connection: read its log",
    Outcome.RESET: "the server closed the connection without an answer: read its log; is this port its HTTP port?",
    Outcome.TIMEOUT_FIRST_TOKEN: "is the model still loading, or the server busy? read its log, then try again",
    Outcome.TIMEOUT_BETWEEN_TOKENS: "the stream stands still: read the server's log",
    Outcome.TRUNCATED: "read the server's log; a proxy in between may have a timeout or a size limit",
    Outcome.EMPTY: "the model said nothing: read the server's log, check its chat template",
    Outcome.ERROR_IN_STREAM: "read the server's log",
    Outcome.RATE_LIMITED: "wait, or have the limit raised: a load test would measure the limit",
    Outcome.MALFORMED: "the answer is not the API's: check host, path and port, and what stands in between",
}
STATUS_REMEDIES = {
    404: "check the path of --host, --dialect and --model",
    405: "check the path of --host and --dialect",
    407: "put the proxy's user:password into TOKENSWARM_PROXY_LOGIN",
    413: "raise the body limit of the proxy in between",
    502: "a gateway answers, its server does not: start that one",
    503: "the server is not ready: wait until the model is loaded",
    504: "a gateway gave up waiting: raise its timeout, or wait until the server is less busy",
}


def models_findings(where: Endpoint, target: Target, listing: Listing) -> list[Finding]:
    """What /v1/models lists, and which model a run would ask for."""
    chosen = chosen_model(target, listing)
    if listing.names is None or listing.status != 200:
        return [_no_list(where, target, listing)]
    names = [one_line(name) for name in listing.names]
    more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
    shown = ", ".join(names[:SHOWN_NAMES]) + more
    if not chosen:
        return [bad("models", "/v1/models lists none: which one to ask for?", "give --model NAME, or load a model")]
    listed = good("models", f"/v1/models lists {counted(len(names), 'model')}: {shown}")
    if not names or chosen not in listing.names:
        remedy = "check --model; some servers answer to any name, others with 404"
        return [note("models", f"{one_line(chosen)} is not among those listed: {shown or 'none'}", remedy)]
    return [listed, good("model", f"{one_line(chosen)}{'' if target.model else ', the first listed'}")]


def chosen_model(target: Target, listing: Listing) -> str:
    """The name a run would send; "" when there is none."""
    return target.model or next(iter(listing.names or ()), "")


def _no_list(where: Endpoint, target: Target, listing: Listing) -> Finding:
    if listing.status in SHUT:
        return note("models", f"/v1/models: status {listing.status}", f"see api-key; or give {KEY_ENV}")
    if listing.status is None:
        what = f"/v1/models: {one_line(listing.detail)}"
    elif listing.status != 200:
        what = f"/v1/models: status {listing.status}"
    else:
        what = f"/v1/models: not a list of models: {one_line(listing.detail) or 'nothing'}"
    remedy = path_remedy(where, listing.status) or "a run must then be told --model NAME"
    return note("models", what, remedy) if target.model else bad("models", what, remedy)


def path_remedy(where: Endpoint, status: int | None) -> str:
    """A base URL that already holds /v1 is the commonest cause of a 404; "" when it does not."""
    doubled = status == 404 and where.base_path.endswith("/v1")
    return f"leave /v1 out of --host: requests went to {where.base_path}/v1/…" if doubled else ""


def key_finding(target: Target, listing: Listing, looks: Sequence[Look]) -> Finding:
    """Was the API key, or its absence, accepted? A server's words are left out: some quote part of the key."""
    statuses = [listing.status, *(look.record.status for look in looks)]
    shut = [status for status in statuses if status in SHUT]
    if shut and not target.api_key_env:
        return bad("api-key", f"status {shut[0]} without a key", f"put the key into a variable and name it: {KEY_ENV}")
    if shut:
        return bad(
            "api-key",
            f"status {shut[0]} with the key from {target.api_key_env}",
            f"check the value of {target.api_key_env}, and what it is allowed to use",
        )
    if not any(statuses):
        return note("api-key", "no HTTP answer: not tested", "see the other findings first")
    if target.api_key_env:
        return good("api-key", f"the key from {target.api_key_env} is accepted")
    return good("api-key", "none given, none wanted")


# --- dialects ---------------------------------------------------------------------------------------------------------


def dialect_findings(where: Endpoint, first: Look | None, other: Look | None) -> list[Finding]:
    """Does the chosen dialect answer, and does the other one?"""
    works = other.dialect if other is not None and other.ok else ""
    found = []
    if first is not None:
        found = [_chosen(where, first, works), *_left_out(first)]
    if other is not None:
        found.append(_answers(other) if other.ok else note(other.dialect, f"not usable: {_trouble(other)}", OTHER))
    return found


def _answers(look: Look) -> Finding:
    record = look.record
    events = len(record.timeline.at_ns)
    return good(look.dialect, f"answers: status {record.status}, {counted(events, 'token event')}")


def _chosen(where: Endpoint, look: Look, works: str) -> Finding:
    if look.ok:
        return _answers(look)
    remedy = path_remedy(where, look.record.status) or _remedy(where, look)
    return bad(look.dialect, _trouble(look), f"--dialect {works} works; or: {remedy}" if works else remedy)


def _left_out(look: Look) -> list[Finding]:
    """The field that had to be left out before the server answered."""
    if not look.ok or look.question.ignore_eos:
        return []
    what = "refused with the field ignore_eos, answered without it"
    return [bad("ignore_eos", what, "set ignore_eos: false; answers then end where the model wants")]


def repeat_findings(repeats: Sequence[Look]) -> list[Finding]:
    """Did the same request work again?"""
    failed = [look for look in repeats if not look.ok]
    if not failed:
        return []
    what = f"{len(failed)} of {counted(len(repeats), 'further request')} failed: {_trouble(failed[0])}"
    return [bad("steady", what, OUTCOME_REMEDIES.get(failed[0].record.outcome, "read the server's log"))]


def asks_too_much(look: Look) -> bool:
    """A refusal that may be about a field which can be left out."""
    return look.record.status in (400, 422) and look.question.ignore_eos


def _trouble(look: Look) -> str:
    record = look.record
    if record.status in SHUT:
        return f"status {record.status}"
    status = f"status {record.status}, " if record.status else ""
    return f"{status}{record.outcome.value}: {one_line(record.detail)}".rstrip(": ")


def _remedy(where: Endpoint, look: Look) -> str:
    record = look.record
    if not where.secure and (look.begins.startswith(TLS_ALERT) or "HTTPS" in record.detail):
        return "the server speaks TLS: use https:// in --host"
    if record.status in SHUT:
        return "see api-key"
    if look.headers.get("content-encoding", "identity") != "identity":
        return "see compression"
    if record.status in (301, 302, 303, 307, 308):
        return "give the address it redirects to as --host"
    if record.outcome is Outcome.MALFORMED and record.status == 200:
        return _not_a_stream(look)
    if record.outcome in OUTCOME_REMEDIES and record.status in (None, 200, 429):
        return OUTCOME_REMEDIES[record.outcome]
    return STATUS_REMEDIES.get(record.status or 0, "read the server's words and its log")


def _not_a_stream(look: Look) -> str:
    kind = look.headers.get("content-type", "")
    if "html" in kind:
        return "a web page, not an API: check host, port and path, and whether a login or waiting page stands before it"
    if "json" in kind and look.record.detail.startswith("asked for a stream"):
        return "the server ignores stream: true; switch streaming on there, or measure with target.stream: false"
    return OUTCOME_REMEDIES[Outcome.MALFORMED]
