"""Rounds of private bins: no neighbour moves a count further than was paid for, and the same answers cut the same way.

The rounds are run on one table, and what was released is written down; on its neighbour they get the same answers. So
what they count in the second round, and the bins they end with, may differ only if rows decided what noise alone may.
"""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from escudo.mechanisms import Purse
from escudo.mechanisms._noise import watching
from escudo.privacy import Budget
from escudo.synthesis import Synthesis
from escudo.synthesis._bins import PreparedBinned, choose_bins, few_numbers, grid_of
from escudo.table import Numeric, PrivateTable, Schema

MOST_ROWS = 3
COLUMNS = (
    Numeric("income", 0, 1_000_000, missing=True),
    Numeric("balance", -5_000, 250_000),
    Numeric("hours", 0, 40, integer=True),
    Numeric("born", "1920-01-01", "2020-12-31", date="%Y-%m-%d"),
)
NUMBERS = [column for column in COLUMNS if column.date is None]
ODD = [None, math.nan, math.inf, -math.inf, 0.0, -0.0, 5e-324, 1e-7, 1.0, 40.0, 41.0, 62_500.0, 1e6, 1e6 + 1, -1e300]
EDGES = sorted({float(edge) for column in NUMBERS for edge in grid_of(column).boundaries})
VALUE = st.one_of(st.sampled_from(ODD), st.sampled_from(EDGES), st.floats(-6_000, 1_100_000))
DAY = st.one_of(st.none(), st.dates())
ROW = st.tuples(*(VALUE if column.date is None else DAY for column in COLUMNS))


class Answers:
    """Stands in for the noise: writes down what is counted and answered, or repeats the answers of a first run."""

    for_release = False

    def __init__(self, first: Answers | None = None):
        self.first = first
        self.steps: list[tuple[Any, np.ndarray, Any]] = []
        self.source: Any = None
        self.event: Any = None

    def watch(self, source: Any, event: Any) -> Answers:
        self.source, self.event = source, event
        return self

    def add_gaussian(self, integers: np.ndarray, scale: float) -> Any:
        place = len(self.steps)
        answer = self.source.add_gaussian(integers, scale) if self.first is None else self.first.steps[place][2]
        self.steps.append((self.event, np.array(integers), answer))
        return answer


def _prepared(relation: str, unit: str) -> tuple[Schema, PreparedBinned]:
    terms: dict[str, Any] = {} if unit == "row" else {"person_id": "who", "max_rows_per_person": MOST_ROWS}
    schema = Schema(COLUMNS, **terms)
    prepared = Synthesis(None, "one-way").prepare(schema, schema.neighbours(relation=relation), Budget(1.0, 1e-6))
    assert isinstance(prepared, PreparedBinned)
    return schema, prepared


ASKED = {
    (relation, unit): _prepared(relation, unit)
    for relation in ("replace_one", "add_remove")
    for unit in ("row", "person")
}


def rounds(
    schema: Schema, prepared: PreparedBinned, rows: list[Any], whose: list[int], answers: Answers
) -> list[Numeric]:
    """Run the rounds on rows, and return the bins they chose."""
    types = {column.name: pl.Float64 if column.date is None else pl.Date for column in COLUMNS}
    frame = pl.DataFrame(rows, schema=types, orient="row").with_columns(who=pl.Series(whose, dtype=pl.Int64))
    with watching(answers.watch):
        return choose_bins(PrivateTable(frame, schema), prepared.events, Purse(None, np.random.default_rng(1)))


def furthest(relation: str, unit: str, rows: list[Any], others: list[Any]) -> list[float]:
    """Return how far each count moves, in parts of what was paid for, where the first row or person changes."""
    schema, prepared = ASKED[relation, unit]
    mine = rows[:1] if unit == "row" else rows[:MOST_ROWS]
    rest, people = rows[len(mine) :], list(range(1, len(rows) - len(mine) + 1))
    changed = [] if relation == "add_remove" else others[: len(mine)]
    first = Answers()
    bins = rounds(schema, prepared, mine + rest, [0] * len(mine) + people, first)
    again = Answers(first)
    assert rounds(schema, prepared, changed + rest, [10**6] * len(changed) + people, again) == bins
    assert len(first.steps) == len(again.steps) == sum(2 - few_numbers(column) for column in COLUMNS)
    moved = []
    for (event, one, _), (same, other, _) in zip(first.steps, again.steps, strict=True):
        assert (event, one.shape) == (same, other.shape)
        length = float(np.linalg.norm((one - other).astype(np.float64)))
        moved.append(length / (event.l2_sensitivity / event.grid))
    return moved


@given(
    asked=st.sampled_from(list(ASKED)),
    rows=st.lists(ROW, min_size=MOST_ROWS, max_size=9),
    others=st.lists(ROW, min_size=MOST_ROWS, max_size=MOST_ROWS),
)
def test_no_neighbour_moves_a_round_further_than_was_paid_for(
    asked: tuple[str, str], rows: list[Any], others: list[Any]
) -> None:
    assert max(furthest(*asked, rows, others)) <= 1 + 1e-12


@pytest.mark.parametrize(("relation", "unit"), list(ASKED))
def test_the_worst_neighbour_reaches_what_was_paid_for_in_every_round(relation: str, unit: str) -> None:
    """The search above would find a bound that is too small: this pair uses up all of it."""
    low, high = (0.0, -5_000.0, 0.0, dt.date(1920, 1, 1)), (1e6, 250_000.0, 40.0, dt.date(2020, 12, 31))
    assert furthest(relation, unit, [low] * MOST_ROWS, [high] * MOST_ROWS) == pytest.approx([1.0] * 7)
