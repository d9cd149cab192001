"""Linked tables for the harness: people with histories like others' and with odd ones, and all that can be asked."""

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
VISITS = {"id": pl.Int64, "day": pl.Float64, "state": pl.String, "done": pl.String}
GRAPH = CausalGraph.from_edges([
    ("people.sex", "visits.count"),
    ("people.sex", "visits.state"),
    ("visits.state@prev", "visits.state"),
    ("visits.done@prev", "visits.state"),
    ("visits.state", "visits.done"),
])  # fmt: skip

Person = tuple[list[tuple[str, float | None]], list[tuple[float | None, str | None, str]]]
"""Somebody's rows among people, and their visits."""


def schema_of(weighting: str) -> LinkedSchema:
    """Return people with a sex, and visits with a state."""
    return LinkedSchema.from_dict({
        "linked": {"people": "people", "dates": "days"},
        "tables": {
            "people": {"key": "id", "origin": "entry", "columns": {"sex": ["f", "m"]}},
            "visits": {
                **{"parent": "people", "foreign_key": "id", "order": "day", "most": 4, "weighting": weighting},
                **{"start_edges": [0, 5, 50], "gap_edges": [0, 2, 50]},
                "columns": {"state": ["a", "b", "c"], "done": ["no", "yes"]},
            },
        },
    })  # fmt: skip


def someone(rng: np.random.Generator) -> Person:
    """Return somebody with a history like others have."""
    visits = [
        (float(rng.integers(0, 40)), str(rng.choice(["a", "b", "c"])), str(rng.choice(["no", "yes"])))
        for _ in range(rng.integers(0, 7))
    ]
    return [(str(rng.choice(["f", "m"])), float(rng.integers(0, 5)))], visits


ODD: dict[str, Person] = {
    "nothing": ([("f", 0.0)], []),
    "a long history": ([("m", 0.0)], [(float(day), "b", "yes") for day in range(60)]),
    "a history that never changes": ([("m", 0.0)], [(3.0, "c", "no")] * 9),
    "unknown levels": ([("?", None)], [(4.0, "?", "?"), (5.0, None, "yes")]),
    "days that are none": ([("f", float("nan"))], [(None, "a", "no"), (float("inf"), "b", "no"), (-1e300, "c", "no")]),
    "rows before the origin": ([("f", 30.0)], [(1.0, "a", "no"), (29.9, "b", "no"), (31.0, "c", "yes")]),
    "two rows among people": ([("m", 9.0), ("f", 2.0)], [(3.0, "a", "no"), (10.0, "b", "no")]),
}


def frames_of(people: list[Person]) -> dict[str, pl.DataFrame]:
    """Return the frames of people, in an order that says nothing, with rows that belong to nobody."""
    persons = [(key + 1, *row) for key, (rows, _) in enumerate(people) for row in rows]
    visits = [(key + 1, *row) for key, (_, rows) in enumerate(people) for row in rows]
    visits += [(999, 1.0, "a", "no"), (None, 2.0, "b", "yes")]  # type: ignore[list-item]
    return {
        "people": pl.DataFrame(persons, schema=PEOPLE, orient="row"),
        "visits": pl.DataFrame(visits, schema=VISITS, orient="row"),
    }


def neighbour(people: list[Person], relation: str, rng: np.random.Generator) -> tuple[str, list[Person]]:
    """Return what a neighbour is called, and its people: one more, one less, or another one in somebody's place."""
    place = int(rng.integers(len(people))) if people else 0
    if relation == "add_remove" and people and rng.random() < 0.4:
        return f"person {place} gone", [*people[:place], *people[place + 1 :]]
    odd = [*ODD]
    what = odd[int(rng.integers(len(odd)))] if rng.random() < 0.6 else "somebody"
    persons, visits = ODD[what] if what in ODD else someone(rng)
    if visits and rng.random() < 0.5:  # in another order, with some rows twice
        order = rng.integers(len(visits), size=int(rng.integers(1, 2 * len(visits))))
        what, visits = f"{what}, drawn again", [visits[number] for number in order]
    other = (persons, visits)
    if relation == "add_remove":
        return f"{what} comes", [*people[:place], other, *people[place:]]
    return f"{what} in the place of person {place}", [*people[:place], other, *people[place + 1 :]]


Ask = Callable[[PrivateTables, Path], Any]


def _synthesize(tables: PrivateTables, folder: Path) -> Any:
    model = escudo.synthesize(tables, GRAPH, **BUDGET)
    model.save(folder / "model")
    return str(model), {name: frame.to_dicts() for name, frame in model.sample(20, seed=SEED).items()}


def _release(tables: PrivateTables, folder: Path) -> Any:
    escudo.release(tables, folder / "release", GRAPH, rows=30, **BUDGET)


def _found_and_judged(tables: PrivateTables, folder: Path) -> Any:
    found = escudo.release(tables, folder / "release", "discover", evaluate=0.2, rows=30, **BUDGET)
    assert found.evaluation is not None
    return str(found.evaluation), found.fitted.associations


def _effect(treatment: str, outcome: str, **how: Any) -> Ask:
    def ask(tables: PrivateTables, folder: Path) -> Any:
        terms = {**BUDGET, "graph": GRAPH, **how}
        found = escudo.effect_of(tables, treatment, outcome, **terms)
        return found, str(found), found._repr_html_(), found.to_json()

    return ask


def _learn(tables: PrivateTables, folder: Path) -> Any:
    kinds = schema_of("voice").to_dict()
    kinds["tables"]["people"]["columns"]["sex"] = {"type": "categorical", "levels": [], "confirmed": False}
    kinds["tables"]["visits"] |= {"confirmed": False, "columns": {
        "state": {"type": "categorical", "levels": [], "confirmed": False},
        "done": {"type": "categorical", "levels": ["no", "yes"]},
    }}  # fmt: skip
    frames = {name: source.frame for name, source in tables._sources.items()}
    terms: dict[str, Any] = {**BUDGET, "epsilon": 30.0, "most": {"visits": 4}, "account": tables.account}
    found = escudo.learn_linked(frames, LinkedSchema.from_dict(kinds), **terms)
    return found.value.to_dict(), found.guarantee


@cache
def _made() -> dict[str, pl.DataFrame]:
    """Return synthetic people who were released before, of other tables."""
    rng = np.random.default_rng(0)
    tables = PrivateTables(frames_of([someone(rng) for _ in range(30)]), schema_of("voice"))
    made = partial(escudo.synthesize, tables, GRAPH, **BUDGET)
    return Context().run(made).sample(30, seed=1)  # in a context of its own, where nobody watches the draws


def _judged(tables: PrivateTables, folder: Path) -> Any:
    found = evaluate_privately(tables, _made(), epsilon=2.0, seed=SEED)
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
}
"""Everything that linked tables can be asked."""


def asked(people: list[Person], relation: str, weighting: str, verb: str) -> Callable[[Path], Any]:
    """Return what asks a verb of these people, and tells all that is seen of it."""

    def ask(folder: Path) -> Any:
        schema = schema_of(weighting)
        account = MemoryAccount(relation=relation, unit="person", max_rows_per_person=schema.max_rows_per_person)  # type: ignore[arg-type]
        tables = PrivateTables(frames_of(people), schema, account)
        return VERBS[verb](tables, folder), account.receipts, account.failed, repr(tables)

    return ask
