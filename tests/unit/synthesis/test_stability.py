"""The stability measurement: exact where it says so, and true to the paper's theorem and counter-examples."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest

from escudo.causal import CausalGraph
from escudo.errors import GraphError, InputError, SchemaError
from escudo.synthesis._stability import NodeStability, Regression, Stability, stability

# The paper's three columns: x1 causes x3, x3 causes x2; the associational model predicts x3 from x1 and x2.
GRAPH = CausalGraph.from_edges([("x1", "x3"), ("x3", "x2")])
WRONG = CausalGraph.from_edges([("x1", "x3"), ("x2", "x3")])
TRUTH = {("x1", "x3"): 1.0, ("x3", "x2"): 0.9}


def three_columns(rows: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    x1 = rng.uniform(-1, 1, rows)
    x3 = x1 + rng.uniform(-1, 1, rows)
    return {"x1": x1, "x2": 0.9 * x3 + rng.uniform(-0.5, 0.5, rows), "x3": x3}


def node_of(measured: Stability, column: str = "x3") -> NodeStability:
    return next(node for node in measured.nodes if node.column == column)


def standardised(data: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: (column - column.mean()) / column.std() for name, column in data.items()}


def weights(features: list[np.ndarray], target: np.ndarray) -> np.ndarray:
    return np.linalg.lstsq(np.column_stack(features), target)[0]


def test_leaving_out_a_row_is_the_brute_force_answer() -> None:
    data = three_columns(40)
    measured = node_of(stability(GRAPH, data, against=WRONG, truth=TRUTH))
    scaled = standardised(data)
    for change, names in ((measured.causal, ["x1"]), (measured.associational, ["x1", "x2"])):
        features = [scaled[name] for name in names]
        whole = weights(features, scaled["x3"])
        without = [
            weights([np.delete(column, row) for column in features], np.delete(scaled["x3"], row)) for row in range(40)
        ]
        assert change.removed == pytest.approx(np.abs(np.array(without) - whole).max())


def test_adding_a_point_is_the_brute_force_answer() -> None:
    rng = np.random.default_rng(0)
    features, target = rng.normal(size=(30, 2)), rng.normal(size=30)
    point, value = np.array([[3.0, -2.0]]), np.array([5.0])
    fitted = Regression.fit("y", features, target)
    refitted = Regression.fit("y", np.r_[features, point], np.r_[target, value])
    assert fitted.moved(point, value) == pytest.approx(np.abs(refitted.weights - fitted.weights).max())


def test_the_distance_is_lemma_ones() -> None:
    data = three_columns(200)
    measured, scaled = node_of(stability(GRAPH, data, against=WRONG, truth=TRUTH)), standardised(data)
    beta = data["x1"].std() / data["x3"].std()
    errors = scaled["x3"] - beta * scaled["x1"]
    assert measured.causal.distance == pytest.approx(abs(scaled["x1"] @ errors) / (scaled["x1"] @ scaled["x1"]))
    gamma = weights([scaled["x1"], scaled["x2"]], scaled["x3"])
    assert measured.associational.distance == pytest.approx(abs(gamma[0] - beta))


@pytest.mark.parametrize("seed", range(5))
def test_with_enough_data_the_causal_model_is_the_stabler_one(seed: int) -> None:
    measured = stability(GRAPH, three_columns(5000, seed), against=WRONG, truth=TRUTH, reach=1000)
    node = node_of(measured)
    assert node.condition
    assert node.causal.distance < 0.1 * node.associational.distance
    assert node.causal.possible < 0.2 * node.associational.possible


def test_the_causal_models_movement_vanishes_with_data_and_the_others_does_not() -> None:
    few, many = (
        node_of(stability(GRAPH, three_columns(rows), against=WRONG, truth=TRUTH, reach=1e4)) for rows in (100, 10_000)
    )
    assert many.causal.possible < 0.3 * few.causal.possible
    assert many.associational.possible > 0.8 * few.associational.possible


def test_a_possible_point_is_one_of_any_points_but_the_difference_is_large() -> None:
    measured = stability(GRAPH, three_columns(1000), against=WRONG, truth=TRUTH)
    for node in measured.nodes:
        for change in (node.causal, node.associational):
            assert change.possible <= change.anything
    assert node_of(measured).causal.anything > 3 * node_of(measured).causal.possible


def test_the_condition_fails_where_the_extra_feature_hardly_depends_on_the_column() -> None:
    data = three_columns(300)
    data["x2"] = np.random.default_rng(9).uniform(-1, 1, 300)
    loose = CausalGraph.from_edges([("x1", "x3")], nodes=("x1", "x2", "x3"))
    assert not node_of(stability(loose, data, against=WRONG, truth={("x1", "x3"): 1.0})).condition


def balanced(rows: int = 50) -> dict[str, np.ndarray]:
    """The paper's counter-example: a table with Σx2² Σx1e = Σx1x2 Σx2e, for the standardised columns."""
    rng = np.random.default_rng(1)
    x1, e, w = (column - column.mean() for column in rng.uniform(-1, 1, (3, rows)))
    # x2 = e + t w: the difference of the two sides is a quadratic polynomial in t.
    left = np.array([w @ w, 2 * (w @ e), e @ e]) * (x1 @ e)
    right = np.polymul([x1 @ w, x1 @ e], [w @ e, e @ e])
    roots = np.roots(np.polysub(left, right))
    t = roots[np.isreal(roots) & (np.abs(roots) > 1e-6)].real[0]
    return {"x1": x1, "x2": e + t * w, "x3": x1 + e}


