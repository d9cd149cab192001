"""Bins that a release chooses: where they are, what they cost, and what rows drawn from them look like."""

from __future__ import annotations

import datetime as dt
import itertools
import json
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import escudo
from escudo.causal import CausalGraph
from escudo.errors import InputError, SchemaError
from escudo.privacy import Budget, GaussianEvent, RepeatedEvent, calibrate, guarantee_of
from escudo.synthesis import load, prepare, prepare_discovered, synthesize
from escudo.synthesis._bins import BINS, few_numbers, finely, grid_of, joined
from escudo.synthesis._laws import decode
from escudo.synthesis._marginals import table_event
from escudo.table import Numeric, PrivateTable, Schema

Spec = dict[str, Any]
INCOME: Spec = {"type": "numeric", "lower": 0, "upper": 1_000_000}


def people(rows: int, seed: int = 0) -> pl.DataFrame:
    """Return incomes with a heavy tail, gifts that are mostly none, whole hours, and something that goes with them."""
    rng = np.random.default_rng(seed)
    rich = rng.random(rows) < 0.4
    return pl.DataFrame({
        "rich": np.where(rich, "yes", "no"),
        "income": np.exp(10 + 0.8 * rich + 0.6 * rng.normal(size=rows)),
        "gift": np.where(rng.random(rows) < 0.7, 0.0, np.exp(6 + rng.normal(size=rows))),
        "hours": np.where(rng.random(rows) < 0.5, 40, rng.integers(5, 80, rows)),
    })  # fmt: skip


SCHEMA = Schema.from_dict({
    "rich": ["no", "yes"],
    "income": INCOME,
    "gift": INCOME,
    "hours": {"type": "numeric", "lower": 0, "upper": 100, "integer": True},
})  # fmt: skip
TERMS: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}


def apart(one: pl.Series, other: pl.Series) -> float:
    """Return the largest difference of two distribution functions."""
    a, b = np.sort(one.drop_nulls().to_numpy()), np.sort(other.drop_nulls().to_numpy())
    places = np.concatenate([a, b])
    shares = [np.searchsorted(each, places, side="right") / each.size for each in (a, b)]
    return float(np.abs(shares[0] - shares[1]).max())


@pytest.mark.parametrize("generator", ["marginals", "moments", "one-way", "independent"])
def test_rows_follow_numbers_of_which_only_the_bounds_were_known(generator):
    frame = people(20_000)
    model = synthesize(PrivateTable(frame, SCHEMA), None, generator=generator, seed=1, **TERMS)
    rows = model.sample(20_000, seed=2)
    for name in ("income", "gift", "hours"):
        assert model.schema[name].bins == 20
        assert apart(frame[name], rows[name]) <= 0.05
    assert rows["income"].median() == pytest.approx(frame["income"].median(), rel=0.03)
    assert (rows["gift"] == 0).mean() == pytest.approx(0.7, abs=0.03)  # exactly zero, not a small number
    assert (rows["hours"] == 40).mean() == pytest.approx((frame["hours"] == 40).mean(), abs=0.03)


