"""Text to Scenario, strictly: every mistake is one line. No clock, no environment; only `load` touches a file.

msgspec checks types and ranges against `model.Scenario`; this file adds what it cannot know: duplicate keys, the path
and nearest names of a mistake, `-s path=value` overrides, and values that are valid alone but impossible together.
"""

import json
import math
import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import yaml
from msgspec import Struct, inspect

from harness.model import Choice, Exponential, Json, Length, Load, LogNormal, Quantiles, Scenario, Target, Uniform

LENGTHS = ("prompt_tokens", "output_tokens")
MOST_TOKENS = 1_000_000
MOST_LEVELS = 1_000
SECRET_HEADER = re.compile(r"(auth|authorization|api-?key|token|secret|password|cookie)$", re.IGNORECASE)


class ScenarioError(ValueError):
    """The user's fault, in one line: source, path, what was got, what is expected, and the remedy."""


class _Fault(Exception):
    """A mistake at a path of the tree; becomes a ScenarioError once its source is known."""

    def __init__(self, path: str, text: str) -> None:
        super().__init__(text)
        self.path = path

    def concerns(self, paths: Sequence[str]) -> bool:
        """Whether it lies at, below or above one of these paths."""
        above = (path for path in paths if path.startswith(self.path + "."))
        below = (path for path in paths if self.path == path or self.path.startswith((path + ".", path + "[")))
        return any(above) or any(below)

    def charged_to(self, source: str) -> ScenarioError:
        """The error for the user; keys and values may hold line ends, the error does not."""
        words = (source, self.path, str(self)) if self.path else (source, str(self))
        return ScenarioError(" ".join(": ".join(words).split()))


class Quick(Struct, frozen=True, kw_only=True):
    """A scenario without a file: users (closed loop) or rate in requests a second (open loop), one level or several."""

    users: float | list[float] | None = None
    rate: float | list[float] | None = None
    hold_s: float = 30.0
    prompt_tokens: int = 512
    output_tokens: int = 128
    dialect: str = "openai-chat"


# --- what the outside calls -------------------------------------------------------------------------------------------


