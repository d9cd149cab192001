"""A released model answers observations and interventions by the law of its graph, and refuses what has no answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from escudo.causal import CausalGraph
from escudo.errors import GraphError, InputError, NotIdentifiableError, SchemaError, ZeroProbabilityError
from escudo.privacy import Guarantee, Plan, PureEvent
from escudo.synthesis import CausalModel, TableConditional, _laws
from escudo.table import Schema

Law = Callable[..., NDArray[np.float64]]


def shares(frame: pl.DataFrame, columns: list[str]) -> NDArray[np.float64]:
    """Return how often each combination of 'yes' and 'no' occurs."""
    codes = [(frame[name] == "no").cast(int).to_numpy() for name in columns]
    table = np.zeros([2] * len(columns))
    np.add.at(table, tuple(codes), 1 / frame.height)
    return table


def distance(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    return float(np.abs(one - other).sum() / 2)


def model_of(schema: Schema, laws: dict[str, TableConditional], graph: CausalGraph | None = None) -> CausalModel:
    arrows = [(parent, name) for name, law in laws.items() for parent in law.parents]
    return CausalModel(
        schema=schema,
        graph=graph or CausalGraph.from_edges(arrows, nodes=schema.names),
        conditionals=laws,
        guarantee=Guarantee(epsilon=1.0),
        generator="marginals",
        plan=Plan("marginals", PureEvent(epsilon=1.0)),
    )


# -- the law


@pytest.mark.parametrize(
    "question",
    [
        {},
        {"do": {"smoke": "yes"}},
        {"do": {"either": "yes"}},
        {"do": {"either": "yes", "asia": "no"}},
        {"given": {"dysp": "yes"}},
        {"given": {"either": "yes", "xray": "no"}},
        {"do": {"smoke": "yes"}, "given": {"dysp": "yes"}},
        {"do": {"bronc": "no"}, "given": {"xray": "yes", "asia": "yes"}},
    ],
    ids=str,
)
@pytest.mark.parametrize("columns", [["dysp"], ["tub", "lung"], ["dysp", "smoke", "xray"]], ids="-".join)
def test_the_exact_law_is_that_of_the_true_network(
    clinic_model: CausalModel, true_law: Law, columns: list[str], question: dict[str, Any]
) -> None:
    np.testing.assert_allclose(clinic_model.probability(columns, **question), true_law(columns, **question), atol=1e-12)


@pytest.mark.parametrize(
    "question",
    [
        {},
        {"do": {"smoke": "yes"}},
        {"do": {"either": "yes"}},
        {"given": {"dysp": "yes"}},
        {"do": {"smoke": "no"}, "given": {"xray": "yes"}},
    ],
    ids=str,
)
def test_drawn_rows_have_the_law_asked_for(clinic_model: CausalModel, true_law: Law, question: dict[str, Any]) -> None:
    columns = ["smoke", "tub", "dysp"]
    drawn = clinic_model.sample(20_000, seed=3, **question)
    assert drawn.columns == list(clinic_model.schema.names)
    assert distance(shares(drawn, columns), true_law(columns, **question)) < 0.01
    for name, level in {**question.get("do", {}), **question.get("given", {})}.items():
        assert drawn[name].unique().to_list() == [level]


def test_setting_a_column_is_not_observing_it(clinic_model: CausalModel, true_law: Law) -> None:
    set_to, seen = {"do": {"either": "yes"}}, {"given": {"either": "yes"}}
    assert distance(true_law(["tub"], **set_to), true_law(["tub"], **seen)) > 0.1  # so the test can tell them apart
    np.testing.assert_allclose(clinic_model.probability(["tub"], **set_to), true_law(["tub"]))
    assert distance(shares(clinic_model.sample(20_000, seed=1, **set_to), ["tub"]), true_law(["tub"])) < 0.001
    assert distance(shares(clinic_model.sample(20_000, seed=1, **seen), ["tub"]), true_law(["tub"], **seen)) < 0.01


def test_conditions_too_large_for_tables_are_met_by_weighting(
    clinic_model: CausalModel, true_law: Law, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_laws, "_MAX_EXACT_CELLS", 2)
    drawn = clinic_model.sample(5000, given={"dysp": "yes"}, seed=1)
    assert distance(shares(drawn, ["smoke", "bronc"]), true_law(["smoke", "bronc"], given={"dysp": "yes"})) < 0.02


def test_the_same_seed_draws_the_same_rows_and_none_draws_others(clinic_model: CausalModel) -> None:
    assert clinic_model.sample(50, seed=5).equals(clinic_model.sample(50, seed=5))
    assert not clinic_model.sample(500).equals(clinic_model.sample(500))


def test_many_rows_are_drawn_in_blocks_with_the_same_law(
    clinic_model: CausalModel, true_law: Law, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CausalModel, "_block", 900)
    drawn = clinic_model.sample(10_000, seed=3, do={"smoke": "yes"})
    assert drawn.height == 10_000
    assert distance(shares(drawn, ["lung", "dysp"]), true_law(["lung", "dysp"], do={"smoke": "yes"})) < 0.01
    assert clinic_model.codes(1801, seed=3).shape == (1801, 8)


def test_codes_are_the_cells_of_the_same_rows(clinic_model: CausalModel) -> None:
    codes, rows = clinic_model.codes(40, seed=2), clinic_model.sample(40, seed=2)
    for position, name in enumerate(clinic_model.schema.names):
        np.testing.assert_array_equal(clinic_model.schema[name].encode(rows[name].to_list()), codes[:, position])


def test_no_rows_are_an_empty_frame_with_the_right_columns(clinic_model: CausalModel) -> None:
    empty = clinic_model.sample(0)
    assert (empty.height, empty.columns) == (0, list(clinic_model.schema.names))


def test_parents_come_before_children(clinic_model: CausalModel) -> None:
    for name, law in clinic_model.conditionals.items():
        assert all(clinic_model.order.index(parent) < clinic_model.order.index(name) for parent in law.parents)


# -- columns of other kinds


@pytest.fixture(scope="module")
def mixed() -> CausalModel:
    schema = Schema.from_dict(
        {
            "age": {"type": "numeric", "lower": 0, "upper": 100, "bins": 4, "missing": True},
            "stage": {"type": "ordinal", "levels": [1, 2, 3], "missing": True},
            "ill": [False, True],
        }
    )
    age = TableConditional((), np.array([0.1, 0.2, 0.3, 0.3, 0.1]))
    stage = TableConditional(("age",), np.tile([0.4, 0.3, 0.2, 0.1], (5, 1)))
    ill = TableConditional(("stage",), np.array([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.5, 0.5]]))
    return model_of(schema, {"age": age, "stage": stage, "ill": ill})


def test_numbers_levels_flags_and_missing_values_are_set_by_value(mixed: CausalModel) -> None:
    np.testing.assert_allclose(mixed.probability(["ill"], do={"stage": 3}), [0.2, 0.8])
    np.testing.assert_allclose(mixed.probability(["ill"], do={"stage": "3"}), [0.2, 0.8])  # as typed on a command line
    np.testing.assert_allclose(mixed.probability(["ill"], do={"stage": None}), [0.5, 0.5])
    drawn = mixed.sample(200, do={"age": 60, "stage": None}, seed=0)
    assert (drawn["age"] == 60.0).all()
    assert drawn["stage"].is_null().all()
    assert (mixed.sample(50, do={"age": "12.5"}, seed=0)["age"] == 12.5).all()
    assert mixed.sample(50, given={"ill": True}, seed=0)["ill"].all()
    assert mixed.sample(50, given={"age": 12.5}, seed=0)["age"].is_between(0, 25).all()  # seen by its bin
    assert mixed.sample(50, do={"age": None}, seed=0)["age"].is_null().all()


@pytest.mark.parametrize(
    ("spec", "value", "held"),
    [
        ({"type": "numeric", "lower": 0, "upper": 9000, "edges": [0, 500, 2000, 9000]}, 5000, 5000.0),
        ({"type": "numeric", "lower": 0, "upper": 9000, "bins": 3, "integer": True}, "5000", 5000),
        ({"type": "date", "lower": "2020-01-01", "upper": "2020-12-31", "bins": 3}, "2020-08-05", date(2020, 8, 5)),
        ({"type": "numeric", "lower": 0, "upper": 9000, "bins": 3}, 9000, 9000.0),
    ],
)
def test_a_number_that_is_set_is_that_number_and_acts_as_its_bin_does(spec: Any, value: object, held: object) -> None:
    schema = Schema.from_dict({"x": spec, "y": ["no", "yes"]})
    laws = {
        "x": TableConditional((), np.array([0.5, 0.3, 0.2])),
        "y": TableConditional(("x",), np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])),
    }
    model = model_of(schema, laws)
    drawn = model.sample(40, do={"x": value}, seed=1)
    assert drawn["x"].to_list() == [held] * 40
    cell = int(schema["x"].encode([held])[0])
    assert (drawn["y"] == "yes").mean() == pytest.approx(laws["y"].table[cell, 1], abs=0.05)
    assert drawn.schema == model.sample(1, seed=1).schema


def test_a_number_that_is_not_whole_is_not_set_where_whole_ones_are_held() -> None:
    schema = Schema.from_dict({"x": {"type": "numeric", "lower": 0, "upper": 9, "bins": 3, "integer": True}})
    model = model_of(schema, {"x": TableConditional((), np.array([0.5, 0.3, 0.2]))})
    with pytest.raises(SchemaError, match=r"do: column 'x' takes whole numbers; got 2\.5"):
        model.sample(3, do={"x": 2.5})


def test_drawn_values_are_schema_values_with_the_schemas_types(mixed: CausalModel) -> None:
    drawn = mixed.sample(4000, seed=1)
    assert drawn.schema == {"age": pl.Float64, "stage": pl.Int64, "ill": pl.Boolean}
    assert drawn["age"].null_count() == pytest.approx(400, abs=1)
    assert set(drawn["stage"].to_list()) == {1, 2, 3, None}
    assert drawn["age"].drop_nulls().is_between(0, 100).all()


# -- what has no answer


@pytest.mark.parametrize("argument", ["do", "given"])
@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ({"smok": "yes"}, "'smok', which is no column.*Did you mean 'smoke'"),
        ({"smoke": "maybe"}, "no level 'maybe'"),
        ({"smoke": None}, "no missing value"),
    ],
)
def test_a_setting_outside_the_schema_is_refused_by_name(
    clinic_model: CausalModel, argument: str, setting: dict[str, object], expected: str
) -> None:
    with pytest.raises(SchemaError, match=f"{argument}.*{expected}"):
        clinic_model.sample(5, **{argument: setting})
    with pytest.raises(SchemaError, match=expected):
        clinic_model.probability(["dysp"], **{argument: setting})


@pytest.mark.parametrize("value", [-1, 100.5, "old", float("nan"), float("inf")])
def test_a_number_outside_the_bounds_is_refused(mixed: CausalModel, value: object) -> None:
    with pytest.raises(SchemaError, match="'age' takes numbers from 0 to 100"):
        mixed.sample(5, do={"age": value})


def test_a_column_cannot_be_set_and_observed_at_once(clinic_model: CausalModel) -> None:
    for ask in (
        lambda **question: clinic_model.sample(5, **question),
        lambda **q: clinic_model.probability(["xray"], **q),
    ):
        with pytest.raises(InputError, match="smoke cannot be both set"):
            ask(do={"smoke": "yes"}, given={"smoke": "yes"})


def test_an_impossible_observation_has_no_answer_and_an_intervention_has(clinic_model: CausalModel) -> None:
    impossible = {"either": "no", "lung": "yes"}
    with pytest.raises(ZeroProbabilityError, match="either, lung"):
        clinic_model.sample(10, given=impossible)
    with pytest.raises(ZeroProbabilityError, match="either, lung"):
        clinic_model.probability(["dysp"], given=impossible)
    assert clinic_model.sample(10, do=impossible)["either"].unique().to_list() == ["no"]


@pytest.mark.parametrize("rows", [-1, 1.5, "many", True, None])
def test_the_number_of_rows_must_be_a_whole_number(clinic_model: CausalModel, rows: Any) -> None:
    with pytest.raises(InputError, match="rows"):
        clinic_model.sample(rows)


@pytest.mark.parametrize("seed", [-1, 1.5, "one"])
def test_the_seed_must_be_a_whole_number(clinic_model: CausalModel, seed: Any) -> None:
    with pytest.raises(InputError, match="seed"):
        clinic_model.sample(5, seed=seed)
    with pytest.raises(InputError, match="seed"):
        clinic_model.codes(5, seed=seed)


@pytest.mark.parametrize("argument", ["do", "given"])
def test_settings_must_map_columns_to_values(clinic_model: CausalModel, argument: str) -> None:
    with pytest.raises(InputError, match=f"{argument} must map columns to values.*got list"):
        clinic_model.sample(5, **{argument: [("smoke", "yes")]})


def test_a_latent_that_acts_on_cause_and_effect_is_named_and_the_observation_still_answered() -> None:
    schema = Schema.from_dict({name: ["no", "yes"] for name in ("treated", "cured")})
    graph = CausalGraph.from_edges(
        [("treated", "cured"), ("wealth", "treated"), ("wealth", "cured")], latents=["wealth"]
    )
    laws = {
        "treated": TableConditional((), np.array([0.5, 0.5])),
        "cured": TableConditional(("treated",), np.array([[0.7, 0.3], [0.4, 0.6]])),
    }
    model = model_of(schema, laws, graph)
    with pytest.raises(NotIdentifiableError, match="'wealth'"):
        model.sample(10, do={"treated": "yes"})
    with pytest.raises(NotIdentifiableError, match="'wealth'"):
        model.probability(["cured"], do={"treated": "yes"})
    np.testing.assert_allclose(model.probability(["cured"], given={"treated": "yes"}), [0.4, 0.6])
    np.testing.assert_allclose(model.probability(["treated"], do={"cured": "yes"}), [0.5, 0.5])


# -- what is no model


def test_laws_must_fit_schema_and_graph(clinic_model: CausalModel) -> None:
    laws = dict(clinic_model.conditionals)
    half = np.full((2, 2), 0.5)
    wrong: dict[str, dict[str, TableConditional]] = {
        "no law for column 'xray'": {name: law for name, law in laws.items() if name != "xray"},
        "no law for column 'asia'": laws | {"asia": TableConditional((), np.ones(3) / 3)},
        "does not fit its parent 'smoke'": laws | {"lung": TableConditional(("smoke",), np.full((3, 2), 0.5))},
        "does not fit its parent 'age'": laws | {"lung": TableConditional(("age",), half)},
        "names a parent twice": laws | {"lung": TableConditional(("smoke", "smoke"), np.full((2, 2, 2), 0.5))},
        "law for 'cough', which is no column": laws | {"cough": TableConditional(("fever",), half)},
    }
    for message, changed in wrong.items():
        with pytest.raises(InputError, match=message):
            replace(clinic_model, conditionals=changed)
    with pytest.raises(GraphError, match="cycle"):
        replace(clinic_model, conditionals=laws | {"asia": TableConditional(("tub",), half)})
    with pytest.raises(InputError, match="graph does not have the schema's column 'asia'"):
        replace(clinic_model, graph=CausalGraph.from_edges([("smoke", "lung")]))
    with pytest.raises(InputError, match="graph does not have the schema's column 'smoke'"):
        replace(clinic_model, graph=CausalGraph.from_edges([], nodes=tuple(laws), latents=["smoke"]))


def test_a_model_shows_itself_without_numbers_from_the_data(clinic_model: CausalModel) -> None:
    assert repr(clinic_model) == "CausalModel(marginals, 8 columns, 8 arrows)"
    assert "e^1.0" in str(clinic_model)
    html = clinic_model._repr_html_()
    assert "<svg" in html
    assert "marginals model, 8 columns" in html


def test_blocks_are_the_rows_of_one_sample(clinic_model: CausalModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CausalModel, "_block", 100)
    blocks = list(clinic_model.blocks(450, seed=3, columns=clinic_model.schema.names[:2]))
    assert [block.height for block in blocks] == [100, 100, 100, 100, 50]
    assert pl.concat(blocks).equals(clinic_model.sample(450, seed=3).select(clinic_model.schema.names[:2]))
    with pytest.raises(SchemaError, match="nowhere"):
        clinic_model.blocks(5, columns=["nowhere"])  # before a row is asked for
