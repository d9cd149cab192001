"""One page that shows where escudo is ahead and where it is not: the first table of every result, with its source.

    python benchmarks/summary.py

Reads ``benchmarks/results/*.md`` and ``experiments/results/*.md`` and writes ``benchmarks/results/README.md``. Nothing
is measured here, and no figure is typed in by hand.
"""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
SOURCES = (HERE / "results", HERE.parent / "experiments" / "results")
MOST_ROWS = 14


def main() -> None:
    pages = sorted(path for folder in SOURCES for path in folder.glob("*.md") if path.name != "README.md")
    lines = [
        "# What was measured",
        "",
        "The first table of each result, as its script wrote it. `make bench` runs the benchmarks again; pages name",
        "their script, seed and machine. Absolute times move with the machine; ratios of one run count.",
        "",
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
    print(f"benchmarks/results/README.md: {len(pages)} results, {len(missed)} targets not met")


def first_table(text: str) -> list[str]:
    """Return the lines of a page's first table, or of its table of targets if it has one."""
    tables = re.findall(r"(?:^\|.*\n?)+", text, re.MULTILINE)
    chosen = next((table for table in tables if table.startswith("| target ")), tables[0] if tables else "")
    return [_without_links(line) for line in chosen.splitlines()]


def _missed(path: Path) -> list[str]:
    rows = [
        line for line in first_table(path.read_text(encoding="utf-8")) if re.search(r"\| \*{0,2}no\b[^|]*\|$", line)
    ]
    return [f"{row.rsplit('|', 2)[0]}| {path.stem} |" for row in rows]


def _without_links(line: str) -> str:
    return re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", line)


if __name__ == "__main__":
    main()
