"""The linear generator: recovers equations, answers do() and given() exactly, and spends what its plan shows."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from escudo.causal import CausalGraph
from escudo.errors import BudgetExceededError, GraphError, InputError, NotIdentifiableError, RefusedError, SchemaError
from escudo.privacy import Guarantee, MemoryAccount, Plan
from escudo.synthesis import _linear, prepare, synthesize
from escudo.synthesis._files import load
from escudo.synthesis._linear import LinearConditional, LinearModel, row_steps, squared_steps
from escudo.table import PrivateTable, Schema

ROWS = 100_000
CLINIC = Schema.from_dict(
    {
        "age": {"type": "numeric", "lower": 0, "upper": 100, "bins": 20, "integer": True},
        "dose": {"type": "numeric", "lower": -2, "upper": 6, "bins": 20},
        "pressure": {"type": "numeric", "lower": 60, "upper": 180, "bins": 20},
    }
)
GRAPH = CausalGraph.from_edges([("age", "dose"), ("age", "pressure"), ("dose", "pressure")])


def patients(rows: int = ROWS) -> pl.DataFrame:
    """Dose rises with age; pressure rises by 0.6 a year and 6 a unit of dose."""
    rng = np.random.default_rng(0)
    age = np.rint(rng.normal(50, 12, rows))
    dose = 2 + 0.05 * (age - 50) + rng.normal(0, 0.8, rows)
    pressure = 120 + 0.6 * (age - 50) + 6 * (dose - 2) + rng.normal(0, 6, rows)
    return pl.DataFrame({"age": age.astype(int), "dose": dose, "pressure": pressure})


def fitted(**options: object) -> LinearModel:
    arguments: dict[str, object] = {"epsilon": 1.0, "delta": 1e-6, "generator": "linear", "seed": 1} | options
    model = synthesize(PrivateTable(patients(), CLINIC), GRAPH, **arguments)
    assert isinstance(model, LinearModel)
    return model


@pytest.fixture(scope="module")
def clinic() -> LinearModel:
    return fitted()


def by_hand(
    equations: dict[str, tuple[tuple[str, ...], float, list[float], float]],
    *,
    graph: CausalGraph | None = None,
    integer: bool = False,
) -> LinearModel:
    """A model on the columns' own scale: all bounds are -1 and 1."""
    bounds = {"type": "numeric", "lower": -1, "upper": 1, "bins": 4, "integer": integer}
    arrows = [(parent, child) for child, (parents, *_) in equations.items() for parent in parents]
    return LinearModel(
        schema=Schema.from_dict(dict.fromkeys(equations, bounds)),
        graph=CausalGraph.from_edges(arrows, nodes=tuple(equations)) if graph is None else graph,
        conditionals={
            name: LinearConditional(parents, intercept, np.array(weights), variance)
            for name, (parents, intercept, weights, variance) in equations.items()
        },
        guarantee=Guarantee(epsilon=1.0),
        generator="linear",
        plan=Plan("linear"),
    )


SMALL = {
    "a": ((), 0.1, [], 0.01),
    "b": (("a",), -0.05, [0.8], 0.02),
    "c": (("a", "b"), 0.02, [-0.5, 0.6], 0.01),
}


