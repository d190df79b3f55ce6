"""Report to Rich renderables: looks right at 80 columns and without colour. No clock, no I/O."""

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from harness.findings import Level, Report
from harness.report import columns, laws, sentences, words

STYLES = {"held": "green", "broken": "red", "unjudged": "yellow"}
TEXT_COLUMNS = {"client", "SLO"}


def render(report: Report) -> RenderableType:
    """The whole report, to be printed by a Rich console."""
    levels = sentences.by_load(report.levels)
    parts: list[RenderableType] = [title(report), level_table(levels), *answer(report)]
    # User text goes in as Text and never as markup: a scenario named [red] stays [red].
    parts += [hint("client", line) for line in sentences.client_lines(levels)]
    parts += [hint("level", line) for line in sentences.why_lines(levels)]
    parts += [hint("level", line) for line in sentences.settling_lines(levels)]
    parts += [hint("note", line) for line in report.notes]
    return Group(*parts)


def title(report: Report) -> Text:
    """What was run, against what."""
    header = report.header
    return Text.assemble((header.scenario.name, "bold"), f"  {header.model or words.ABSENT} at {header.host}")


def level_table(levels: list[Level]) -> RenderableType:
    """One row a level."""
    if not levels:
        return Padding(Text("No level was measured."), (1, 0))
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    for column in columns.BRIEF:
        left = column.head in TEXT_COLUMNS
        head = f"{column.head}\n{column.part}"
        table.add_column(head, justify="left" if left else "right", no_wrap=False)
    for level in levels:
        table.add_row(*(cell(column, level) for column in columns.BRIEF))
    return Padding(Group(table, legend(levels)), (1, 0))


def cell(column: columns.Column, level: Level) -> Text:
    """One cell, coloured only where the word says the same."""
    styles = {"SLO": STYLES[level.held], "client": "yellow" if level.client.limited else "", "load": "bold"}
    return Text(column.cell(level), style=styles.get(column.head, ""))


def legend(levels: list[Level]) -> Text:
    """Units and marks of the table."""
    return Text(f"load in {words.UNITS[levels[0].axis]}; {columns.legend(levels)}", style="dim")


def answer(report: Report) -> list[RenderableType]:
    """Knee, verdict and ledger, and what decides nothing."""
    lines: list[RenderableType] = []
    if report.located is not None:
        lines.append(hint("knee", sentences.sentence(report.located.text)))
        lines += [hint("", line) for line in sentences.located_lines(report.located)]
    elif report.knee is not None:
        lines.append(hint("knee", sentences.knee_line(report.knee)))
    lines.append(hint("verdict", sentences.verdict_line(report), STYLES[report.verdict.held]))
    lines.append(hint("ledger", sentences.ledger_line(report.ledger), "" if report.ledger.balanced else "red"))
    if shown := laws.brief(report):
        lines.append(hint("laws", shown))
    return lines


def hint(name: str, line: str, style: str = "") -> RenderableType:
    """A named line; what does not fit hangs under itself."""
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(width=7, style="dim")
    grid.add_column(overflow="fold")
    grid.add_row(Text(name), Text(line, style=style))
    return grid
