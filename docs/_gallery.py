"""The worked examples, run cell by cell: a page with what each cell printed, and a notebook with the same.

A cell that fails stops the build: an example's own assertions hold. Pages are written into ``docs/gallery``, notebooks
into ``build/notebooks``.
"""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
from pathlib import Path
from typing import Any

__all__ = ["gallery"]

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "examples" / "gallery"
NOTEBOOKS = ROOT / "build" / "notebooks"


def gallery() -> dict[str, str]:
    """Run every example; return its page by its name, and leave the notebooks behind."""
    import jupytext

    pages = {}
    NOTEBOOKS.mkdir(parents=True, exist_ok=True)
    for path in sorted(SOURCES.glob("*.py")):
        notebook = jupytext.read(path)
        with tempfile.TemporaryDirectory() as place:
            before = Path.cwd()
            os.chdir(place)  # what an example writes is gone with the folder
            try:
                _run(notebook.cells, path)
            finally:
                os.chdir(before)
        pages[path.stem] = _page(notebook.cells, path)
        jupytext.write(notebook, NOTEBOOKS / f"{path.stem}.ipynb", fmt="ipynb")
    return pages


def _run(cells: list[Any], path: Path) -> None:
    from nbformat.v4 import new_output

    names: dict[str, Any] = {"__name__": "__main__"}
    for count, cell in enumerate((cell for cell in cells if cell.cell_type == "code"), start=1):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(cell.source, f"{path.name}, cell {count}", "exec"), names)
        text = printed.getvalue()
        cell.execution_count = count
        cell.outputs = [new_output("stream", name="stdout", text=text)] if text else []


def _page(cells: list[Any], path: Path) -> str:
    lines = []
    for cell in cells:
        if cell.cell_type == "markdown":
            lines += [cell.source, ""]
            continue
        lines += ["```python", cell.source, "```", ""]
        for output in cell.outputs:
            lines += ["```text", output["text"].rstrip("\n"), "```", ""]
    lines += [f"*As a notebook: `make docs`, then `build/notebooks/{path.stem}.ipynb`; its source is "
              f"`examples/gallery/{path.name}`.*"]  # fmt: skip
    return "\n".join(lines) + "\n"
