"""A gate to the terminal and to the Markdown of a job summary. No clock, no I/O."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from harness.decisions import Change, Check, Decision, Gate
from harness.report import words
from harness.report.markdown import plain
from harness.report.sentences import sentence
from harness.report.terminal import hint

SIGNS: dict[Decision, str] = {"pass": "✅", "fail": "❌", "inconclusive": "⚠️"}
STYLES: dict[Decision, str] = {"pass": "green", "fail": "red", "inconclusive": "yellow"}
TITLES: dict[Decision, str] = {"pass": "passed", "fail": "failed", "inconclusive": "could not decide"}
RATES = {"output_tps": "output tokens/s", "goodput_rps": "goodput requests/s"}
WORDS = {"clause", "metric", "change", "decision"}
"""Heads of columns of words; others are of numbers."""
AGAINST = " against "
CHECK_HEADS = ("load", "clause", "limit", "measured", "beyond", "95 % interval", "may be", "decision")
CHANGE_HEADS = ("load", "metric", "before", "now", "change", "decision")


def text(gate: Gate) -> str:
    """The whole gate as Markdown; ends with a line feed."""
    ran = f"{plain(gate.model or words.ABSENT)} at {plain(gate.host or words.ABSENT)}, run {plain(gate.run_id)}."
    against = [f"Against the baseline {plain(gate.baseline)}:"] if gate.baseline else []
    blocks = [
        f"## {SIGNS[gate.decision]} {plain(gate.scenario)}: the gate {TITLES[gate.decision]}",
        f"**{plain(sentence(gate.text))}**",
        ran,
        markdown_table(CHECK_HEADS, [check_cells(each) for each in gate.checks]),
        *against,
        markdown_table(CHANGE_HEADS, [change_cells(each) for each in gate.changes]),
        "\n".join(f"- {plain(line)}" for line in remarks(gate)),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def render(gate: Gate) -> RenderableType:
    """The whole gate, to be printed by a Rich console."""
    parts: list[RenderableType] = [Text.assemble((gate.scenario, "bold"), f"  {gate.model or '–'} at {gate.host}")]
    found: list[tuple[tuple[str, ...], list[list[str]]]] = [
        (CHECK_HEADS, [check_cells(each) for each in gate.checks]),
        (CHANGE_HEADS, [change_cells(each) for each in gate.changes]),
    ]
    parts += [Padding(terminal_table(heads, rows), (1, 0, 0, 0)) for heads, rows in found if rows]
    parts.append(Text(""))
    parts += [hint("note", line) for line in remarks(gate)]
    parts.append(hint("gate", f"{TITLES[gate.decision]}, exit {gate.exit_code}: {gate.text}", STYLES[gate.decision]))
    return Group(*parts)


def label(name: str) -> str:
    """A clause or metric as a reader says it."""
    return RATES.get(name) or words.clause_label(name)


def check_cells(check: Check) -> list[str]:
    """One row."""
    interval = words.TOO_FEW
    if check.low is not None and check.high is not None:
        interval = f"{words.percent(check.low)} … {words.percent(check.high)} %"
    return [
        words.load(check.load),
        label(check.clause),
        words.clause_limit(check.clause, check.limit),
        words.clause_value(check.clause, check.value),
        words.ABSENT if check.beyond is None else f"{words.percent(check.beyond)} %",
        interval,
        f"{100 * check.allowed:g} %",
        f"{SIGNS[check.decision]} {check.decision}",
    ]


def change_cells(change: Change) -> list[str]:
    """One row."""
    return [
        words.load(change.load),
        label(change.metric),
        words.clause_value(change.metric, change.old),
        words.clause_value(change.metric, change.new),
        change.text,
        f"{SIGNS[change.decision]} {change.decision}",
    ]


def remarks(gate: Gate) -> list[str]:
    """Why checks did not pass, differences from the baseline's scenario, and what a reader must know."""
    reasons: dict[str, list[str]] = {}
    for each in (check for check in gate.checks if check.decision != "pass"):
        said = f"at {words.load_of(each.load, each.axis)}: {told(each)}"
        reasons.setdefault(said, []).append(label(each.clause))
    lines = [f"{', '.join(names)} {said}" for said, names in reasons.items()]
    lines += [f"Scenario differs from the baseline in {each.path}." for each in gate.differences]
    return lines + gate.notes


def told(check: Check) -> str:
    """Why, and how long a hold would have to be where a longer one would tell."""
    if check.needed_minutes is None:
        return check.why
    return f"{check.why}, a hold of about {words.number(check.needed_minutes)} min at this load"


def markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of texts, all of them escaped; "" without rows."""
    if not rows:
        return ""
    cells = [heads, ["---"] * len(heads), *([plain(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def terminal_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """The same for a terminal; numbers to the right, words to the left."""
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    for head in heads:
        left = head in WORDS or AGAINST in head
        table.add_column(head, justify="left" if left else "right", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table
