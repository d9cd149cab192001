"""How often each verb reads the rows: what its plan says, and docs/concepts/scale.md."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import escudo
from escudo.causal import CausalGraph
from escudo.privacy import Passes
from escudo.synthesis import clinic
from escudo.table import PrivateTable, PrivateTables, Schema, _linked, _rows
from escudo.table._frames import stream

ROWS = 2000
BUDGET: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-6, "seed": 1}
GRAPH = CausalGraph.parse("digraph {smoke -> ill -> dose; late}")
CLINIC = clinic(80, seed=1)
TRIPLES = "each round in which triples of columns may be picked"
TOGETHER = "columns that are released together"


def _table(bins: int | None = None, many: int = 0, often: float = 0.5) -> PrivateTable:
    rng = np.random.default_rng(5)
    smoke = rng.random(ROWS) < 0.3
    ill = rng.random(ROWS) < np.where(smoke, 0.6, 0.2)
    dose = np.where(ill, 3.0, 1.0) + rng.normal(0, 0.5, ROWS)
    more = {f"x{i}": rng.random(ROWS) < often for i in range(many)}
    frame = pl.DataFrame({"smoke": smoke, "ill": ill, "dose": dose, "late": dose**3 / 30, **more})
    cut = {} if bins is None else {"bins": bins}
    numbers = {
        "dose": {"type": "numeric", "lower": 0, "upper": 5, **cut},
        "late": {"type": "numeric", "lower": 0, "upper": 4, **cut},
    }
    columns = {"smoke": {"type": "boolean"}, "ill": {"type": "boolean"}, **numbers}
    schema = Schema.from_dict(columns | {name: {"type": "boolean"} for name in more})
    return PrivateTable(frame, schema, relation="add_remove")


def _numbers() -> PrivateTable:
    """Return a table of numbers alone, with linear effects."""
    x = np.cumsum(np.random.default_rng(5).normal(0, 0.3, (ROWS, 4)), axis=1)
    schema = Schema.from_dict({f"x{i}": {"type": "numeric", "lower": -4, "upper": 4} for i in range(4)})
    return PrivateTable(pl.DataFrame(x, schema=list(schema.names)), schema, relation="add_remove")


def _release(folder: Path, graph: Any = GRAPH, **how: Any) -> tuple[Any, ...]:
    return escudo.release, (folder / "release", graph), BUDGET | {"rows": 500} | how


VERBS: dict[str, tuple[Callable[[Path], tuple[Any, ...]], PrivateTable, Passes]] = {
    # Numbers are cut into bins first, roughly and then finely; all else is counted together.
    "bins of its own": (lambda _: (escudo.synthesize, (GRAPH,), BUDGET), _table(), Passes(3, 32, TRIPLES)),
    "stated bins": (lambda _: (escudo.synthesize, (GRAPH,), BUDGET), _table(4), Passes(1, 32, TRIPLES)),
    "no graph": (lambda _: (escudo.synthesize, (None,), BUDGET), _table(4), Passes(1, 32, TRIPLES)),
    "wide": (lambda _: (escudo.synthesize, (GRAPH,), BUDGET), _table(4, many=56), Passes(1, 1, TOGETHER)),
    "rare levels": (
        lambda _: (escudo.synthesize, (None,), BUDGET),
        _table(4, many=8, often=0.02),
        Passes(1, 33, f"{TRIPLES} and {TOGETHER}"),
    ),
    "moments": (lambda _: (escudo.synthesize, (GRAPH,), BUDGET | {"generator": "moments"}), _table(4), Passes(2)),
    "a graph to be found": (lambda folder: _release(folder, "discover"), _table(4), Passes(1, 32, TRIPLES)),
    "a graph to be found first": (
        lambda folder: _release(folder, "discover", generator="moments"),
        _table(4),
        Passes(3),
    ),
    "a graph to be found first, of numbers": (
        lambda folder: _release(folder, "discover", generator="linear"),
        _numbers(),
        Passes(5),
    ),
    "figures and a custodian": (
        lambda folder: _release(folder, evaluate=0.1, custodian=True),
        _table(4),
        Passes(4, 32, TRIPLES),
    ),
    "a direction": (
        lambda _: (escudo.direction, ("dose", "late"), {"epsilon": 2.0, "seed": 1}),
        _table().under(rows=ROWS),
        Passes(1),
    ),
    "a graph, by tables": (lambda _: (escudo.discover, (), BUDGET), _table(4), Passes(1)),
    "a graph, by moments or tables": (
        lambda _: (escudo.discover, (), BUDGET),
        _numbers(),
        Passes(4),
    ),
    "an effect": (lambda _: (escudo.effect_of, ("smoke", "ill"), BUDGET | {"trial": True}), _table(), Passes(1)),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_reads_the_rows_as_often_as_its_plan_says(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask, table, passes = VERBS[verb]
    operation, arguments, terms = ask(tmp_path)
    read: list[bool] = []

    def spy(frame: Any, size: int) -> Any:
        for piece in stream(frame, size):
            read.append(piece.height == ROWS)  # synthetic rows are fewer
            yield piece

    monkeypatch.setattr(_rows, "stream", spy)
    assert escudo.plan(operation, table, *arguments, **terms).passes == passes
    assert sum(read) == 0
    operation(table, *arguments, **terms)
    assert passes.least <= sum(read) <= passes.most


NEXT = ("visits.treat@prev", "visits.severity")
LINKED: dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], int]] = {
    "a release": (escudo.synthesize, (CLINIC.graph,), BUDGET, 1),
    "a graph": (escudo.discover, (), BUDGET, 1),
    "a graph to be found first": (escudo.synthesize, (None,), BUDGET | {"discover": True}, 2),
    "an effect": (escudo.effect_of, NEXT, BUDGET | {"graph": CLINIC.graph, "outcome_level": "severe"}, 1),
}


@pytest.mark.parametrize("verb", LINKED)
def test_a_verb_reads_linked_tables_as_often_as_its_plan_says(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    operation, arguments, terms, passes = LINKED[verb]
    tables = PrivateTables(CLINIC.frames, CLINIC.schema, people=80)
    read: list[int] = []

    def spy(frame: Any, size: int) -> Any:
        for piece in stream(frame, size):
            read.append(piece.height)
            yield piece

    monkeypatch.setattr(_linked, "stream", spy)
    assert escudo.plan(operation, tables, *arguments, **terms).passes == Passes(passes)
    assert read == []
    operation(tables, *arguments, **terms)
    assert sum(read) == passes * sum(frame.height for frame in CLINIC.frames.values())


def test_a_plan_says_it_in_words_in_html_and_in_json() -> None:
    plan = escudo.plan(escudo.synthesize, _table(4), GRAPH, **BUDGET)
    said = f"Reads the rows once, and once more for {TRIPLES}, 32 times at most."
    assert said in str(plan).splitlines()
    assert f"<p>{said}</p>" in plan._repr_html_()
    assert plan.passes is not None
    assert plan.passes.to_json() == {"least": 1, "most": 33}
    assert str(Passes(3)) == "Reads the rows 3 times."


def test_how_often_rows_are_read_is_no_part_of_what_is_charged() -> None:
    plan = escudo.plan(escudo.synthesize, _table(4), GRAPH, **BUDGET)
    assert "passes" not in plan.to_json()
    assert plan == plan.expecting(None)
