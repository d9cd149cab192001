"""What the documentation shows is run, page by page, in a folder of its own."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if re.search(r"^```(python|bash)$", path.read_text(), re.MULTILINE))
BLOCK = re.compile(r"^```(python|bash)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FORMATS = ("DOT", "GML", "dagitty", "BIF")


def steps(page: Path) -> str:
    """Return a page's blocks as one program: Python as it is, commands through the shell, each must succeed."""
    lines = ["import subprocess as _shell"]
    for kind, code in BLOCK.findall(page.read_text(encoding="utf-8")):
        shell = f"_shell.run({('set -e' + chr(10) + code)!r}, shell=True, check=True, executable='/bin/bash')"
        lines.append(code if kind == "python" else shell)
    return "\n".join(lines)


@pytest.mark.parametrize("page", [str(path.relative_to(DOCS)) for path in PAGES])
def test_the_examples_of_a_page_run(page: str, tmp_path: Path) -> None:
    place = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONWARNINGS": "",
    }
    place.pop("ESCUDO_LEDGER", None)
    run = subprocess.run(
        [sys.executable, "-c", steps(DOCS / page)],
        cwd=tmp_path, env=place, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-4000:]


TOML = [
    pytest.param(text, id=f"{path.relative_to(ROOT)} {number}")
    for path in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
    for number, text in enumerate(
        re.findall(r"^```toml\n(.*?)^```$", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    )
]


@pytest.mark.parametrize("text", TOML)
def test_every_schema_that_is_shown_is_one(text: str) -> None:
    from escudo.table import Schema

    shown = tomllib.loads(text)
    missing = {} if "columns" in shown else {"columns": {"smoke": ["no", "yes"]}}  # a part that says how to go on
    schema = Schema.from_dict({**shown, **missing})
    kept = schema.to_dict()["table"] if "table" in shown else {}
    assert {key: value for key, value in shown.get("table", {}).items() if value} == kept
    assert schema.confirmed


def test_schemas_are_shown() -> None:
    assert len(TOML) >= 5


def test_every_command_that_is_shown_exists_with_its_options() -> None:
    from typer.main import get_command

    from escudo.cli import app

    root = get_command(app)
    shown = []
    for path in [ROOT / "README.md", *DOCS.rglob("*.md")]:
        text = path.read_text(encoding="utf-8").replace("\\\n", " ")
        for block in re.findall(r"^```(?:[a-z]*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
            shown += [
                line.removeprefix("$ ") for line in block.splitlines() if line.startswith(("escudo ", "$ escudo "))
            ]
    assert len(shown) > 10
    for line in shown:
        words = shlex.split(line, comments=True)[1:]
        command = root
        while words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words.pop(0)]
        assert not hasattr(command, "commands"), line
        options = {name for parameter in command.params for name in parameter.opts} | {"--help"}
        for word in words:
            if word.startswith("--"):
                assert word.partition("=")[0] in options, f"{word} in: {line}"


def test_every_public_package_has_its_page_and_every_page_is_in_the_navigation() -> None:
    import escudo

    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    packages = {name for name in escudo.__all__ if isinstance(getattr(escudo, name), ModuleType)}
    for name in packages:
        assert (DOCS / "reference" / f"{name}.md").exists(), name
    for path in DOCS.rglob("*.md"):
        assert str(path.relative_to(DOCS)) in navigation, path
    verbs = (DOCS / "reference" / "escudo.md").read_text(encoding="utf-8")
    for name in {*escudo.__all__} - packages:
        assert f"`{name}`" in verbs or f"`escudo.{name}`" in verbs, name
