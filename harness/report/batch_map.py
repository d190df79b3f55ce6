"""A batch map to the terminal, to Markdown and to one page. No clock; reads only package files."""

from markupsafe import Markup
from plotly.offline import get_plotlyjs
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from harness.knee.map import BatchMap, Cell, Flip
from harness.report import words
from harness.report.batch_map_figures import figures
from harness.report.gated import markdown_table, terminal_table
from harness.report.markdown import SIGNS, plain
from harness.report.page import payload, worded
from harness.report.sentences import objective_line, sentence
from harness.report.terminal import STYLES, hint

BEST = "★"
SHOWN = {"predicted": "twin", "plateau": "as larger"}
"""What the last column says of a setting; others say how they are called."""
AGAIN = "A setting is measured again once its run directory is removed."


def text(found: BatchMap) -> str:
    """The whole map as Markdown; ends with a line feed."""
    blocks = [
        f"## {SIGNS[found.verdict.held]} {plain(found.scenario)}: knee per batch size",
        f"**{plain(sentence(found.verdict.text))}**",
        f"{plain(found.model or words.ABSENT)}. SLO: {plain(objective_line(found.slo))}.",
        markdown_table(heads(found), [cells(found, cell) for cell in found.cells]),
        "\n".join(f"- {plain(line)}" for line in remarks(found)),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def render(found: BatchMap) -> RenderableType:
    """The whole map, to be printed by a Rich console."""
    table = terminal_table(heads(found), [cells(found, cell) for cell in found.cells])
    parts: list[RenderableType] = [
        Text.assemble((found.scenario, "bold"), f"  {found.model or words.ABSENT}: knee in {words.UNITS[found.axis]}"),
        Padding(table, (1, 0)),
        *(hint("note", line) for line in remarks(found)),
        hint("best", found.verdict.text, STYLES[found.verdict.held]),
    ]
    return Group(*parts)


def html(found: BatchMap) -> str:
    """The page. Every text is escaped; nothing is loaded from anywhere."""
    drawn = figures(found)
    return worded("batch_map.html.jinja").render(
        found=found,
        heads=heads(found),
        rows=[(cell, cells(found, cell)) for cell in found.cells],
        figures=drawn,
        remarks=remarks(found),
        slo=objective_line(found.slo),
        title=sentence(found.verdict.text),
        payload=payload(drawn),
        plotly=Markup(get_plotlyjs()),
    )


def heads(found: BatchMap) -> list[str]:
    """Heads of the columns: as few as the map needs."""
    tokens = ["tokens"] if is_wide(found) else []
    cost = [f"{found.currency}/M"] if found.currency else []
    return ["batch", *tokens, "knee", "within", "req/s", "tok/s", "goodput", *cost, "runs", "breaks first", "known by"]


def cells(found: BatchMap, cell: Cell) -> list[str]:
    """One row of the table."""
    setting, at = cell.setting, cell.figures
    tokens = [str(setting.max_num_batched_tokens)] if is_wide(found) else []
    cost = [words.number(at.cost_per_million_output_tokens)] if found.currency else []
    knee = words.ABSENT if at.load is None else words.number(at.load) if found.axis == "rate" else words.load(at.load)
    return [
        f"{BEST if setting == found.best else ''}{setting.max_num_seqs}",
        *tokens,
        knee,
        span(cell),
        words.number(at.rps),
        words.scaled(at.output_tps),
        words.number(at.goodput_rps),
        *cost,
        runs(cell),
        words.clause_label(at.binding) or words.ABSENT,
        SHOWN.get(cell.how, cell.how),
    ]


def is_wide(found: BatchMap) -> bool:
    """Has the map more than one token budget?"""
    return len({cell.setting.max_num_batched_tokens for cell in found.cells}) > 1


def span(cell: Cell) -> str:
    """What the search leaves open about the knee."""
    low, high = cell.figures.low, cell.figures.high
    if low is None:
        return words.ABSENT
    return f"≥ {words.number(low)}" if high is None else f"{words.number(low)}–{words.number(high)}"


def runs(cell: Cell) -> str:
    """The running batch at the knee: half of the time, and nearly always."""
    at = cell.figures
    most = at.batch_p95 if at.batch_p95 is not None else at.batch_p99
    if at.batch_p50 is None and most is None:
        return words.ABSENT
    return f"{words.number(at.batch_p50)}/{words.number(most)}"


def remarks(found: BatchMap) -> list[str]:
    """Where the binding clause flips, what was observed, which settings have no knee, what a reader must know."""
    observed = [line for cell in found.cells for line in seen(cell)]
    without = [f"{cell.setting.name}: {cell.text}" for cell in found.cells if cell.figures.load is None]
    again = [AGAIN] if without else []
    wide = is_wide(found)
    return [*(flipped(each, wide) for each in found.flips), *observed, *without, *again, *found.notes]


def flipped(flip: Flip, wide: bool) -> str:
    """A flip in words; in a wide map with its token budget."""
    before, after = words.clause_label(flip.from_), words.clause_label(flip.to)
    at = f"With {flip.max_num_batched_tokens} batched tokens, between" if wide else "Between"
    return f"{at} batches of {flip.below} and {flip.above} the binding clause goes from {before} to {after}."


def seen(cell: Cell) -> list[str]:
    """The batch at the knee of a server that nobody restarted."""
    at = cell.figures
    if cell.how != "observed":
        return []
    if at.batch_p50 is None:
        return ["The server's metrics did not tell its running batch at the knee."]
    half, most = words.number(at.batch_p50), words.number(at.batch_p95)
    return [f"At the knee the server ran {half} sequences or fewer in half of the looks, {most} in 95 %."]