def load(path: str | Path, overrides: Sequence[str] = ()) -> Scenario:
    """The scenario in this file, changed by `path=value` overrides. Raises ScenarioError."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ScenarioError(f"{path}: is not UTF-8 text; expected a YAML scenario") from None
    except OSError as error:
        raise ScenarioError(f"{path}: cannot be read ({error.strerror}); expected a YAML scenario file") from None
    return parse(text, source=str(path), overrides=overrides)


def parse(text: str, *, source: str = "scenario", overrides: Sequence[str] = ()) -> Scenario:
    """The scenario in this YAML text. `source` names the text in errors. Raises ScenarioError."""
    try:
        tree = _mapping(_yaml(text))
    except _Fault as fault:
        raise fault.charged_to(source) from None
    try:
        changed = [_change(tree, override) for override in overrides]
    except _Fault as fault:
        raise fault.charged_to("-s") from None
    try:
        return _checked(tree)
    except _Fault as fault:
        raise fault.charged_to("-s" if fault.concerns(changed) else source) from None


def quick(ask: Quick, *, overrides: Sequence[str] = ()) -> Scenario:
    """The scenario a command line describes without a file; checked exactly like one. Raises ScenarioError."""
    if (ask.users is None) == (ask.rate is None):
        raise ScenarioError("quick: give either users (closed loop) or rate in requests a second (open loop)")
    loop, levels = ("open", ask.rate) if ask.users is None else ("closed", ask.users)
    tree = {
        "name": "quick",
        "target": {"dialect": ask.dialect},
        "load": {"loop": loop, "levels": levels if isinstance(levels, list) else [levels]},
        "phases": {"hold_s": ask.hold_s},
        "prompt_tokens": ask.prompt_tokens,
        "output_tokens": ask.output_tokens,
    }
    return parse(yaml.safe_dump(tree), source="quick", overrides=overrides)


def levels(load: Load) -> list[float]:
    """Planned levels in order. A ladder is expanded, `to` included; in closed loop to distinct whole users."""
    if load.ladder is None:
        return list(load.levels or [])
    planned, step = [], load.ladder.from_
    # A step that misses `to` by rounding alone would otherwise stand beside it as a level of its own.
    while step < load.ladder.to * (1 - 1e-9):
        planned.append(step)
        step *= load.ladder.factor
    planned.append(load.ladder.to)
    return list(dict.fromkeys(float(round(step)) for step in planned)) if load.loop == "closed" else planned


def dump(scenario: Scenario) -> str:
    """YAML that `parse` turns into an equal scenario, defaults written out, absent values left out."""
    tree = _present(msgspec.to_builtins(scenario))
    return yaml.safe_dump(tree, sort_keys=False, allow_unicode=True, default_flow_style=None, width=120)


def json_schema() -> dict[str, Json]:
    """JSON Schema (2020-12) of a scenario file, for editors. `scenarios/scenario.schema.json` is its export."""
    (root,), definitions = msgspec.json.schema_components([Scenario], ref_template="#/$defs/{name}")
    for name in LENGTHS:
        shape = definitions["Scenario"]["properties"][name]
        shape.pop("discriminator")  # an OpenAPI word; JSON Schema validators in strict mode refuse it
        shape["anyOf"].insert(0, {"type": "integer", "minimum": 1})
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **root, "$defs": definitions}


# --- YAML text to a tree of plain values ------------------------------------------------------------------------------


class _Loader(yaml.SafeLoader):
    """YAML whose values JSON knows too: no dates, sets or bytes, and no key twice (PyYAML silently keeps the last)."""

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in pairs if not tag.endswith(":timestamp")]
        for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    yaml_constructors = {
        tag: build
        for tag, build in yaml.SafeLoader.yaml_constructors.items()
        if tag is None or tag.rpartition(":")[2] in {"null", "bool", "int", "float", "str", "seq", "map"}
    }

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                raise yaml.MarkedYAMLError(problem=f'duplicate key "{key.value}"', problem_mark=key.start_mark)
            seen.add(key.value)
        return node


def _yaml(text: str, path: str = "") -> Json:
    """The values this YAML says, every one of them JSON's. Raises _Fault, with the line; `path` is where they go."""
    try:
        return _plain(yaml.load(text, Loader=_Loader), path)  # a SafeLoader with fewer tags
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f"line {error.problem_mark.line + 1}: "
        raise _Fault(path, f"{line}{error.problem}; expected valid YAML") from None
    except yaml.YAMLError as error:
        raise _Fault(path, f"{str(error).splitlines()[0]}; expected valid YAML") from None
    except (ValueError, KeyError):  # PyYAML lets these out when an explicit tag does not fit, such as `!!int one`
        raise _Fault(path, "a value does not fit its YAML tag; expected valid YAML") from None
    except RecursionError:
        raise _Fault(path, "nested too deeply, or an anchor that holds itself; expected a scenario") from None


