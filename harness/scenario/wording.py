"""What a mistake in a scenario is called: its place, the value shown, the nearest valid name. No clock, no I/O."""

import json
import math
from collections.abc import Sequence
from difflib import get_close_matches

from harness.model import Json


class ScenarioError(ValueError):
    """The user's fault, in one line: source, path, what was got, what is expected, and the remedy."""


class Fault(Exception):
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


def dotted(parts: Sequence[str | int]) -> str:
    """A place as the user writes it: `load.levels[0]`."""
    path = ""
    for part in parts:
        path = f"{path}[{part}]" if isinstance(part, int) else joined(path, part)
    return path


def joined(path: str, key: str) -> str:
    """The place of a key in the mapping at `path`, "" being the whole scenario."""
    return f"{path}.{key}" if path else key


def shown(value: Json) -> str:
    """A value as YAML would spell it on one line, at most 60 characters of it."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:59] + "…"


def nearest(name: str, names: Sequence[str]) -> str:
    """Remedy for a mistyped name; "" where nothing is near."""
    close = get_close_matches(name, names, n=2, cutoff=0.5)
    return "; did you mean " + " or ".join(f'"{one}"' for one in close) + "?" if close else ""


def as_number(text: str) -> str:
    """Remedy for a number that YAML reads as text: one in quotes, or 1e3 (YAML wants 1.0e+3); "" for other text."""
    try:
        value = float(text)
    except ValueError:
        return ""
    if not math.isfinite(value):
        return ""
    return f"; write it as {int(value) if value.is_integer() else value}, without quotes"
