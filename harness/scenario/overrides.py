"""`-s path=value`: one change to the tree before it is checked. No clock, no I/O."""

from collections.abc import Sequence

from harness.model import Json
from harness.scenario.misfits import unknown_key
from harness.scenario.places import value_at
from harness.scenario.tree import plain_values, spell_out
from harness.scenario.wording import Fault, shown


def change(tree: dict[str, Json], override: str) -> str:
    """Sets what `path=value` says, in place, or removes where the value is null. Returns the path. Raises Fault."""
    path, equals, text = override.partition("=")
    path = path.strip()
    parts = path.split(".")
    if not text.strip() or not all(parts):
        raise Fault("", f"got {shown(path + equals)}; expected path=value, such as slo.ttft_p99_ms=300")
    value = plain_values(text, path)
    for depth, part in enumerate(parts):
        if fault := unknown_key(tree, parts[:depth], part):
            raise fault
    if value is None:
        _remove(tree, parts)
    else:
        _set(tree, parts, value)
    spell_out(tree)
    return path


def _remove(tree: dict[str, Json], parts: Sequence[str]) -> None:
    holder = value_at(tree, parts[:-1])
    if isinstance(holder, dict):
        holder.pop(parts[-1], None)


def _set(tree: dict[str, Json], parts: Sequence[str], value: Json) -> None:
    here = tree
    for depth, part in enumerate(parts[:-1], start=1):
        if here.get(part) is None:
            here[part] = {}
        here = here[part]
        if not isinstance(here, dict):
            raise Fault(".".join(parts), f"{'.'.join(parts[:depth])} is {shown(here)}, not a mapping; set that whole")
    here[parts[-1]] = value
    for one, other in (("levels", "ladder"), ("ladder", "levels")):
        if list(parts[:2]) == ["load", one]:
            tree["load"].pop(other, None)  # they exclude each other: asking for one is doing without the other
