"""What the documentation makes of the code when it is built: pages of commands, examples and papers, and pictures."""

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


def on_startup(command: str, dirty: bool) -> None:
    """Run every command and every worked example once, and write a page for each."""
    import sys

    sys.path.insert(0, str(ROOT))
    from _gallery import gallery
    from _transcripts import transcripts

    root, shown = _root(), transcripts()
    for name, found in sorted(root.commands.items()):
        lines = _described(f"escudo {name}", found, level=1)
        lines += ["## As it runs", "", "On 2,000 simulated patients, while this page was made.", ""]
        for line, printed in shown[name]:
            lines += ["```console", f"$ {line}", printed, "```", ""]
        _write(_folder("commands") / f"{name}.md", "\n".join(lines) + "\n")
    for name, page in gallery().items():
        _write(_folder("gallery") / f"{name}.md", page)


def on_config(config: Any) -> None:
    """Put the pages that were made into the navigation."""
    for title, folder in (("Commands, one by one", "commands"), ("Gallery", "gallery")):
        pages = [f"{folder}/{path.name}" for path in sorted((ROOT / folder).glob("*.md"))]
        if pages and config["nav"] is not None:
            config["nav"].append({title: pages})


def _folder(name: str) -> Path:
    folder = ROOT / name
    folder.mkdir(exist_ok=True)
    return folder


def _root() -> Any:
    from typer.main import get_command

    from escudo.cli import app

    return get_command(app)


def commands() -> str:
    """Return the page of commands, from the same words that ``--help`` shows."""
    root = _root()
    lines = ["# Commands", "", root.help or "", "", "Every command has `--help`, and all but the studio `--json`.", ""]
    lines += ["| command | |", "|---|---|"]
    for name, command in sorted(root.commands.items()):
        first = _plain(command.help or "").split("\n\n")[0].replace("\n", " ")
        lines.append(f"| [escudo {name}](../commands/{name}.md) | {first} |")
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
        "promise": _promise,
        "forecast": _forecast,
        "partial": lambda: str(partial.to_svg()),
        "survey": lambda: str(effects_picture(sem, survey(sem))),
    }


def _promise() -> str:
    """Return how one person reaches a release, with what bounds it."""
    import escudo

    edges = [
        ("one person", "their row"),
        ("everybody else", "all other rows"),
        ("their row", "measured, with noise"),
        ("all other rows", "measured, with noise"),
        ("measured, with noise", "synthetic rows, model, report"),
    ]
    graph = escudo.CausalGraph.from_edges(edges, exposures=["one person"], outcomes=[edges[-1][1]])
    labels = {edges[2]: "an effect of at most ε", edges[4]: "adds nothing"}
    return str(graph.to_svg(edge_labels=labels, title="How one person reaches a release", direction="down"))


def _forecast() -> str:
    """Return the error that is expected of the clinic's table, over ε, as SVG."""
    import io

    import escudo
    from escudo.causal import asia
    from escudo.synthesis import forecast

    clinic = asia()
    schema = escudo.Schema.from_dict({name: list(levels) for name, levels in clinic.levels.items()})
    drawn = forecast(schema, clinic.graph, epsilon=1.0, delta=1e-6, rows=4_000).plot()
    text = io.StringIO()
    drawn.figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()
