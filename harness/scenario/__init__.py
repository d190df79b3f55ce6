"""Text to Scenario, strictly: every mistake is one line. No clock, no environment; only `load` touches a file.

msgspec checks types and ranges against `model.Scenario`; this package adds what it cannot know. In the order in which
a text passes through: `tree` (YAML, no key twice), `overrides` (`-s path=value`), `misfits` (types and ranges, with
the `places` and nearest names of a mistake, in the words of `wording`), `contradictions` (valid alone but impossible
together). `ladder` says which levels a load plans, `export` goes the way back.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import yaml
from msgspec import Struct

from harness.model import Json, Scenario
from harness.scenario.contradictions import contradictions_of
from harness.scenario.export import dump, json_schema
from harness.scenario.ladder import levels
from harness.scenario.misfits import misfit
from harness.scenario.overrides import change
from harness.scenario.tree import tree_of
from harness.scenario.wording import Fault, ScenarioError

__all__ = ["Quick", "ScenarioError", "dump", "json_schema", "levels", "load", "parse", "quick"]


class Quick(Struct, frozen=True, kw_only=True):
    """A scenario without a file: users (closed loop) or rate in requests a second (open loop), one level or several."""

    users: float | list[float] | None = None
    rate: float | list[float] | None = None
    hold_s: float = 30.0
    prompt_tokens: int = 512
    output_tokens: int = 128
    dialect: str = "openai-chat"


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
        tree = tree_of(text)
    except Fault as fault:
        raise fault.charged_to(source) from None
    try:
        changed = [change(tree, override) for override in overrides]
    except Fault as fault:
        raise fault.charged_to("-s") from None
    try:
        return _checked(tree)
    except Fault as fault:
        raise fault.charged_to("-s" if fault.concerns(changed) else source) from None


def quick(ask: Quick, *, overrides: Sequence[str] = ()) -> Scenario:
    """The scenario a command line describes without a file; checked exactly like one. Raises ScenarioError."""
    if (ask.users is None) == (ask.rate is None):
        raise ScenarioError("quick: give either users (closed loop) or rate in requests a second (open loop)")
    loop, planned = ("open", ask.rate) if ask.users is None else ("closed", ask.users)
    tree = {
        "name": "quick",
        "target": {"dialect": ask.dialect},
        "load": {"loop": loop, "levels": planned if isinstance(planned, list) else [planned]},
        "phases": {"hold_s": ask.hold_s},
        "prompt_tokens": ask.prompt_tokens,
        "output_tokens": ask.output_tokens,
    }
    return parse(yaml.safe_dump(tree), source="quick", overrides=overrides)


def _checked(tree: dict[str, Json]) -> Scenario:
    try:
        scenario = msgspec.convert(tree, Scenario, strict=True)
    except msgspec.ValidationError as error:
        raise misfit(tree, str(error)) from None
    for path, text in contradictions_of(scenario):
        raise Fault(path, text)
    return scenario
