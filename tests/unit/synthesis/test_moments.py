"""Generator ``moments``: what it plans, what it spends, and how close its model comes to the truth."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from escudo.causal import CausalGraph, Network
from escudo.errors import BudgetExceededError, GraphError, InputError, NotIdentifiableError
from escudo.mechanisms import Purse
from escudo.privacy import ExponentialEvent, GaussianEvent, MemoryAccount, guarantee_of, plan
from escudo.privacy._totals import leaves
from escudo.synthesis import CausalModel, MaxConditional, load, prepare, synthesize
from escudo.synthesis._moment_statistics import UNIT
from escudo.synthesis._moments import PreparedMoments
from escudo.table import PrivateTable, Schema, count_sensitivity

Law = Callable[..., NDArray[np.float64]]
YES_NO = ["no", "yes"]
BUDGET: dict[str, Any] = {"generator": "moments", "epsilon": 1.0, "delta": 1e-6}
CHAIN = Schema.from_dict({name: YES_NO for name in "abcd"})
GRAPH = CausalGraph.from_edges([("a", "b"), ("b", "c"), ("a", "c")], nodes=["d"])


def chain(rows: int, seed: int = 0) -> pl.DataFrame:
    """Return a → b → c with a tenth of each turned over, c also on where a is, and d, a fair coin."""
    rng = np.random.default_rng(seed)
    a = rng.random(rows) < 0.3
    b = a ^ (rng.random(rows) < 0.1)
    c = (b | a) ^ (rng.random(rows) < 0.1)
    d = rng.random(rows) < 0.5
    return pl.DataFrame(
        {name: np.where(column, "yes", "no") for name, column in zip("abcd", (a, b, c, d), strict=True)}
    )


def fitted(table: PrivateTable, graph: CausalGraph | None, **options: Any) -> CausalModel:
    known = {"relation": options.pop("relation", None), "rows": options.pop("public_rows", None)}
    model = synthesize(table.under(**known), graph, **{**BUDGET, "seed": 1, **options})
    assert isinstance(model, CausalModel)
    return model


def prepared(graph: CausalGraph | None = GRAPH, schema: Schema = CHAIN, **options: Any) -> PreparedMoments:
    made = prepare(schema, graph, **{**BUDGET, **options})
    assert isinstance(made, PreparedMoments)
    return made


# -- the plan is what is spent


@pytest.mark.parametrize("options", [{}, {"clip": 3.0}, {"repair": True}, {"public_rows": 500}], ids=str)
@pytest.mark.parametrize("graph", [GRAPH, None], ids=["graph", "none"])
@pytest.mark.parametrize("relation", ["replace_one", "add_remove"])
def test_every_leaf_of_the_plan_is_spent_once_and_nothing_else(
    relation: str, graph: CausalGraph | None, options: dict[str, Any], spy: Any
) -> None:
    made = prepared(graph, relation=relation, **options)
    made.run(
        PrivateTable(chain(500), CHAIN),
        Purse(spy, np.random.default_rng(0), plan=made.plan, guarantee=made.plan.guarantee()),
    )
    assert made.plan.event is not None
    assert sorted(map(repr, spy.events)) == sorted(
        repr(leaf) for leaf, count in leaves(made.plan.event) for _ in range(count)
    )


def many(columns: int, rows: int, seed: int = 0) -> tuple[pl.DataFrame, Schema]:
    """Return columns each of which follows the one before it in nine rows of ten."""
    rng = np.random.default_rng(seed)
    codes = [rng.random(rows) < 0.4]
    for _ in range(columns - 1):
        codes.append(codes[-1] ^ (rng.random(rows) < 0.1))
    names = [f"c{place:02}" for place in range(columns)]
    frame = pl.DataFrame({name: np.where(code, "yes", "no") for name, code in zip(names, codes, strict=True)})
    return frame, Schema.from_dict({name: YES_NO for name in names})


@pytest.mark.parametrize("options", [{}, {"clip": 3.0}, {"public_rows": 500}], ids=str)
@pytest.mark.parametrize("relation", ["replace_one", "add_remove"])
def test_a_second_look_spends_what_the_plan_shows_and_no_more(relation: str, options: dict[str, Any], spy: Any) -> None:
    frame, schema = many(10, 500)
    made = prepared(None, schema, relation=relation, **options)
    assert made.again is not None
    assert "the 40 most suspicious candidates" in str(made.plan)
    made.run(
        PrivateTable(frame, schema),
        Purse(spy, np.random.default_rng(0), plan=made.plan, guarantee=made.plan.guarantee()),
    )
    assert made.plan.event is not None
    assert [event for event in spy.events if event in (made.sums, made.again)] == [made.sums, made.again]
    assert sorted(map(repr, spy.events)) == sorted(
        repr(leaf) for leaf, count in leaves(made.plan.event) for _ in range(count)
    )
    promised = made.plan.guarantee().epsilon
    assert promised is not None
    assert 0.999 < promised <= 1


@pytest.mark.parametrize("most", [None, 3])
@pytest.mark.parametrize("relation", ["replace_one", "add_remove"])
def test_both_releases_of_the_sums_have_the_sensitivity_that_was_proved(relation: str, most: int | None) -> None:
    _, schema = many(10, 1)
    if most is not None:
        schema = Schema(schema.fields, person_id="pid", max_rows_per_person=most)
    made = prepared(None, schema, relation=relation)
    unit = "row" if most is None else "person"
    claimed = count_sensitivity(1, relation=relation, unit=unit, max_rows_per_person=most).l2 * UNIT
    assert made.again is not None
    assert made.sums.l2_sensitivity == made.again.l2_sensitivity == claimed
    assert (made.again.relation, made.again.unit, made.again.grid) == (relation, unit, 1.0)


@pytest.mark.parametrize(("columns", "twice"), [(9, False), (10, True)], ids=["9 columns", "10 columns"])
def test_a_second_look_is_for_many_candidates_by_a_public_rule(columns: int, twice: bool) -> None:
    """Without a graph c columns have c(c - 1)/2 candidates, and 4c are few."""
    made = prepared(None, many(columns, 1)[1])
    assert (made.again is not None) == twice
    assert ("sums again" in str(made.plan)) == twice


def test_a_second_look_finds_more_of_a_chain_than_one_release(monkeypatch: pytest.MonkeyPatch) -> None:
    frame, schema = many(12, 2000)
    chained = {frozenset(pair) for pair in itertools.pairwise(schema.names)}

    def links() -> int:
        model = fitted(PrivateTable(frame, schema), None, epsilon=0.5, public_rows=2000, most_added=2, seed=0)
        return len(chained & set(map(frozenset, model.graph.edges)))

    twice = links()
    monkeypatch.setattr("escudo.synthesis._moments._SUSPECTS", 100)  # so that there is only one look
    assert twice > links()


def test_a_single_column_of_two_levels_spends_what_it_planned() -> None:
    schema = Schema.from_dict({"a": YES_NO})
    model = fitted(PrivateTable(chain(500), schema), None)  # the purse refuses what the plan does not show
    assert (model.sample(1000, seed=0)["a"] == "yes").mean() == pytest.approx(0.3, abs=0.07)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("relation", ["replace_one", "add_remove"])
def test_the_guarantee_is_what_was_asked_for_and_no_more_than_a_thousandth_is_wasted(
    epsilon: float, relation: str
) -> None:
    account = MemoryAccount(relation=relation)
    model = fitted(PrivateTable(chain(200), CHAIN, account), GRAPH, epsilon=epsilon, delta=1e-5, relation=relation)
    assert model.guarantee.epsilon is not None
    assert epsilon * 0.999 < model.guarantee.epsilon <= epsilon
    assert (model.guarantee.delta, model.guarantee.relation, model.guarantee.unit) == (1e-5, relation, "row")
    (receipt,) = account.receipts
    assert guarantee_of(receipt.event, delta=1e-5).epsilon == model.guarantee.epsilon
    assert account.failed == {}


@pytest.mark.parametrize("relation", ["replace_one", "add_remove"])
@pytest.mark.parametrize("most", [None, 3])
def test_the_sums_are_planned_with_the_sensitivity_that_was_proved(relation: str, most: int | None) -> None:
    unit = "row" if most is None else "person"
    schema = CHAIN if most is None else Schema(CHAIN.fields, person_id="pid", max_rows_per_person=most)
    event = prepared(schema=schema, relation=relation).sums
    claimed = count_sensitivity(1, relation=relation, unit=unit, max_rows_per_person=most).l2 * UNIT
    assert event.l2_sensitivity == claimed
    assert (event.relation, event.unit, event.grid) == (relation, unit, 1.0)


def test_the_noise_does_not_depend_on_the_clip_bound() -> None:
    assert prepared(clip=1.0).sums == prepared(clip=2.0).sums


@pytest.mark.parametrize(
    ("relation", "person", "public_rows", "paid"),
    [
        ("replace_one", False, None, False),
        ("replace_one", True, None, True),
        ("add_remove", False, None, True),
        ("add_remove", True, None, True),
        ("add_remove", False, 300, False),
        ("replace_one", True, 300, False),
    ],
)
def test_the_number_of_rows_is_paid_for_unless_it_is_public(
    relation: str, person: bool, public_rows: int | None, paid: bool
) -> None:
    schema = Schema(CHAIN.fields, person_id="pid", max_rows_per_person=2) if person else CHAIN
    made = prepared(schema=schema, relation=relation, public_rows=public_rows)
    assert ("number of rows" in str(made.plan)) is paid
    assert (made.count is not None) is paid
    if made.count is not None:
        assert made.count.l2_sensitivity == (2.0 if person else 1.0)


def test_the_number_of_rows_that_comes_out_is_exact_only_where_it_is_public() -> None:
    frame = chain(3000)
    assert fitted(PrivateTable(frame, CHAIN), GRAPH).details["rows"] == 3000
    noisy = fitted(PrivateTable(frame, CHAIN), GRAPH, relation="add_remove").details["rows"]
    assert noisy != 3000
    assert noisy == pytest.approx(3000, abs=300)
    stated = fitted(PrivateTable(frame, CHAIN), GRAPH, relation="add_remove", public_rows=2900)
    assert stated.details["rows"] == 2900


def test_the_plan_says_what_is_bought() -> None:
    made = str(plan(synthesize, CHAIN, GRAPH, form="max", relation="add_remove", **BUDGET))
    assert "clip bound" in made
    assert "80% of rows" in made
    assert "7 sums: 4 columns, 3 arrows" in made
    assert "(max)" in made
    public = str(plan(synthesize, CHAIN, GRAPH, clip=2.0, **BUDGET))
    assert "clip bound" not in public
    assert "rows clipped to length 2" in public


def test_the_clip_bound_takes_a_twentieth_and_lands_where_four_fifths_of_rows_are_shorter() -> None:
    made = prepared()
    assert isinstance(made.clip, ExponentialEvent)
    rho = (made.sums.l2_sensitivity / made.sums.scale) ** 2 / 2
    assert made.clip.epsilon**2 / 8 == pytest.approx(0.05 * rho)
    frame = chain(20_000)
    model = fitted(PrivateTable(frame, CHAIN), GRAPH)
    on = (frame == "yes").select(pl.all()).to_numpy()
    a, b, c = (on[:, place] for place in range(3))
    lengths = np.sqrt(on.sum(axis=1) + (a & b) + (b & c) + (a & c))
    clip = model.details["l2_clip_norm"]
    assert (lengths <= clip).mean() >= 0.78
    assert (lengths < clip * 0.9).mean() <= 0.82


# -- the model is close to the truth, also where it intervenes


def test_single_interventions_follow_the_true_network(clinic: Network, clinic_schema: Schema, true_law: Law) -> None:
    frame = clinic.sample_frame(80_000, rng=np.random.default_rng(8))
    account = MemoryAccount(relation="add_remove")
    model = fitted(PrivateTable(frame, clinic_schema, account), clinic.graph, relation="add_remove")
    errors = []
    for cause in clinic.nodes:
        for level in clinic.levels[cause]:
            for effect in clinic.nodes:
                if effect != cause:
                    law = model.probability([effect], do={cause: level})
                    errors.append(np.abs(law - true_law([effect], do={cause: level})).sum() / 2)
    assert np.mean(errors) < 0.01
    drawn = model.sample(20_000, do={"smoke": "yes"}, seed=0)
    assert drawn["smoke"].unique().to_list() == ["yes"]
    assert (drawn["lung"] == "yes").mean() == pytest.approx(0.1, abs=0.01)
    before = model.sample(20_000, do={"lung": "yes"}, seed=0)
    assert (before["smoke"] == "yes").mean() == pytest.approx(0.5, abs=0.01)  # a cause keeps its law


def test_causes_that_switch_on_are_found_under_heavy_noise() -> None:
    rng = np.random.default_rng(2)
    causes = rng.random((4000, 12)) < 0.15
    strengths = np.linspace(0.2, 0.9, 12)
    effect = rng.random(4000) < np.maximum((causes * strengths).max(axis=1), 0.01)
    names = [f"c{i:02}" for i in range(12)]
    frame = pl.DataFrame(np.column_stack([causes, effect]).astype(int), schema=[*names, "effect"])
    schema = Schema.from_dict({name: [0, 1] for name in (*names, "effect")})
    graph = CausalGraph.from_edges([(name, "effect") for name in names])
    model = fitted(PrivateTable(frame, schema), graph, form="max", epsilon=1.0)
    law = model.conditionals["effect"]
    assert isinstance(law, MaxConditional)
    assert law.leak > 0
    found = np.array([strength[1] for strength in law.strengths])
    assert np.abs(found - strengths).mean() < 0.15
    assert np.corrcoef(found, strengths)[0, 1] > 0.8


# -- columns of every kind


def test_numbers_ordinals_flags_missing_values_and_single_levels_keep_their_laws_and_dependence(
    ills: tuple[pl.DataFrame, dict[str, Any]],
) -> None:
    rows = ills[0].height
    frame = ills[0].with_columns(site=pl.lit("only"))
    schema = Schema.from_dict({"site": ["only"], **ills[1]})
    graph = CausalGraph.from_edges([("age", "ill"), ("ill", "stage"), ("site", "stage"), ("age", "site")])
    model = fitted(PrivateTable(frame, schema), graph)
    drawn = model.sample(rows, seed=0)
    assert drawn["site"].unique().to_list() == ["only"]
    assert drawn["age"].null_count() / rows == pytest.approx(0.2, abs=0.02)
    assert drawn["stage"].null_count() / rows == pytest.approx(0.1, abs=0.01)
    assert drawn["age"].mean() == pytest.approx(50, abs=1)
    older = drawn.filter(pl.col("age") > 60)["ill"].mean()
    assert older == pytest.approx(frame.filter(pl.col("age") > 60)["ill"].mean(), abs=0.03)
    assert drawn.filter(~pl.col("ill"))["stage"].drop_nulls().mean() == pytest.approx(1, abs=0.05)
    assert model.sample(10, do={"stage": None}, seed=0)["stage"].null_count() == 10


@pytest.mark.parametrize("relation", ["replace_one", "add_remove"])
def test_one_person_with_many_rows_is_protected_as_a_person(relation: str) -> None:
    people, visits = 3000, 6
    frame = pl.concat([chain(people, seed=visit).with_columns(pid=pl.int_range(pl.len())) for visit in range(visits)])
    schema = Schema(CHAIN.fields, person_id="pid", max_rows_per_person=2)
    account = MemoryAccount(relation=relation, unit="person", max_rows_per_person=2)
    model = fitted(PrivateTable(frame, schema, account), GRAPH, relation=relation)
    assert (model.guarantee.unit, model.guarantee.max_rows_per_person) == ("person", 2)
    assert model.details["rows"] == pytest.approx(2 * people, rel=0.15)  # two rows each count; their number is noisy
    assert model.details["rows"] != 2 * people
    drawn = model.sample(5000, seed=0)
    assert (drawn["a"] == drawn["b"]).mean() == pytest.approx(0.9, abs=0.04)


@pytest.mark.parametrize("relation", ["replace_one", "add_remove"])
@pytest.mark.parametrize("form", ["logit", "max"])
def test_an_empty_table_gives_a_model_all_the_same(relation: str, form: str) -> None:
    model = fitted(PrivateTable(chain(1).clear().lazy(), CHAIN), GRAPH, relation=relation, form=form)
    assert model.details["rows"] >= 1
    assert model.sample(100, seed=0).height == 100


def test_a_column_that_never_varies_in_the_data_is_rare_in_the_model() -> None:
    frame = chain(5000).with_columns(a=pl.lit("no"))
    drawn = fitted(PrivateTable(frame, CHAIN), GRAPH).sample(5000, seed=0)
    assert (drawn["a"] == "yes").mean() < 0.02


# -- graphs that say less, or miss something


def test_repair_finds_an_arrow_that_the_graph_misses_and_says_so() -> None:
    table = PrivateTable(chain(20_000), CHAIN)
    incomplete = CausalGraph.from_edges([("a", "b"), ("a", "c")], nodes=["a", "b", "c", "d"])
    without = fitted(table, incomplete)
    assert set(without.graph.edges) == {("a", "b"), ("a", "c")}
    # b and c are both effects of a, and the latest: tiers say which of them comes first
    tiers = CausalGraph.from_edges(
        [("a", "b"), ("a", "c")], nodes=["a", "b", "c", "d"], tiers=[["a"], ["b"], ["c", "d"]]
    )
    repaired = fitted(table, tiers, repair=True)
    assert set(repaired.graph.edges) == {("a", "b"), ("a", "c"), ("b", "c")}
    assert repaired.details["stated_arrows"] == [["a", "b"], ["a", "c"]]
    assert "2 candidate arrows" not in str(without.plan)
    assert "candidate arrows" in str(repaired.plan)
    assert without.sample(5, do={"b": "yes"}).height == 5
    with pytest.raises(NotIdentifiableError, match="b — c"):  # nobody stated that one acts on the other
        repaired.sample(5, do={"b": "yes"})
    assert repaired.sample(5, do={"b": "yes"}, columns=["a", "d"]).height == 5


def test_repair_gives_a_column_whose_arrows_are_all_missing_its_causes() -> None:
    graph = CausalGraph.from_edges([("a", "b"), ("b", "d")], nodes=["a", "b", "c", "d"])
    model = fitted(PrivateTable(chain(20_000), CHAIN), graph, repair=True)
    assert model.graph.parents("c")  # c has no arrow, so it comes last and may still get some
    assert "d" not in model.graph.parents("c")


@pytest.mark.parametrize("form", ["logit", "noisy-or"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_graph_without_any_arrow_is_repaired_without_a_cycle(seed: int, form: str) -> None:
    """Every column is loose, and each may turn out to be a cause or an effect."""
    frame, schema = many(6, 4000, seed=seed)
    order = np.random.default_rng(seed).permutation(6)
    shuffled = Schema.from_dict({schema.names[place]: YES_NO for place in order})
    model = fitted(
        PrivateTable(frame, shuffled), CausalGraph.from_edges([], nodes=shuffled.names), repair=True, form=form
    )
    joined = set(map(frozenset, model.graph.edges))
    assert len({frozenset(pair) for pair in itertools.pairwise(schema.names)} & joined) >= 3
    assert len(joined) == len(model.graph.edges)  # no pair both ways; a cycle would not have been fitted
    drawn = model.sample(4000, seed=0)
    assert (drawn["c00"] == drawn["c01"]).mean() == pytest.approx(0.9, abs=0.05)


def test_repair_respects_what_is_forbidden_and_how_many_may_be_added() -> None:
    forbidden = CausalGraph.from_edges(
        [("a", "b")], nodes=["a", "b", "c", "d"], forbidden=[("a", "c"), ("b", "c")], tiers=[["a"], ["b"], ["c"], ["d"]]
    )
    assert set(prepared(forbidden, repair=True).design.layout.candidates) == {("a", "d"), ("b", "d"), ("c", "d")}
    assert prepared(forbidden, repair=True, most_added=0).design.layout.candidates == ()


def test_without_a_graph_arrows_are_chosen_where_they_are_needed() -> None:
    model = fitted(PrivateTable(chain(20_000), CHAIN), None)
    joined = {frozenset(edge) for edge in model.graph.edges}
    assert frozenset("ab") in joined
    assert not any("d" in pair for pair in joined)
    drawn = model.sample(20_000, seed=0)
    assert (drawn["a"] == drawn["b"]).mean() == pytest.approx(0.9, abs=0.02)


def test_a_graph_over_other_columns_is_refused_before_anything_is_spent() -> None:
    account = MemoryAccount()
    with pytest.raises(GraphError, match="'x', which is no column"):
        fitted(PrivateTable(chain(50), CHAIN, account), CausalGraph.from_edges([("a", "x")]))
    assert account.receipts == ()


# -- files, and refusals


def test_a_saved_model_comes_back_the_same(tmp_path: Path) -> None:
    model = fitted(PrivateTable(chain(2000), CHAIN), GRAPH, form={"b": "max", "c": "noisy-or"})
    assert [model.conditionals[name].kind for name in "abc"] == ["table", "max", "noisy-or"]
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.sample(500, seed=3).equals(model.sample(500, seed=3))
    assert again.details == model.details


def test_a_form_for_all_is_for_columns_of_two_levels_only() -> None:
    schema = Schema.from_dict(
        {"a": YES_NO, "b": ["x", "y", "z"], "c": {"type": "categorical", "levels": YES_NO, "missing": True}}
    )
    assert prepared(None, schema, form="max").design.forms == {"a": "max", "b": "logit", "c": "logit"}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"form": "maximum"}, "Did you mean 'max'"),
        ({"form": {"e": "max"}}, "'e', no column"),
        ({"form": {"a": "or"}}, "form of 'a'"),
        ({"form": 3}, "form must be one of"),
        ({"clip": 0.5}, "clip must be at least 1"),
        ({"clip": -1.0}, "clip"),
        ({"most_added": -1}, "most_added"),
        ({"repair": "no"}, "repair must be true or false"),
        ({"delta": 0.0}, "Gaussian noise needs a delta"),
        ({"clips": 1.0}, "no option 'clips'; it has form, clip, repair, most_added"),
    ],
)
def test_a_wrong_argument_is_named_before_anything_is_spent(arguments: dict[str, Any], expected: str) -> None:
    account = MemoryAccount()
    with pytest.raises(InputError, match=expected):
        fitted(PrivateTable(chain(50), CHAIN, account), GRAPH, **arguments)
    assert account.receipts == ()


@pytest.mark.parametrize("generator", ["moments", "one-way", "independent"])
def test_a_clip_bound_that_no_row_reaches_is_the_longest_row(generator: str) -> None:
    terms: dict[str, Any] = {**BUDGET, "generator": generator}
    huge, none_shorter = (prepare(CHAIN, GRAPH, clip=clip, **terms) for clip in (1e200, 100.0))
    assert str(huge.plan) == str(none_shorter.plan)


def test_a_monotone_form_for_more_than_two_levels_is_refused_with_the_reason() -> None:
    schema = Schema.from_dict({"a": YES_NO, "b": {"type": "categorical", "levels": YES_NO, "missing": True}})
    with pytest.raises(InputError, match=r"it has 3 \(a missing value counts as one\)"):
        prepared(CausalGraph.from_edges([("a", "b")]), schema, form={"b": "max"})


def test_a_schema_without_any_choice_is_refused() -> None:
    with pytest.raises(InputError, match="single level"):
        prepared(None, Schema.from_dict({"one": ["only"]}))


def test_too_many_sums_are_refused_with_a_way_out() -> None:
    schema = Schema.from_dict({name: [str(level) for level in range(1500)] for name in "ab"})
    with pytest.raises(InputError, match=r"2,250,000 sums|2,247,\d+ sums|State more"):
        prepared(CausalGraph.from_edges([("a", "b")]), schema)


@pytest.mark.parametrize("stated", [True, False], ids=["an arrow", "an open pair"])
def test_a_family_too_large_to_fit_is_refused_before_anything_is_spent(stated: bool) -> None:
    schema = Schema.from_dict({"place": [str(number) for number in range(20_000)], "ill": YES_NO})
    graph = CausalGraph.from_edges([("place", "ill")]) if stated else None
    account = MemoryAccount()
    table = PrivateTable(pl.DataFrame({"place": ["1", "2"], "ill": ["no", "yes"]}), schema, account)
    with pytest.raises(InputError, match="family of 'ill' and 'place' has too many levels"):
        fitted(table, graph)
    assert account.receipts == ()


def test_a_column_of_many_levels_keeps_its_shares() -> None:
    levels = [f"{number:03}" for number in range(200)]
    schema = Schema.from_dict({"ill": YES_NO, "place": levels})
    rng = np.random.default_rng(0)
    ill = rng.random(50_000) < 0.5
    place = np.where(ill, rng.integers(0, 50, ill.size), rng.integers(0, 200, ill.size))
    frame = pl.DataFrame({"ill": np.where(ill, "yes", "no"), "place": [levels[number] for number in place]})
    model = fitted(PrivateTable(frame, schema), CausalGraph.from_edges([("ill", "place")]), epsilon=5.0)
    drawn = model.sample(50_000, seed=0)
    early = (drawn["place"] < "050").to_numpy()
    sick = (drawn["ill"] == "yes").to_numpy()
    assert early[sick].mean() > 0.9
    assert early[~sick].mean() == pytest.approx(0.25, abs=0.05)


def test_a_spent_budget_is_refused_and_nothing_is_spent() -> None:
    small = MemoryAccount(epsilon=0.5, delta=1e-6)
    with pytest.raises(BudgetExceededError):
        fitted(PrivateTable(chain(50), CHAIN, small), GRAPH)
    assert small.receipts == ()


def test_without_a_seed_noise_is_secure_and_the_model_is_for_release() -> None:
    model = fitted(PrivateTable(chain(500), CHAIN), GRAPH, seed=None)
    assert model.guarantee.for_release
    assert isinstance(prepared().sums, GaussianEvent)
