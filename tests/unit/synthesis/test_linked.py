"""People are drawn with their rows: keys match, dates are in order, and interventions do what the graph says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import escudo
from escudo.causal import CausalGraph
from escudo.errors import GraphError, InputError, NotIdentifiableError, RefusedError, SchemaError
from escudo.privacy import MemoryAccount
from escudo.synthesis import Clinic, LinkedModel, clinic, load, load_linked
from escudo.synthesis._estimation import NoisyTable
from escudo.synthesis._linked import steadied
from escudo.table import LinkedSchema, PrivateTables, linked_structure

PEOPLE = 1500


@pytest.fixture(scope="module")
def made() -> Clinic:
    return clinic(PEOPLE, seed=1)


@pytest.fixture(scope="module")
def model(made: Clinic) -> LinkedModel:
    return escudo.synthesize(PrivateTables(made.frames, made.schema), made.graph, epsilon=20.0, delta=1e-6, seed=1)


def test_every_row_belongs_to_somebody_in_order_of_time(model: LinkedModel, made: Clinic) -> None:
    out = model.sample(800, seed=2)
    people, visits = out["patients"], out["visits"]
    assert people["patient"].to_list() == list(range(1, 801))
    assert set(visits["patient"]) <= set(people["patient"])
    checked = visits.with_columns(
        pl.col("date").diff().over("patient").alias("gap"),
        pl.int_range(1, pl.len() + 1).over("patient").cast(pl.Int64).alias("nth"),
    )
    assert checked["gap"].drop_nulls().min() >= 0  # type: ignore[operator]
    assert checked["number"].equals(checked["nth"].alias("number"))
    assert visits.group_by("patient").len()["len"].max() <= 20  # type: ignore[operator]
    assert people.height > visits["patient"].n_unique()  # some have none
    assert set(visits["severity"]) <= {"none", "mild", "moderate", "severe"}
    mean = made.frames["visits"].height / PEOPLE
    assert abs(visits.height / 800 - mean) < 0.5


def test_rows_go_on_as_they_do_in_the_tables(model: LinkedModel, made: Clinic) -> None:
    def stays(frame: pl.DataFrame) -> float:
        rows = frame.sort("patient", "date", maintain_order=True)
        same = (pl.col("severity") == pl.col("severity").shift(1)).over("patient")
        return float(rows.select(same.alias("same"))["same"].drop_nulls().mean())  # type: ignore[arg-type]

    assert abs(stays(model.sample(3000, seed=1)["visits"]) - stays(made.frames["visits"])) < 0.04


def test_do_by_row_number_sets_these_rows_and_no_others(model: LinkedModel) -> None:
    out = model.sample(2000, do={"visits.treat": {"1": "no", "2-3": "yes"}}, seed=1)["visits"]
    by = {number: set(part["treat"]) for (number,), part in out.group_by("number")}
    assert by[1] == {"no"}
    assert by[2] == by[3] == {"yes"}
    assert by[4] == {"no", "yes"}


def test_do_leaves_causes_as_they_are_and_moves_effects(model: LinkedModel) -> None:
    yes = model.sample(4000, do={"visits.treat": "yes"}, seed=1)["visits"]
    no = model.sample(4000, do={"visits.treat": "no"}, seed=1)["visits"]

    def severe(frame: pl.DataFrame, number: int) -> float:
        return float((frame.filter(pl.col("number") == number)["severity"] == "severe").mean())  # type: ignore[arg-type]

    assert abs(severe(yes, 1) - severe(no, 1)) < 0.03
    assert severe(yes, 5) < severe(no, 5) - 0.05


def test_how_many_rows_may_be_set_and_observed(model: LinkedModel) -> None:
    for how in ("do", "given"):
        out = model.sample(50, **{how: {"visits.count": 6}}, seed=1)["visits"]  # type: ignore[arg-type]
        assert out.group_by("patient").len()["len"].unique().to_list() == [6]
    assert model.sample(50, do={"visits.count": 0}, seed=1)["visits"].height == 0


def test_given_holds_of_people_and_of_rows(model: LinkedModel) -> None:
    out = model.sample(300, given={"patients.smoke": "current", "visits.severity": {"2": "severe"}}, seed=1)
    assert out["patients"].height == 300
    assert set(out["patients"]["smoke"]) == {"current"}
    second = out["visits"].filter(pl.col("number") == 2)
    assert second.height == 300
    assert set(second["severity"]) == {"severe"}
    with pytest.raises(InputError, match="fewer than one in a hundred"):
        model.sample(10, given={"visits.severity": {"20": "severe"}}, seed=1)


def test_a_model_survives_its_files(model: LinkedModel, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    again = load_linked(tmp_path / "model")
    with pytest.raises(InputError, match="read it with load_linked"):
        load(tmp_path / "model")
    assert again.schema == model.schema
    for one, other in zip(model.sample(60, seed=3).values(), again.sample(60, seed=3).values(), strict=True):
        assert one.equals(other)
    with pytest.raises(InputError, match="exists"):
        model.save(tmp_path / "model")
    (tmp_path / "model" / "model.json").write_text("{}")
    with pytest.raises(InputError, match="no usable model"):
        load_linked(tmp_path / "model")


@pytest.mark.parametrize(
    ("do", "error", "words"),
    [
        ({"visits.treet": "yes"}, SchemaError, "Did you mean 'visits.treat'"),
        ({"visits.treat": "maybe"}, SchemaError, "no level 'maybe'"),
        ({"visits.treat": {"0": "yes"}}, InputError, "numbered from 1 to 20"),
        ({"visits.treat": {"first": "yes"}}, InputError, "by row numbers"),
        ({"visits.treat": {"1-3": "yes", "3": "no"}}, InputError, "given twice"),
        ({"visits.number": 3}, InputError, "cannot be set"),
        ({"visits.count": 99}, SchemaError, "from 0 to 20"),
        ({"visits.start": 10}, NotIdentifiableError, "does not name"),
        ("yes", InputError, "must map columns"),
    ],
)
def test_what_cannot_be_set_is_said(model: LinkedModel, do: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        model.sample(5, do=do)


@pytest.mark.parametrize(
    ("arrow", "words"),
    [
        (("visits.severity", "patients.smoke"), "from rows to people"),
        (("visits.severity", "visits.count"), "from rows to how many rows"),
        (("visits.severity", "visits.severity@prev"), "leads to the row before"),
        (("patients.age@prev", "visits.severity"), "only a column of rows"),
        (("visits.count@prev", "visits.severity"), "only a column of rows"),
        (("visits.severity", "visits.number"), "nothing causes which row"),
        (("visits.severity", "visits.gap"), "come first"),
        (("visits.severity@prev", "visits.start"), "come first"),
        (("visits.sever", "visits.treat"), "Did you mean 'visits.severity'"),
    ],
)
def test_arrows_that_lead_nowhere_are_refused_in_a_sentence(made: Clinic, arrow: tuple[str, str], words: str) -> None:
    with pytest.raises(GraphError, match=words):
        linked_structure(made.schema, CausalGraph.from_edges([arrow]))


def test_cycles_are_allowed_through_the_row_before_only() -> None:
    CausalGraph.from_edges([("v.a@prev", "v.b"), ("v.b", "v.a")])
    with pytest.raises(GraphError, match="cycle"):
        CausalGraph.from_edges([("v.a", "v.b"), ("v.b", "v.a")])


def test_the_plan_is_public_and_all_that_is_spent(made: Clinic) -> None:
    account = MemoryAccount(unit="person", max_rows_per_person=21)
    tables = PrivateTables(made.frames, made.schema, account)
    plan = escudo.plan(escudo.synthesize, tables, made.graph, epsilon=1.0, delta=1e-6)
    assert not account.receipts
    stated = escudo.plan(escudo.synthesize, made.schema, made.graph, epsilon=1.0, delta=1e-6, people=PEOPLE)
    assert str(plan) == str(stated)
    model = escudo.synthesize(tables, made.graph, epsilon=1.0, delta=1e-6, seed=1)
    assert len(account.receipts) == 1
    assert model.guarantee.unit == "person"
    assert "all rows of one person (at most 21)" in str(model.guarantee)


def test_what_asks_one_table_refuses_linked_ones(made: Clinic) -> None:
    tables = PrivateTables(made.frames, made.schema)
    for ask in (escudo.orient, escudo.direction):
        with pytest.raises(InputError, match="takes no linked ones"):
            ask(tables, epsilon=1.0)  # type: ignore[call-arg, arg-type]
    with pytest.raises(InputError, match="take the generator 'marginals'"):
        escudo.synthesize(tables, made.graph, epsilon=1.0, delta=1e-6, generator="vae")
    with pytest.raises(InputError, match="no option 'depth'"):
        escudo.synthesize(tables, made.graph, epsilon=1.0, delta=1e-6, depth=3)
    with pytest.raises(InputError, match="never read without privacy"):
        escudo.synthesize(tables, made.graph, epsilon=None, no_privacy=True)
    with pytest.raises(InputError, match="the account protects one row"):
        PrivateTables(made.frames, made.schema, MemoryAccount())


def test_what_is_not_confirmed_is_refused_before_anything_is_read(made: Clinic) -> None:
    told = made.schema.to_dict()
    told["tables"]["visits"]["confirmed"] = False
    schema = LinkedSchema.from_dict(told)
    with pytest.raises(RefusedError, match="not confirmed: visits"):
        escudo.synthesize(PrivateTables(made.frames, schema), made.graph, epsilon=1.0, delta=1e-6)


@pytest.mark.parametrize("most", [1, 2])
@pytest.mark.parametrize("graph", [None, CausalGraph.from_edges([("p.s", "v.x")])])
def test_tables_without_rows_and_bounds_of_one_are_like_any_other(most: int, graph: CausalGraph | None) -> None:
    schema = LinkedSchema.from_dict({
        "linked": {"people": "p", "dates": "days"},
        "tables": {
            "p": {"key": "id", "origin_day": 0, "columns": {"s": ["f", "m"], "one": ["only"]}},
            "v": {
                **{"parent": "p", "foreign_key": "id", "order": "day", "most": most},
                **{"start_edges": [0, 9], "gap_edges": [0, 9], "columns": {"x": ["a", "b"], "same": ["only"]}},
            },
        },
    })  # fmt: skip
    people = pl.DataFrame({"id": [], "s": [], "one": []}, schema={"id": pl.Int64, "s": pl.String, "one": pl.String})
    rows = pl.DataFrame(schema={"id": pl.Int64, "day": pl.Int64, "x": pl.String, "same": pl.String})
    tables = PrivateTables({"p": people, "v": rows}, schema, relation="add_remove")
    model = escudo.synthesize(tables, graph, epsilon=1.0, delta=1e-6, seed=1)
    out = model.sample(20, seed=1)
    assert out["p"].height == 20
    assert out["v"].group_by("id").len()["len"].max() in (None, *range(1, most + 1))
    assert np.all(out["v"]["same"].to_numpy() == "only")


def test_noise_alone_does_not_make_rows_drift_and_a_drift_that_is_there_stays() -> None:
    rng = np.random.default_rng(1)
    shares = np.array([[0.5, 0.1, 0.0], [0.1, 0.1, 0.05], [0.0, 0.05, 0.1]])
    names = ("people.old", "rows.state@prev", "rows.state")

    def apart(exact: Any, scale: float) -> tuple[float, float]:
        """Return by how much the two laws differ more than they do, squared, as measured and steadied."""
        truth = exact.sum(axis=-2) - exact.sum(axis=-1)
        noisy = NoisyTable(names, exact + rng.normal(0, scale, exact.shape), scale)
        found = []
        for each in (noisy, steadied(noisy)):
            assert each.counts.sum() == pytest.approx(noisy.counts.sum())
            found.append(float(((each.counts.sum(axis=-2) - each.counts.sum(axis=-1) - truth) ** 2).sum()))
        return found[0], found[1]

    even = np.stack([2_000 * shares, 500 * shares])
    runs = np.array([apart(even, 9.0) for _ in range(200)])
    assert runs[:, 1].mean() < 0.35 * runs[:, 0].mean()
    drifting = even + np.array([[0, 300, 0], [0, 0, 0], [0, 0, 0]])
    runs = np.array([apart(drifting, 9.0) for _ in range(200)])
    assert runs[:, 1].mean() < 1.1 * runs[:, 0].mean()
    other = NoisyTable(("rows.state@prev", "rows.done"), np.ones((3, 2)), 1.0)
    assert steadied(other) is other
