"""Results as aligned text, as Markdown rows and in bench/results/latest.json. I/O (that file, stdout)."""

import json
import os
import platform
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

RESULTS = Path(__file__).resolve().parent / "results"


@dataclass(frozen=True, kw_only=True)
class Table:
    """One question and its answer. `cells` are texts; `facts` the numbers behind them, by name."""

    title: str
    columns: list[str]
    cells: list[list[str]]
    notes: list[str] = field(default_factory=list)
    facts: dict[str, float | None] = field(default_factory=dict)


def text(table):
    """Aligned: texts to the left, numbers to the right."""
    rows = [table.columns, *table.cells]
    widths = [max(len(row[place]) for row in rows) for place in range(len(table.columns))]
    lines = ["  ".join(fit(cell, width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([table.title, *(f"  {line}" for line in lines), *(f"  {note}" for note in table.notes)])


def fit(cell, width):
    return cell.rjust(width) if cell[:1] in "0123456789+-–<≥" else cell.ljust(width)


def markdown(table):
    """Rows that a README can hold."""
    rows = [table.columns, ["---"] * len(table.columns), *table.cells]
    return "\n".join([f"**{table.title}**", "", *(f"| {' | '.join(row)} |" for row in rows), "", *table.notes])


def machine():
    """CPU, cores, kernel, Python: without them a figure says nothing."""
    model = "unknown CPU"
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), model)
    cores = len(os.sched_getaffinity(0))
    return f"{model}, {cores} cores, {platform.system()} {platform.release()}, Python {platform.python_version()}"


def show(part, tables):
    """Print the tables twice, and put them into the file under the part's name beside the other parts' latest."""
    command = "python " + " ".join(["bench/" + Path(sys.argv[0]).name, *sys.argv[1:]])
    where = f"{machine()}; `{command}`"
    for table in tables:
        print(f"\n{text(table)}")
    print(f"\nMarkdown ({part}):\n\n{where}\n")
    print("\n\n".join(markdown(table) for table in tables), flush=True)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / ".gitignore").write_text("*\n", encoding="utf-8")
    latest = RESULTS / "latest.json"
    known = json.loads(latest.read_text(encoding="utf-8")) if latest.exists() else {}
    known[part] = {"machine": machine(), "command": command, "tables": [asdict(table) for table in tables]}
    latest.write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
