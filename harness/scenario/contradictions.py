"""Values that are valid alone but impossible together, or that would give away a secret. No clock, no I/O."""

import re
from collections.abc import Iterator
from itertools import pairwise
from urllib.parse import urlsplit

from harness.model import Choice, Exponential, Influx, Length, Load, LogNormal, Quantiles, Scenario, Target, Uniform
from harness.scenario.ladder import rungs
from harness.scenario.wording import shown

MOST_TOKENS = 1_000_000
MOST_LEVELS = 1_000
SECRET_HEADER = re.compile(r"(auth|authorization|api[-_]?key|token|secret|password|cookie)$", re.IGNORECASE)

Wrong = Iterator[tuple[str, str]]  # path, and what is wrong there in words


def contradictions_of(scenario: Scenario) -> Wrong:
    """Everything wrong in a scenario whose types and ranges are right, in the order of its keys."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", scenario.name):
        yield "name", f"got {shown(scenario.name)}; expected letters, digits and . _ - only: it names files and series"
    if scenario.seed < 0:
        yield "seed", f"got {scenario.seed}; expected a whole number >= 0"
    yield from _target(scenario.target)
    yield from _load(scenario.load)
    ramp_s, warmup_s = scenario.phases.ramp_s, scenario.phases.warmup_s
    if ramp_s is not None and ramp_s > warmup_s:
        yield "phases.ramp_s", f"got {ramp_s:g}; expected at most warmup_s, {warmup_s:g}: users start in the warm-up"
    yield from _length("prompt_tokens", scenario.prompt_tokens)
    yield from _length("output_tokens", scenario.output_tokens)
    for name in scenario.serve.env if scenario.serve is not None else ():
        if SECRET_HEADER.search(name):
            yield f"serve.env.{name}", "holds a secret; remove it here and export it where the command runs"
    if scenario.influx is not None:
        yield from _influx(scenario.influx)
    if scenario.prices is not None and not re.fullmatch(r"[A-Z]{3}", scenario.prices.currency):
        yield (
            "prices.currency",
            f"got {shown(scenario.prices.currency)}; expected a code of three capitals, such as EUR",
        )


def _target(target: Target) -> Wrong:
    """Secrets are refused without being shown: what stands in a scenario ends in logs and reports."""
    for name, url in (("host", target.host), ("proxy", target.proxy)):
        if url is not None:
            yield from _url(f"target.{name}", url)
    if target.path is not None and not re.fullmatch(r"/[^\s#]*", target.path):
        yield "target.path", f"got {shown(target.path)}; expected a path that starts with /"
    if target.metrics and not re.fullmatch(r"(/|https?://[^\s@]+)[^\s@]*", target.metrics):
        yield "target.metrics", f'got {shown(target.metrics)}; expected a path that starts with /, a URL, or ""'
    if target.api_key_env is not None and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", target.api_key_env):
        yield "target.api_key_env", "expected the name of an environment variable, such as API_KEY, not the key itself"
    for name, value in target.headers.items():
        if SECRET_HEADER.search(name):
            yield f"target.headers.{name}", "holds a secret; remove it and name its environment variable in api_key_env"
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name) or re.search(r"[\r\n\0]", value):
            yield f"target.headers.{name}", "expected a header name of letters, digits and -, and a value of one line"
    if target.body.get("stream", target.stream) is not target.stream:
        yield "target.body.stream", f"contradicts target.stream, {shown(target.stream)}; set only target.stream"


def _influx(influx: Influx) -> Wrong:
    split = urlsplit(influx.url)
    if "@" in split.netloc:
        yield (
            "influx.url",
            "holds credentials; remove them and set TOKENSWARM_INFLUX_USER and TOKENSWARM_INFLUX_PASSWORD",
        )
    elif split.scheme not in ("http", "https") or not split.hostname or len(split.path) < 2:
        yield "influx.url", f"got {shown(influx.url)}; expected http://HOST:8086/DATABASE, or /BUCKET for 2.x"
    if not re.fullmatch(r"all|none|sample=[1-9][0-9]*", influx.token_points):
        yield "influx.token_points", f"got {shown(influx.token_points)}; expected all, none, or sample=N"


def _url(path: str, url: str) -> Wrong:
    try:
        split = urlsplit(url)
        whole = split.scheme in ("http", "https") and bool(split.hostname) and split.port != 0
    except ValueError:
        whole = False
    if "@" in url:
        yield path, "holds credentials; remove them and name the key's environment variable in target.api_key_env"
    elif not whole or re.search(r"[\s?#]", url):
        yield path, f"got {shown(url)}; expected a base URL such as http://127.0.0.1:8000"


def _load(load: Load) -> Wrong:
    if (load.levels is None) == (load.ladder is None):
        yield (
            "load",
            f"got {'neither' if load.ladder is None else 'both'} of levels and ladder; expected one of the two",
        )
    if load.levels == []:
        yield "load.levels", "got []; expected at least one level"
    if load.ladder is not None:
        if load.ladder.to < load.ladder.from_:
            yield "load.ladder.to", f"got {load.ladder.to:g}; expected at least from, {load.ladder.from_:g}"
        if (most := rungs(load.ladder)) > MOST_LEVELS:
            yield "load.ladder.factor", f"gives {most} levels; expected a factor for at most {MOST_LEVELS}"
    if load.loop == "open" and load.think_s > 0:
        yield "load.think_s", f"got {load.think_s:g}; expected 0 in an open loop, whose arrivals wait for no answer"
    if load.loop == "closed":
        yield from _whole_users(load)


def _whole_users(load: Load) -> Wrong:
    planned = {f"load.levels[{index}]": level for index, level in enumerate(load.levels or [])}
    if load.ladder is not None:
        planned = {"load.ladder.from": load.ladder.from_, "load.ladder.to": load.ladder.to}
    for path, users in planned.items():
        if not users.is_integer():
            yield path, f"got {users:g}; expected a whole number: a closed loop counts users"


def _length(path: str, length: Length) -> Wrong:
    match length:
        case Uniform() | LogNormal() | Exponential() if length.min > length.max:
            yield f"{path}.min", f"got {length.min}; expected at most max, {length.max}"
        case Quantiles():
            yield from _quantiles(path, length)
        case Choice() if not length.tokens:
            yield f"{path}.tokens", "got []; expected at least one number of tokens"
        case Choice() if length.weights is not None and len(length.weights) != len(length.tokens):
            yield (
                f"{path}.weights",
                f"got {len(length.weights)} weights; expected {len(length.tokens)}, one for each of tokens",
            )
    if (most := _most_tokens(length)) > MOST_TOKENS:
        yield path, f"can give {most} tokens; expected at most {MOST_TOKENS}"


def _quantiles(path: str, length: Quantiles) -> Wrong:
    shares, tokens = length.shares, length.tokens
    if len(shares) != len(tokens):
        yield f"{path}.tokens", f"got {len(tokens)} tokens; expected {len(shares)}, one for each of shares"
    if len(shares) < 2 or shares[0] != 0 or shares[-1] != 1:
        yield f"{path}.shares", f"got {shown(shares)}; expected shares from 0 to 1, both included"
    for name, values, fine in (("shares", shares, "rising"), ("tokens", tokens, "never falling")):
        for index, (low, high) in enumerate(pairwise(values), start=1):
            if high < low or (high == low and name == "shares"):
                yield f"{path}.{name}[{index}]", f"got {high:g} after {low:g}; expected {fine} {name}"


def _most_tokens(length: Length) -> int:
    match length:
        case Uniform() | LogNormal() | Exponential():
            return length.max
        case Quantiles() | Choice():
            return max(length.tokens, default=0)
        case _:
            return length.tokens
