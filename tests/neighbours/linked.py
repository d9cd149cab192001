"""Linked tables for the harness: people with histories like others' and with odd ones, and all that can be asked.

Visits have drugs, rows of rows, where a verb is asked "of rows of rows".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import Context
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import escudo
from escudo.causal import CausalGraph
from escudo.privacy import MemoryAccount
from escudo.table import LinkedSchema, PrivateTables
from escudo.utility import evaluate_privately

SEED = 7
BUDGET: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-6, "seed": SEED, "accept_large_delta": True}
PEOPLE = {"id": pl.Int64, "sex": pl.String, "entry": pl.Float64}
VISITS = {"id": pl.Int64, "day": pl.Float64, "state": pl.String, "done": pl.String, "visit": pl.Int64}
DRUGS = {"id": pl.Int64, "of": pl.Int64, "day": pl.Float64, "drug": pl.String}
GRAPH = CausalGraph.from_edges([
    ("people.sex", "visits.count"),
    ("people.sex", "visits.state"),
    ("visits.state@prev", "visits.state"),
    ("visits.done@prev", "visits.state"),
    ("visits.state", "visits.done"),
])  # fmt: skip
BELOW = CausalGraph.from_edges([
    *GRAPH.edges,
    ("visits.state", "drugs.count"),
    ("visits.state", "drugs.drug"),
    ("people.sex", "drugs.drug"),
    ("drugs.drug@prev", "drugs.drug"),
])  # fmt: skip

Person = tuple[
    list[tuple[str, float | None]],
    list[tuple[float | None, str | None, str]],
    list[tuple[int | None, float | None, str | None]],
]
"""Somebody's rows among people, their visits, and the drugs of these; visits are called 1, 2, 3, 4, and 1 again."""


def schema_of(weighting: str, *, below: bool = False) -> LinkedSchema:
    """Return people with a sex, visits with a state, and drugs of these if they are wanted."""
    visits: dict[str, Any] = {"key": "visit"} if below else {}
    drugs = {
        **{"parent": "visits", "foreign_key": "id", "row_key": "of", "order": "day", "most": 2},
        **{"start_edges": [0, 5, 50], "gap_edges": [0, 2, 50], "weighting": weighting, "columns": {"drug": ["x", "y"]}},
    }
    return LinkedSchema.from_dict({
        "linked": {"people": "people", "dates": "days"},
        "tables": {
            "people": {"key": "id", "origin": "entry", "columns": {"sex": ["f", "m"]}},
            "visits": {
                **{"parent": "people", "foreign_key": "id", "order": "day", "most": 4, "weighting": weighting},
                **{"start_edges": [0, 5, 50], "gap_edges": [0, 2, 50], **visits},
                "columns": {"state": ["a", "b", "c"], "done": ["no", "yes"]},
            },
            **({"drugs": drugs} if below else {}),
        },
    })  # fmt: skip


def someone(rng: np.random.Generator) -> Person:
    """Return somebody with a history like others have."""
    visits = [
        (float(rng.integers(0, 40)), str(rng.choice(["a", "b", "c"])), str(rng.choice(["no", "yes"])))
        for _ in range(rng.integers(0, 7))
    ]
    sex, entry = str(rng.choice(["f", "m"])), float(rng.integers(0, 5))
    several = np.random.default_rng(rng.integers(2**32))  # so that people are the same with drugs and without
    drugs = [
        (int(several.integers(1, 6)), float(several.integers(0, 60)), str(several.choice(["x", "y"])))
        for _ in range(several.integers(0, 9))
    ]
    return [(sex, entry)], visits, drugs


