"""Generator ``marginals``: what it plans, what it spends, and how close its model comes to the truth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from escudo.causal import CausalGraph, Network
from escudo.errors import BudgetExceededError, GraphError, InputError, NotIdentifiableError, RefusedError
from escudo.mechanisms import Purse
from escudo.privacy import ExponentialEvent, GaussianEvent, MemoryAccount, guarantee_of, plan
from escudo.privacy._totals import leaves
from escudo.synthesis import CausalModel, prepare, synthesize
from escudo.table import PrivateTable, Schema

Law = Callable[..., NDArray[np.float64]]
YES_NO = ["no", "yes"]
BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}


def distance(one: Any, other: Any) -> float:
    return float(np.abs(np.asarray(one) - np.asarray(other)).sum() / 2)


def fitted(table: PrivateTable, graph: CausalGraph | None, **options: Any) -> CausalModel:
    known = {"relation": options.pop("relation", None), "rows": options.pop("public_rows", None)}
    model = synthesize(table.under(**known), graph, **{**BUDGET, "seed": 1, **options})
    assert isinstance(model, CausalModel)
    return model


def chain(rows: int, *, flip: float = 0.1, seed: int = 0) -> pl.DataFrame:
    """Return a → b → c, where each copies the one before except for a share ``flip``, and d, a fair coin."""
    rng = np.random.default_rng(seed)
    a = rng.random(rows) < 0.4
    b = a ^ (rng.random(rows) < flip)
    c = b ^ (rng.random(rows) < flip)
    d = rng.random(rows) < 0.5
    return pl.DataFrame(
        {name: np.where(column, "yes", "no") for name, column in zip("abcd", (a, b, c, d), strict=True)}
    )


CHAIN = Schema.from_dict({name: YES_NO for name in "abcd"})


# -- the plan is what is spent


@pytest.mark.parametrize(
    "edges", [None, [("a", "b")], [("a", "b"), ("b", "c"), ("c", "d")]], ids=["none", "part", "full"]
)
@pytest.mark.parametrize("relation", ["replace_one", "add_remove"])
def test_no_more_is_spent_than_the_plan_shows(edges: Any, relation: str, spy: Any) -> None:
    graph = None if edges is None else CausalGraph.from_edges(edges)
    prepared = prepare(CHAIN, graph, relation=relation, **BUDGET)
    prepared.run(
        PrivateTable(chain(500), CHAIN),
        Purse(spy, np.random.default_rng(0), plan=prepared.plan, guarantee=prepared.plan.guarantee()),
    )
    assert prepared.plan.event is not None
    left = Counter(dict(leaves(prepared.plan.event)))
    left.subtract(spy.events)
    assert min(left.values()) >= 0
    assert {type(event) for event, count in left.items() if count} <= {ExponentialEvent}


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("relation", ["replace_one", "add_remove"])
def test_the_guarantee_is_what_was_asked_for_and_no_more_than_a_thousandth_is_wasted(
    epsilon: float, relation: str
) -> None:
    account = MemoryAccount(relation=relation)
    table = PrivateTable(chain(200), CHAIN, account)
    model = fitted(table, None, epsilon=epsilon, delta=1e-5, relation=relation)
    assert model.guarantee.epsilon is not None
    assert epsilon * 0.999 < model.guarantee.epsilon <= epsilon
    assert (model.guarantee.delta, model.guarantee.relation, model.guarantee.unit) == (1e-5, relation, "row")
    (receipt,) = account.receipts
    assert guarantee_of(receipt.event, delta=1e-5).epsilon == model.guarantee.epsilon
    assert account.failed == {}


def test_the_plan_is_stated_at_the_delta_asked_for() -> None:
    made = plan(synthesize, CHAIN, None, epsilon=0.5, delta=1e-9)
    assert made.stated_delta == 1e-9
    assert "ε = 0.50, δ = 1e-09" in str(made)


def test_large_tables_get_less_noise_per_cell() -> None:
    schema = Schema.from_dict({"a": YES_NO, "b": YES_NO, "c": [str(level) for level in range(8)], "d": YES_NO})
    made = plan(synthesize, schema, CausalGraph.from_edges([("a", "b"), ("c", "d")]), **BUDGET)
    noise = {leaf.name: leaf.once.scale for leaf in made.leaves() if isinstance(leaf.once, GaussianEvent)}
    assert noise["b | a"] / noise["d | c"] == pytest.approx((16 / 4) ** (1 / 6))  # precision as the cube root of cells


def test_a_table_inside_another_is_not_paid_for_twice(clinic: Network, clinic_schema: Schema) -> None:
    made = plan(synthesize, clinic_schema, clinic.graph, **BUDGET)
    assert [leaf.name for leaf in made.children[1].leaves()] == [
        "tub | asia",
        "lung | smoke",
        "bronc | smoke",
        "either | tub, lung",
        "xray | either",
        "dysp | bronc, either",
    ]


def test_a_column_in_large_tables_only_gets_a_table_of_its_own() -> None:
    wide = {f"p{i}": [str(level) for level in range(6)] for i in range(3)}
    schema = Schema.from_dict({**wide, "x": YES_NO})
    made = plan(synthesize, schema, CausalGraph.from_edges([(name, "x") for name in wide]), **BUDGET)
    assert {leaf.name for leaf in made.leaves()} == {"x", *wide, "x | p0, p1, p2"}


# -- the model is close to the truth, also where it intervenes


@pytest.fixture(scope="module")
def released(clinic: Network, clinic_schema: Schema) -> CausalModel:
    """The clinic's model from 80,000 patients at ε = 1."""
    frame = clinic.sample_frame(80_000, rng=np.random.default_rng(8))
    account = MemoryAccount(relation="add_remove")
    model = synthesize(PrivateTable(frame, clinic_schema, account), clinic.graph, seed=4, **BUDGET)
    assert isinstance(model, CausalModel)
    return model


