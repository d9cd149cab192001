"""Linked tables beside each other: what is compared, exactly for the custodian and with noise for everybody."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

import escudo
from escudo.errors import InputError
from escudo.report import evaluation_page
from escudo.synthesis import Clinic, LinkedModel, clinic
from escudo.table import LinkedTable, PrivateTables
from escudo.utility import LinkedEvaluation, evaluate_privately, linked_fidelity, read_linked
from escudo.utility._linked import KINDS, PreparedLinkedFigures, apart


@pytest.fixture(scope="module")
def made() -> Clinic:
    return clinic(1_200, seed=1)


@pytest.fixture(scope="module")
def model(made: Clinic) -> LinkedModel:
    tables = PrivateTables(made.frames, made.schema)
    return escudo.synthesize(tables, made.graph, epsilon=3.0, delta=1e-5, seed=1)


@pytest.fixture(scope="module")
def found(made: Clinic, model: LinkedModel) -> LinkedEvaluation:
    drawn = [model.sample(1_200, seed=seed) for seed in (1, 2)]
    return escudo.evaluate(made.frames, clinic(1_200, seed=2).frames, drawn, made.schema, model=model)


def test_every_kind_is_told_beside_a_second_real_sample(found: LinkedEvaluation) -> None:
    assert set(found.figures) == set(KINDS) - {"row_pairs"}  # visits have no rows of their own
    assert all(0 < far < 0.25 and 0 < floor < 0.25 for far, floor in found.figures.values())
    assert [one.treatment for one in found.effects] == ["visits.treat@prev"]
    assert found.effects[0].adjustment == ("patients.age", "visits.severity@prev")
    assert abs(found.effects[0].real - found.effects[0].synthetic) < 0.1
    assert found.to_json()["custodian_only"] is True
    assert "For the custodian only" in str(found)
    assert "Custodian only" in found._repr_html_()
    page = evaluation_page(found)
    assert "Keep this page to yourself" in page
    assert "visits.treat@prev on visits.severity = severe" in page


def test_tables_are_as_close_to_themselves_as_can_be_and_what_is_broken_is_seen(made: Clinic) -> None:
    real = read_linked(made.frames, made.schema)
    same = linked_fidelity(real, real, made.graph)
    assert all(getattr(same, kind) == 0 for kind in KINDS if kind != "row_pairs")
    mixed = made.frames["visits"].with_columns(pl.col("severity").shuffle(seed=1))
    broken = linked_fidelity(real, read_linked({**made.frames, "visits": mixed}, made.schema), made.graph)
    assert broken.people == broken.counts == 0
    assert broken.rows == pytest.approx(0, abs=1e-12)
    assert broken.transitions is not None
    assert broken.transitions > 0.05
    assert broken.worst[0][1] > 0.05


def test_what_comes_next_is_weighted_by_what_was_before() -> None:
    real, other = np.array([[8, 0], [0, 2]]), np.array([[1, 1], [0, 7]])
    assert apart(real, other, given_first=True) == pytest.approx(0.8 * 0.5)
    assert apart(real, real * 3) == 0


def test_paid_figures_hold_what_the_tables_say(made: Clinic, model: LinkedModel) -> None:
    tables, drawn = PrivateTables(made.frames, made.schema), model.sample(1_200, seed=1)
    paid = evaluate_privately(tables, drawn, epsilon=50.0, seed=1)
    real, synthetic = tables.histories(), read_linked(drawn, made.schema)
    table = LinkedTable(view="people", columns=("visits.@count",))
    assert paid.figures["counts"] == pytest.approx(apart(real.counts(table), synthetic.counts(table)), abs=0.003)
    after = [
        LinkedTable(view="next", table="visits", columns=(f"visits.{name}@prev", f"visits.{name}"))
        for name in ("severity", "treat", "pain")
    ]
    wanted = np.mean([apart(real.counts(one), synthetic.counts(one)) for one in after])
    assert paid.figures["transitions"] == pytest.approx(wanted, abs=0.003)
    assert all(low <= paid.figures[kind] <= high for kind, (low, high) in paid.intervals.items())
    assert paid.guarantee.epsilon == pytest.approx(50.0)
    assert "in the wrong cell" in str(paid)
    assert paid.to_json()["figures"].keys() == paid.figures.keys()


def prepared(made: Clinic, relation: str) -> PreparedLinkedFigures:
    return PreparedLinkedFigures.of(made.schema, made.schema.neighbours(relation=relation), epsilon=1.0)


@pytest.mark.parametrize("relation", ["replace_one", "add_remove"])
def test_one_person_moves_each_figure_by_one_at_most(made: Clinic, relation: str) -> None:
    """The longest, shortest and oddest histories, in the place of each other and coming or going."""
    question, synthetic = prepared(made, relation), read_linked(clinic(30, seed=5).frames, made.schema)
    people, visits = (made.frames[name] for name in ("patients", "visits"))
    lengths = visits.group_by("patient").len().sort("len")["patient"].to_list()
    without = [who for who in people["patient"].to_list() if who not in set(lengths)]
    odd = [lengths[-1], lengths[-2], lengths[0], *without[:1]]
    few = people.head(40)["patient"].to_list()

    def exact(kept: list[int]) -> Any:
        frames = {"patients": people, "visits": visits}
        chosen = {name: frame.filter(pl.col("patient").is_in(kept)) for name, frame in frames.items()}
        return np.concatenate(question.counted(PrivateTables(chosen, made.schema), synthetic).exact)

    base = [who for who in few if who not in odd]
    seen = {who: exact([*base, who]) for who in odd}
    pairs = [(a, b) for a in odd for b in odd if a < b] if relation == "replace_one" else [(a, 0) for a in odd]
    seen[0] = exact(base)
    moved = [np.abs(seen[a] - seen[b]) for a, b in pairs]
    assert max(each.max() for each in moved) <= 1 + 1e-9
    assert max(each.max() for each in moved) > 0.9


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"real_train": "tables"}, "keeps its rows to itself"),
        ({"synthetic": {"visits": 1}}, "must map each table's name"),
        ({"synthetic": []}, "holds no tables"),
        ({"model": "a model"}, "must be one of linked tables"),
        ({"reference": "a network"}, "reference is for one table"),
        ({"real_test": "nobody"}, "real_test has no people"),
    ],
)
def test_what_cannot_be_compared_is_said(made: Clinic, arguments: dict[str, Any], words: str) -> None:
    empty = {name: frame.clear() for name, frame in made.frames.items()}
    known = {"tables": PrivateTables(made.frames, made.schema), "nobody": empty}
    given: dict[str, Any] = {"real_train": made.frames, "real_test": made.frames, "synthetic": made.frames, **arguments}
    given = {name: known.get(value, value) if isinstance(value, str) else value for name, value in given.items()}
    with pytest.raises(InputError, match=words):
        escudo.evaluate(schema=made.schema, **given)
