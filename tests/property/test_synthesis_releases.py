"""Whole releases on neighbours: no step moves further than was paid for, and the same answers make the same model.

A release is run on one table, and its answers are written down. It is run again on a neighbour and gets *the same
answers*, whatever its own numbers are: so every later step is chosen as before, and its exact numbers can be compared
with those of the first run. What they may differ by is what the event says; and as the answers are all that either run
may know, both must end in the same model.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from escudo.causal import CausalGraph
from escudo.mechanisms._noise import watching
from escudo.privacy import ExponentialEvent, GaussianEvent, MemoryAccount
from escudo.synthesis import fit, prepare, prepare_discovered
from escudo.table import PrivateTable, Schema

MOST_ROWS = 3
BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
CELLS: dict[str, Any] = {
    "a": ["no", "yes"],
    "b": {"type": "categorical", "levels": ["x", "y", "z"], "missing": True},
    "c": {"type": "numeric", "lower": 0, "upper": 1, "bins": 4},
    "d": {"type": "categorical", "levels": ["u", "v"], "missing": True},
    "e": [False, True],
    "one": ["only"],
}
WIDE: dict[str, Any] = CELLS | {
    "c": {"type": "numeric", "lower": 0, "upper": 1, "bins": 11},
    "e": {"type": "ordinal", "levels": list(range(12)), "missing": True},
}
NUMBERS: dict[str, Any] = {
    name: {"type": "numeric", "lower": -1, "upper": 1, "bins": 3, "missing": False, "fill": 0.0} for name in "abcd"
}
PARTIAL = CausalGraph.from_edges([("a", "b"), ("c", "b"), ("b", "d")])  # says nothing of e
GENERATORS: dict[str, tuple[str, CausalGraph | None, dict[str, Any]]] = {
    "marginals": ("marginals", PARTIAL, {}),
    "marginals without a graph": ("marginals", None, {}),
    "marginals, bins chosen first": ("marginals", None, {}),
    "marginals, neighbours merged": ("marginals", None, {}),
    "marginals, neighbours merged beside a graph": ("marginals", PARTIAL, {}),
    "marginals of few public rows": ("marginals", PARTIAL, {"public_rows": 40}),
    "moments, repaired": ("moments", PARTIAL, {"repair": True}),
    "moments, tightly clipped": ("moments", None, {"clip": 1.2}),
    "independent": ("independent", PARTIAL, {}),
    "linear, tightly clipped": ("linear", None, {"clip": 0.7}),
    "discovered": ("discovered", None, {}),
}


class Transcript:
    """Stands in for every source of noise: writes answers down, or repeats those of another transcript."""

    def __init__(self, first: Transcript | None = None):
        self.first = first
        self.steps: list[tuple[Any, np.ndarray, float, Any]] = []

    def watch(self, source: Any, event: Any) -> Any:
        return Step(self, source, event)


class Step:
    for_release = False

    def __init__(self, transcript: Transcript, source: Any, event: Any):
        self.transcript, self.source, self.event = transcript, source, event

    def add_gaussian(self, integers: np.ndarray, scale: float) -> Any:
        return self._answer("add_gaussian", integers, scale)

    def gumbel_argmax(self, integers: np.ndarray, scale: float) -> Any:
        return self._answer("gumbel_argmax", integers, scale)

    def _answer(self, kind: str, integers: np.ndarray, scale: float) -> Any:
        first, place = self.transcript.first, len(self.transcript.steps)
        if first is None:
            answer = getattr(self.source, kind)(integers, scale)
        else:  # a step that the first run did not take, or took otherwise, was decided by the data
            event, numbers, planned, answer = first.steps[place]
            assert (event, numbers.shape, planned) == (self.event, integers.shape, scale)
        self.transcript.steps.append((self.event, np.array(integers), scale, answer))
        return answer


def rows_of(schema: Schema, count: int, rng: np.random.Generator) -> pl.DataFrame:
    """Return random rows: values within the schema and beyond it, and missing ones."""
    data: dict[str, Any] = {}
    for name, column in schema.columns.items():
        levels = getattr(column, "levels", None)
        if levels is None:
            data[name] = pl.Series(rng.choice([-9.0, -1.0, 0.1, 0.6, 1.0, 9.0], count))
        else:
            data[name] = [levels[code] for code in rng.integers(0, len(levels), count)]
    frame = pl.DataFrame(data)
    keep = rng.random(count) < 0.9
    return frame.with_columns(pl.when(pl.Series(keep)).then(pl.col(name)).alias(name) for name in ("b", "d"))


def neighbours(schema: Schema, relation: str, rng: np.random.Generator) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return two tables that differ by one row, or one person, in any order of rows."""
    table = rows_of(schema, int(rng.choice([2, 40])), rng)
    other = rows_of(schema, 5, rng)
    if schema.person_id is None:
        rest, new = table[1:], other[:1]
    else:
        whose = np.sort(rng.integers(0, max(table.height // 3, 1), table.height))
        table = table.with_columns(who=pl.Series(whose))
        rest = table.filter(pl.col("who") != whose[0])
        alike = pl.concat([other[:1]] * 5) if rng.random() < 0.5 else other  # more than may count
        new = alike.with_columns(who=pl.lit(10**6, dtype=pl.Int64))
    changed = rest if relation == "add_remove" else pl.concat([rest, new])
    return table, changed.sample(fraction=1.0, shuffle=True, seed=int(rng.integers(1000)))


@pytest.mark.parametrize("relation", ["replace_one", "add_remove"])
@pytest.mark.parametrize("unit", ["row", "person"])
@pytest.mark.parametrize("kind", GENERATORS)
def test_a_neighbour_moves_no_step_further_than_was_paid_for_and_leaves_the_same_model(
    kind: str, unit: str, relation: str
) -> None:
    name, graph, options = GENERATORS[kind]
    terms: dict[str, Any] = {} if unit == "row" else {"person_id": "who", "max_rows_per_person": MOST_ROWS}
    cells = CELLS | {"c": {"type": "numeric", "lower": -2, "upper": 1}} if "bins" in kind else CELLS
    cells = WIDE if "merged" in kind else cells
    schema = Schema.from_dict(NUMBERS if name == "linear" else cells, **terms)
    if name == "discovered":
        prepared: Any = prepare_discovered(schema, graph, relation=relation, **BUDGET)
    else:
        prepared = prepare(schema, graph, generator=name, relation=relation, **BUDGET, **options)
    rng = np.random.default_rng(7)
    for seed in range(2):
        models, transcript = [], None
        for frame in neighbours(schema, relation, rng):
            account = MemoryAccount(relation=relation, unit=unit, max_rows_per_person=schema.max_rows_per_person)
            transcript = Transcript(transcript)
            with watching(transcript.watch):
                models.append(fit(prepared, PrivateTable(frame.lazy(), schema, account), seed=seed))
        assert transcript is not None
        assert transcript.first is not None
        assert len(transcript.steps) == len(transcript.first.steps)
        for (event, one, scale, _), (_, other, _, _) in zip(transcript.steps, transcript.first.steps, strict=True):
            moved = np.abs(one - other)
            if isinstance(event, GaussianEvent):
                assert scale == event.scale / event.grid
                length = float(np.linalg.norm(moved.astype(np.float64)))
                assert length <= event.l2_sensitivity / event.grid * (1 + 1e-12)
                if event.changed_cells is not None:
                    assert moved.max() <= 1
                    assert np.count_nonzero(moved) <= event.changed_cells
            else:
                assert isinstance(event, ExponentialEvent)
                assert 2 * float(moved.max()) / scale <= event.epsilon * (1 + 1e-12)
        if "merged" in kind:  # c has 11 levels and e has 13; the graph names c
            sizes = {numbers.size for event, numbers, _, _ in transcript.steps if isinstance(event, GaussianEvent)}
            assert {11, 13} <= sizes  # by themselves
            assert any(size > 11 and size % 11 == 0 for size in sizes) == (graph is PARTIAL)
            assert not any(size > 13 and size % 13 == 0 for size in sizes)
        assert models[0].sample(50, seed=0).equals(models[1].sample(50, seed=0))
        assert models[0].graph == models[1].graph
        if relation == "add_remove" or unit == "person":
            assert models[0].details == models[1].details