def test_single_interventions_follow_the_true_network(
    released: CausalModel, clinic: Network, clinic_schema: Schema, true_law: Law
) -> None:
    errors = []
    for cause in clinic.nodes:
        for level in clinic.levels[cause]:
            for effect in clinic.nodes:
                if effect != cause:
                    do = {cause: level}
                    errors.append(distance(released.probability([effect], do=do), true_law([effect], do=do)))
    assert np.mean(errors) < 0.005
    assert max(errors) < 0.1  # the effect of a visit to Asia, which one in a hundred makes


def test_an_intervention_on_an_effect_leaves_its_causes_alone(released: CausalModel, true_law: Law) -> None:
    observed = true_law(["tub", "lung"], given={"either": "yes"})
    intervened = true_law(["tub", "lung"], do={"either": "yes"})
    assert distance(observed, intervened) > 0.5
    assert distance(released.probability(["tub", "lung"], do={"either": "yes"}), intervened) < 0.005
    assert distance(released.probability(["tub", "lung"], given={"either": "yes"}), observed) < 0.05
    drawn = released.sample(20_000, do={"either": "yes"}, seed=0)
    assert (drawn["lung"] == "yes").mean() == pytest.approx(true_law(["lung"])[0], abs=0.005)


def test_rows_are_public_where_a_row_is_replaced_and_noisy_where_one_is_added(released: CausalModel) -> None:
    frame = chain(3000)
    assert fitted(PrivateTable(frame, CHAIN), None).details["rows"] == 3000
    # the account converts; what was promised is add_remove, so the exact number must not come out
    added = fitted(PrivateTable(frame, CHAIN), None, relation="add_remove").details["rows"]
    assert added != 3000
    assert added == pytest.approx(3000, abs=200)
    assert fitted(PrivateTable(frame, CHAIN), None, relation="add_remove", public_rows=3000).details["rows"] == 3000
    assert released.details["rows"] == pytest.approx(80_000, abs=200)


