"""What the documentation makes of the code when it is built: the pages of commands and papers, and the pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent
PICTURES = ROOT / "pictures"


def on_pre_build(config: Any) -> None:
    """Draw the pictures and write the pages of commands and papers, before mkdocs lists the files."""
    PICTURES.mkdir(exist_ok=True)
    for name, draw in _drawings().items():
        _write(PICTURES / f"{name}.svg", draw())
    _write(ROOT / "reference" / "commands.md", commands())
    _write(ROOT / "papers.md", papers())


def _write(path: Path, text: str) -> None:
    if not path.exists() or path.read_text(encoding="utf-8") != text:  # else `mkdocs serve` builds for ever
        path.write_text(text, encoding="utf-8")


def commands() -> str:
    """Return the page of commands, from the same words that ``--help`` shows."""
    from typer.main import get_command

    from escudo.cli import app

    root = get_command(app)
    lines = ["# Commands", "", root.help or "", "", "Every command has `--help` and `--json`.", ""]
    for name, command in sorted(root.commands.items()):  # type: ignore[attr-defined]
        lines += _described(f"escudo {name}", command, level=2)
    return "\n".join(lines) + "\n"


def papers() -> str:
    """Return what of the papers holds, from the index of the experiments."""
    import runpy

    page: str = runpy.run_path(str(ROOT.parent / "experiments" / "papers.py"))["page"]()
    return page


def _described(name: str, command: Any, level: int) -> list[str]:
    lines = [f"{'#' * level} {name}", "", *(_plain(command.help or "").splitlines()), ""]
    children = getattr(command, "commands", {})
    if children:
        for child, found in sorted(children.items()):
            lines += _described(f"{name} {child}", found, level + 1)
        return lines
    lines += ["| | |", "|---|---|"]
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            shown = (parameter.metavar or parameter.name or "").upper()
        else:
            shown = ", ".join(parameter.opts)
        default = (
            "" if parameter.required or parameter.default in (None, False, ()) else f" Default: {parameter.default}."
        )
        text = _plain(getattr(parameter, "help", None) or "").replace("|", "\\|").replace("\n", " ")
        lines.append(f"| `{shown}` | {text}{default} |")
    return [*lines, ""]


def _plain(text: str) -> str:
    """Return help as Markdown: no rich markup, and nothing that reads as HTML."""
    return text.replace("<", "&lt;").replace("[bold]", "**").replace("[/bold]", "**")


def _drawings() -> dict[str, Any]:
    import escudo
    from escudo.causal import SEM, asia
    from escudo.effects import survey
    from escudo.report import effects_picture

    sem = SEM.read(ROOT.parent / "examples" / "ada_and_byron.sem")
    partial = escudo.CausalGraph.from_edges([("smoke", "lung"), ("smoke", "bronc")])
    return {
        "clinic": lambda: str(asia().graph.to_svg()),
        "partial": lambda: str(partial.to_svg()),
        "survey": lambda: str(effects_picture(sem, survey(sem))),
    }
