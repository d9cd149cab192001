"""Docstrings as Markdown: examples and formulas become code blocks, names of other things plain code."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

import griffe

_ROLE = re.compile(r":(?:func|class|meth|mod|attr|data):`~?(?:[\w.]+\.)?(\w+)`")
_MATH = re.compile(r":math:`([^`]*)`")


class Docstrings(griffe.Extension):  # type: ignore[misc]  # griffe may be absent where types are checked
    """Rewrites every docstring before mkdocstrings reads it."""

    def on_instance(self, *, obj: Any, **_: Any) -> None:
        """Rewrite one docstring."""
        if obj.docstring is not None:
            obj.docstring.value = rewritten(obj.docstring.value)

    def on_package(self, *, pkg: Any, **_: Any) -> None:
        """Say what packages offer whose names are loaded on first use: no list is written down that could be read."""
        for module in (pkg, *pkg.modules.values()):
            if module.is_init_module and hasattr(loaded := import_module(module.path), "__all__"):
                module.exports = list(loaded.__all__)


def rewritten(text: str) -> str:
    """Return a docstring with its examples and displayed formulas fenced."""
    text = _MATH.sub(lambda found: f"`{found[1]}`", _ROLE.sub(r"`\1`", text)).replace("``", "`")
    lines: list[str] = []
    waiting = iter(text.splitlines())
    for line in waiting:
        bare = line.strip()
        indent = line[: len(line) - len(line.lstrip())]
        if bare.startswith(">>>"):
            block = [line, *_until_blank(waiting)]
            lines += [f"{indent}```python", *block, f"{indent}```", ""]
        elif bare.startswith(".. math::"):
            block = [f"{indent}{bare.removeprefix('.. math::').strip()}", *_until_blank(waiting)]
            lines += ["", f"{indent}```text", *[row for row in block if row.strip()], f"{indent}```", ""]
        else:
            lines.append(line)
    return "\n".join(lines)


def _until_blank(lines: Any) -> list[str]:
    found: list[str] = []
    for line in lines:
        if not line.strip():
            break
        found.append(line)
    return found