def _plain(value: Json, path: str) -> Json:
    """A copy in which nothing is shared (anchors alias), every key is text and every number finite."""
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise _Fault(path, f"got the key {_shown(key)}; expected text; write it in quotes")
        return {key: _plain(item, _joined(path, key)) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item, f"{path}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        raise _Fault(path, f"got {value}; expected a finite number")
    if isinstance(value, int) and abs(value) >= 2**63:
        raise _Fault(path, "got a whole number of more than 63 bits; expected a smaller one")
    return value


def _mapping(tree: Json) -> dict[str, Json]:
    required = "name, load, prompt_tokens and output_tokens"
    if tree is None:
        raise _Fault("", f"is empty; expected a mapping with at least {required}")
    if not isinstance(tree, dict):
        raise _Fault("", f"got {_shown(tree)}; expected a mapping with at least {required}")
    return _spelled_out(tree)


def _spelled_out(tree: dict[str, Json]) -> dict[str, Json]:
    """The tree, bare numbers of tokens written as Fixed."""
    for name in LENGTHS:
        if isinstance(tree.get(name), int | float) and not isinstance(tree[name], bool):
            tree[name] = {"dist": "fixed", "tokens": tree[name]}
    return tree


# --- overrides --------------------------------------------------------------------------------------------------------


def _change(tree: dict[str, Json], override: str) -> str:
    """Sets what `path=value` says, in place, or removes where the value is null. Returns the path."""
    path, equals, text = override.partition("=")
    path = path.strip()
    parts = path.split(".")
    if not text.strip() or not all(parts):
        raise _Fault("", f"got {_shown(path + equals)}; expected path=value, such as slo.ttft_p99_ms=300")
    value = _yaml(text, path)
    for depth, part in enumerate(parts):
        if fault := _unknown(tree, parts[:depth], part):
            raise fault
    if value is None:
        _remove(tree, parts)
    else:
        _set(tree, parts, value)
    _spelled_out(tree)
    return path


def _remove(tree: dict[str, Json], parts: Sequence[str]) -> None:
    holder = _at(tree, parts[:-1])
    if isinstance(holder, dict):
        holder.pop(parts[-1], None)


def _set(tree: dict[str, Json], parts: Sequence[str], value: Json) -> None:
    here = tree
    for depth, part in enumerate(parts[:-1], start=1):
        if here.get(part) is None:
            here[part] = {}
        here = here[part]
        if not isinstance(here, dict):
            raise _Fault(".".join(parts), f"{'.'.join(parts[:depth])} is {_shown(here)}, not a mapping; set that whole")
    here[parts[-1]] = value
    for one, other in (("levels", "ladder"), ("ladder", "levels")):
        if list(parts[:2]) == ["load", one]:
            tree["load"].pop(other, None)  # they exclude each other: asking for one is doing without the other


# --- types and ranges: msgspec finds the mistake, this says it --------------------------------------------------------


def _checked(tree: dict[str, Json]) -> Scenario:
    try:
        scenario = msgspec.convert(tree, Scenario, strict=True)
    except msgspec.ValidationError as error:
        raise _misfit(tree, str(error)) from None
    for path, text in _contradictions(scenario):
        raise _Fault(path, text)
    return scenario


def _misfit(tree: Json, message: str) -> _Fault:
    """What msgspec says, with the value, the expectation and the names that would have been valid."""
    what, _, place = message.partition(" - at `$")
    parts = _parts(tree, place.removesuffix("`"))
    named = re.fullmatch(r"Object (contains unknown|missing required) field `(.*)`", what, re.DOTALL)
    if named is None:
        return _Fault(_dotted(parts), _mismatch(_at(tree, parts), _kind(tree, parts)))
    path = [*parts, named[2]]
    missing = _Fault(_dotted(path), f"missing required key; expected {_expected(_kind(tree, path))}")
    return _unknown(tree, parts, named[2]) or missing


def _mismatch(got: Json, kind: inspect.Type) -> str:
    remedy = ""
    if isinstance(kind, inspect.LiteralType) and isinstance(got, str):
        remedy = _nearest(got, [str(value) for value in kind.values])
    elif isinstance(got, str) and "number" in _expected(kind):
        remedy = _as_number(got)
    return f"got {_shown(got)}; expected {_expected(kind)}{remedy}"


def _unknown(tree: Json, parts: Sequence[str | int], name: str) -> _Fault | None:
    """The fault of a key that is not valid at this place; None where it is, or where any key is."""
    struct = _chosen(_kind(tree, parts), _at(tree, parts))
    if struct is None:
        return None
    names = [field.encode_name for field in struct.fields]
    if struct.tag_field is not None:
        names.insert(0, struct.tag_field)
    text = f"unknown key{_nearest(name, names) or ';'} valid here: {', '.join(names)}"
    return None if name in names else _Fault(_dotted([*parts, name]), text)


def _nearest(name: str, names: Sequence[str]) -> str:
    close = get_close_matches(name, names, n=2, cutoff=0.5)
    return "; did you mean " + " or ".join(f'"{one}"' for one in close) + "?" if close else ""


def _as_number(text: str) -> str:
    """Remedy for a number that YAML reads as text: one in quotes, or 1e3 (YAML wants 1.0e+3)."""
    try:
        value = float(text)
    except ValueError:
        return ""
    if not math.isfinite(value):
        return ""
    return f"; write it as {int(value) if value.is_integer() else value}, without quotes"


BOUNDS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}
PLAIN: dict[type[inspect.Type], str] = {
    inspect.FloatType: "a number",
    inspect.IntType: "a whole number",
    inspect.StrType: "text",
    inspect.BoolType: "true or false",
    inspect.NoneType: "null",
    inspect.StructType: "a mapping",
    inspect.DictType: "a mapping",
}


