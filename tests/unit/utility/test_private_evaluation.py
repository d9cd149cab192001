"""Claims about figures that are paid for."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import escudo
from escudo.errors import BudgetExceededError, InputError
from escudo.privacy import MemoryAccount
from escudo.utility import _private, evaluate_privately, fidelity
from escudo.utility._private import _chosen, _statistics
from escudo.utility._rows import Rows

SMALL = escudo.Schema.from_dict({"a": ["x", "y"], "b": ["u", "v", "w"], "c": ["no", "yes"]})
LEVELS = [column.levels for column in SMALL.fields]
ROW = st.tuples(*[st.sampled_from(levels) for levels in LEVELS])


@pytest.fixture(scope="module", autouse=True)
def quick_learner():
    """Learn by the quicker of the two learners; the sensitivity holds for any."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_private, "_LEARNERS", ("logistic",))
        yield


def frame(rows):
    return pl.DataFrame(rows, schema=list(SMALL.names), orient="row")


def statistics(rows, made):
    figures, count = _statistics(escudo.PrivateTable(frame(rows), SMALL), made, ("a", "b"))
    return np.array([*figures, count])


@settings(max_examples=40, deadline=None)
@given(rows=st.lists(ROW, min_size=2, max_size=12), other=ROW, drawn=st.lists(ROW, min_size=5, max_size=12))
def test_one_row_moves_no_figure_by_more_than_one(rows, other, drawn):
    made = Rows.read(frame(drawn), SMALL)
    before = statistics(rows, made)
    replaced, removed = statistics([other, *rows[1:]], made), statistics(rows[1:], made)
    assert np.abs(before - replaced).max() <= 1 + 1e-9
    assert np.abs(before - removed).max() <= 1 + 1e-9


def test_the_bound_is_reached():
    made = Rows.read(frame([("x", "u", "no")] * 5), SMALL)
    before = statistics([("x", "u", "no")] * 6, made)
    after = statistics([("y", "v", "yes")] + [("x", "u", "no")] * 5, made)
    assert np.abs(before - after)[:4] == pytest.approx(1.0)


def test_figures_agree_with_the_exact_ones_at_a_large_budget(schema, draw):
    rows, made = draw(2000, 1), draw(2000, 2, mixed=True)
    found = evaluate_privately(escudo.PrivateTable(rows, schema), made, epsilon=900.0, seed=1)
    exact = fidelity(Rows.read(rows, schema), Rows.read(made, schema), detect=False)
    assert found.one_way == pytest.approx(exact.one_way, abs=1e-3)
    assert found.two_way == pytest.approx(exact.two_way, abs=1e-3)
    assert found.three_way == pytest.approx(exact.three_way, abs=1e-3)
    assert found.baseline <= found.accuracy + 0.05 <= 1.05
    assert found.guarantee.epsilon == pytest.approx(900.0)
    assert not found.guarantee.for_release


@pytest.mark.parametrize("relation", ["replace_one", "add_remove"])
def test_what_is_charged_is_what_the_plan_shows(schema, draw, relation):
    account = MemoryAccount(relation=relation, epsilon=1.0)
    table = escudo.PrivateTable(draw(300, 1), schema, account)
    planned = escudo.plan(evaluate_privately, table, draw(300, 2), epsilon=0.5, relation=relation)
    evaluate_privately(table, draw(300, 2), epsilon=0.5, relation=relation, seed=1)
    assert [receipt.event for receipt in account.receipts] == [planned.event]
    assert planned.event.dimensions == (5 if relation == "replace_one" else 6)
    assert planned.guarantee(0.0).epsilon <= 0.5 * (1 + 1e-9)


def test_the_noise_is_as_large_as_it_says(schema, draw, monkeypatch):
    table, made = escudo.PrivateTable(draw(500, 1), schema), draw(500, 2)
    exact = _statistics(table, Rows.read(made, schema), ("ill",))
    monkeypatch.setattr(_private, "_statistics", lambda *_: exact)
    runs = [evaluate_privately(table, made, epsilon=2.0, targets=1, seed=seed) for seed in range(200)]
    spread = np.std([run.two_way for run in runs], ddof=1)
    assert 0.75 * runs[0].deviation < spread < 1.35 * runs[0].deviation
    assert runs[0].deviation == pytest.approx(np.sqrt(2) * 5 / 2.0 / 500, rel=1e-3)


def test_nothing_is_spent_when_it_is_refused(schema, draw):
    account = MemoryAccount(epsilon=0.1)
    table = escudo.PrivateTable(draw(100, 1), schema, account)
    with pytest.raises(BudgetExceededError):
        evaluate_privately(table, draw(100, 2), epsilon=0.5, seed=1)
    with pytest.raises(InputError, match="kept for relation"):
        evaluate_privately(table, draw(100, 2), epsilon=0.05, relation="add_remove", seed=1)
    with pytest.raises(InputError, match="targets"):
        evaluate_privately(table, draw(100, 2), epsilon=0.05, targets=["age"], seed=1)
    assert account.receipts == ()


def test_a_person_with_several_rows_costs_as_many(draw):
    schema = escudo.Schema.from_dict(
        {"smoke": ["no", "yes"], "ill": ["no", "yes"]}, person_id="who", max_rows_per_person=3
    )
    rows = draw(300, 1).select("smoke", "ill").with_columns(who=pl.Series(np.arange(300) % 100))
    table = escudo.PrivateTable(rows, schema, MemoryAccount(unit="person", max_rows_per_person=3))
    planned = escudo.plan(evaluate_privately, table, rows, epsilon=1.0)
    assert planned.event.l1_sensitivity == pytest.approx(6 * 3, rel=1e-4)
    assert evaluate_privately(table, rows, epsilon=1.0, seed=1).guarantee.unit == "person"


def test_targets_are_categorical_columns(schema, draw):
    made = Rows.read(draw(20, 1), schema)
    assert _chosen(made, 9) == ("smoke", "ward", "ill")
    assert _chosen(made, ["ill"]) == ("ill",)
