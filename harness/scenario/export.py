"""A Scenario back to YAML, and the schema of all scenarios for editors. No clock, no I/O."""

import msgspec
import yaml

from harness.model import Json, Scenario
from harness.scenario.tree import LENGTHS


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


def _present(tree: Json) -> Json:
    """The tree without absent values; a null inside `body` is the user's and stays."""
    if not isinstance(tree, dict):
        return tree
    return {key: item if key == "body" else _present(item) for key, item in tree.items() if item is not None}
