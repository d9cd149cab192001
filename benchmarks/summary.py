"""One page that shows where escudo is ahead and where it is not: ratios to its peers, then each result's first table.

    python benchmarks/summary.py

Reads the results of ``benchmarks/`` and ``experiments/`` and writes ``benchmarks/results/README.md`` and the table of
neighbours in the project's README. Nothing is measured here, and no figure is typed in by hand.
"""

from __future__ import annotations

import re
from pathlib import Path

from _headlines import with_headlines
from _ratios import comparisons

HERE = Path(__file__).parent
SOURCES = (HERE / "results", HERE.parent / "experiments" / "results")
MOST_ROWS = 14
LEVEL = 0.995  # a ratio above this is shown as level or ahead


def main() -> None:
    pages = sorted(path for folder in SOURCES for path in folder.glob("*.md") if path.name != "README.md")
    lines = [
        "# What was measured",
        "",
        "Ratios to the peers, the targets that were missed, then the first table of each result, as its script wrote",
        "it. `make bench` runs the benchmarks again; pages name their script, seed and machine. Absolute times move",
        "with the machine; ratios of one run count.",
        "",
        *_ratios(),
    ]
    missed = [row for path in pages for row in _missed(path)]
    if missed:
        lines += ["## Targets that were not met", "", "| target | measured | page |", "|---|---|---|", *missed, ""]
    for path in pages:
        text = path.read_text(encoding="utf-8")
        title = re.search(r"^# (.*)$", text, re.MULTILINE)
        link = path.name if path.parent == SOURCES[0] else f"../../experiments/results/{path.name}"
        table = first_table(text)
        lines += [f"## {title[1] if title else path.stem}", "", f"[{path.stem}]({link})", ""]
        lines += [*table[: MOST_ROWS + 2], ""]
        if len(table) > MOST_ROWS + 2:
            lines += [f"{len(table) - MOST_ROWS - 2} more rows on its page.", ""]
    (SOURCES[0] / "README.md").write_text("\n".join(lines), encoding="utf-8")
    readme = HERE.parent / "README.md"
    readme.write_text(with_headlines(readme.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"benchmarks/results/README.md: {len(pages)} results, {len(missed)} targets not met")


def _ratios() -> list[str]:
    """Return the table of peers, where escudo is behind first."""
    found = sorted(comparisons(), key=lambda each: each.times_better >= LEVEL)
    behind = sum(each.times_better < LEVEL for each in found)
    lines = [
        "## Beside its peers",
        "",
        f"{len(found)} comparisons, the peers run on this machine, but for DP-Sniper's published figures. Above 1,",
        f"escudo has the smaller error or cost, or the larger score. It is behind in {behind}, which stand first.",
        "",
        "| question | escudo | peer | | times better | page |",
        "|---|--:|---|--:|--:|---|",
    ]
    for each in found:
        mark = "**" if each.times_better < LEVEL else ""
        ours, theirs = (f"{_figure(value)} {each.unit}".strip() for value in (each.ours, each.theirs))
        times, link = f"{mark}{_figure(each.times_better)}{mark}", f"[{each.page}]({each.page}.md)"
        lines.append(f"| {each.question} | {ours} | {each.peer} | {theirs} | {times} | {link} |")
    return [*lines, ""]


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def first_table(text: str) -> list[str]:
    """Return the lines of a page's first table, or of its table of targets if it has one."""
    tables = re.findall(r"(?:^\|.*\n?)+", text, re.MULTILINE)
    chosen = next((table for table in tables if table.startswith("| target ")), tables[0] if tables else "")
    return [_without_links(line) for line in chosen.splitlines()]


def _missed(path: Path) -> list[str]:
    """Return the rows of a table of targets, whose last column says whether they were met, that were not."""
    head, *rows = first_table(path.read_text(encoding="utf-8")) or [""]
    if not head.endswith("| met |"):
        return []
    missed = [row for row in rows if re.search(r"\| \*{0,2}no\b[^|]*\|$", row)]
    return [f"| {': '.join(cells[:-2])} | {cells[-2]} | {path.stem} |" for cells in map(_cells, missed)]


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip("|").split("|")]


def _without_links(line: str) -> str:
    return re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", line)


if __name__ == "__main__":
    main()
