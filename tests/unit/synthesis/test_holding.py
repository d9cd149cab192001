"""A release comes out whatever noise has made of it: rows are changed until they hold the rules of the schema."""

from __future__ import annotations

import datetime as dt
import warnings
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

import escudo
from escudo.errors import ZeroProbabilityError
from escudo.synthesis import CausalModel, _holding
from escudo.synthesis._holding import mended_cells
from escudo.synthesis._laws import TableConditional
from escudo.table import PrivateTable, Schema

DATES = Schema.from_dict(
    {
        "birth": {"type": "date", "lower": "1920-01-01", "upper": "2023-12-31", "bins": 8, "missing": True},
        "visit": {"type": "date", "lower": "1990-01-01", "upper": "2024-12-31", "bins": 8},
        "age": {
            "type": "numeric",
            "integer": True,
            "lower": 0,
            "upper": 100,
            "bins": 8,
            "from": "visit - birth",
            "unit": "years",
        },
        "ward": ["adults", "children"],
        "sex": ["female", "male"],
        "pregnant": {"type": "boolean"},
    }
)
RULES = ("age >= 18 -> ward = adults", "ward = adults -> age >= 18", "pregnant = true -> sex = female")
DATES = replace(DATES, rules=RULES)
FRAME = pl.DataFrame(
    {"birth": [dt.date(1980, 5, 5)], "visit": [dt.date(2020, 5, 5)], "ward": ["adults"], "sex": ["male"]}
).with_columns(pregnant=pl.lit(value=False))


def certain(**cells: int) -> CausalModel:
    """Return a model that always draws these cells."""
    table = PrivateTable(FRAME, DATES)
    model = escudo.synthesize(table, None, epsilon=1.0, delta=1e-6, generator="independent", seed=1)
    laws = {name: TableConditional((), np.eye(DATES[name].size)[cell]) for name, cell in cells.items()}
    return replace(model, conditionals=laws, observed={})


@pytest.fixture
def impossible(monkeypatch: pytest.MonkeyPatch) -> CausalModel:
    """Return a model that draws nothing but births after the visit, and pregnant men."""
    monkeypatch.setattr(_holding, "_LEAST_DRAWN", 500)
    monkeypatch.setattr(_holding, "_MOST_DRAWN", 2)
    return certain(birth=7, visit=0, age=7, ward=1, sex=1, pregnant=1)


def test_rows_that_cannot_hold_the_rules_are_changed_until_they_do(impossible: CausalModel) -> None:
    with pytest.warns(UserWarning, match="changed at random"):
        rows = impossible.sample(300, seed=1)
    assert rows.height == 300
    assert rows["age"].drop_nulls().is_between(0, 100).all()
    lower, upper = dt.date(1990, 1, 1), dt.date(2024, 12, 31)
    assert rows["visit"].is_between(lower, upper).all()
    assert rows["birth"].drop_nulls().is_between(dt.date(1920, 1, 1), dt.date(2023, 12, 31)).all()
    years = (rows["visit"] - rows["birth"]).dt.total_days() / 365.25
    assert rows["age"].drop_nulls().to_list() == years.drop_nulls().floor().cast(pl.Int64).to_list()
    there = rows.drop_nulls("age")
    assert ((there["age"] >= 18) == (there["ward"] == "adults")).all()
    assert (rows.filter("pregnant")["sex"] == "female").all()
    assert rows["visit"].n_unique() > 10


def test_the_same_seed_gives_the_same_rows(impossible: CausalModel) -> None:
    with pytest.warns(UserWarning, match="hold the rules"):
        one, other = (impossible.sample(50, seed=4) for _ in range(2))
    assert one.equals(other)


def test_what_was_asked_for_is_never_changed(impossible: CausalModel) -> None:
    with pytest.raises(ZeroProbabilityError, match="hardly goes with them"):
        impossible.sample(50, given={"sex": "male"}, seed=1)


def test_cells_are_changed_until_they_hold(impossible: CausalModel) -> None:
    with pytest.warns(UserWarning, match="changed at random"):
        cells = impossible.codes(200, columns=["sex", "pregnant"], seed=1)
    assert not ((cells[:, 0] == 1) & (cells[:, 1] == 1)).any()


def test_cells_that_no_rule_allows_are_none() -> None:
    never = np.zeros((2, 2), dtype=bool)
    assert len(mended_cells(np.zeros((5, 2), dtype=np.int64), [((0, 1), never)], np.random.default_rng(0))) == 0


@pytest.mark.parametrize("seed", range(4))
def test_rows_of_a_model_of_a_single_row_come_out(seed: int) -> None:
    """Whatever noise makes of it."""
    model = escudo.synthesize(PrivateTable(FRAME, DATES), None, epsilon=0.01, delta=1e-6, seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert model.sample(40, seed=seed).height == 40
