"""What the documentation shows is run, page by page, in a folder of its own."""

from __future__ import annotations

import datetime as dt
import os
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

import warmed

if TYPE_CHECKING:
    import polars as pl

    from escudo.table import LinkedSchema, Schema

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
MADE = ("commands", "gallery")  # pages that are written by running what they show, when the documentation is built
WRITTEN = sorted(path for path in DOCS.rglob("*.md") if path.relative_to(DOCS).parts[0] not in MADE)
PAGES = sorted(path for path in WRITTEN if re.search(r"^```(python|bash)$", path.read_text(), re.MULTILINE))
BLOCK = re.compile(r"^```(python|bash)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FORMATS = ("DOT", "GML", "dagitty", "BIF")


TYPED = re.compile(r"escudo ([^|&;<>$`]*?)(?: \|\| test \$\? -eq (\d+))?")


def steps(page: Path) -> str:
    """Return a page's blocks as one program, each of which must succeed."""
    lines = [PRELUDE]
    for kind, code in BLOCK.findall(page.read_text(encoding="utf-8")):
        lines += [code] if kind == "python" else commands(code)
    return "\n".join(lines)


PRELUDE = """
import sys as _sys, subprocess as _shell
def _escudo(words, ends):
    from escudo.cli import main
    _sys.argv = ["escudo", *words]
    try:
        main()
    except SystemExit as end:
        assert (end.code or 0) in ends, (words, end.code)
"""


def commands(code: str) -> list[str]:
    """Return how a block of commands is run: escudo's in the page's own process, what needs a shell through one."""
    typed = [TYPED.fullmatch(line) for line in code.replace("\\\n", " ").splitlines() if line]
    if all(typed):
        return [f"_escudo({shlex.split(one[1])!r}, {[0, int(one[2] or 0)]!r})" for one in typed if one]
    return [f"_shell.run({('set -e' + chr(10) + code)!r}, shell=True, check=True, executable='/bin/bash')"]


def interpreter(page: Path) -> str:
    """Return what runs a page: this Python; one of build/peers if the page says that it needs what this one lacks."""
    said = re.search(r"^<!-- needs: (.*) -->$", page.read_text(encoding="utf-8"), re.MULTILINE)
    needed = [name.strip() for name in said.group(1).split(",")] if said else []
    missing = [name for name in needed if find_spec(name) is None]
    if not missing:
        return sys.executable
    peer = ROOT / "build" / "peers" / missing[0] / "bin" / "python"
    if not peer.exists():
        pytest.skip(f"{page.name} needs {missing[0]}, which clashes with escudo's own libraries; {peer} is not there")
    return str(peer)


@pytest.mark.parametrize("page", [str(path.relative_to(DOCS)) for path in PAGES])
def test_the_examples_of_a_page_run(page: str, tmp_path: Path) -> None:
    place = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),  # the examples are about this checkout
        "PYTHONWARNINGS": "",
    }
    place.pop("ESCUDO_LEDGER", None)
    python = interpreter(DOCS / page)
    if python == sys.executable:
        code, said = warmed.start(steps(DOCS / page), folder=tmp_path, environment=place).end()
        assert code == 0, said[-6000:]
        return
    place.pop("XLA_FLAGS", None)  # which an older jaxlib may not know
    run = subprocess.run(
        [python, "-c", steps(DOCS / page)], cwd=tmp_path, env=place, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-4000:]


