"""A tree that does not fit `model.Scenario`: msgspec finds the mistake, this says it. No clock, no I/O."""

import re
from collections.abc import Sequence

from msgspec import inspect

from harness.model import Json
from harness.scenario.places import keys_at, parts_of, tags_of, type_at, value_at
from harness.scenario.wording import Fault, as_number, dotted, nearest, shown

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


def misfit(tree: Json, message: str) -> Fault:
    """What msgspec says, with the value, the expectation and the names that would have been valid."""
    what, _, place = message.partition(" - at `$")
    parts = parts_of(tree, place.removesuffix("`"))
    named = re.fullmatch(r"Object (contains unknown|missing required) field `(.*)`", what, re.DOTALL)
    if named is None:
        return Fault(dotted(parts), _mismatch(value_at(tree, parts), type_at(tree, parts)))
    path = [*parts, named[2]]
    missing = Fault(dotted(path), f"missing required key; expected {_expected(type_at(tree, path))}")
    return unknown_key(tree, parts, named[2]) or missing


def unknown_key(tree: Json, parts: Sequence[str | int], name: str) -> Fault | None:
    """The fault of a key that is not valid at this place; None where it is, or where any key is."""
    names = keys_at(tree, parts)
    if names is None or name in names:
        return None
    return Fault(dotted([*parts, name]), f"unknown key{nearest(name, names) or ';'} valid here: {', '.join(names)}")


def _mismatch(got: Json, kind: inspect.Type) -> str:
    remedy = ""
    if isinstance(kind, inspect.LiteralType) and isinstance(got, str):
        remedy = nearest(got, [str(value) for value in kind.values])
    elif isinstance(got, str) and "number" in _expected(kind):
        remedy = as_number(got)
    return f"got {shown(got)}; expected {_expected(kind)}{remedy}"


def _expected(kind: inspect.Type) -> str:
    """What a value of this type looks like, in words."""
    if isinstance(kind, inspect.LiteralType):
        return " or ".join(f'"{value}"' for value in kind.values)
    if isinstance(kind, inspect.ListType):
        return f"a list, each item {_expected(kind.item_type)}"
    if isinstance(kind, inspect.UnionType):
        tags = tags_of(kind)
        if tags.values:
            return f"a whole number >= 1 or a mapping with dist {_expected(tags)}"
        return " or ".join(map(_expected, kind.types))
    bounds = [f"{sign} {bound:g}" for name, sign in BOUNDS.items() if (bound := getattr(kind, name, None)) is not None]
    return " ".join([PLAIN.get(type(kind), "a value"), " and ".join(bounds)]).strip()