def small_law() -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of SMALL, from x = m + W x + e."""
    weights = np.array([[0, 0, 0], [0.8, 0, 0], [-0.5, 0.6, 0]])
    total = np.linalg.inv(np.eye(3) - weights)
    return total @ [0.1, -0.05, 0.02], total @ np.diag([0.01, 0.02, 0.01]) @ total.T


# --- what it recovers ---


def test_the_total_effects_of_a_known_model_are_recovered(clinic: LinearModel) -> None:
    assert clinic.effect("dose", "pressure").slope == pytest.approx(6, abs=0.25)
    assert clinic.effect("age", "dose").slope == pytest.approx(0.05, abs=0.003)
    assert clinic.effect("age", "pressure").slope == pytest.approx(0.6 + 6 * 0.05, abs=0.03)
    assert clinic.effect("pressure", "age").slope == 0.0


def test_means_and_spreads_of_samples_are_the_tables_own(clinic: LinearModel) -> None:
    drawn, real = clinic.sample(20_000, seed=0), patients()
    for name in CLINIC.names:
        assert drawn[name].mean() == pytest.approx(real[name].mean(), abs=0.02 * real[name].std())
        assert drawn[name].std() == pytest.approx(real[name].std(), rel=0.02)


def test_interventional_means_are_the_truths_and_not_the_observational_ones(clinic: LinearModel) -> None:
    intervened = clinic.sample(20_000, do={"dose": 4}, seed=0)
    assert intervened["pressure"].mean() == pytest.approx(120 + 6 * 2, abs=0.5)
    assert intervened["age"].mean() == pytest.approx(50, abs=0.3)
    observed = clinic.sample(20_000, given={"dose": 4}, seed=0)
    age = 50 + 2 * 0.05 * 144 / (0.05**2 * 144 + 0.8**2)  # people with that dose are older
    assert observed["age"].mean() == pytest.approx(age, abs=0.5)
    assert observed["pressure"].mean() == pytest.approx(120 + 0.6 * (age - 50) + 12, abs=0.7)


def test_without_a_graph_the_whole_covariance_is_kept() -> None:
    table, real = PrivateTable(patients(), CLINIC), patients()
    model = synthesize(table, None, epsilon=1.0, delta=1e-6, generator="linear", seed=1)
    assert set(model.graph.edges) == {("age", "dose"), ("age", "pressure"), ("dose", "pressure")}
    drawn = np.corrcoef(model.sample(20_000, seed=0).to_numpy().T)
    assert np.abs(drawn - np.corrcoef(real.to_numpy().T)).max() < 0.02


def test_a_column_the_graph_leaves_out_depends_on_all_others() -> None:
    graph = CausalGraph.from_edges([("age", "dose")])
    model = synthesize(PrivateTable(patients(1000), CLINIC), graph, epsilon=1.0, delta=1e-6, generator="linear", seed=1)
    assert model.graph.parents("pressure") == ("age", "dose")


def test_a_hidden_cause_is_refused_under_do_and_free_under_given() -> None:
    arrows = [("u", "dose"), ("u", "pressure"), ("age", "dose"), ("dose", "pressure")]
    graph = CausalGraph.from_edges(arrows, latents=["u"])
    model = synthesize(PrivateTable(patients(1000), CLINIC), graph, epsilon=1.0, delta=1e-6, generator="linear", seed=1)
    with pytest.raises(NotIdentifiableError, match="'u'"):
        model.sample(5, do={"dose": 1})
    with pytest.raises(NotIdentifiableError, match="'u'"):
        model.effect("dose", "pressure")
    assert model.sample(5, given={"dose": 1})["dose"].to_list() == [1.0] * 5
    assert model.sample(5, do={"age": 30})["age"].to_list() == [30] * 5


def test_a_table_too_small_for_its_noise_still_gives_a_model_within_bounds() -> None:
    table = PrivateTable(patients(1), CLINIC)
    for seed in range(20):
        drawn = synthesize(table, GRAPH, epsilon=0.1, delta=1e-6, generator="linear", seed=seed).sample(50, seed=0)
        assert drawn.null_count().sum_horizontal().item() == 0
        for name, column in CLINIC.columns.items():
            assert drawn[name].is_between(*column.bounds).all()


# --- sampling, against closed forms ---


def test_samples_have_the_models_mean_and_covariance() -> None:
    drawn = by_hand(SMALL).sample(100_000, seed=0).to_numpy()
    mean, covariance = small_law()
    assert np.abs(drawn.mean(axis=0) - mean).max() < 1e-3
    assert np.abs(np.cov(drawn.T) - covariance).max() < 4e-4


def test_a_condition_gives_the_conditional_gaussian() -> None:
    drawn = by_hand(SMALL).sample(100_000, given={"c": 0.3}, seed=0).to_numpy()
    mean, covariance = small_law()
    gain = covariance[:2, 2] / covariance[2, 2]
    assert np.abs(drawn[:, :2].mean(axis=0) - (mean[:2] + gain * (0.3 - mean[2]))).max() < 1e-3
    assert np.abs(np.cov(drawn[:, :2].T) - (covariance[:2, :2] - np.outer(gain, covariance[2, :2]))).max() < 4e-4
    assert (drawn[:, 2] == 0.3).all()


def test_do_and_given_together_condition_in_the_intervened_model() -> None:
    drawn = by_hand(SMALL).sample(100_000, do={"b": 0.2}, given={"c": 0.1}, seed=0).to_numpy()
    # c = 0.02 - 0.5 a + 0.6 * 0.2 + e, and a is N(0.1, 0.01) on its own
    gain = -0.5 * 0.01 / (0.25 * 0.01 + 0.01)
    assert drawn[:, 0].mean() == pytest.approx(0.1 + gain * (0.1 - (0.02 - 0.05 + 0.12)), abs=1e-3)
    assert drawn[:, 0].var() == pytest.approx(0.01 - gain * -0.5 * 0.01, rel=0.02)
    assert (drawn[:, 1] == 0.2).all()


def test_an_effect_adds_up_over_paths() -> None:
    model = by_hand(SMALL)
    assert model.effect("a", "c").slope == pytest.approx(-0.5 + 0.8 * 0.6)
    assert model.effect("c", "a").slope == 0.0
    with pytest.raises(InputError, match="both 'b'"):
        model.effect("b", "b")


def test_values_beyond_the_bounds_are_moved_to_them_and_whole_numbers_are_whole() -> None:
    wild = {"a": ((), 5.0, [], 1.0), "b": (("a",), 0.0, [-4.0], 0.5)}
    assert by_hand(wild).sample(1000, seed=0)["a"].max() == 1.0
    whole = by_hand(wild, integer=True).sample(1000, seed=0)
    assert whole.dtypes == [pl.Int64, pl.Int64]
    assert set(whole["b"].to_list()) <= {-1, 0, 1}


def test_bounds_near_the_end_of_floating_point_are_no_trouble() -> None:
    model = by_hand({"x": ((), 1.0, [], 4.0)})
    schema = Schema.from_dict({"x": {"type": "numeric", "lower": 0, "upper": 1.5e308, "bins": 2}})
    drawn = replace(model, schema=schema).sample(1000, seed=0)["x"]
    assert drawn.is_between(0, 1.5e308).all()


def test_set_and_observed_values_come_back_exactly(clinic: LinearModel) -> None:
    drawn = clinic.sample(3, do={"dose": 0.1}, given={"age": 37})
    assert drawn["dose"].to_list() == [0.1] * 3
    assert drawn["age"].to_list() == [37] * 3


def test_seeds_repeat_and_no_rows_are_no_rows(clinic: LinearModel) -> None:
    assert clinic.sample(10, seed=3).equals(clinic.sample(10, seed=3))
    assert not clinic.sample(10, seed=3).equals(clinic.sample(10, seed=4))
    assert clinic.sample(0).shape == (0, 3)
    assert clinic.sample(0, given={"age": 3}).shape == (0, 3)


# --- what it costs ---


def test_the_plan_is_what_is_spent_once() -> None:
    account = MemoryAccount(epsilon=1.0, delta=1e-6)
    table = PrivateTable(patients(1000), CLINIC, ledger=account)
    plan = synthesize.plan(table, GRAPH, epsilon=1.0, delta=1e-6, generator="linear")
    model = synthesize(table, GRAPH, epsilon=1.0, delta=1e-6, generator="linear", seed=1)
    (receipt,) = account.receipts
    assert receipt.event == plan.event
    assert str(plan).splitlines() == [*str(model.plan).splitlines(), "Reads the rows once."]
    assert 0.99 < model.guarantee.epsilon_at(1e-6) <= 1.0
    with pytest.raises(BudgetExceededError):
        synthesize(table, GRAPH, epsilon=1.0, delta=1e-6, generator="linear", seed=1)
    assert len(account.receipts) == 1


def test_without_a_seed_the_model_is_for_release() -> None:
    table = PrivateTable(patients(1000), CLINIC)
    assert synthesize(table, GRAPH, epsilon=1.0, delta=1e-6, generator="linear").guarantee.for_release
    assert not synthesize(table, GRAPH, epsilon=1.0, delta=1e-6, generator="linear", seed=1).guarantee.for_release


def test_sensitivity_follows_relation_unit_and_clip() -> None:
    def moved(schema: Schema = CLINIC, **options: object) -> float:
        prepared = prepare(schema, GRAPH, epsilon=1.0, delta=1e-6, generator="linear", **options)
        return prepared.event.l2_sensitivity / _linear.STEPS**2

    default = 1 + 3 / 3 + 2 / 3 * math.sqrt(3)
    assert moved(relation="add_remove") == pytest.approx(default)
    assert moved(relation="replace_one") == pytest.approx(default * math.sqrt(2))
    assert moved(relation="add_remove", clip=1.5) == pytest.approx(1.5**2)
    assert moved(relation="add_remove", clip=1e9) == pytest.approx(4.0)  # no row is longer than that
    people = replace(CLINIC, person_id="id", max_rows_per_person=3)
    assert moved(people, relation="replace_one") == pytest.approx(3 * default * math.sqrt(2))


def test_the_released_matrix_carries_the_stated_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[np.ndarray] = []
    original = _linear._nearest_semidefinite
    monkeypatch.setattr(_linear, "_nearest_semidefinite", lambda noisy: seen.append(noisy) or original(noisy))
    table = PrivateTable(patients(50), CLINIC)
    models = [synthesize(table, GRAPH, epsilon=1.0, delta=1e-6, generator="linear", seed=seed) for seed in range(150)]
    noise = np.stack(seen)
    exact = noise.mean(axis=0)
    scaled = (noise - exact) / models[0].details["noise"]
    count = scaled.size - exact.size  # degrees of freedom
    # 5 standard deviations of a mean of squared normals
    assert abs((scaled**2).sum() / count - 1) < 5 * math.sqrt(2 / count)
    upper = ((scaled + scaled.transpose(0, 2, 1)) / 2)[:, *np.triu_indices(4, 1)]
    assert abs((upper**2).sum() / (149 * 6) - 0.5) < 5 * 0.5 * math.sqrt(2 / (149 * 6))


def test_neither_the_order_of_rows_nor_the_size_of_batches_changes_the_statistic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    frame = patients(5000)
    limit = _linear.squared_steps(3)
    exact = _linear._second_moments(PrivateTable(frame, CLINIC), limit)
    monkeypatch.setattr(_linear, "_BATCH", 77)
    again = _linear._second_moments(PrivateTable(frame.reverse(), CLINIC), limit)
    assert (exact == again).all()


def test_a_public_fill_stands_for_missing_values() -> None:
    spec = {name: {"type": "numeric", "lower": 0, "upper": 200, "fill": 3.0} for name in CLINIC.names}
    schema, frame = Schema.from_dict(spec), patients(100)
    holes = frame.with_columns(pl.when(pl.int_range(100) % 2 == 0).then("dose").alias("dose"))
    filled = holes.with_columns(pl.col("dose").fill_null(3.0))
    limit = _linear.squared_steps(3)
    exact = [_linear._second_moments(PrivateTable(one, schema), limit) for one in (holes, filled)]
    assert (exact[0] == exact[1]).all()


# --- files ---


def test_a_saved_model_comes_back_and_samples_alike(clinic: LinearModel, tmp_path: Path) -> None:
    clinic.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert isinstance(again, LinearModel)
    assert again.sample(100, do={"dose": 1}, seed=5).equals(clinic.sample(100, do={"dose": 1}, seed=5))
    assert again.effect("age", "pressure") == clinic.effect("age", "pressure")
    assert str(again.plan) == str(clinic.plan)
    assert again.guarantee == clinic.guarantee
    assert dict(again.details) == dict(clinic.details)


@pytest.mark.parametrize(
    "arrays",
    [
        {},
        {"numbers": np.array([0.0, 1.0])},
        {"numbers": np.array([0.0]), "weights": np.zeros(1)},
        {"numbers": np.array([0.0, 0.0]), "weights": np.zeros(1)},
        {"numbers": np.array([0.0, np.inf]), "weights": np.zeros(1)},
        {"numbers": np.array([np.nan, 1.0]), "weights": np.zeros(1)},
        {"numbers": np.array([0.0, 1.0]), "weights": np.zeros(2)},
        {"numbers": np.array(0.0), "weights": np.zeros(1)},
    ],
)
def test_damaged_arrays_are_refused(arrays: dict[str, np.ndarray]) -> None:
    with pytest.raises(InputError, match=r"linear equation|'linear' equation"):
        LinearConditional.from_arrays(("a",), arrays)


def test_equations_that_overflow_are_refused_instead_of_sampled() -> None:
    huge = {"a": ((), 0.0, [], 1.0), "b": (("a",), 0.0, [1e300], 1.0), "c": (("a", "b"), 0.0, [1e300, 1e300], 1.0)}
    with pytest.raises(InputError, match="floating point"):
        by_hand(huge).sample(10, seed=0)
    large = {"a": ((), 0.0, [], 1.0), "b": (("a",), 0.0, [1e200], 1.0)}
    with pytest.raises(InputError, match="floating point"):
        by_hand(large).sample(10, given={"b": 0.5}, seed=0)


# --- bad input ---


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (["no", "yes"], r"'ill' is categorical.*marginals"),
        ({"type": "numeric", "lower": 0, "upper": 1, "missing": True}, r"'ill' keeps missing.*fill.*marginals"),
        ({"type": "numeric", "lower": 0.2, "upper": 0.8, "integer": True}, r"'ill' is of whole numbers"),
    ],
)
def test_a_column_it_cannot_model_is_named_with_the_remedy(column: object, message: str) -> None:
    schema = Schema.from_dict({"age": {"type": "numeric", "lower": 0, "upper": 100}, "ill": column})
    with pytest.raises(SchemaError, match=message):
        prepare(schema, None, epsilon=1.0, delta=1e-6, generator="linear")


@pytest.mark.parametrize("clip", [0, -1.0, math.nan, math.inf, "long"])
def test_a_clip_that_is_no_length_is_refused(clip: object) -> None:
    with pytest.raises(InputError, match="clip"):
        prepare(CLINIC, GRAPH, epsilon=1.0, delta=1e-6, generator="linear", clip=clip)


def test_too_many_columns_an_unknown_option_and_no_delta_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="clip"):
        prepare(CLINIC, GRAPH, epsilon=1.0, delta=1e-6, generator="linear", clipp=1)
    with pytest.raises(InputError, match="delta"):
        prepare(CLINIC, GRAPH, epsilon=1.0, delta=0.0, generator="linear")
    monkeypatch.setattr(_linear, "_MAX_COLUMNS", 2)
    with pytest.raises(InputError, match="3 columns"):
        prepare(CLINIC, GRAPH, epsilon=1.0, delta=1e-6, generator="linear")


@pytest.mark.parametrize("epsilon", [1e-6, 1e-300])
def test_noise_beyond_whole_numbers_is_refused_before_anything_is_spent(epsilon: float) -> None:
    bounds = {"type": "numeric", "lower": 0, "upper": 1, "bins": 2}
    schema = Schema.from_dict({f"x{number}": bounds for number in range(200)})
    account = MemoryAccount()
    table = PrivateTable(pl.DataFrame({name: [0.5, 0.6] for name in schema.names}), schema, account)
    with pytest.raises(InputError, match="noise scale"):
        synthesize(table, None, epsilon=epsilon, delta=1e-6, generator="linear")
    assert account.receipts == ()


def test_the_matrix_of_eight_billion_rows_fits_into_whole_numbers() -> None:
    longest = row_steps(np.ones((1, 3)), squared_steps(3, clip=10.0))
    assert 2**33 * int((longest.T @ longest).max()) < 2**62  # where released numbers are cut off


def test_an_unconfirmed_schema_is_refused() -> None:
    draft = Schema.from_dict({"age": {"type": "numeric", "lower": 0, "upper": 100, "confirmed": False}})
    with pytest.raises(RefusedError):
        prepare(draft, None, epsilon=1.0, delta=1e-6, generator="linear")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"do": {"agee": 1}}, SchemaError, "Did you mean 'age'"),
        ({"do": {"age": 101}}, SchemaError, "whole numbers from 0 to 100"),
        ({"do": {"age": 30.5}}, SchemaError, "whole numbers"),
        ({"given": {"dose": "much"}}, SchemaError, "numbers from -2 to 6"),
        ({"given": {"dose": None}}, SchemaError, "numbers from -2 to 6"),
        ({"given": {"dose": math.nan}}, SchemaError, "numbers from -2 to 6"),
        ({"do": {"dose": 1}, "given": {"dose": 1}}, InputError, "dose cannot be both"),
        ({"do": [("dose", 1)]}, InputError, "do must map columns to values"),
        ({"seed": -1}, InputError, "seed"),
    ],
)
def test_bad_values_are_named(
    clinic: LinearModel, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        clinic.sample(5, **arguments)


def test_bad_rows_and_columns_are_named(clinic: LinearModel) -> None:
    with pytest.raises(InputError, match="rows"):
        clinic.sample(-1)
    with pytest.raises(SchemaError, match=r"outcome names 'presure'.*Did you mean 'pressure'"):
        clinic.effect("dose", "presure")


def test_a_model_that_does_not_fit_its_schema_is_refused() -> None:
    model = by_hand(SMALL)
    with pytest.raises(InputError, match="no equation for column 'b'"):
        replace(model, conditionals={"a": model.conditionals["a"]})
    loop = {"a": (("b",), 0.0, [1.0], 1.0), "b": (("a",), 0.0, [1.0], 1.0)}
    with pytest.raises(GraphError, match="cycle"):
        by_hand(loop, graph=CausalGraph.from_edges([], nodes=("a", "b")))
    stranger = {"a": (("z",), 0.0, [1.0], 1.0)}
    with pytest.raises(InputError, match="'z'"):
        by_hand(stranger, graph=CausalGraph.from_edges([], nodes=("a",)))


def test_what_it_says_of_itself_is_public(clinic: LinearModel) -> None:
    assert repr(clinic) == "LinearModel(linear, 3 columns, 3 arrows)"
    assert "seeded" in str(clinic)
    assert "<svg" in clinic._repr_html_()
    assert clinic.order.index("age") < clinic.order.index("dose") < clinic.order.index("pressure")