# -- graphs that say less


def test_without_a_graph_columns_are_joined_by_the_tree_of_their_dependence() -> None:
    model = fitted(PrivateTable(chain(20_000).select("c", "a", "d", "b"), CHAIN), None)
    joined = {frozenset(edge) for edge in model.graph.edges}
    assert {frozenset("ab"), frozenset("bc")} <= joined
    assert len(joined) == 3
    assert all(len(model.graph.parents(name)) <= 1 for name in CHAIN.names)
    drawn = model.sample(20_000, seed=0)
    assert (drawn["a"] == drawn["b"]).mean() == pytest.approx(0.9, abs=0.01)
    assert (drawn["a"] == drawn["c"]).mean() == pytest.approx(0.82, abs=0.01)


def test_a_partial_graph_keeps_its_arrows_and_the_rest_is_picked() -> None:
    model = fitted(PrivateTable(chain(20_000), CHAIN), CausalGraph.from_edges([("b", "a")], nodes=["a", "b", "d"]))
    assert ("b", "a") in model.graph.edges
    assert ("b", "c") in model.graph.edges
    assert model.graph.parents("d") == ()  # named in the graph, and not joined: stated to have no cause
    assert "pick a table" in str(model.plan)


def test_a_picked_cause_joins_the_stated_ones_in_one_family() -> None:
    frame = chain(20_000).with_columns(
        d=pl.when(pl.col("a") == pl.col("c")).then(pl.col("d")).otherwise(pl.lit("yes")), e=pl.col("d")
    )
    schema = Schema.from_dict({name: YES_NO for name in "abcde"})
    graph = CausalGraph.from_edges([("a", "d"), ("group", "d")], groups={"group": ["b", "c"]}, nodes=["e"])
    model = fitted(PrivateTable(frame, schema), graph)
    assert "a" in model.graph.parents("d")
    assert len(model.graph.parents("d")) == 2
    for name, law in model.conditionals.items():
        assert law.parents == tuple(sorted(model.graph.parents(name)))


def test_groups_are_joined_in_their_direction_only() -> None:
    graph = CausalGraph.from_edges([("causes", "effects")], groups={"causes": ["c", "d"], "effects": ["a", "b"]})
    model = fitted(PrivateTable(chain(20_000), CHAIN), graph)
    for cause, effect in model.graph.edges:
        assert (cause in "cd") or (effect in "ab")
    assert ("c", "b") in model.graph.edges or ("c", "a") in model.graph.edges


def test_a_latent_common_cause_joins_its_effects_and_forbids_the_intervention() -> None:
    graph = CausalGraph.from_edges([("u", "a"), ("u", "b"), ("a", "b"), ("b", "c")], nodes=["d"], latents=["u"])
    model = fitted(PrivateTable(chain(5000), CHAIN), graph)
    with pytest.raises(NotIdentifiableError, match="'u'"):
        model.sample(10, do={"a": "yes"})
    assert model.sample(10, do={"b": "yes"})["b"].unique().to_list() == ["yes"]
    assert model.sample(10, given={"a": "yes"})["a"].unique().to_list() == ["yes"]


def test_a_graph_over_other_columns_is_refused_before_anything_is_spent() -> None:
    account = MemoryAccount()
    with pytest.raises(GraphError, match="'x', which is no column"):
        fitted(PrivateTable(chain(50), CHAIN, account), CausalGraph.from_edges([("a", "x")]))
    assert account.receipts == ()


# -- columns of every kind


