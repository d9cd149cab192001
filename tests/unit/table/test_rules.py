"""Public rules: read and written, refused where they make no sense, held in every synthetic row, counted for nobody."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import escudo
from escudo.causal import CausalGraph
from escudo.errors import EscudoError, SchemaError, ZeroProbabilityError
from escudo.synthesis import load, synthesize
from escudo.table import PrivateTable, Rule, Schema, check

COLUMNS: dict[str, Any] = {
    "sex": ["female", "male"],
    "pregnant": {"type": "categorical", "levels": ["no", "yes"], "missing": True},
    "in": {"type": "date", "lower": "2024-01-01", "upper": "2024-12-31", "bins": 12},
    "out": {"type": "date", "lower": "2024-01-01", "upper": "2025-03-31", "bins": 15, "missing": True},
    "low": {"type": "numeric", "lower": 0, "upper": 100},
    "high": {"type": "numeric", "lower": 0, "upper": 200, "bins": 8, "integer": True},
    "child": [False, True],
}
RULES = [
    "pregnant = yes -> sex = female",
    "out >= in",
    "high > low",
    "child = true -> pregnant != yes",
    "high >= 150 -> child = false",
]
SCHEMA = Schema.from_dict({"columns": COLUMNS, "table": {"rules": RULES}})
TERMS: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}


def broken(frame: pl.DataFrame) -> int:
    """Return how many rows break a rule, spelled out."""
    wrong = (
        ((pl.col("pregnant") == "yes") & (pl.col("sex") != "female"))
        | (pl.col("out") < pl.col("in"))
        | (pl.col("high") <= pl.col("low"))
        | (pl.col("child") & (pl.col("pregnant") == "yes"))
        | ((pl.col("high") >= 150) & pl.col("child"))
    )
    return int(frame.select(wrong.fill_null(False).sum()).item())


def people(rows: int, *, tidy: bool = True, seed: int = 0) -> pl.DataFrame:
    """Return rows that hold all rules, or many that break them."""
    rng = np.random.default_rng(seed)
    first = rng.integers(0, 366, rows)
    later = first + rng.integers(0, 60, rows) if tidy else rng.integers(0, 400, rows)
    low = rng.gamma(2, 10, rows).clip(0, 100)
    frame = pl.DataFrame({
        "sex": rng.choice(["female", "male"], rows),
        "pregnant": rng.choice(["no", "yes"], rows, p=[0.8, 0.2]),
        "in": [dt.date(2024, 1, 1) + dt.timedelta(int(days)) for days in first],
        "out": [dt.date(2024, 1, 1) + dt.timedelta(int(days)) if days % 7 else None for days in later],
        "low": low,
        "high": np.floor(low + 1 + (rng.gamma(2, 20, rows) if tidy else rng.integers(-60, 99, rows))).clip(0, 200),
        "child": rng.random(rows) < 0.3,
    }).with_columns(pl.col("high").cast(pl.Int64))  # fmt: skip
    if not tidy:
        return frame
    return frame.with_columns(
        pregnant=pl.when((pl.col("sex") == "female") & ~pl.col("child")).then("pregnant").otherwise(pl.lit("no")),
        child=pl.col("child") & (pl.col("high") < 150),
    )


@pytest.mark.parametrize("generator", ["marginals", "moments", "independent", "one-way"])
@pytest.mark.parametrize("tidy", [True, False])
def test_every_row_of_every_generator_holds_the_rules(generator, tidy):
    table = PrivateTable(people(2_000, tidy=tidy), SCHEMA)
    model = synthesize(table, None, generator=generator, seed=1, **TERMS)
    rows = model.sample(1_500, seed=2)
    assert (rows.height, broken(rows)) == (1_500, 0)
    assert rows.equals(model.sample(1_500, seed=2))
    assert rows["out"].null_count() > 0  # what is missing breaks nothing
    assert model.codes(300, seed=1).shape == (300, 7)


def test_networks_and_linear_models_hold_the_rules():
    schema = Schema.from_dict({"columns": COLUMNS, "table": {"rules": RULES}})
    table = PrivateTable(people(300), schema)
    network = synthesize(table, None, generator="autoregressive", steps=2, pretraining=2, seed=1, **TERMS)
    assert broken(network.sample(100, seed=1)) == 0
    numbers = Schema.from_dict(
        {"columns": {name: COLUMNS[name] for name in ("low", "high")}, "table": {"rules": RULES[2:3]}}
    )
    linear = synthesize(PrivateTable(people(300), numbers), None, generator="linear", seed=1, **TERMS)
    rows = linear.sample(200, seed=1)
    assert (rows["high"] > rows["low"]).all()


def test_interventions_and_conditions_hold_the_rules_or_say_that_they_cannot():
    graph = CausalGraph.from_edges([("sex", "pregnant"), ("low", "high")])
    schema = SCHEMA.select(["sex", "pregnant", "low", "high"])
    assert [str(rule) for rule in schema.rules] == ["pregnant = yes -> sex = female", "high > low"]
    model = synthesize(PrivateTable(people(3_000), schema), graph, seed=1, **TERMS)
    women = model.sample(200, do={"pregnant": "yes"}, seed=1)
    assert women["sex"].unique().to_list() == ["female"]  # nobody else can be
    assert model.probability(["sex"], do={"pregnant": "yes"}).tolist() == [1.0, 0.0]
    men = model.sample(200, do={"sex": "male"}, seed=1)
    assert "yes" not in men["pregnant"].to_list()
    rich = model.sample(100, do={"low": 90.5}, seed=1)
    assert (rich["low"] == 90.5).all()
    assert (rich["high"] > 90.5).all()
    with pytest.raises(ZeroProbabilityError, match=r"rules of the schema .*Or the model is mostly noise"):
        model.sample(10, do={"pregnant": "yes", "sex": "male"})


def test_probabilities_are_those_of_the_rows():
    model = synthesize(PrivateTable(people(3_000), SCHEMA), None, generator="independent", seed=1, **TERMS)
    drawn = model.codes(40_000, columns=["sex", "pregnant"], seed=3)
    told = model.probability(["sex", "pregnant"])
    seen = np.zeros_like(told)
    np.add.at(seen, tuple(drawn.T), 1 / len(drawn))
    assert np.abs(seen - told).max() < 0.03
    assert told[1, 1] == 0.0


def test_a_rule_costs_nothing_and_no_row_that_breaks_it_is_an_error():
    free = Schema.from_dict(COLUMNS)
    plans = [
        synthesize.plan(schema, None, rows=1000, **TERMS).guarantee(1e-6).epsilon for schema in (free, SCHEMA)
    ]  # fmt: skip
    assert plans[0] == plans[1]
    table = PrivateTable(people(500, tidy=False), SCHEMA)
    assert table.counts("sex").tolist() == PrivateTable(people(500, tidy=False), free).counts("sex").tolist()


def test_a_model_keeps_its_rules(tmp_path):
    model = synthesize(PrivateTable(people(500), SCHEMA), None, generator="independent", seed=1, **TERMS)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.schema.rules == SCHEMA.rules
    assert again.sample(50, seed=1).equals(model.sample(50, seed=1))


def test_schemas_with_rules_survive_every_file(tmp_path):
    for name in ("schema.toml", "schema.json"):
        SCHEMA.write(tmp_path / name)
        assert Schema.read(tmp_path / name) == SCHEMA
    assert Schema.from_dict(SCHEMA.to_dict()) == SCHEMA
    assert SCHEMA.fingerprint != Schema.from_dict(COLUMNS).fingerprint


def test_the_custodian_is_told_how_many_rows_break_a_rule(tmp_path):
    frame = people(400, tidy=False)
    found = dict(check(frame, SCHEMA).broken)
    assert found["pregnant = yes -> sex = female"] == frame.filter(pregnant="yes", sex="male").height
    assert found["out >= in"] == frame.filter(pl.col("out") < pl.col("in")).height
    assert found["high > low"] == frame.filter(pl.col("high") <= pl.col("low")).height
    assert found["high >= 150 -> child = false"] == frame.filter((pl.col("high") >= 150) & pl.col("child")).height
    assert all(rows == 0 for _, rows in check(people(400), SCHEMA).broken)
    frame.write_csv(tmp_path / "people.csv")
    assert dict(check(tmp_path / "people.csv", SCHEMA).broken) == found
    assert dict(check(frame.to_pandas(), SCHEMA).broken) == found


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ("pregnant = yes", "neither an implication nor an ordering"),
        ("pregnant -> sex", "compares no column with a value"),
        ("pregnant = yes -> sex = female -> low > 3", "more than one '->'"),
        ("pregnant = yes -> sax = female", "names 'sax', which is no column. Did you mean 'sex'"),
        ("pregnant = maybe -> sex = female", "names 'maybe', which is no level of 'pregnant'"),
        ("pregnant > no -> sex = female", "orders the levels of 'pregnant'"),
        ("low = high -> sex = female", "compares 'low' with 'high', which is no number"),
        ("in = soon -> sex = female", "compares 'in' with 'soon', which is no date"),
        ("sex = (missing) -> pregnant = no", "asks whether 'sex' is missing, which it never is"),
        ("sex = female -> sex = male", "is about one column only"),
        ("in >= low", "orders a number and a date"),
        ("sex >= low", "orders column 'sex', which holds no numbers and no dates"),
        ("low > 1 | 2 -> sex = male", "joins values by '|'"),
        ("!", "cannot be read from letter 1 on"),
        ("", "neither an implication nor an ordering"),
        (7, "a rule must be a text"),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(rule, problem):
    with pytest.raises(SchemaError) as error:
        Schema.from_dict({"columns": COLUMNS, "table": {"rules": [rule]}})
    assert problem in str(error.value)


@pytest.mark.parametrize(
    ("rules", "problem"),
    [
        (["high > low", "low >= high"], "lead from"),
        (["sex = female -> pregnant = yes", "sex = female -> pregnant = no", "sex = male -> pregnant = yes",
          "sex = male -> pregnant = no", "sex = male -> pregnant != (missing)",
          "sex = female -> pregnant != (missing)"], "contradict each other"),
        ("high > low", "must be a list"),
    ],
)  # fmt: skip
def test_rules_that_no_row_can_hold_are_refused(rules, problem):
    with pytest.raises(SchemaError, match=problem):
        Schema.from_dict({"columns": COLUMNS, "table": {"rules": rules}})
    apart = {"a": {"type": "numeric", "lower": 0, "upper": 1}, "b": {"type": "numeric", "lower": 2, "upper": 3}}
    with pytest.raises(SchemaError, match="contradict each other or the bounds"):
        Schema.from_dict({"columns": apart, "table": {"rules": ["a > b"]}})


@given(st.text(max_size=40) | st.text(alphabet='abin <>=!|-"\\()', max_size=30))
def test_no_text_is_worse_than_an_error_in_words(text):
    try:
        rule = Rule.read(text)
    except EscudoError:
        return
    assert Rule.read(str(rule)) == rule


def test_names_with_signs_in_them_are_quoted():
    schema = Schema.from_dict({"columns": {"a = b": ["x -> y", "z"], 'q"': ["1", "2"]},
                               "table": {"rules": ['"a = b" = "x -> y" | z -> "q\\"" = 1']}})  # fmt: skip
    assert [str(rule) for rule in schema.rules] == ['"a = b" = "x -> y" | z -> "q\\"" = 1']
    assert Schema.from_dict(schema.to_dict()) == schema
    assert escudo.Schema is Schema
