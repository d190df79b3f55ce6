"""The order of the doctor's questions. I/O, blocking, through `look`; what the answers mean is said by pure files."""

import base64
from collections.abc import Sequence

from msgspec import structs

from harness import clock
from harness.doctor import answers, reach, streams
from harness.doctor.finding import Finding, bad, discreet
from harness.doctor.look import Looks
from harness.doctor.seen import Look, Question
from harness.model import Target
from harness.protocol.dialects import DIALECTS
from harness.wire.endpoint import Endpoint, endpoint, tls_context

TINY_TOKENS = 8
TOKENS = 16
REPEATS = 3


def examine(target: Target, *, environ_key: str, proxy_login: str = "", timeout_s: float = 10.0) -> list[Finding]:
    """Look at `target.host` for a few seconds. Whatever is wrong is a finding; nothing a server does raises.

    `environ_key`: the API key itself, "" for none; `target.api_key_env` only names it. `proxy_login`: user:password.
    `timeout_s` limits each step, and 2.5 times as much all requests together. Neither secret stands in a finding.
    """
    secrets = [environ_key, proxy_login, base64.b64encode(proxy_login.encode()).decode()]
    return [discreet(finding, secrets) for finding in _findings(target, environ_key, proxy_login, timeout_s)]


def _findings(target: Target, api_key: str, proxy_login: str, timeout_s: float) -> list[Finding]:
    check = "address"
    try:
        where = endpoint(target.host or "", target.proxy, proxy_login)
        _check_path(where.base_path + (target.path or ""))
        check = "api-key"
        _check_key(target, api_key)
        check = "tls"
        tls = tls_context(target) if where.secure else None
    except ValueError as error:
        what, _, remedy = str(error).partition("; ")
        return [bad(check, what, remedy or "correct that option; `tokenswarm doctor --help` lists them")]
    looks = Looks(where, tls, api_key, timeout_s)
    try:
        return _looked(looks, where, target)
    finally:
        looks.close()


def _looked(looks: Looks, where: Endpoint, target: Target) -> list[Finding]:
    way = looks.way()
    found = reach.reach_findings(where, target, way, clock.wall_ns())
    if way.error is not None:
        return found
    listing = looks.listing()
    ask = Question(target=target, model=answers.chosen_model(target, listing), tokens=TINY_TOKENS)
    first = _first(looks, ask)
    repeats = _repeats(looks, first)
    other = _first(looks, structs.replace(ask, target=_other(target)))
    taken = [look for look in (first, *repeats, other) if look is not None]
    return [
        *found,
        reach.stamps_finding(where, way, taken),
        reach.clock_finding(taken),
        *answers.models_findings(where, target, listing),
        answers.key_finding(target, listing, taken),
        *answers.dialect_findings(where, first, other),
        *_streamed(first, repeats),
        streams.keep_alive(taken, wanted=target.keep_alive),
        streams.compression(taken),
        streams.comments(taken),
    ]


def _first(looks: Looks, question: Question) -> Look | None:
    """The first look at a dialect, without ignore_eos if it is refused with it. None: no time was left."""
    if looks.exhausted:
        return None
    look = looks.take(question)
    if looks.exhausted or not answers.asks_too_much(look):
        return look
    plain = looks.take(structs.replace(question, ignore_eos=False))
    return plain if plain.ok else look


def _repeats(looks: Looks, first: Look | None) -> list[Look]:
    """More of what worked, one after the other."""
    if first is None or not first.ok:
        return []
    question = structs.replace(first.question, tokens=TOKENS)
    return [looks.take(question) for _ in range(REPEATS) if not looks.exhausted]


def _streamed(first: Look | None, repeats: Sequence[Look]) -> list[Finding]:
    """What those that were answered show; the first only when no repeat was."""
    if first is None or not first.ok:
        return []
    answered = [look for look in repeats if look.ok] or [first]
    return [*answers.repeat_findings(repeats), *streams.stream_findings(answered)]


def _other(target: Target) -> Target:
    """The same server, spoken to in the other dialect."""
    name = next(name for name in DIALECTS if name != target.dialect)
    return structs.replace(target, dialect=name, path=None)


def _check_path(path: str) -> None:
    """Raises ValueError when a request line cannot carry it."""
    if not (path.isascii() and path.isprintable() and " " not in path):
        raise ValueError(f"path: got {path!r}, expected printable ASCII without spaces; percent-encode the rest")


def _check_key(target: Target, api_key: str) -> None:
    """Raises ValueError, without the key, when there is none or no header can carry it."""
    if target.api_key_env and not api_key:
        raise ValueError(f"the environment variable {target.api_key_env} is not set; export it, or leave it out")
    if not (api_key.isascii() and api_key.isprintable()):
        raise ValueError("the API key holds characters no header can carry (a line end?); export it without them")
