"""Everything that can be asked of a private table: each verb in Python, with every generator and method, and on the
command line with every kind of file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextvars import Context
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

import escudo
from escudo.discovery import prepare as prepare_discovery
from escudo.discovery import run_prepared
from escudo.privacy import MemoryAccount, Relation, Unit
from escudo.synthesis import Prepared, fit, prepare, prepare_discovered
from escudo.table import PrivateTable, Schema
from escudo.utility import evaluate_privately, fitting_evaluated, prepare_evaluated
from neighbours.files import address, stated
from neighbours.tables import ENGINES, MOST_ROWS, RELATIONS, UNITS, Content, base_rows, columns_of, graph_of, schema_of

SEED = 7
BUDGET: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-6}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """Something that can be asked.

    Attributes:
        name: What it is called in a finding.
        ask: Asks it of a frame, with a folder of its own to write to.
        content: Which table it is asked of.
        rows: How many rows that has.
        relations: Which relations it knows.
        units: Which units it knows.
        file: The ending of the file that it reads; empty where it takes a frame.
        cost: About how long it takes, in milliseconds: what takes long is asked less often.
    """

    name: str
    ask: Callable[[Asked, Path], Any]
    content: Content = "mixed"
    rows: int = 24
    relations: tuple[Relation, ...] = RELATIONS
    units: tuple[Unit, ...] = UNITS
    file: str = ""
    cost: int = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """On what a verb is asked: the frame or file, and the public terms."""

    frame: Any = field(repr=False)
    content: Content
    relation: Relation
    unit: Unit
    rows: int

    @property
    def schema(self) -> Schema:
        """What is public about the table."""
        return _schema(self.content, self.unit)

    @property
    def known_rows(self) -> int | None:
        """The number of rows, where all neighbours share it."""
        return self.rows if (self.relation, self.unit) == ("replace_one", "row") else None

    def account(self) -> MemoryAccount:
        """Return an account for these terms."""
        most = MOST_ROWS if self.unit == "person" else None
        return MemoryAccount(relation=self.relation, unit=self.unit, max_rows_per_person=most)

    def table(self, rows: int | None = None) -> PrivateTable:
        """Return the private table, with an account in memory; a number of rows is stated where it is private."""
        known = rows if self.relation == "add_remove" else None
        return PrivateTable(self.frame, self.schema, self.account(), rows=known)


@cache
def _schema(content: Content, unit: Unit) -> Schema:
    return schema_of(content, unit)


def _told(table: PrivateTable, answer: Any, folder: Path) -> Any:
    """Return all that an answer shows, and what was charged for it."""
    if hasattr(answer, "save"):
        answer.save(folder / "model")
        kind = {"frame": "polars"} if hasattr(answer, "frames") else {}  # else that of the frame that came in
        drawn = answer.sample(20, seed=SEED, **kind)
        return (str(answer), drawn, table.account.receipts, table.account.failed, repr(table))  # type: ignore[attr-defined]
    return (answer, str(answer), answer._repr_html_(), table.account.receipts, table.account.failed)  # type: ignore[attr-defined]


# What to measure is a function of public facts: it is worked out once for all neighbours, by this key.
@cache
def _generator(content: Content, unit: Unit, relation: Relation, rows: int | None, name: str, options: str) -> Prepared:
    given = json.loads(options)
    graph = graph_of(content) if given.pop("graph", True) else None
    given = {key: tuple(value) if isinstance(value, list) else value for key, value in given.items()}
    schema = _schema(content, unit)
    return prepare(schema, graph, generator=name, relation=relation, public_rows=rows, **BUDGET, **given)


def _fitted(name: str, **options: Any) -> Callable[[Asked, Path], Any]:
    def ask(asked: Asked, folder: Path) -> Any:
        terms = asked.content, asked.unit, asked.relation, asked.known_rows
        table = asked.table()
        return _told(table, fit(_generator(*terms, name, json.dumps(options)), table, seed=SEED), folder)

    return ask


def _synthesized(name: str, **options: Any) -> Callable[[Asked, Path], Any]:
    def ask(asked: Asked, folder: Path) -> Any:
        table, graph = asked.table(), graph_of(asked.content)
        terms: dict[str, Any] = {"seed": SEED, **BUDGET, **options}
        return _told(table, escudo.synthesize(table, graph, generator=name, **terms), folder)

    return ask


@cache
def _found(content: Content, unit: Unit, relation: Relation, rows: int | None, name: str) -> Prepared:
    terms: dict[str, Any] = {"relation": relation, "public_rows": rows, "generator": name}
    return prepare_discovered(_schema(content, unit), **terms, **BUDGET)


def _synthesized_without_graph(name: str = "marginals") -> Callable[[Asked, Path], Any]:
    def ask(asked: Asked, folder: Path) -> Any:
        table = asked.table()
        prepared = _found(asked.content, asked.unit, asked.relation, asked.known_rows, name)
        return _told(table, fit(prepared, table, seed=SEED), folder)

    return ask


@cache
def _evaluated(content: Content, unit: Unit, relation: Relation, rows: int | None) -> Any:
    def generator(epsilon: float) -> Prepared:
        terms: dict[str, Any] = {"relation": relation, "public_rows": rows, "delta": BUDGET["delta"]}
        return prepare(_schema(content, unit), graph_of(content), epsilon=epsilon, **terms)

    return prepare_evaluated(generator, share=0.2, relation=relation, public_rows=rows, **BUDGET)


def _synthesized_and_evaluated(asked: Asked, folder: Path) -> Any:
    table = asked.table()
    prepared = _evaluated(asked.content, asked.unit, asked.relation, asked.known_rows)
    with fitting_evaluated(prepared, table, seed=SEED) as (model, evaluate):
        figures = evaluate(model.sample(20, seed=SEED))
        return _told(table, model, folder), figures, str(figures)


@cache
def _discovery(content: Content, unit: Unit, relation: Relation, rows: int | None, options: str) -> Any:
    terms: dict[str, Any] = {"relation": relation, "public_rows": rows, **BUDGET}
    return prepare_discovery(_schema(content, unit), **terms, **json.loads(options))


def _discovered(**options: Any) -> Callable[[Asked, Path], Any]:
    def ask(asked: Asked, folder: Path) -> Any:
        prepared = _discovery(asked.content, asked.unit, asked.relation, asked.known_rows, json.dumps(options))
        table = asked.table()
        return _told(table, run_prepared(prepared, table, seed=SEED), folder)

    return ask


def _directed(method: str, **options: Any) -> Callable[[Asked, Path], Any]:
    def ask(asked: Asked, folder: Path) -> Any:
        table = asked.table(rows=120)
        terms: dict[str, Any] = {"seed": SEED, "epsilon": 20.0, **options}
        return _told(table, escudo.direction(table, "height", "dose", method=method, **terms), folder)

    return ask


def _oriented(asked: Asked, folder: Path) -> Any:
    table = asked.table(rows=120)
    return _told(table, escudo.orient(table, epsilon=20.0, blocks=8, seed=SEED), folder)


def _effect(**options: Any) -> Callable[[Asked, Path], Any]:
    def ask(asked: Asked, folder: Path) -> Any:
        table = asked.table()
        terms: dict[str, Any] = {"graph": graph_of("mixed"), "seed": SEED, "epsilon": 2.0}
        return _told(table, escudo.effect_of(table, "smoke", "lung", **terms, **options), folder)

    return ask


@cache
def _kinds(unit: Unit) -> Schema:
    """Return a schema of which only the names and kinds of columns are known, and for persons whose rows they are."""
    terms: dict[str, Any] = {"person_id": "who", "max_rows_per_person": MOST_ROWS} if unit == "person" else {}
    columns = {
        "smoke": {"type": "categorical", "levels": [], "confirmed": False},
        "age": {"type": "numeric", "confirmed": False},
        "stage": {"type": "ordinal", "levels": [1, 2, 3]},
    }
    return Schema.from_dict(columns, **terms)


def _learnt(asked: Asked, folder: Path) -> Any:
    account, start = asked.account(), _kinds("person") if asked.unit == "person" else None
    terms: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-6, "relation": asked.relation, "seed": SEED}
    learnt = escudo.learn_schema(asked.frame, start, account=account, **terms)
    return learnt.value.to_dict(), learnt.guarantee, account.receipts, account.failed


@cache
def _made() -> Any:
    """Return synthetic rows that were released before, of another table."""
    frame = ENGINES["polars"].frame(base_rows("mixed", np.random.default_rng(0), 40, "row"), columns_of("mixed"))
    table = PrivateTable(frame, _schema("mixed", "row"))
    made = partial(escudo.synthesize, table, None, generator="independent", seed=1, **BUDGET)
    return Context().run(made).sample(30, seed=1)  # in a context of its own, where nobody watches the draws


def _judged(asked: Asked, folder: Path) -> Any:
    table = asked.table()
    return _told(table, evaluate_privately(table, _made(), epsilon=2.0, seed=SEED), folder)


SHORT: dict[str, Any] = {"steps": 2, "pretraining": 2}
NETWORKS: dict[str, dict[str, Any]] = {
    "autoregressive": SHORT,
    "vae": {**SHORT, "latent": 1, "encoder": [], "decoder": []},
}

PYTHON = [
    Verb(name="synthesize marginals", ask=_fitted("marginals"), cost=30),
    Verb(name="synthesize marginals, whole call", ask=_synthesized("marginals"), cost=75),
    Verb(name="synthesize without a graph", ask=_fitted("marginals", graph=False), cost=45),
    Verb(name="synthesize moments", ask=_fitted("moments"), cost=50),
    Verb(name="synthesize one-way", ask=_fitted("one-way"), cost=50),
    Verb(name="synthesize independent", ask=_fitted("independent"), cost=45),
    Verb(name="synthesize linear", ask=_fitted("linear"), content="numbers", cost=20),
    Verb(name="synthesize autoregressive", ask=_fitted("autoregressive", **NETWORKS["autoregressive"]), cost=100),
    Verb(name="synthesize vae", ask=_fitted("vae", **NETWORKS["vae"]), cost=100),
    Verb(
        name="synthesize autoregressive of numbers",
        ask=_fitted("autoregressive", hidden=[3], **NETWORKS["autoregressive"]),
        content="numbers",
        cost=100,
    ),
    Verb(
        name="synthesize a graph together with its network",
        ask=_fitted("autoregressive", graph=False, steps=2, discover="joint"),
        cost=150,
    ),
    Verb(
        name="synthesize a network as printed",
        ask=_fitted("vae", architecture="columns", hidden=[2], latent=1, encoder=[2], decoder=[2], steps=2),
        relations=("replace_one",),
        units=("row",),  # its number of rows has to be public
        cost=100,
    ),
    Verb(name="synthesize with private bins", ask=_fitted("marginals"), content="unbinned", cost=60),
    Verb(name="synthesize moments with private bins", ask=_fitted("moments"), content="unbinned", cost=80),
    Verb(
        name="synthesize private bins and a graph that is found",
        ask=_synthesized_without_graph(),
        content="unbinned",
        cost=110,
    ),
    Verb(name="synthesize with a graph that is found", ask=_synthesized_without_graph(), cost=85),
    Verb(name="synthesize moments along a graph found first", ask=_synthesized_without_graph("moments"), cost=120),
    Verb(
        name="synthesize moments with private bins along a graph found first",
        ask=_synthesized_without_graph("moments"),
        content="unbinned",
        cost=150,
    ),
    Verb(
        name="synthesize linear along a graph found first",
        ask=_synthesized_without_graph("linear"),
        content="numbers",
        cost=110,
    ),
    Verb(name="synthesize and evaluate", ask=_synthesized_and_evaluated, cost=290),
    Verb(name="discover exact", ask=_discovered(method="exact"), cost=70),
    Verb(name="discover two-stage", ask=_discovered(method="two-stage"), cost=45),
    Verb(name="discover joint", ask=_discovered(method="joint"), cost=75),
    Verb(name="discover gaussian", ask=_discovered(method="gaussian"), content="numbers", cost=90),
    Verb(name="discover with hidden causes", ask=_discovered(hidden_causes=True), cost=60),
    Verb(
        name="discover with hidden causes in numbers",
        ask=_discovered(method="gaussian", hidden_causes=True),
        content="numbers",
        cost=90,
    ),
    Verb(name="discover with votes", ask=_discovered(directions=0.5), content="numbers", rows=60, cost=110),
    Verb(
        name="direction votes",
        ask=_directed("votes", blocks=8, score="committee-5"),
        content="numbers",
        rows=270,
        cost=20,
    ),
    Verb(
        name="direction gap",
        ask=_directed("gap", delta=1e-6),
        content="numbers",
        rows=120,
        relations=("replace_one",),
        units=("row",),
        cost=20,
    ),
    Verb(
        name="direction paper",
        ask=_directed("paper", delta=1e-6),
        content="numbers",
        rows=120,
        relations=("replace_one",),
        units=("row",),
        cost=15,
    ),
    Verb(name="orient", ask=_oriented, content="numbers", rows=270, cost=50),
    Verb(name="effect_of, Laplace", ask=_effect(), cost=95),
    Verb(name="effect_of, Gaussian", ask=_effect(delta=1e-6), cost=105),
    Verb(name="effect_of, refuted", ask=_effect(refute=["placebo", "random-cause"]), cost=150),
    Verb(name="learn_schema", ask=_learnt, rows=40, cost=95),
    Verb(name="evaluate_privately", ask=_judged, cost=415),
    Verb(
        name="synthesize without a graph, rare levels together",
        ask=_fitted("marginals", graph=False),
        content="rare",
        relations=("add_remove",),
        rows=300,
        cost=200,
    ),
    Verb(name="synthesize numbers that are written as texts", ask=_fitted("marginals"), content="written", cost=40),
]


# ---- the command line


def _command(line: str, *, seeded: bool = True) -> Callable[[Asked, Path], Any]:
    def ask(asked: Asked, folder: Path) -> Any:
        from typer.testing import CliRunner

        from escudo.cli import app
        from escudo.privacy import Ledger

        file = folder / f"input.{asked.frame[0]}"
        file.write_bytes(asked.frame[1])
        replace(asked.schema, **stated(asked.frame[0], asked.content)).write(folder / "input.schema.toml")
        _kinds(asked.unit).write(folder / "input.kinds.toml")
        (folder / "input.graph.dot").write_text(_dot(asked.content))
        url = f"sqlite:///{folder / 'input.ledger.db'}"
        most = MOST_ROWS if asked.unit == "person" else None
        with Ledger(url) as book:
            book.open(
                "people", epsilon=50.0, delta=1e-5, relation=asked.relation, unit=asked.unit, max_rows_per_person=most
            )
        ledger = ["--ledger", url, "--dataset", "people"]
        if seeded:
            ledger += ["--seed", str(SEED), "--relation", asked.relation]
        before = os.getcwd()
        os.chdir(folder)
        try:
            names = {"schema": "input.schema.toml", "kinds": "input.kinds.toml", "graph": "input.graph.dot"}
            ready = line.format(data=address(file.name), **names).split()
            result = CliRunner().invoke(app, [*ready, *ledger])
        finally:
            os.chdir(before)
        print(result.output)
        with Ledger(url) as book:
            charged = [(row.kind, row.payload) for row in book.history()]
        return result.exit_code, type(result.exception).__name__, str(result.exception or ""), charged

    return ask


def _dot(content: Content) -> str:
    return "digraph {" + "; ".join(f"{a} -> {b}" for a, b in graph_of(content).edges) + "}"


_RELEASE = "release {data} -s {schema} -g {graph} -e 2 -o out --csv --rows 20"
_FOUND = "release {data} -s {schema} -g discover -e 2 -o out --json"
_NETWORK = f"{_RELEASE} --generator autoregressive --option steps=2 --option pretraining=2"
_LEARN = "schema learn {data} --epsilon 8 --delta 1e-6 --out learnt.toml"
_DIRECTION = "direction {data} height dose -s {schema} -e 20 --public-rows 120 --option blocks=8 --report page.html"
_EFFECT = "effect {data} smoke lung -s {schema} -g {graph} -e 2 --refute placebo --report page.html"
_DISCOVER = "discover {data} -s {schema} -e 2 --report page.html -o found.dot"


def _commands() -> Iterator[Verb]:
    for ending in ("csv", "tsv", "european.csv", "ndjson", "parquet", "arrow"):
        yield Verb(name=f"escudo release {ending}", ask=_command(_RELEASE), file=ending, cost=300)
    yield Verb(name="escudo release a network", ask=_command(_NETWORK), file="csv", cost=500)
    yield Verb(name="escudo release a graph that is found", ask=_command(_FOUND), file="csv", cost=300)
    yield Verb(name="escudo discover", ask=_command(_DISCOVER), file="csv", cost=200)
    hidden = _command(f"{_DISCOVER} --hidden-causes")
    yield Verb(name="escudo discover --hidden-causes", ask=hidden, file="csv", cost=200)
    yield Verb(name="escudo direction", ask=_command(_DIRECTION), content="numbers", rows=120, file="csv", cost=500)
    yield Verb(name="escudo effect", ask=_command(_EFFECT), file="csv", cost=200)
    learn = _command(_LEARN, seeded=False)
    yield Verb(name="escudo schema learn", ask=learn, units=("row",), rows=40, file="csv", cost=100)
    known = _command(f"{_LEARN} --schema {{kinds}}", seeded=False)
    for ending in ("csv", "ndjson"):
        yield Verb(name=f"escudo schema learn --schema {ending}", ask=known, rows=40, file=ending, cost=100)
    for ending in ("nameless.csv", "sqlite", "xlsx"):
        yield Verb(name=f"escudo release {ending}", ask=_command(_RELEASE), file=ending, cost=300)

    yield Verb(name="escudo release spread.csv", ask=_command(_RELEASE), file="spread.csv", cost=300)
    for ending in ("csv", "ndjson", "sqlite", "xlsx"):
        name = f"escudo release {ending}, numbers that are written as texts"
        yield Verb(name=name, ask=_command(_RELEASE), content="written", file=ending, cost=300)


COMMANDS = [*_commands()]


def every_verb() -> Iterator[Verb]:
    """Yield all that can be asked."""
    yield from PYTHON
    yield from COMMANDS