def test_numbers_ordinals_flags_and_missing_values_keep_their_laws_and_dependence(
    ills: tuple[pl.DataFrame, dict[str, Any]],
) -> None:
    rows = ills[0].height
    frame = ills[0].with_columns(visits=pl.Series(np.random.default_rng(2).poisson(3, rows)))
    visits = {"type": "numeric", "lower": 0, "upper": 20, "bins": 20, "integer": True}
    schema = Schema.from_dict({**ills[1], "visits": visits})
    graph = CausalGraph.from_edges([("age", "ill"), ("ill", "stage")], nodes=["visits"])
    drawn = fitted(PrivateTable(frame, schema), graph).sample(rows, seed=0)
    assert drawn.schema == {"age": pl.Float64, "ill": pl.Boolean, "stage": pl.Int64, "visits": pl.Int64}
    assert drawn["age"].null_count() / rows == pytest.approx(0.2, abs=0.01)
    assert drawn["stage"].null_count() / rows == pytest.approx(0.1, abs=0.01)
    assert drawn["age"].mean() == pytest.approx(50, abs=1)
    assert drawn["age"].std() == pytest.approx(15, abs=1)
    assert drawn["visits"].mean() == pytest.approx(3, abs=0.1)
    older = drawn.filter(pl.col("age") > 60)["ill"].mean()
    assert older == pytest.approx(frame.filter(pl.col("age") > 60)["ill"].mean(), abs=0.02)
    assert drawn.filter(~pl.col("ill"))["stage"].drop_nulls().mean() == pytest.approx(1, abs=0.03)


def test_one_person_with_many_rows_is_protected_as_a_person() -> None:
    people, visits = 4000, 6
    frame = pl.concat([chain(people, seed=visit).with_columns(pid=pl.int_range(pl.len())) for visit in range(visits)])
    schema = Schema(CHAIN.fields, person_id="pid", max_rows_per_person=2)
    account = MemoryAccount(unit="person", max_rows_per_person=2)
    model = fitted(PrivateTable(frame, schema, account), CausalGraph.from_edges([("a", "b"), ("b", "c"), ("c", "d")]))
    assert (model.guarantee.unit, model.guarantee.max_rows_per_person) == ("person", 2)
    assert model.details["rows"] == pytest.approx(2 * people, abs=300)  # two rows each count; their number is noisy
    assert model.details["rows"] != 2 * people
    drawn = model.sample(5000, seed=0)
    assert drawn.columns == list("abcd")
    assert (drawn["a"] == drawn["b"]).mean() == pytest.approx(0.9, abs=0.02)


@pytest.mark.parametrize(
    "edges", [None, [("a", "single"), ("single", "b"), ("a", "b"), ("c", "d")]], ids=["none", "full"]
)
def test_a_column_of_a_single_level_costs_nothing_and_breaks_nothing(edges: Any) -> None:
    frame = chain(5000).with_columns(single=pl.lit("only"))
    schema = Schema.from_dict({"single": ["only"], **{name: YES_NO for name in "abcd"}})
    graph = None if edges is None else CausalGraph.from_edges(edges)
    model = fitted(PrivateTable(frame, schema), graph)
    assert not any("single" in leaf.name for leaf in model.plan.leaves())
    drawn = model.sample(1000, seed=0)
    assert drawn["single"].unique().to_list() == ["only"]
    assert (drawn["a"] == drawn["b"]).mean() == pytest.approx(0.9, abs=0.03)


def test_a_schema_without_any_choice_is_refused() -> None:
    account = MemoryAccount()
    with pytest.raises(InputError, match="single level"):
        fitted(PrivateTable(pl.DataFrame({"one": ["only"]}), Schema.from_dict({"one": ["only"]}), account), None)
    assert account.receipts == ()


@pytest.mark.parametrize("relation", ["replace_one", "add_remove"])
def test_an_empty_table_gives_a_model_all_the_same(relation: str) -> None:
    table = PrivateTable(chain(1).clear().lazy(), CHAIN)
    model = fitted(table, CausalGraph.from_edges([("a", "b"), ("c", "d")]), relation=relation)
    assert model.details["rows"] >= 1
    assert model.sample(100, seed=0).height == 100


