"""An independent reader of line protocol: what a server would make of a line. Pure."""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Point:
    """One line, read. An int came with an `i`, a float without."""

    measurement: str
    tags: dict[str, str]
    fields: dict[str, int | float | str]
    at_ns: int

    @property
    def key(self) -> tuple[object, ...]:
        """What a server tells points apart by."""
        return (self.measurement, tuple(sorted(self.tags.items())), self.at_ns)


def tag_value(text: str) -> str:
    """What a tag promises to hold of a text."""
    return "".join(" " if ord(char) < 32 or ord(char) == 127 else char for char in text.replace("\\", "/"))


def points(lines):
    """Every line of an array of lines, which as one body are the same."""
    found = [point(line.decode()) for line in lines.to_pylist()]
    if len(lines):
        assert bodies(lines) == b"".join(lines.to_pylist())
    return found


def bodies(lines):
    """The value buffer, as it would be sent."""
    start, end = lines.offset, lines.offset + len(lines)
    _, offsets, data = lines.buffers()
    places = memoryview(offsets).cast("q")
    return data.to_pybytes()[places[start] : places[end]]


def point(line: str) -> Point:
    """ValueError or AssertionError where a server would refuse the line."""
    assert line.endswith("\n")
    head, at = unescaped_until(line, 0, " ")
    tags = {}
    measurement, *pairs = split_unescaped(head, ",")
    for pair in pairs:
        name, value = split_unescaped(pair, "=")
        assert min(len(name), len(value)) > 0, pair
        assert not re.search(r"\n|\\$", value), pair
        assert plain(name) not in tags
        tags[plain(name)] = plain(value)
    assert list(tags) == sorted(tags)
    fields, at = fields_from(line, at)
    return Point(plain(measurement), tags, fields, int(line[at:-1]))


def fields_from(line: str, at: int) -> tuple[dict[str, int | float | str], int]:
    fields: dict[str, int | float | str] = {}
    while True:
        name, at = unescaped_until(line, at, "=")
        assert name not in {"", "time", *fields}
        if line[at] == '"':
            fields[name], at = quoted(line, at + 1)
        else:
            end = min(place for place in (line.find(",", at), line.find(" ", at)) if place >= 0)
            fields[name], at = number(line[at:end]), end
        if line[at] == " ":
            return fields, at + 1
        assert line[at] == ","
        at += 1


def number(text: str) -> int | float:
    if text.endswith("i"):
        value = int(text[:-1])
        assert -(2**63) <= value < 2**63
        return value
    assert "." in text or "e" in text, f"{text} could be taken for a whole number"
    assert text.lower().strip("+-") not in {"nan", "inf"}
    return float(text)


def quoted(line: str, at: int) -> tuple[str, int]:
    said = []
    while line[at] != '"':
        if line[at] == "\\":
            assert line[at + 1] in '"\\'
            at += 1
        said.append(line[at])
        at += 1
    return "".join(said), at + 1


def unescaped_until(line: str, at: int, mark: str) -> tuple[str, int]:
    end = at
    while line[end] != mark:
        end += 2 if line[end] == "\\" else 1
    return line[at:end], end + 1


def split_unescaped(text: str, mark: str) -> list[str]:
    parts, at = [], 0
    text += mark
    while at < len(text):
        part, at = unescaped_until(text, at, mark)
        parts.append(part)
    return parts


def plain(text: str) -> str:
    said, at = [], 0
    while at < len(text):
        at += text[at] == "\\"
        said.append(text[at])
        at += 1
    return "".join(said)