def _expected(kind: inspect.Type) -> str:
    """What a value of this type looks like, in words."""
    if isinstance(kind, inspect.LiteralType):
        return " or ".join(f'"{value}"' for value in kind.values)
    if isinstance(kind, inspect.ListType):
        return f"a list, each item {_expected(kind.item_type)}"
    if isinstance(kind, inspect.UnionType):
        tags = _tags(kind)
        if tags.values:
            return f"a whole number >= 1 or a mapping with dist {_expected(tags)}"
        return " or ".join(map(_expected, kind.types))
    bounds = [f"{sign} {bound:g}" for name, sign in BOUNDS.items() if (bound := getattr(kind, name, None)) is not None]
    return " ".join([PLAIN.get(type(kind), "a value"), " and ".join(bounds)]).strip()


# --- places in the tree -----------------------------------------------------------------------------------------------


def _parts(tree: Json, place: str) -> list[str | int]:
    """The keys and indices of msgspec's `.load.levels[0]`; its `[...]`, some value of a mapping, is looked for."""
    parts: list[str | int] = []
    for key, index in re.findall(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]", place):
        if index == "...":
            parts.append(next(name for name, item in _at(tree, parts).items() if not isinstance(item, str)))
        else:
            parts.append(key or int(index))
    return parts


def _at(tree: Json, parts: Sequence[str | int]) -> Json:
    """The value at this place; None where there is none."""
    for part in parts:
        if tree is not None:
            tree = tree.get(part) if isinstance(tree, dict) else tree[part] if isinstance(part, int) else None
    return tree


def _kind(tree: Json, parts: Sequence[str | int]) -> inspect.Type:
    """The type that model.Scenario gives this place; Any below `target.body`."""
    kind: inspect.Type = inspect.type_info(Scenario)
    for depth, part in enumerate(parts):
        struct = _chosen(kind, _at(tree, parts[:depth]))
        if struct is not None:
            fields = {field.encode_name: field.type for field in struct.fields}
            kind = fields.get(str(part), inspect.AnyType())
        elif part == "dist" and isinstance(kind, inspect.UnionType):
            kind = _tags(kind)
        else:
            kind = _item(kind)
    return kind


def _chosen(kind: inspect.Type, value: Json) -> inspect.StructType | None:
    kinds = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    structs = [one for one in kinds if isinstance(one, inspect.StructType)]
    if len(structs) > 1:
        tag = value.get("dist") if isinstance(value, dict) else None
        structs = [one for one in structs if one.tag == tag]
    return structs[0] if structs else None


def _item(kind: inspect.Type) -> inspect.Type:
    kinds = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    for one in kinds:
        if isinstance(one, inspect.ListType):
            return one.item_type
        if isinstance(one, inspect.DictType):
            return one.value_type
    return inspect.AnyType()


def _tags(kind: inspect.UnionType) -> inspect.LiteralType:
    """The `dist` values of a union of lengths; none for any other union."""
    return inspect.LiteralType(
        tuple(str(one.tag) for one in kind.types if isinstance(one, inspect.StructType) and one.tag)
    )


