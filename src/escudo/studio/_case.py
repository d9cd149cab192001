"""What a custodian is working on: a table, its schema, a graph and a budget, as the files and words of a command.

Nothing is kept but what ``escudo release`` takes. The schema and the graph are files in the studio's private folder;
the rest are options of the command. So every page shows what the command line would, and the command, the Python
script, the notebook and the configuration that a page offers are the same question asked in other ways.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from escudo.errors import InputError

if TYPE_CHECKING:
    from escudo.causal import CausalGraph
    from escudo.privacy import LedgerAccount, Neighbours, Relation
    from escudo.releasing import PreparedRelease
    from escudo.table import PrivateTable, Schema

TERMS: dict[str, Any] = {
    "epsilon": 1.0,
    "delta": None,
    "relation": "replace_one",
    "generator": "marginals",
    "rows": None,
    "public-rows": None,
    "evaluate": None,
    "ledger": None,
    "dataset": None,
    "csv": False,
    "custodian": False,
    "accept-large-delta": False,
}
"""The options of ``escudo release`` that the studio sets, as they are if nobody says otherwise."""
_NUMBERS = {"epsilon": float, "delta": float, "evaluate": float, "rows": int, "public-rows": int}
_PYTHON = {"public-rows": None, "ledger": None, "dataset": None, "relation": None}
"""Terms that are said of the table in Python, not of the release."""


@dataclass(kw_only=True)
class Case:
    """A table on its way to a release.

    Attributes:
        folder: The studio's private folder.
        home: The folder that the studio was started in; where releases go.
        data: The table: a file, a folder or the address of a database.
        name: What the data are called in commands, where the file itself is a private copy of an upload.
        showing: Whether values read from the table are shown, to a custodian who asked for them.
        terms: Options of the release.
        out: The folder of the release.
    """

    folder: Path
    home: Path
    data: str = ""
    name: str = ""
    showing: bool = False
    terms: dict[str, Any] = field(default_factory=lambda: dict(TERMS))
    out: str = "release"
    _writing: Lock = field(default_factory=Lock, init=False, repr=False)

    @property
    def schema_file(self) -> Path:
        """Where the schema is."""
        return self.folder / "schema.toml"

    @property
    def graph_file(self) -> Path:
        """Where the graph is."""
        return self.folder / "graph.dot"

    @property
    def target(self) -> Path:
        """Where the release goes."""
        return self.home / self.out

    # ---- the table

    def schema(self) -> Schema | None:
        """Return the schema as it is now, drafted or confirmed; None before there is one."""
        if not self.schema_file.exists():
            return None
        from escudo.table import Schema  # slow to import, and not needed by the first page

        return Schema.read(self.schema_file)

    def write_schema(self, schema: Schema) -> None:
        """Keep a schema, readable by its owner only: what is not confirmed is private."""
        before = os.umask(0o077)
        try:
            schema.write(self.schema_file, overwrite=True)
        finally:
            os.umask(before)

    def describe(self, column: str, spec: Mapping[str, Any] | None) -> None:
        """Say what a column is, or with None that it is left out.

        Raises:
            SchemaError: If that cannot be; nothing has changed.
        """
        from escudo.table import Schema

        document = self._document()
        if spec is None:
            document["columns"].pop(column, None)
            if not document["columns"]:
                raise InputError("the last column cannot be left out.")
        else:
            document["columns"][column] = dict(spec)
        self.write_schema(Schema.from_dict(document))

    def protect(self, person: str | None, rows: int | None) -> None:
        """Say who is protected: one row, or a person by the column that names them, with so many rows.

        Raises:
            SchemaError: If that cannot be; nothing has changed.
        """
        from escudo.table import Schema

        document = self._document()
        table = {key: value for key, value in document.get("table", {}).items() if key not in _PERSON}
        if person:
            table |= {"person_id": person, "max_rows_per_person": rows}
            document["columns"].pop(person, None)
        document["table"] = table
        if not table:
            del document["table"]
        self.write_schema(Schema.from_dict(document))

    def confirm(self, columns: list[str]) -> None:
        """Vouch that the levels and bounds of columns are public knowledge."""
        schema = self.schema()
        if schema is None:
            raise InputError("there is no table yet; open one first.")
        self.write_schema(schema.confirm(columns))

    def _document(self) -> dict[str, Any]:
        schema = self.schema()
        if schema is None:
            raise InputError("there is no table yet; open one first.")
        return schema.to_dict()

    # ---- causes

    def graph(self) -> CausalGraph | None:
        """Return the graph as it was drawn; None if nothing was."""
        from escudo.causal import CausalGraph

        return CausalGraph.read(self.graph_file) if self.graph_file.exists() else None

    def write_graph(self, graph: CausalGraph | None) -> None:
        """Keep a graph, or with None that there is none."""
        if graph is None or not graph.nodes:
            self.graph_file.unlink(missing_ok=True)
        else:
            graph.write(self.graph_file)

    # ---- the budget

    def set_terms(self, said: Mapping[str, Any]) -> None:
        """Take options as a page sends them; an empty text is as by default.

        Rows per person are the schema's to say: they are written there.

        Raises:
            InputError: If one is unknown, or no number where one is needed.
            SchemaError: If nobody can have so many rows.
        """
        taken = dict(self.terms)
        for name, value in said.items():
            if name in ("out", _ROWS_PER_PERSON):
                continue
            if name not in TERMS:
                raise InputError(f"there is no option {name!r}.")
            kind = _NUMBERS.get(name)
            if isinstance(TERMS[name], bool):
                taken[name] = value in (True, "on", "true", "1")
            elif value in (None, ""):
                taken[name] = TERMS[name]
            elif kind is None:
                taken[name] = str(value)
            else:
                taken[name] = _number(name, value, kind)
        out = str(said.get("out") or self.out)
        if not out.strip() or out != Path(out).name:
            raise InputError("the folder of the release is one name, in the folder that the studio was started in.")
        if said.get(_ROWS_PER_PERSON) not in (None, ""):
            self._count_of_each(int(_number("rows per person", said[_ROWS_PER_PERSON], int)))
        self.terms, self.out = taken, out

    def _count_of_each(self, rows: int) -> None:
        """Let so many rows of each person count; two questions of a page may say so at once."""
        with self._writing:
            schema = self.schema()
            if schema is not None and schema.person_id and schema.max_rows_per_person != rows:
                self.protect(schema.person_id, rows)

    def table(self) -> PrivateTable:
        """Return the private table, as the command line would open it, with no account."""
        from escudo.table import PrivateTable, open_data

        schema = self.schema()
        if schema is None or not self.data:
            raise InputError("there is no table yet; open one first.")
        schema.require_confirmed(source="the table's page", data=self.name)
        return PrivateTable(
            open_data(self.data, schema), schema, relation=self.terms["relation"], rows=self.terms["public-rows"]
        )

    def public(self) -> tuple[Schema, Neighbours]:
        """Return the schema, once it is confirmed, and what else is public about the table.

        Raises:
            RefusedError: If it is not confirmed.
        """
        schema = self.table().schema
        terms = self.terms
        changed = self.schema_file.stat().st_mtime_ns
        return schema, _counted(self.data, terms["relation"], terms["public-rows"], self.schema_file, changed)

    def prepared(self) -> tuple[PreparedRelease, Neighbours]:
        """Return the release that would be made, with its plan; nothing is spent.

        Raises:
            EscudoError: As ``escudo release --plan`` does.
        """
        from escudo.privacy import Budget, usual_delta
        from escudo.releasing import SyntheticRelease

        schema, neighbours = self.public()
        terms = self.terms
        question = SyntheticRelease(graph=self.graph(), generator=terms["generator"], evaluate=terms["evaluate"])
        delta = usual_delta(neighbours) if terms["delta"] is None else terms["delta"]
        return question.prepare(schema, neighbours, Budget(terms["epsilon"], delta)), neighbours

    def account(self) -> LedgerAccount | None:
        """Return the ledger account that would be charged; None if none was named."""
        from escudo.privacy import Ledger

        dataset = self.terms["dataset"]
        return None if not dataset else Ledger(self.ledger).account(dataset)

    @property
    def ledger(self) -> str:
        """The ledger's address: what was said, the environment's, or the usual file."""
        return self.terms["ledger"] or os.environ.get("ESCUDO_LEDGER") or "sqlite:///escudo-ledger.db"

    # ---- the question in words

    def said(self) -> dict[str, Any]:
        """Return the options that are not as by default."""
        found = {name: value for name, value in self.terms.items() if value != TERMS[name]}
        found["epsilon"] = self.terms["epsilon"]
        if found.get("dataset"):
            found["ledger"] = self.ledger
        else:
            found.pop("ledger", None)
        return found

    def words(self, data: str, schema: str, graph: str | None, out: str) -> list[str]:
        """Return what would be typed after ``escudo`` to make this release."""
        options = {"schema": schema, "graph": graph, **self.said(), "out": out}
        words = ["release"]
        for name, value in options.items():
            if value is True:
                words.append(f"--{name}")
            elif value not in (None, False):
                words.append(f"--{name}={value}")
        return [*words, "--", data]

    def release_words(self) -> list[str]:
        """Return the words of the release itself, with the private files."""
        graph = str(self.graph_file) if self.graph_file.exists() else None
        return [*self.words(self.data, str(self.schema_file), graph, str(self.target))[:-2], "--json", "--", self.data]

    def recipe(self) -> dict[str, str]:
        """Return the release as files that others can run: each gives the same plan.

        Paths are relative to the folder that holds them, where the data are expected, too.
        """
        schema, graph = self.schema(), self.graph()
        if schema is None:
            raise InputError("there is no table yet; open one first.")
        drawn = None if graph is None else "graph.dot"
        words = self.words(self.name, "schema.toml", drawn, self.out)
        found = {
            "schema.toml": schema.to_toml(),
            "release.sh": f"#!/bin/sh\n# What the studio ran.\nescudo {shlex.join(words)}\n",
            "release.toml": self._toml(drawn),
            "release.py": self._script(drawn),
        }
        if graph is not None:
            found["graph.dot"] = graph.to_text("dot")
        found["release.ipynb"] = _notebook(found["release.py"])
        return found

    def write_recipe(self) -> Path:
        """Write these files beside the release, and return their folder."""
        folder = self.target.with_name(f"{self.target.name}-recipe")
        folder.mkdir(exist_ok=True)
        for name, text in self.recipe().items():
            (folder / name).write_text(text, encoding="utf-8")
        return folder

    def _toml(self, graph: str | None) -> str:
        from escudo.table import toml_pairs

        told: dict[str, Any] = {"command": "release", "data": self.name, "schema": "schema.toml"}
        told |= {"graph": graph} if graph else {}
        told |= {name: value for name, value in self.said().items() if value not in (None, False)} | {"out": self.out}
        return f"# What 'escudo run release.toml' does; paths are relative to this file.\n{toml_pairs(told)}"

    def _script(self, graph: str | None) -> str:
        said = self.said()
        table = [f"open_data({self.name!r}, schema)", "schema"]
        if said.get("dataset"):
            table += [repr(said["ledger"]), repr(said["dataset"])]
        table += [f"relation={self.terms['relation']!r}"] if "relation" in said else []
        table += [f"rows={said['public-rows']!r}"] if "public-rows" in said else []
        asked = {"graph": f"escudo.CausalGraph.read({graph!r})"} if graph else {}
        asked |= {
            name.replace("-", "_"): repr(value)
            for name, value in said.items()
            if name not in _PYTHON and value not in (None, False)
        }
        listed = "".join(f"    {name}={value},\n" for name, value in asked.items())
        return (
            "# What the studio ran, in Python. The plan is shown first; nothing is spent by it.\n"
            "import escudo\n"
            "from escudo.table import open_data\n\n"
            'schema = escudo.Schema.read("schema.toml")\n'
            f"table = escudo.PrivateTable({', '.join(table)})\n"
            f"what = dict(\n{listed})\n\n"
            f"print(escudo.plan(escudo.release, table, {self.out!r}, **what))\n"
            f"files = escudo.release(table, {self.out!r}, **what)\n"
        )


_PERSON = ("person_id", "max_rows_per_person")
_ROWS_PER_PERSON = "rows-per-person"


def _number(name: str, value: Any, kind: type[int] | type[float]) -> float:
    try:
        return kind(value)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{name} must be a number.") from None


@lru_cache(maxsize=8)
def _counted(data: str, relation: Relation, rows: int | None, schema: Path, changed: int) -> Neighbours:
    """Return what is public about a table; counted once for each version of its schema."""
    from escudo.table import PrivateTable, Schema, open_data

    read = Schema.read(schema)
    return PrivateTable(open_data(data, read), read, relation=relation, rows=rows).neighbours


def _notebook(script: str) -> str:
    """Return a script as a notebook of three cells: what it is, the plan, the release."""
    comment, code = script.split("\n", 1)
    *first, last = code.rstrip("\n").split("\n")
    cells = [
        {"cell_type": "markdown", "id": "about", "metadata": {}, "source": comment.removeprefix("# ")},
        *(
            {
                "cell_type": "code",
                "id": name,
                "metadata": {},
                "execution_count": None,
                "outputs": [],
                "source": "\n".join(lines),
            }
            for name, lines in (("plan", first), ("release", [last]))
        ),
    ]
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return json.dumps({"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n"