def test_a_budget_far_too_small_still_gives_laws() -> None:
    wide = {f"p{i}": [str(level) for level in range(6)] for i in range(3)}
    schema = Schema.from_dict({**wide, "x": YES_NO})
    frame = pl.DataFrame({name: ["0"] * 50 for name in wide} | {"x": ["yes"] * 50})
    graph = CausalGraph.from_edges([(name, "x") for name in wide])
    model = fitted(PrivateTable(frame, schema), graph, epsilon=0.01)
    assert model.sample(50, seed=0).height == 50


def test_many_parents_are_counted_as_long_as_a_table_holds_them() -> None:
    names = [f"p{i:02}" for i in range(11)]
    rng = np.random.default_rng(0)
    frame = pl.DataFrame({name: rng.choice(YES_NO, 2000) for name in names})
    schema = Schema.from_dict({name: YES_NO for name in names})
    graph = CausalGraph.from_edges([(name, "p10") for name in names[:-1]])
    model = fitted(PrivateTable(frame, schema), graph)
    assert model.conditionals["p10"].parent_sizes == (2,) * 10


def test_a_family_beyond_any_table_is_refused_with_a_way_out_before_anything_is_spent() -> None:
    schema = Schema.from_dict({name: [str(level) for level in range(5000)] for name in "ab"})
    account = MemoryAccount()
    table = PrivateTable(pl.DataFrame({name: ["1"] for name in "ab"}), schema, account)
    with pytest.raises(InputError, match=r"25,000,000 cells.*fewer levels"):
        fitted(table, CausalGraph.from_edges([("a", "b")]))
    assert account.receipts == ()


# -- refusals


def test_an_unconfirmed_schema_and_a_spent_budget_are_refused_and_nothing_is_spent() -> None:
    draft = Schema.from_dict({"a": {"type": "categorical", "levels": YES_NO, "confirmed": False}})
    account = MemoryAccount()
    with pytest.raises(RefusedError, match="not confirmed"):
        fitted(PrivateTable(chain(50), draft, account), None)
    assert account.receipts == ()
    small = MemoryAccount(epsilon=0.5, delta=1e-6)
    with pytest.raises(BudgetExceededError):
        fitted(PrivateTable(chain(50), CHAIN, small), None)
    assert small.receipts == ()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": 101}, "at most 100"),
        ({"delta": 0.0}, "Gaussian noise needs a delta"),
        ({"delta": 1.0}, "delta"),
        ({"generator": "marginal"}, "Did you mean 'marginals'"),
        ({"seed": -1}, "seed"),
        ({"seed": 1.5}, "seed"),
        ({"memory": 5}, "no option 'memory'; it has repair"),
    ],
)
def test_a_wrong_argument_is_named_before_anything_is_spent(arguments: dict[str, Any], expected: str) -> None:
    account = MemoryAccount()
    with pytest.raises(InputError, match=expected):
        synthesize(PrivateTable(chain(50), CHAIN, account), None, **{**BUDGET, "seed": 1, **arguments})
    assert account.receipts == ()


@pytest.mark.parametrize(
    ("arguments", "expected"), [({"relation": "twins"}, "relation"), ({"public_rows": 0}, "public_rows")]
)
def test_a_wrong_word_about_the_table_is_named(arguments: dict[str, Any], expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        prepare(CHAIN, None, **BUDGET, **arguments)


def test_what_is_said_of_a_table_where_it_is_asked_is_taken_for_one_version() -> None:
    table = PrivateTable(chain(500), CHAIN)
    with pytest.warns(DeprecationWarning, match=r"relation and rows of synthesize\(\) will end"):
        old = synthesize(table, None, relation="add_remove", public_rows=400, seed=1, **BUDGET)
    new = synthesize(PrivateTable(chain(500), CHAIN, relation="add_remove", rows=400), None, seed=1, **BUDGET)
    assert old.details == new.details
    assert old.plan == new.plan
    assert old.sample(50, seed=0).equals(new.sample(50, seed=0))
