"""A batch map to the figures of its page: a heat map with the flip line, the knee over the batch. No clock, no I/O."""

from harness.knee.map import BatchMap, Cell, Objective, rows, value
from harness.report import words
from harness.report.figures import BLUE, GREY, INK, ORANGE, Figure, Key, Plot, layout

UNIT: dict[Objective, str] = {
    "rate": "requests/s within the SLO",
    "goodput": "requests/s of goodput",
    "cost": "per million output tokens",
}
SCALE = [[0.0, "#e9d8a6"], [0.5, "#5fb3a3"], [1.0, "#1f6f8b"]]
"""Pale to deep: told apart in grey too."""
ROW_PX, ROOM_PX = 64, 120
CAPS = "max_num_seqs"


def figures(found: BatchMap) -> list[Figure]:
    """What each setting is worth, and how the knee goes with the batch."""
    return [heat(found), knees(found)]


def heat(found: BatchMap) -> Figure:
    """Batch sizes across, token budgets down; the flip line stands where another kind of clause begins to bind."""
    title = f"What each setting is worth: {UNIT[found.objective]}"
    lines = rows(found.cells)
    if not any(value(cell.figures, found.objective) for cell in found.cells):
        return Figure(id="batch-map", title=title, missing="No setting has a knee.")
    caps, budgets = _caps(found), _budgets(found)
    at = [{cell.setting.max_num_seqs: cell for cell in row} for row in lines]
    plot: Plot = {
        "type": "heatmap",
        "x": list(range(len(caps))),
        "y": list(range(len(budgets))),
        "z": [[_worth(found, row.get(cap)) for cap in caps] for row in at],
        "text": [[_said(found, row.get(cap)) for cap in caps] for row in at],
        "hovertemplate": "%{text}<extra></extra>",
        "colorscale": SCALE,
        "reversescale": found.objective == "cost",
        "xgap": 3,
        "ygap": 3,
        "colorbar": {"thickness": 10, "outlinewidth": 0},
    }
    x = _places(caps) | {"title": {"text": CAPS}}
    y = _places(budgets) | {"title": {"text": "batched tokens"}}
    notes = [_note(found, cell) for cell in found.cells]
    flip = [Key("another clause binds from here on", INK, "dash")] if found.flips else []
    return Figure(
        id="batch-map",
        title=title,
        caption="In brackets: predicted by the twin. With =: the same as a larger batch, never filled. ★ is the best.",
        keys=flip,
        data=[plot],
        layout=layout(x, y, shapes=_flip_lines(found), annotations=notes),
        height_px=ROOM_PX + ROW_PX * len(lines),
    )


def _caps(found: BatchMap) -> list[int]:
    return sorted({cell.setting.max_num_seqs for cell in found.cells})


def _budgets(found: BatchMap) -> list[int]:
    return sorted({cell.setting.max_num_batched_tokens for cell in found.cells})


def _places(names: list[int]) -> Plot:
    """An axis with one place for each of these, as far apart as all others: a category axis takes "8" for a place."""
    return {"tickvals": list(range(len(names))), "ticktext": [str(name) for name in names], "showgrid": False}


def _worth(found: BatchMap, cell: Cell | None) -> float | None:
    """In the unit of the objective: a cost is a cost again."""
    worth = None if cell is None else value(cell.figures, found.objective)
    return 1 / worth if worth and found.objective == "cost" else worth


def _note(found: BatchMap, cell: Cell) -> Plot:
    """The number in a field of the heat map."""
    worth = words.number(_worth(found, cell))
    shown = {"predicted": f"({worth})", "plateau": f"= {worth}"}.get(cell.how, worth)
    star = "★ " if cell.setting == found.best else ""
    setting = cell.setting
    place = {
        "x": _caps(found).index(setting.max_num_seqs),
        "y": _budgets(found).index(setting.max_num_batched_tokens),
    }
    font = {"color": "#10202b", "size": 13}
    return place | {"text": star + shown, "showarrow": False, "font": font, "bgcolor": "rgba(255, 255, 255, 0.72)"}


def _said(found: BatchMap, cell: Cell | None) -> str:
    """What a pointer reads."""
    if cell is None:
        return ""
    figures = cell.figures
    knee = words.ABSENT if figures.load is None else words.load_of(figures.load, found.axis)
    clause = words.clause_label(figures.binding) or words.ABSENT
    return f"batch {cell.setting.max_num_seqs}, {cell.how}<br>knee {knee}<br>breaks first: {clause}"


def _flip_lines(found: BatchMap) -> list[Plot]:
    """One stroke in each row, between the two batch sizes; rows above each other make a line."""
    caps, budgets = _caps(found), _budgets(found)
    style = {"type": "line", "line": {"color": GREY, "width": 3, "dash": "dash"}, "xref": "x", "yref": "y"}
    lines = []
    for flip in found.flips:
        x, y = caps.index(flip.below) + 0.5, budgets.index(flip.max_num_batched_tokens)
        lines.append(style | {"x0": x, "x1": x, "y0": y - 0.5, "y1": y + 0.5})
    return lines


def knees(found: BatchMap) -> Figure:
    """The knee over the batch size, a line for each token budget, with intervals where there are some."""
    title = f"The knee over the size of the batch, in {words.UNITS[found.axis]}"
    lines = [[cell for cell in row if cell.figures.load is not None] for row in rows(found.cells)]
    lines = [line for line in lines if line]
    if not lines:
        return Figure(id="batch-knees", title=title, missing="No setting has a knee.")
    colors = [(BLUE, ORANGE, GREY)[place % 3] for place in range(len(lines))]
    several = len(lines) > 1
    keys = [
        Key(f"{line[0].setting.max_num_batched_tokens} batched tokens", color)
        for line, color in zip(lines, colors, strict=True)
    ]
    x: Plot = {"type": "category", "title": {"text": CAPS}, "categoryarray": [str(cap) for cap in _caps(found)]}
    y: Plot = {"rangemode": "tozero", "title": {"text": words.UNITS[found.axis]}}
    return Figure(
        id="batch-knees",
        title=title,
        caption="Full: measured. Hollow: predicted, or known from a larger batch. Bars are what a search leaves open.",
        keys=keys if several else [],
        data=[_line(found, line, color) for line, color in zip(lines, colors, strict=True)],
        layout=layout(x, y),
    )


def _line(found: BatchMap, line: list[Cell], color: str) -> Plot:
    loads = [cell.figures.load or 0.0 for cell in line]
    pairs = list(zip(line, loads, strict=True))
    measured = ("measured", "observed")
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": [str(cell.setting.max_num_seqs) for cell in line],
        "y": loads,
        "text": [_said(found, cell) for cell in line],
        "hovertemplate": "%{text}<extra></extra>",
        "line": {"color": color, "width": 2},
        "marker": {
            "color": color,
            "size": 9,
            "symbol": ["circle" if cell.how in measured else "circle-open" for cell in line],
            "line": {"width": 2, "color": color},
        },
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": [_apart(cell.figures.high, load) for cell, load in pairs],
            "arrayminus": [_apart(load, cell.figures.low) for cell, load in pairs],
            "color": color,
            "thickness": 1.4,
            "width": 4,
        },
    }


def _apart(high: float | None, low: float | None) -> float | None:
    return None if high is None or low is None else max(0.0, high - low)
