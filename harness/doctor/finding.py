"""What the doctor says: findings, their words and the exit code they stand for. No clock, no I/O."""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct, structs

REACH = frozenset({"address", "name", "tcp", "proxy", "tls"})
"""Checks without which no request leaves: when one is bad, the server was not reached."""

SHOWN = 240
"""Characters of what was seen."""
LEAST_MASKED = 4
"""Characters at the end of a text that may be the beginning of a secret, cut off."""


class Finding(Struct, frozen=True, kw_only=True):
    """One check: what was seen, on one line, and what to do about it ("" when good)."""

    check: str
    status: Literal["good", "note", "bad"]
    what: str
    remedy: str = ""


def exit_code(findings: Sequence[Finding]) -> Literal[0, 1, 2]:
    """0: nothing bad. 1: something bad. 2: the server was not reached."""
    bad = {finding.check for finding in findings if finding.status == "bad"}
    if bad & REACH:
        return 2
    return 1 if bad else 0


def good(check: str, what: str) -> Finding:
    """As it should be."""
    return Finding(check=check, status="good", what=what)


def note(check: str, what: str, remedy: str) -> Finding:
    """A run works, but its reader must know this."""
    return Finding(check=check, status="note", what=what, remedy=remedy)


def bad(check: str, what: str, remedy: str) -> Finding:
    """A run would fail, or its numbers would mislead."""
    return Finding(check=check, status="bad", what=what, remedy=remedy)


def one_line(text: str) -> str:
    """A server's text, fit to print: white space folded, control characters replaced. Its length is left alone."""
    return "".join(letter if letter.isprintable() else "?" for letter in " ".join(text.split()))


def discreet(finding: Finding, secrets: Sequence[str]) -> Finding:
    """The finding with every secret masked, and only then cut to `SHOWN`: a server may quote what it was sent."""
    what, remedy = masked(finding.what, secrets), masked(finding.remedy, secrets)
    short = what if len(what) <= SHOWN else what[: SHOWN - 1] + "…"
    return structs.replace(finding, what=short, remedy=remedy)


def masked(text: str, secrets: Sequence[str]) -> str:
    """*** for every secret, and for what a cut has left of one at the end."""
    known = sorted({form for secret in secrets for form in (secret, one_line(secret)) if form}, key=len, reverse=True)
    for secret in known:
        text = text.replace(secret, "***")
    for secret in known:
        for length in range(len(secret) - 1, LEAST_MASKED - 1, -1):
            if text.endswith(secret[:length]):
                return text[:-length] + "***"
    return text


def ms(duration_ns: float) -> str:
    """A duration in milliseconds, three digits or so."""
    value = duration_ns / 1e6
    return f"{value:.0f} ms" if value >= 100 else f"{value:.1f} ms" if value >= 10 else f"{value:.2f} ms"


def counted(number: int, noun: str) -> str:
    """1 token, 2 tokens."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
