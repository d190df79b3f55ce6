"""Which setting of a batch map is worth a search? `next_setting(cells, objective) → Setting | None`. Pure."""

import math
from collections.abc import Collection

from harness.knee.map import Cell, Figures, Flip, Objective, Setting, best, flips, ordered, rows

BELIEVED = 0.10
"""A twin whose knee is farther than this, as a logarithm, from the measured one predicts no other setting."""


def next_setting(cells: Collection[Cell], objective: Objective) -> Setting | None:
    """What to measure next: the best setting, then both sides of each flip, then the best one's neighbours.

    None when all of them are measured, or are the same experiment as one that is. What is measured can move the best
    and the flip: the next call sees the map as it then is.
    """
    chosen = best(cells, objective)
    wanted = [] if chosen is None else [chosen.setting]
    wanted += [setting for flip in flips(cells) for setting in _sides(flip)]
    wanted += [] if chosen is None else _neighbours(cells, chosen.setting)
    open_ = {cell.setting for cell in cells if cell.how == "predicted"}
    return next((setting for setting in wanted if setting in open_), None)


def _sides(flip: Flip) -> list[Setting]:
    tokens = flip.max_num_batched_tokens
    return [Setting(max_num_seqs=seqs, max_num_batched_tokens=tokens) for seqs in (flip.below, flip.above)]


def _neighbours(cells: Collection[Cell], of: Setting) -> list[Setting]:
    """The next smaller and larger batch with as many tokens, and the next budgets with as large a batch."""
    along = [row for row in rows(cells) if row[0].setting.max_num_batched_tokens == of.max_num_batched_tokens]
    across = [cell for cell in ordered(cells) if cell.setting.max_num_seqs == of.max_num_seqs]
    found: list[Setting] = []
    for line in [*along, across]:
        settings = [cell.setting for cell in line]
        at = settings.index(of)
        found += settings[max(0, at - 1) : at] + settings[at + 1 : at + 2]
    return found


def is_believed(measured: Figures, predicted: Figures, *, whole: bool) -> bool:
    """Is the twin near enough, where both are known, to speak of other settings? One user more or less is near."""
    if not measured.load or not predicted.load:
        return False
    near = abs(math.log(measured.load / predicted.load)) <= BELIEVED
    return near or (whole and abs(measured.load - predicted.load) <= 1)