NOBODY: Person = ([], [], [])
_LONG = [(float(day), "b", "yes") for day in range(60)]
ODD: dict[str, Person] = {
    "nothing": ([("f", 0.0)], [], []),
    "a long history": ([("m", 0.0)], [*_LONG], [(1 + day % 4, float(day), "y") for day in range(90)]),
    "a history that never changes": ([("m", 0.0)], [(3.0, "c", "no")] * 9, [(1, 3.0, "x")] * 9),
    "unknown levels": ([("?", None)], [(4.0, "?", "?"), (5.0, None, "yes")], [(1, 4.0, "?"), (2, 5.0, None)]),
    "days that are none": (
        [("f", float("nan"))],
        [(None, "a", "no"), (float("inf"), "b", "no"), (-1e300, "c", "no")],
        [(1, None, "x"), (2, float("inf"), "y"), (3, -1e300, "x"), (3, float("nan"), "y")],
    ),
    "rows before the origin": (
        [("f", 30.0)],
        [(1.0, "a", "no"), (29.9, "b", "no"), (31.0, "c", "yes")],
        [(1, 40.0, "x"), (3, 30.0, "x"), (3, 31.0, "y")],
    ),
    "two rows among people": ([("m", 9.0), ("f", 2.0)], [(3.0, "a", "no"), (10.0, "b", "no")], [(1, 4.0, "x")]),
    "rows of no visit": ([("m", 0.0)], [], [(1, 4.0, "x"), (None, 4.0, "y"), (-(2**63), 9.0, "x")]),
}


def frames_of(people: list[Person], *, below: bool = False) -> dict[str, pl.DataFrame]:
    """Return the frames of people, in an order that says nothing, with rows that belong to nobody."""
    persons = [(key + 1, *row) for key, (rows, _, _) in enumerate(people) for row in rows]
    visits = [(k + 1, *row, 1 + nth % 4) for k, (_, rows, _) in enumerate(people) for nth, row in enumerate(rows)]
    visits += [(999, 1.0, "a", "no", 1), (None, 2.0, "b", "yes", None)]  # type: ignore[list-item]
    drugs = [(key + 1, *row) for key, (_, _, rows) in enumerate(people) for row in rows]
    drugs += [(999, 1, 1.0, "x"), (None, 1, 2.0, "y")]  # type: ignore[list-item]
    return {
        "people": pl.DataFrame(persons, schema=PEOPLE, orient="row"),
        "visits": pl.DataFrame(visits, schema=VISITS, orient="row"),
        **({"drugs": pl.DataFrame(drugs, schema=DRUGS, orient="row")} if below else {}),
    }


def neighbour(people: list[Person], relation: str, rng: np.random.Generator) -> tuple[str, list[Person]]:
    """Return what a neighbour is called, and its people: one more, one less, or another one in somebody's place.

    Everybody else keeps the key that they have by their place: who it is decides which of their rows are learnt from.
    """
    place = int(rng.integers(len(people))) if people else 0
    if relation == "add_remove" and people and rng.random() < 0.4:
        return f"person {place} gone", [*people[:place], NOBODY, *people[place + 1 :]]
    odd = [*ODD]
    what = odd[int(rng.integers(len(odd)))] if rng.random() < 0.6 else "somebody"
    persons, visits, drugs = ODD[what] if what in ODD else someone(rng)
    if visits and rng.random() < 0.5:  # in another order, with some rows twice
        order = rng.integers(len(visits), size=int(rng.integers(1, 2 * len(visits))))
        what, visits = f"{what}, drawn again", [visits[number] for number in order]
    other = (persons, visits, drugs)
    if relation == "add_remove":
        return f"{what} comes", [*people, other]
    return f"{what} in the place of person {place}", [*people[:place], other, *people[place + 1 :]]


Ask = Callable[[PrivateTables, Path], Any]


def _graph(tables: PrivateTables) -> CausalGraph:
    return BELOW if "drugs" in tables.schema.tables else GRAPH


def _synthesize(tables: PrivateTables, folder: Path) -> Any:
    model = escudo.synthesize(tables, _graph(tables), **BUDGET)
    model.save(folder / "model")
    return str(model), {name: frame.to_dicts() for name, frame in model.sample(20, seed=SEED).items()}


def _release(tables: PrivateTables, folder: Path) -> Any:
    escudo.release(tables, folder / "release", _graph(tables), rows=30, **BUDGET)


def _found_and_judged(tables: PrivateTables, folder: Path) -> Any:
    found = escudo.release(tables, folder / "release", "discover", evaluate=0.2, rows=30, **BUDGET)
    assert found.evaluation is not None
    return str(found.evaluation), found.fitted.associations


