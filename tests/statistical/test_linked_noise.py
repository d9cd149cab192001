"""The noise in count tables of linked tables is the noise that the plan states, no less and no more."""

from __future__ import annotations

import numpy as np
import polars as pl
from scipy import stats

from escudo.causal import CausalGraph
from escudo.mechanisms import Purse
from escudo.privacy import Budget
from escudo.synthesis import LinkedSynthesis
from escudo.synthesis._linked import PreparedLinked
from escudo.table import LinkedSchema, PrivateTables

ERROR_RATE = 1e-9
RUNS = 12


def _prepared() -> tuple[PreparedLinked, PrivateTables]:
    schema = LinkedSchema.from_dict({
        "linked": {"people": "people", "dates": "days"},
        "tables": {
            "people": {"key": "id", "origin_day": 0, "columns": {"sex": ["f", "m"]}},
            "visits": {
                **{"parent": "people", "foreign_key": "id", "order": "day", "most": 6, "weighting": "voice"},
                **{"start_edges": [0, 5, 50], "gap_edges": [0, 2, 50], "key": "visit"},
                "columns": {"state": ["a", "b", "c"], "done": ["no", "yes"]},
            },
            "drugs": {
                **{"parent": "visits", "foreign_key": "id", "row_key": "visit", "most": 3, "weighting": "voice"},
                "columns": {"drug": ["x", "y", "z"]},
            },
        },
    })  # fmt: skip
    people = pl.DataFrame({"id": range(40), "sex": ["f", "m"] * 20})
    visits = pl.DataFrame({"id": [*range(40)] * 3, "day": [*range(120)], "state": ["a", "b", "c"] * 40, "done": "no"})
    visits = visits.with_columns((pl.col("day") // 40).alias("visit"))
    drugs = pl.DataFrame({"id": [*range(40)] * 5, "visit": [0, 0, 1, 2, 2] * 40, "drug": ["x", "y", "z", "y"] * 50})
    graph = CausalGraph.from_edges(
        [("people.sex", "visits.state"), ("visits.state@prev", "visits.state"), ("visits.state", "drugs.drug")]
    )
    tables = PrivateTables({"people": people, "visits": visits, "drugs": drugs}, schema)
    return LinkedSynthesis(graph).prepare(schema, tables.neighbours, Budget(1.0, 1e-6)), tables


def _distances() -> np.ndarray:
    """Return how far each released cell is from its exact count, in standard deviations of the noise that was
    planned."""
    prepared, tables = _prepared()
    histories = tables.histories()
    found = []
    for seed in range(RUNS):
        released = prepared._measured(tables, Purse(None, np.random.default_rng(seed)))
        for block, several in zip(prepared.shares.blocks, released, strict=True):
            for columns, noisy in zip(block.tables, several, strict=True):
                counted = block.counted(columns)
                exact = histories.counts(counted) / counted.steps
                found.append(((noisy.counts - exact) / noisy.scale).ravel())
    return np.concatenate(found)


def test_the_noise_is_as_planned_and_neither_two_thirds_nor_three_halves_of_it() -> None:
    distances = _distances()
    degrees = distances.size

    def plausible(factor: float) -> bool:
        chance = stats.chi2(degrees).cdf(float(((distances / factor) ** 2).sum()))
        return bool(ERROR_RATE / 2 < chance < 1 - ERROR_RATE / 2)

    assert plausible(1.0)
    assert not plausible(2 / 3)
    assert not plausible(3 / 2)
    assert abs(distances.mean()) < 6 / np.sqrt(degrees)


def test_events_state_the_sensitivity_of_their_tables_in_steps() -> None:
    prepared, _ = _prepared()
    for block, events in zip(prepared.shares.blocks, prepared.shares.tables(prepared.level), strict=True):
        for columns, event in zip(block.tables, events, strict=True):
            table = block.counted(columns)
            assert event.l2_sensitivity >= table.sensitivity("replace_one").l2
            assert event.grid == 1
            assert event.unit == "person"
            assert event.max_rows_per_person == prepared.schema.max_rows_per_person