def _dotted(parts: Sequence[str | int]) -> str:
    path = ""
    for part in parts:
        path = f"{path}[{part}]" if isinstance(part, int) else _joined(path, part)
    return path


def _joined(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _shown(value: Json) -> str:
    """A value as YAML would spell it on one line, at most 60 characters of it."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:59] + "…"


def _present(tree: Json) -> Json:
    """The tree without absent values; a null inside `body` is the user's and stays."""
    if not isinstance(tree, dict):
        return tree
    return {key: item if key == "body" else _present(item) for key, item in tree.items() if item is not None}


# --- values that are valid alone but impossible together --------------------------------------------------------------

Wrong = Iterator[tuple[str, str]]  # path, and what is wrong there in words


def _contradictions(scenario: Scenario) -> Wrong:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", scenario.name):
        yield "name", f"got {_shown(scenario.name)}; expected letters, digits and . _ - only: it names files and series"
    if scenario.seed < 0:
        yield "seed", f"got {scenario.seed}; expected a whole number >= 0"
    yield from _target(scenario.target)
    yield from _load(scenario.load)
    ramp_s, warmup_s = scenario.phases.ramp_s, scenario.phases.warmup_s
    if ramp_s is not None and ramp_s > warmup_s:
        yield "phases.ramp_s", f"got {ramp_s:g}; expected at most warmup_s, {warmup_s:g}: users start in the warm-up"
    yield from _length("prompt_tokens", scenario.prompt_tokens)
    yield from _length("output_tokens", scenario.output_tokens)
    if scenario.prices is not None and not re.fullmatch(r"[A-Z]{3}", scenario.prices.currency):
        yield (
            "prices.currency",
            f"got {_shown(scenario.prices.currency)}; expected a code of three capitals, such as EUR",
        )


def _target(target: Target) -> Wrong:
    """Secrets are refused without being shown: what stands in a scenario ends in logs and reports."""
    for name, url in (("host", target.host), ("proxy", target.proxy)):
        if url is not None:
            yield from _url(f"target.{name}", url)
    if target.path is not None and not re.fullmatch(r"/[^\s#]*", target.path):
        yield "target.path", f"got {_shown(target.path)}; expected a path that starts with /"
    if target.api_key_env is not None and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", target.api_key_env):
        yield "target.api_key_env", "expected the name of an environment variable, such as API_KEY, not the key itself"
    for name, value in target.headers.items():
        if SECRET_HEADER.search(name):
            yield f"target.headers.{name}", "holds a secret; remove it and name its environment variable in api_key_env"
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name) or re.search(r"[\r\n\0]", value):
            yield f"target.headers.{name}", "expected a header name of letters, digits and -, and a value of one line"
    if target.body.get("stream", target.stream) is not target.stream:
        yield "target.body.stream", f"contradicts target.stream, {_shown(target.stream)}; set only target.stream"


def _url(path: str, url: str) -> Wrong:
    try:
        split = urlsplit(url)
        whole = split.scheme in ("http", "https") and bool(split.hostname) and split.port != 0
    except ValueError:
        whole = False
    if "@" in url:
        yield path, "holds credentials; remove them and name the key's environment variable in target.api_key_env"
    elif not whole or re.search(r"[\s?#]", url):
        yield path, f"got {_shown(url)}; expected a base URL such as http://127.0.0.1:8000"


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
        if _rungs(load) > MOST_LEVELS:
            yield "load.ladder.factor", f"gives {_rungs(load)} levels; expected a factor for at most {MOST_LEVELS}"
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


def _rungs(load: Load) -> int:
    """About how many levels the ladder has; counted before it is climbed."""
    ladder = load.ladder
    return (
        0 if ladder is None else 1 + math.ceil((math.log(ladder.to) - math.log(ladder.from_)) / math.log(ladder.factor))
    )


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
        yield f"{path}.shares", f"got {_shown(shares)}; expected shares from 0 to 1, both included"
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
