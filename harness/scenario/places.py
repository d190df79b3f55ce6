"""Places in the tree: which value stands there, and which type `model.Scenario` gives it. No clock, no I/O."""

import re
from collections.abc import Sequence

from msgspec import inspect

from harness.model import Json, Scenario


def parts_of(tree: Json, place: str) -> list[str | int]:
    """The keys and indices of msgspec's `.load.levels[0]`; its `[...]`, some value of a mapping, is looked for."""
    parts: list[str | int] = []
    for key, index in re.findall(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]", place):
        if index == "...":
            parts.append(next(name for name, item in value_at(tree, parts).items() if not isinstance(item, str)))
        else:
            parts.append(key or int(index))
    return parts


def value_at(tree: Json, parts: Sequence[str | int]) -> Json:
    """The value at this place; None where there is none."""
    for part in parts:
        if tree is not None:
            tree = tree.get(part) if isinstance(tree, dict) else tree[part] if isinstance(part, int) else None
    return tree


def type_at(tree: Json, parts: Sequence[str | int]) -> inspect.Type:
    """The type that model.Scenario gives this place; Any below `target.body`."""
    kind: inspect.Type = inspect.type_info(Scenario)
    for depth, part in enumerate(parts):
        struct = _chosen(kind, value_at(tree, parts[:depth]))
        if struct is not None:
            fields = {field.encode_name: field.type for field in struct.fields}
            kind = fields.get(str(part), inspect.AnyType())
        elif part == "dist" and isinstance(kind, inspect.UnionType):
            kind = tags_of(kind)
        else:
            kind = _item(kind)
    return kind


def keys_at(tree: Json, parts: Sequence[str | int]) -> list[str] | None:
    """The keys that are valid at this place; None where any key is, or where there are no keys."""
    struct = _chosen(type_at(tree, parts), value_at(tree, parts))
    if struct is None:
        return None
    tag = [] if struct.tag_field is None else [struct.tag_field]
    return tag + [field.encode_name for field in struct.fields]


def tags_of(kind: inspect.UnionType) -> inspect.LiteralType:
    """The `dist` values of a union of lengths; none for any other union."""
    return inspect.LiteralType(
        tuple(str(one.tag) for one in kind.types if isinstance(one, inspect.StructType) and one.tag)
    )


def _chosen(kind: inspect.Type, value: Json) -> inspect.StructType | None:
    """The struct that this value is to become: in a union the one of its tag; None: no struct."""
    structs = [one for one in _alternatives(kind) if isinstance(one, inspect.StructType)]
    if len(structs) > 1:
        tag = value.get("dist") if isinstance(value, dict) else None
        structs = [one for one in structs if one.tag == tag]
    return structs[0] if structs else None


def _item(kind: inspect.Type) -> inspect.Type:
    """The type of what a list or mapping holds; Any for everything else."""
    for one in _alternatives(kind):
        if isinstance(one, inspect.ListType):
            return one.item_type
        if isinstance(one, inspect.DictType):
            return one.value_type
    return inspect.AnyType()


def _alternatives(kind: inspect.Type) -> tuple[inspect.Type, ...]:
    return kind.types if isinstance(kind, inspect.UnionType) else (kind,)
