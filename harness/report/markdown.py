"""Report to Markdown, for the summary of a CI job. No clock, no I/O."""

import re

from harness.findings import Level, Report
from harness.report import columns, laws, sentences, words

SIGNS = {"held": "✅", "broken": "❌", "unjudged": "⚠️"}
SPECIAL = re.compile(r"([\\`*_\[\]|#~$@!])")


def text(report: Report) -> str:
    """The whole report; ends with a line feed."""
    blocks = [
        title(report),
        ran(report),
        level_table(sentences.by_load(report.levels)),
        answer(report),
        remarks(report),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def plain(line: str) -> str:
    """Text that Markdown and HTML leave alone: one line, nothing in it is markup."""
    flat = " ".join(line.split())
    return SPECIAL.sub(r"\\\1", flat.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))


def title(report: Report) -> str:
    """Name and answer."""
    sign = SIGNS[report.verdict.held]
    return f"## {sign} {plain(report.header.scenario.name)}\n\n**{plain(sentences.headline(report))}**"


def ran(report: Report) -> str:
    """What was run, against what, for which objective."""
    header = report.header
    slo = sentences.objective_line(header.scenario.slo)
    model = plain(header.model or words.ABSENT)
    return f"{model} at {plain(header.host)}, {sentences.load_line(header.scenario.load)}. SLO: {plain(slo)}."


def level_table(levels: list[Level]) -> str:
    """One row a level, the same columns as the terminal."""
    if not levels:
        return "No level was measured."
    heads = " | ".join(f"{column.head} {column.part}".strip() for column in columns.BRIEF)
    rule = " | ".join("---:" for _ in columns.BRIEF)
    rows = [" | ".join(plain(column.cell(level)) for column in columns.BRIEF) for level in levels]
    table = "\n".join(f"| {line} |" for line in (heads, rule, *rows))
    return f"{table}\n\n<sub>load in {words.UNITS[levels[0].axis]}; {plain(columns.legend(levels))}</sub>"


def answer(report: Report) -> str:
    """Verdict, knee, ledger and what decides nothing, as a list."""
    lines = [f"- **Verdict:** {plain(sentences.verdict_line(report))}"]
    if report.located is not None:
        said = [sentences.sentence(report.located.text), *sentences.located_lines(report.located)]
        lines.append(f"- **Knee:** {plain(' '.join(said))}")
    elif report.knee is not None:
        lines.append(f"- **Knee:** {plain(sentences.knee_line(report.knee))}")
    lines.append(f"- **Ledger:** {plain(sentences.ledger_line(report.ledger))}")
    if shown := laws.brief(report):
        lines.append(f"- **Laws:** {plain(shown)}")
    return "\n".join(lines)


def remarks(report: Report) -> str:
    """What a reader must know before trusting the numbers."""
    levels = sentences.by_load(report.levels)
    lines = [*sentences.client_lines(levels), *sentences.why_lines(levels), *sentences.settling_lines(levels)]
    return "\n".join(f"- {plain(line)}" for line in [*lines, *report.notes])