@pytest.mark.parametrize("relation", ["replace_one", "add_remove"])
def test_rows_of_persons_follow_their_numbers(relation):
    frame = people(20_000).with_columns(who=pl.int_range(20_000) // 2)
    schema = Schema.from_dict(SCHEMA.to_dict()["columns"], person_id="who", max_rows_per_person=2)
    table = PrivateTable(frame, schema, relation=relation)
    model = synthesize(table, None, seed=1, epsilon=3.0, delta=1e-6)
    rows = model.sample(20_000, seed=2)
    for name in ("income", "gift", "hours"):
        assert apart(frame[name], rows[name]) <= 0.05


def test_a_graph_that_is_found_and_one_that_is_stated_use_the_same_bins():
    frame, graph = people(5_000), CausalGraph.from_edges([("rich", "income")])
    table = PrivateTable(frame, SCHEMA)
    found = escudo.synthesis.fit(prepare_discovered(SCHEMA, public_rows=5_000, **TERMS), table, seed=3)
    stated = synthesize(table, graph, seed=3, **TERMS)
    for model in (found, stated):
        assert all(model.schema[name].edges is not None for name in ("income", "gift", "hours"))
        assert [leaf.name for leaf in model.plan.children[0].children] == [
            "income, roughly", "income, finely", "gift, roughly", "gift, finely", "hours, roughly", "hours, finely",
        ]  # fmt: skip


def test_bins_and_generator_are_paid_from_one_budget():
    prepared = prepare(SCHEMA, None, public_rows=1000, **TERMS)
    plan = prepared.plan
    total = plan.guarantee(1e-6).epsilon
    assert 0.99 < total <= 1.0
    rounds = plan.children[0].event
    neighbours = SCHEMA.neighbours(rows=1000)
    alone = calibrate(lambda scale: table_event(neighbours, scale), Budget(1.0, 1e-6))
    spent = sum(2 / leaf.event.scale**2 for leaf in plan.children[0].children)
    assert spent == pytest.approx(BINS * 2 / alone**2, rel=0.01)
    assert guarantee_of(rounds, delta=1e-6).epsilon < 0.4


def test_a_budget_keeps_what_is_reserved_of_it():
    table = GaussianEvent(l2_sensitivity=1.0, scale=10.0, grid=1.0)
    budget = Budget(1.0, 1e-6).reserving([RepeatedEvent(event=table, count=2)])
    level = calibrate(lambda scale: GaussianEvent(l2_sensitivity=1.0, scale=scale, grid=1.0), budget)
    both = guarantee_of(
        GaussianEvent(l2_sensitivity=1.0, scale=(level**-2 + 2 / 100) ** -0.5, grid=1.0), delta=1e-6
    ).epsilon
    assert 0.99 < both <= 1.0
    assert level > calibrate(lambda scale: GaussianEvent(l2_sensitivity=1.0, scale=scale, grid=1.0), Budget(1.0, 1e-6))


def test_stated_bins_cost_nothing():
    schema = SCHEMA.with_columns(*(Numeric(name, 0, 100, 10) for name in ("income", "gift", "hours")))
    assert "private bins" not in str(prepare(schema, None, public_rows=1000, **TERMS).plan)
    assert "private bins" not in str(
        prepare(SCHEMA.select(["income", "gift"]), None, generator="linear", public_rows=1000, **TERMS).plan
    )


def test_a_checkpoint_needs_bins_that_are_stated(tmp_path):
    with pytest.raises(InputError, match=r"'income', 'gift', 'hours' are left to the release.*state bins"):
        prepare(SCHEMA, None, generator="autoregressive", checkpoint=tmp_path / "kept", public_rows=1000, **TERMS)


def test_a_model_remembers_its_bins(tmp_path):
    model = synthesize(PrivateTable(people(2_000), SCHEMA), None, seed=5, **TERMS)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.schema == model.schema
    assert again.sample(50, seed=1).equals(model.sample(50, seed=1))
    description = tmp_path / "model" / "model.json"
    told = json.loads(description.read_text())
    assert set(told["spread"]) == {"income", "gift", "hours"}  # how numbers lie inside those bins
    told["spread"]["income"]["rule"] = "another"
    description.write_text(json.dumps(told))
    with pytest.raises(InputError, match="spreads numbers inside bins in a way that this version does not know"):
        load(tmp_path / "model")


def test_noise_far_out_does_not_set_the_mean_of_numbers_that_are_mostly_zero():
    """Bounds a thousand times too wide: before tails were joined, means came out up to fourteen times too large."""
    rng = np.random.default_rng(4)
    gift = np.where(rng.random(20_000) < 0.9, 0.0, rng.gamma(4, 500, 20_000))
    schema = Schema.from_dict({"gift": {"type": "numeric", "lower": 0, "upper": 5_000_000}, "rich": ["no", "yes"]})
    table = PrivateTable(pl.DataFrame({"gift": gift, "rich": ["no", "yes"] * 10_000}), schema)
    for seed in range(5):
        made = synthesize(table, None, seed=seed, **TERMS).sample(20_000, seed=seed)["gift"]
        assert made.mean() == pytest.approx(gift.mean(), rel=0.3)
        assert (made == 0).mean() == pytest.approx(0.9, abs=0.02)


def test_a_release_with_a_copy_for_the_custodian_compares_in_the_bins_that_were_chosen(tmp_path):
    table = PrivateTable(people(2_000), SCHEMA)
    escudo.release(table, tmp_path / "out", None, custodian=True, evaluate=0.1, seed=5, **TERMS)
    assert load(tmp_path / "out" / "model").schema["income"].edges is not None
    assert "private bins" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_hardly_any_rows_are_no_error(rows):
    for seed in range(5):
        model = synthesize(PrivateTable(people(rows), SCHEMA, relation="add_remove"), None, seed=seed, **TERMS)
        assert model.sample(10, seed=0).height == 10


COLUMNS = [
    Numeric("x", 0, 1_000_000),
    Numeric("x", 0, 1_000_000, integer=True),
    Numeric("x", 0, 63, integer=True, missing=True),
    Numeric("x", -5, 25, integer=True),
    Numeric("x", -1e6, 1e-3),
    Numeric("x", 35.5, 42.25, missing=True),
    Numeric("x", 1e9, 1e9 + 0.001),
    Numeric("x", -1e300, 1e300),
    Numeric("x", 1e-200, 3e-200),
    Numeric("x", 0.5, 200.5, integer=True),
    Numeric("x", "2001-01-01", "2020-12-31", date="%Y-%m-%d"),
    Numeric("x", "2001-01-01", "2001-02-10", date="%Y-%m-%d"),
]


@pytest.mark.parametrize("column", COLUMNS, ids=str)
@given(data=st.data())
def test_whatever_the_noise_says_there_are_as_many_bins_within_the_bounds(column, data):
    def shares(cells: int) -> np.ndarray:
        kind = data.draw(st.sampled_from(["one", "even", "some", "any"]))
        rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
        found = {"one": np.zeros(cells), "even": np.ones(cells), "some": (rng.random(cells) < 0.2) * rng.random(cells)}
        mass = found.get(kind, rng.random(cells) ** 8)
        mass[rng.integers(cells)] += kind == "one"
        return mass / max(mass.sum(), 1e-9)

    grid = grid_of(column)
    assert (grid.boundaries[0], grid.boundaries[-1]) == column.bounds
    fine = grid if few_numbers(column) else finely(grid, shares(grid.bins))
    chosen = joined(fine, shares(fine.bins), data.draw(st.sampled_from([0.0, 1e-4, 0.02, 10.0])))
    assert chosen.bins == column.bins == 20
    assert chosen.bounds == column.bounds
    assert all(a < b for a, b in itertools.pairwise(chosen.boundaries))
    codes = np.arange(chosen.size, dtype=np.int64).repeat(20)
    values = decode(Schema((chosen,)), {"x": codes}, np.random.default_rng(0))["x"]
    assert (chosen.encode(values.to_list()) == codes).all() or column.integer  # a bin may hold no whole number
    present = values.drop_nulls()
    if column.date is None:
        assert present.min() >= column.bounds[0]
        assert present.max() <= column.bounds[1]
    else:
        assert dt.date(2001, 1, 1) <= present.min()


def test_few_whole_numbers_have_a_bin_each():
    column = Numeric("children", 0, 12, integer=True)
    assert (column.private, column.bins) == (False, 13)
    assert column.encode(range(13)).tolist() == list(range(13))
    week = Numeric("day", "2024-01-01", "2024-01-08", date="%Y-%m-%d")
    assert (week.private, week.bins) == (False, 7)


def test_what_is_private_and_stated_at_once_is_refused():
    with pytest.raises(SchemaError, match="column 'x': bins are chosen privately or stated, not both"):
        Numeric("x", 0, 1, 30, private=True)
    with pytest.raises(SchemaError, match='bins must be a whole number, or "private"'):
        Numeric("x", 0, 1, "many")
    with pytest.raises(SchemaError, match="edges and bins say the same thing twice"):
        Schema.from_dict({"x": {"type": "numeric", "edges": [0, 1], "bins": "private"}})


def test_private_bins_survive_every_file(tmp_path):
    for name in ("schema.toml", "schema.json"):
        SCHEMA.write(tmp_path / name)
        assert Schema.read(tmp_path / name) == SCHEMA
    assert 'bins = "private"' in SCHEMA.to_toml()