def test_the_counter_example_a_balanced_table_makes_the_other_model_the_stabler_one() -> None:
    loose = CausalGraph.from_edges([("x1", "x3")], nodes=("x1", "x2", "x3"))
    node = node_of(stability(loose, balanced(), against=WRONG, truth={("x1", "x3"): 1.0}))
    assert node.associational.distance < 1e-10
    assert node.causal.distance > 1e-3


def test_the_counter_example_a_determined_child_cannot_be_moved_by_any_row() -> None:
    data = three_columns(200)
    data["x2"] = 0.9 * data["x3"]
    node = node_of(stability(GRAPH, data, against=WRONG, truth=TRUTH))
    assert node.associational.removed < 1e-12 < node.causal.removed


def test_fewer_features_do_not_make_a_model_stabler() -> None:
    rng = np.random.default_rng(0)
    x1, x2, e = rng.uniform(-1, 1, (3, 5000))
    data = {"x1": x1, "x2": x2, "x3": x1 + x2 + e, "x4": x1 + x2 + e + rng.uniform(-0.3, 0.3, 5000) + x1}
    graph = CausalGraph.from_edges([("x1", "x3"), ("x2", "x3"), ("x3", "x4"), ("x1", "x4")])
    wrong = CausalGraph.from_edges([("x4", "x3")], nodes=("x1", "x2", "x3", "x4"))
    truth = {edge: 1.0 for edge in graph.edges}
    node = node_of(stability(graph, data, against=wrong, truth=truth, reach=100))
    assert len(node.features) < len(node.parents)
    assert node.causal.possible < node.associational.possible


def test_without_the_truth_another_half_of_the_rows_stands_for_it() -> None:
    data = three_columns(4000)
    measured = stability(GRAPH, data, against=WRONG)
    assert (measured.rows, measured.truth_known) == (2000, False)
    assert 0 < node_of(measured).parents_with_error < 0.1  # residuals of one fit would be orthogonal: exactly 0
    assert node_of(measured).condition
    assert stability(GRAPH, data, against=WRONG) == measured
    assert stability(GRAPH, data, against=WRONG, seed=1) != measured


def test_by_default_the_other_model_predicts_causes_from_effects() -> None:
    measured = stability(GRAPH, three_columns(100), truth=TRUTH)
    assert {node.column: set(node.features) for node in measured.nodes} == {
        "x1": {"x2", "x3"},
        "x2": set(),
        "x3": {"x2"},
    }


def test_a_latent_is_no_predictor() -> None:
    graph = CausalGraph.from_edges([("x1", "x3"), ("u", "x3"), ("x3", "x2")], latents=["u"])
    measured = stability(graph, three_columns(100), against=WRONG)
    assert node_of(measured).parents == ("x1",)


def test_frames_of_any_engine_give_the_same_answer() -> None:
    data = three_columns(100)
    expected = stability(GRAPH, data)
    for frame in (pl.DataFrame(data), pl.LazyFrame(data), pd.DataFrame(data)):
        assert stability(GRAPH, frame) == expected


def test_the_summary_says_what_it_is_and_what_it_is_not() -> None:
    measured = stability(GRAPH, three_columns(1000), against=WRONG)
    assert "for the custodian only" in str(measured)
    assert "no ε is made smaller" in str(measured)
    assert "1 of 2 columns" in str(measured)
    assert "custodian" in (stability.__doc__ or "")


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"x1": np.ones(100)}, InputError, "'x1' is constant"),
        ({"x1": np.full(100, np.nan)}, InputError, "'x1' must be one-dimensional"),
        ({"x1": ["a"] * 100}, InputError, "'x1' is not made of numbers"),
        ({"x1": np.zeros(7)}, InputError, "equally long"),
    ],
)
def test_bad_columns_are_named(change: dict[str, object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        stability(GRAPH, three_columns(100) | change)


def test_bad_arguments_are_named() -> None:
    data = three_columns(100)
    with pytest.raises(SchemaError, match="no column 'x3'"):
        stability(GRAPH, {name: data[name] for name in ("x1", "x2")})
    with pytest.raises(InputError, match="too few rows"):
        stability(GRAPH, three_columns(5))
    with pytest.raises(InputError, match="frame or a mapping"):
        stability(GRAPH, 3)
    with pytest.raises(InputError, match="reach"):
        stability(GRAPH, data, reach=0)
    with pytest.raises(InputError, match="'x3' → 'x2'"):
        stability(GRAPH, data, truth={("x1", "x3"): 1.0})
    with pytest.raises(InputError, match="truth of"):
        stability(GRAPH, data, truth=TRUTH | {("x1", "x3"): np.nan})
    with pytest.raises(GraphError, match="same columns"):
        stability(GRAPH, data, against=CausalGraph.from_edges([("x1", "x3")]))
    with pytest.raises(GraphError, match="DAG"):
        stability(CausalGraph.from_edges([], undirected=[("x1", "x3")]), data)
    with pytest.raises(InputError, match="linear combinations"):
        stability(GRAPH, data | {"x2": 2 * data["x1"]}, against=WRONG, truth=TRUTH)