TOML = [
    pytest.param(text, id=f"{path.relative_to(ROOT)} {number}")
    for path in [ROOT / "README.md", *WRITTEN]
    for number, text in enumerate(
        re.findall(r"^```toml\n(.*?)^```$", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    )
]


@pytest.mark.parametrize("text", TOML)
def test_every_schema_that_is_shown_is_one_and_of_use(text: str, tmp_path: Path) -> None:
    from escudo.table import LinkedSchema, Schema

    shown = tomllib.loads(text)
    if "linked" in shown:
        linked = LinkedSchema.from_dict(shown)
        assert linked.confirmed
        drawn = _used_together(linked, tmp_path)
        assert {name: set(linked.schema_of(name).names) - set(drawn[name].columns) for name in linked.tables} == {
            name: set() for name in linked.tables
        }
        return
    missing = {} if "columns" in shown else {"columns": {"smoke": ["no", "yes"]}}  # a part that says how to go on
    schema = Schema.from_dict({**shown, **missing})
    kept = schema.to_dict()["table"] if "table" in shown else {}
    assert {key: value for key, value in shown.get("table", {}).items() if value} == kept
    assert schema.confirmed
    rows = _used(schema, tmp_path / "visits.csv")
    assert set(rows.columns) == set(schema.names)


def _used(schema: Schema, file: Path) -> pl.DataFrame:
    """Write a file as a schema says that it is written, check it, and release rows of such a table."""
    from escudo import PrivateTable, synthesize
    from escudo.table import check, open_data

    _write(schema, file, [dict.fromkeys(schema.keys, f"person {row // 2}") for row in range(40)])
    checked = check(file, schema)
    assert checked.problems == ()
    assert checked.file is not None
    assert checked.file.findings == ()
    table = PrivateTable(open_data(str(file), schema), schema)
    return synthesize(table, None, epsilon=5.0, delta=1e-6, seed=1, accept_large_delta=True).sample(5, seed=1)


def _used_together(schema: LinkedSchema, folder: Path) -> Mapping[str, pl.DataFrame]:
    """Write a file for each table of people with two rows each, check them, and release people with their rows."""
    from escudo import PrivateTables, synthesize
    from escudo.table import check_linked, open_data

    def day(number: int) -> str:
        shown = dt.date(2020, 1, 1) + dt.timedelta(days=number)
        return str(number) if schema.dates == "days" else shown.strftime(schema.dates)

    people = [{schema.key: f"person {one}", **({schema.origin: day(0)} if schema.origin else {})} for one in range(40)]
    known = {schema.people: people}
    for child in schema.children:
        keys = [(f"person {row // 2}", f"row {row % 2}", day(2 + row % 2 + bool(child.parent))) for row in range(80)]
        named = (child.foreign_key, child.key or child.row_key, child.order)
        known[child.name] = [{name: said for name, said in zip(named, each, strict=True) if name} for each in keys]
    files = {name: folder / f"{name}.csv" for name in schema.tables}
    for name, file in files.items():
        _write(schema.reading(name), file, known[name])
    checked = check_linked({name: str(file) for name, file in files.items()}, schema)
    assert checked.problems == ()
    assert checked.findings == (f"{schema.people}: 40 people in 40 rows.",)
    tables = PrivateTables({name: open_data(str(file), schema.reading(name)) for name, file in files.items()}, schema)
    return synthesize(tables, None, epsilon=5.0, delta=1e-6, seed=1, accept_large_delta=True).sample(5, seed=1)


def _write(schema: Schema, file: Path, known: Sequence[Mapping[str, str]]) -> None:
    """Write a file as a schema says that it is written: of each row what is known, and any values that fit."""
    from escudo.table import Numeric

    def spelt(name: str, row: int) -> str:
        column = schema.columns.get(name)
        if column is None or name in known[row]:
            return known[row].get(name, "of no use")
        if not isinstance(column, Numeric):
            level = column.levels[row % len(column.levels)]
            return str(level).lower() if isinstance(level, bool) else str(level)
        low, high = column.bounds
        number = low + (high - low) * (0.2 + 0.6 * (row % 7) / 7)
        if column.date is not None:
            return (dt.date(1970, 1, 1) + dt.timedelta(days=int(number))).strftime(column.date)
        return str(int(number)) if column.integer else f"{number:.3f}".replace(".", schema.decimal)

    derived = {column.name for column in schema.fields if isinstance(column, Numeric) and column.derived}
    names = schema.header or tuple(name for name in (*schema.keys, *schema.names) if name not in derived)
    lines = [[spelt(name, row) for name in names] for row in range(len(known))]
    text = "".join(
        (schema.delimiter or ",").join(line) + "\n" for line in ([*([] if schema.header else [names]), *lines])
    )
    file.write_bytes(text.encode(schema.encoding))


def test_schemas_are_shown() -> None:
    assert len(TOML) >= 5


def test_every_command_that_is_shown_exists_with_its_options() -> None:
    from typer.main import get_command

    from escudo.cli import app

    root = get_command(app)
    shown = []
    for path in [ROOT / "README.md", *WRITTEN]:
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


def test_every_command_has_a_transcript() -> None:
    from typer.main import get_command

    from escudo.cli import app

    run = runpy.run_path(str(DOCS / "_transcripts.py"))["SESSION"]
    assert {line.split()[0] for line, _ in run} == {*get_command(app).commands}


def test_every_public_package_has_its_page_and_every_page_is_in_the_navigation() -> None:
    import escudo

    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    packages = {name for name in escudo.__all__ if isinstance(getattr(escudo, name), ModuleType)}
    for name in packages:
        assert (DOCS / "reference" / f"{name}.md").exists(), name
    for path in WRITTEN:
        assert str(path.relative_to(DOCS)) in navigation, path
    verbs = (DOCS / "reference" / "escudo.md").read_text(encoding="utf-8")
    for name in {*escudo.__all__} - packages:
        assert f"`{name}`" in verbs or f"`escudo.{name}`" in verbs, name


def test_every_deprecation_names_the_version_that_removes_it_and_is_listed() -> None:
    listed = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").count("| 0.3 |")
    warned = 0
    for path in (ROOT / "src").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for call in re.findall(r"warnings\.warn\((.*?)DeprecationWarning", text, re.DOTALL):
            assert re.search(r"will end with version \d+\.\d+", call), path
            warned += 1
    assert warned == listed


def test_every_block_is_of_a_kind_that_is_run_or_read() -> None:
    """Python and commands run, schemas are read, services in other languages are audited (``test_http.py``).

    Without a kind are only commands that want something this machine need not have; their words are checked above.
    """
    known = {"python", "bash", "toml", "yaml", "javascript", "java"}
    bare = set()
    for path in [ROOT / "README.md", *WRITTEN]:
        fences = re.findall(r"^```(.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
        assert len(fences) % 2 == 0, path
        kinds = set(fences[::2])
        assert kinds <= {*known, ""}, (path, kinds)
        bare |= {path.name} if "" in kinds else set()
    assert bare == {"README.md", "postgresql.md", "spark.md"}


def test_pipelines_that_are_shown_are_yaml() -> None:
    import yaml

    shown = re.findall(
        r"^```yaml\n(.*?)^```$", (DOCS / "how-to" / "audits-in-a-build.md").read_text(), re.DOTALL | re.MULTILINE
    )
    jobs = [
        yaml.safe_load(text) for text in [*shown, *(path.read_text() for path in (ROOT / ".github").rglob("*.yml"))]
    ]
    assert len(jobs) >= 4
    assert all(isinstance(job, dict) for job in jobs)
