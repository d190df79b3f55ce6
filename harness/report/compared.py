"""Runs side by side: terminal, Markdown, and one page that needs nothing else. No clock; reads only package files."""

from collections.abc import Sequence
from functools import cache

from jinja2 import Template
from markupsafe import Markup
from plotly.offline import get_plotlyjs
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from harness.clock import iso
from harness.decisions import Compared, Comparison
from harness.findings import Report
from harness.report import words
from harness.report.compared_figures import color, figures
from harness.report.gated import AGAINST, label, markdown_table, terminal_table
from harness.report.markdown import plain
from harness.report.page import payload, worded
from harness.report.terminal import hint


def text(comparison: Comparison) -> str:
    """The whole comparison as Markdown; ends with a line feed."""
    sides = [f"- **{plain(each.label)}**: {plain(each.model)} at {plain(each.host)}" for each in comparison.sides]
    blocks = [
        f"## {plain(comparison.scenario)}: {' | '.join(plain(each.label) for each in comparison.sides)}",
        "\n".join(sides),
        *(
            f"**At {words.load_of(rows[0].load, rows[0].axis)}**\n\n{_markdown(comparison, rows)}"
            for rows in loads(comparison)
        ),
        "\n".join(f"- {plain(line)}" for line in remarks(comparison)),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def render(comparison: Comparison) -> RenderableType:
    """The whole comparison, to be printed by a Rich console."""
    parts: list[RenderableType] = [Text(comparison.scenario, style="bold")]
    parts += [
        hint(each.label[:7], f"{each.label}  {each.model or words.ABSENT} at {each.host}") for each in comparison.sides
    ]
    for rows in loads(comparison):
        title = Text(f"at {words.load_of(rows[0].load, rows[0].axis)}", style="bold")
        table = terminal_table(heads(comparison), [cells(row) for row in rows])
        parts.append(Padding(Group(title, table), (1, 0, 0, 0)))
    parts.append(Text(""))
    parts += [hint("note", line) for line in remarks(comparison)]
    return Group(*parts)


def html(comparison: Comparison, reports: Sequence[Report]) -> str:
    """The page. Every text is escaped; nothing is loaded from anywhere. `reports` in the order of the runs."""
    drawn = figures(comparison, reports)
    return template().render(
        comparison=comparison,
        loads=loads(comparison),
        figures=drawn,
        remarks=remarks(comparison),
        payload=payload(drawn),
        plotly=Markup(get_plotlyjs()),
    )


@cache
def template() -> Template:
    """The template, and the words it may use."""
    return worded("compared.html.jinja", label=label, cells=cells, heads=heads, color=color, iso=iso)


def loads(comparison: Comparison) -> list[list[Compared]]:
    """The rows of each level, in the order of the rows: a metric that comes again begins the next level."""
    found: list[list[Compared]] = []
    for row in comparison.rows:
        if not found or row.load != found[-1][0].load or any(row.metric == each.metric for each in found[-1]):
            found.append([])
        found[-1].append(row)
    return found


def heads(comparison: Comparison) -> list[str]:
    """Heads of the columns: the metric, every run, and each run after the first against it."""
    names = [each.label for each in comparison.sides]
    return ["metric", *names, *(f"{name}{AGAINST}{names[0]}" for name in names[1:])]


def cells(row: Compared) -> list[str]:
    """One row of the table."""
    values = [words.clause_value(row.metric, value) for value in row.values]
    return [label(row.metric), *values, *(words.ABSENT if each is None else each.text for each in row.changes)]


def remarks(comparison: Comparison) -> list[str]:
    """In what the scenarios differ, and what a reader must know."""
    differing = [f"The scenarios differ in {each.path}: {_values(each.values)}." for each in comparison.differences]
    return [*differing, *comparison.notes]


def _values(values: Sequence[object]) -> str:
    return " | ".join("not given" if value is None else str(value) for value in values)


def _markdown(comparison: Comparison, rows: Sequence[Compared]) -> str:
    return markdown_table([plain(head) for head in heads(comparison)], [cells(row) for row in rows])