def _effect(treatment: str, outcome: str, **how: Any) -> Ask:
    def ask(tables: PrivateTables, folder: Path) -> Any:
        terms = {**BUDGET, "graph": _graph(tables), **how}
        found = escudo.effect_of(tables, treatment, outcome, **terms)
        return found, str(found), found._repr_html_(), found.to_json()

    return ask


def _learn(tables: PrivateTables, folder: Path) -> Any:
    below = "drugs" in tables.schema.tables
    kinds = schema_of("voice", below=below).to_dict()
    kinds["tables"]["people"]["columns"]["sex"] = {"type": "categorical", "levels": [], "confirmed": False}
    kinds["tables"]["visits"] |= {"confirmed": False, "columns": {
        "state": {"type": "categorical", "levels": [], "confirmed": False},
        "done": {"type": "categorical", "levels": ["no", "yes"]},
    }}  # fmt: skip
    most = {"visits": 4}
    if below:
        drug = {"type": "categorical", "levels": [], "confirmed": False}
        kinds["tables"]["drugs"] |= {"confirmed": False, "columns": {"drug": drug}}
        most["drugs"] = 2
    frames = {name: source.frame for name, source in tables._sources.items()}
    terms: dict[str, Any] = {**BUDGET, "epsilon": 30.0, "most": most, "account": tables.account}
    found = escudo.learn_linked(frames, LinkedSchema.from_dict(kinds), **terms)
    return found.value.to_dict(), found.guarantee


@cache
def _made(below: bool) -> dict[str, pl.DataFrame]:
    """Return synthetic people who were released before, of other tables."""
    rng = np.random.default_rng(0)
    frames = frames_of([someone(rng) for _ in range(30)], below=below)
    tables = PrivateTables(frames, schema_of("voice", below=below))
    made = partial(escudo.synthesize, tables, _graph(tables), **BUDGET)
    return Context().run(made).sample(30, seed=1)  # in a context of its own, where nobody watches the draws


def _judged(tables: PrivateTables, folder: Path) -> Any:
    found = evaluate_privately(tables, _made("drugs" in tables.schema.tables), epsilon=2.0, seed=SEED)
    return found, str(found), found._repr_html_(), found.to_json()


def _discovered(method: str) -> Ask:
    def ask(tables: PrivateTables, folder: Path) -> Any:
        found = escudo.discover(tables, method=method, **BUDGET)
        return found, str(found), found._repr_html_(), found.to_json()

    return ask


VERBS: Mapping[str, Ask] = {
    "synthesize": _synthesize,
    "learn_linked": _learn,
    "release": _release,
    "release, graph discovered and figures paid for": _found_and_judged,
    "effect_of the row before": _effect("visits.done@prev", "visits.state", outcome_level="c"),
    "effect_of a number, Laplace": _effect(
        "visits.state@prev", "visits.gap", graph=None, adjust=["people.sex"], delta=0.0
    ),
    "effect_of people": _effect("people.sex", "visits.count"),
    "effect_of with refuters": _effect(
        "visits.done@prev", "visits.state", outcome_level="c", refute=["placebo", "random-cause"]
    ),
    "evaluate_privately": _judged,
    "discover": _discovered("exact"),
    "discover in two stages": _discovered("two-stage"),
    "synthesize rows of rows": _synthesize,
    "learn_linked of rows of rows": _learn,
    "release rows of rows": _release,
    "effect_of beside rows of rows": _effect("visits.done@prev", "visits.state", outcome_level="c"),
    "evaluate_privately rows of rows": _judged,
    "discover beside rows of rows": _discovered("exact"),
}
"""Everything that linked tables can be asked."""


def asked(people: list[Person], relation: str, weighting: str, verb: str) -> Callable[[Path], Any]:
    """Return what asks a verb of these people, and tells all that is seen of it."""

    below = verb.endswith("rows of rows")

    def ask(folder: Path) -> Any:
        schema = schema_of(weighting, below=below)
        account = MemoryAccount(relation=relation, unit="person", max_rows_per_person=schema.max_rows_per_person)  # type: ignore[arg-type]
        tables = PrivateTables(frames_of(people, below=below), schema, account)
        return VERBS[verb](tables, folder), account.receipts, account.failed, repr(tables)

    return ask
