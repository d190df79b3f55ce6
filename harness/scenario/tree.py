"""YAML text to a tree of plain values, the mapping that a scenario is checked from. No clock, no I/O."""

import math
from typing import Any

import yaml

from harness.model import Json
from harness.scenario.wording import Fault, joined, shown

LENGTHS = ("prompt_tokens", "output_tokens")
"""Keys whose value may be a bare number of tokens."""


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


def tree_of(text: str) -> dict[str, Json]:
    """The mapping that this YAML text is, bare numbers of tokens spelled out. Raises Fault."""
    tree = plain_values(text)
    required = "name, load, prompt_tokens and output_tokens"
    if tree is None:
        raise Fault("", f"is empty; expected a mapping with at least {required}")
    if not isinstance(tree, dict):
        raise Fault("", f"got {shown(tree)}; expected a mapping with at least {required}")
    spell_out(tree)
    return tree


def plain_values(text: str, path: str = "") -> Json:
    """The values this YAML says, every one of them JSON's. Raises Fault, with the line; `path` is where they go."""
    try:
        return _plain(yaml.load(text, Loader=_Loader), path)  # a SafeLoader with fewer tags
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f"line {error.problem_mark.line + 1}: "
        raise Fault(path, f"{line}{error.problem}; expected valid YAML") from None
    except yaml.YAMLError as error:
        raise Fault(path, f"{str(error).splitlines()[0]}; expected valid YAML") from None
    except (ValueError, KeyError):  # PyYAML lets these out when an explicit tag does not fit, such as `!!int one`
        raise Fault(path, "a value does not fit its YAML tag; expected valid YAML") from None
    except RecursionError:
        raise Fault(path, "nested too deeply, or an anchor that holds itself; expected a scenario") from None


def _plain(value: Json, path: str) -> Json:
    """A copy in which nothing is shared (anchors alias), every key is text and every number finite."""
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise Fault(path, f"got the key {shown(key)}; expected text; write it in quotes")
        return {key: _plain(item, joined(path, key)) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item, f"{path}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        raise Fault(path, f"got {value}; expected a finite number")
    if isinstance(value, int) and abs(value) >= 2**63:
        raise Fault(path, "got a whole number of more than 63 bits; expected a smaller one")
    return value


def spell_out(tree: dict[str, Json]) -> None:
    """Writes bare numbers of tokens as Fixed, in place."""
    for name in LENGTHS:
        if isinstance(tree.get(name), int | float) and not isinstance(tree[name], bool):
            tree[name] = {"dist": "fixed", "tokens": tree[name]}
