"""The observed law: it has the tables' sums, and under an intervention nothing travels along what is not an arrow."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from escudo.causal import CausalGraph, Network, asia
from escudo.errors import InputError
from escudo.privacy import Guarantee, Plan, PureEvent
from escudo.synthesis import CausalModel, TableConditional, load, synthesize
from escudo.synthesis import _estimation as observed_module
from escudo.synthesis._estimation import NoisyTable, agreeing, arrange, observed_laws, sums_over
from escudo.synthesis._laws import laws_under
from escudo.table import PrivateTable, Schema

Floats = NDArray[np.float64]
YES_NO = ["no", "yes"]


def joint_of(laws: Mapping[str, Any], names: list[str]) -> Floats:
    """Return the product of laws over binary columns, with axes in the order of ``names``."""
    table = np.ones([2] * len(names))
    for codes in itertools.product((0, 1), repeat=len(names)):
        row = dict(zip(names, codes, strict=True))
        for name, law in laws.items():
            parents = np.array([[row[parent] for parent in law.parents]], dtype=np.int64)
            table[codes] *= law.probabilities(parents.reshape(1, len(law.parents)))[0, row[name]]
    return table


def random_joint(count: int, seed: int) -> Floats:
    return np.random.default_rng(seed).dirichlet(np.full(2**count, 0.7)).reshape([2] * count)


# -- the law


LOOP = [("a", "b"), ("b", "c"), ("c", "d"), ("a", "d")]
SCOPES = {
    "a chain": [("a", "b"), ("b", "c"), ("c", "d")],
    "a loop": LOOP,
    "families and a pair": [("a", "b", "c"), ("b", "d"), ("a", "d")],
    "all pairs": list(itertools.combinations("abcd", 2)),
    "two parts": [("a", "b"), ("c", "d")],
}


@pytest.mark.parametrize("scopes", SCOPES.values(), ids=SCOPES)
def test_the_observed_law_has_the_sums_of_every_table(scopes: list[tuple[str, ...]]) -> None:
    names = tuple("abcd")
    truth = random_joint(4, seed=1) * 1000
    tables = [NoisyTable(scope, sums_over(names, truth, scope), 1.0) for scope in scopes]
    sizes = dict.fromkeys(names, 2)
    given = arrange(sizes, scopes)
    assert given is not None
    laws = observed_laws(sizes, given, agreeing(tables, total=1000.0))
    joint = joint_of(laws, list(names))
    assert joint.sum() == pytest.approx(1.0)
    for table in tables:
        assert sums_over(names, joint, table.columns) * 1000 == pytest.approx(table.counts, abs=0.5)


def test_the_observed_law_is_the_most_even_one() -> None:
    """On a loop of pairs the law with the largest entropy is found by plain fitting of the whole joint table."""
    names = tuple("abcd")
    truth = random_joint(4, seed=3)
    even = np.full([2] * 4, 1 / 16)
    for _ in range(2000):
        for scope in LOOP:
            ratio = sums_over(names, truth, scope) / sums_over(names, even, scope)
            even = even * ratio.reshape([2 if name in scope else 1 for name in names])
    tables = [NoisyTable(scope, sums_over(names, truth, scope) * 1e4, 1.0) for scope in LOOP]
    sizes = dict.fromkeys(names, 2)
    given = arrange(sizes, LOOP)
    assert given is not None
    found = joint_of(observed_laws(sizes, given, agreeing(tables, total=1e4)), list(names))
    assert np.abs(found - even).max() < 1e-3


def test_tables_that_no_law_has_are_met_between_and_margins_stay() -> None:
    """Each two of these agree on what they share: a is b, b is c, and a is hardly ever c where it is 1."""
    alike, unlike = np.diag([900.0, 100.0]), np.array([[800.0, 100.0], [100.0, 0.0]])
    tables = [
        NoisyTable(("a", "b"), alike, 1.0),
        NoisyTable(("b", "c"), alike, 1.0),
        NoisyTable(("a", "c"), unlike, 1.0),
    ]
    given = arrange(dict.fromkeys("abc", 2), [table.columns for table in tables])
    assert given is not None
    joint = joint_of(observed_laws(dict.fromkeys("abc", 2), given, tables), list("abc"))
    for name in "abc":
        assert sums_over(tuple("abc"), joint, (name,)) == pytest.approx([0.9, 0.1], abs=0.002)
    for table in tables:
        apart = np.abs(sums_over(tuple("abc"), joint, table.columns) - table.counts / 1000).sum() / 2
        assert apart < 0.1  # each is missed by 0.2 where the other two hold


def test_what_a_column_is_given_lies_in_one_table_and_comes_before_it() -> None:
    rng = np.random.default_rng(0)
    names = [f"c{i}" for i in range(12)]
    sizes = {name: int(rng.integers(2, 5)) for name in names}
    for _ in range(20):
        scopes = [tuple(rng.choice(names, rng.integers(2, 4), replace=False)) for _ in range(14)]
        given = arrange(sizes, scopes)
        assert given is not None
        seen: list[str] = []
        for name, several in given.items():
            assert set(several) <= set(seen)
            assert not several or set(several) <= {several[-1], *given[several[-1]]}
            seen.append(name)
        assert set(seen) == set(names)
        cliques = [{name, *several} for name, several in given.items()]
        assert all(any(set(scope) <= clique for clique in cliques) for scope in scopes)


def test_a_chain_of_more_columns_than_calls_may_nest_has_its_law() -> None:
    names = [f"x{number}" for number in range(1200)]
    sizes = dict.fromkeys(names, 2)
    pair = np.array([[30.0, 10.0], [10.0, 50.0]])
    chain = [NoisyTable((a, b), pair, 1.0) for a, b in itertools.pairwise(names)]
    given = arrange(sizes, [table.columns for table in chain])
    assert given is not None
    laws = observed_laws(sizes, given, chain)
    assert list(laws) == list(given)
    for name, law in laws.items():
        expected = pair / pair.sum(axis=1, keepdims=True) if given[name] else pair.sum(axis=1) / 100
        np.testing.assert_allclose(
            law.probabilities(np.array([[1]]) if given[name] else np.zeros((1, 0), int))[0],
            expected[1] if given[name] else expected,
            atol=1e-3,
        )


def test_too_large_a_tree_is_no_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = dict.fromkeys("abcd", 10)
    scopes = list(itertools.combinations("abcd", 2))
    assert arrange(sizes, scopes) is not None
    monkeypatch.setattr(observed_module, "_MAX_CELLS", 9999)
    assert arrange(sizes, scopes) is None
    assert arrange(sizes, scopes[:3]) is not None


# -- interventions


def model_of(names: str, causal: Mapping[str, Any], observed: Mapping[str, Any] | None = None) -> CausalModel:
    return CausalModel(
        schema=Schema.from_dict({name: YES_NO for name in names}),
        graph=CausalGraph.from_edges([(p, n) for n, law in causal.items() for p in law.parents], nodes=tuple(names)),
        conditionals=causal,
        observed=observed or {},
        guarantee=Guarantee(epsilon=1.0),
        generator="marginals",
        plan=Plan("marginals", PureEvent(epsilon=1.0)),
    )


def conditioned(joint: Floats, names: str, child: str, parents: str) -> TableConditional:
    """Return the law of a column given others under a joint law."""
    table = sums_over(tuple(names), joint, (*parents, child))
    return TableConditional(tuple(parents), table / table.sum(axis=-1, keepdims=True))


@pytest.fixture
def confounded() -> tuple[CausalModel, Floats]:
    """z and x have a hidden common cause, z -> y <- x, y -> w; and w goes with z for a reason nobody states.

    The stated graph knows the arrows only. Also returned is the observed joint law, over z, x, y, w.
    """
    joint = random_joint(4, seed=7)
    causal = {
        "z": conditioned(joint, "zxyw", "z", ""),
        "x": conditioned(joint, "zxyw", "x", ""),
        "y": conditioned(joint, "zxyw", "y", "zx"),
        "w": conditioned(joint, "zxyw", "w", "y"),
    }
    backwards = {  # along an order that no arrow has
        "w": conditioned(joint, "zxyw", "w", ""),
        "y": conditioned(joint, "zxyw", "y", "w"),
        "x": conditioned(joint, "zxyw", "x", "wy"),
        "z": conditioned(joint, "zxyw", "z", "wyx"),
    }
    return model_of("zxyw", causal, backwards), joint


def test_without_an_intervention_rows_follow_the_observed_law(confounded: tuple[CausalModel, Floats]) -> None:
    model, joint = confounded
    assert model.probability(["z", "x", "y", "w"]) == pytest.approx(joint)
    codes = model.codes(50_000, seed=1)
    drawn = np.zeros_like(joint)
    np.add.at(drawn, tuple(codes.T), 1 / len(codes))
    assert np.abs(drawn - joint).max() < 0.003
    given = model.probability(["z"], given={"w": "yes"})
    right = joint[..., 1].sum(axis=(1, 2))
    assert given == pytest.approx(right / right.sum())


@pytest.mark.parametrize("cause", list("zxyw"))
def test_what_is_no_effect_keeps_its_law_and_effects_follow_the_arrows(
    confounded: tuple[CausalModel, Floats], cause: str
) -> None:
    model, joint = confounded
    names = "zxyw"
    effects = {"z": "yw", "x": "yw", "y": "w", "w": ""}[cause]
    kept = [name for name in names if name != cause and name not in effects]
    expected = np.zeros([2] * 4)
    for row in itertools.product((0, 1), repeat=4):
        cell = dict(zip(names, row, strict=True))
        if cell[cause] != 1:
            continue
        weight = float(sums_over(tuple(names), joint, tuple(kept))[tuple(cell[name] for name in kept)])
        for name in effects:
            law = model.conditionals[name]
            parents = np.array([[cell[parent] for parent in law.parents]])
            weight *= law.probabilities(parents)[0, cell[name]]
        expected[row] = weight
    found = model.probability(list(names), do={cause: "yes"})
    assert found == pytest.approx(expected)
    codes = model.codes(50_000, do={cause: "yes"}, seed=2)
    assert codes.shape == (50_000, 4)
    drawn = np.zeros_like(expected)
    np.add.at(drawn, tuple(codes.T), 1 / len(codes))
    assert np.abs(drawn - expected).max() < 0.006
    assert model.sample(10, do={cause: "yes"}, seed=0).columns == list(names)


def test_conditions_hold_in_the_world_of_the_intervention(confounded: tuple[CausalModel, Floats]) -> None:
    model, _ = confounded
    both = model.probability(["z", "w"], do={"x": "yes"})
    assert model.probability(["z"], do={"x": "yes"}, given={"w": "no"}) == pytest.approx(both[:, 0] / both[:, 0].sum())
    codes = model.codes(50_000, do={"x": "yes"}, given={"w": "no"}, seed=0)
    assert (codes[:, 1] == 1).all()
    assert (codes[:, 3] == 0).all()
    assert codes[:, 0].mean() == pytest.approx(float(both[1, 0] / both[:, 0].sum()), abs=0.01)


def test_where_the_stated_graph_holds_both_laws_answer_alike(clinic: Network, clinic_model: CausalModel) -> None:
    """Observed laws that are those of the network, backwards: every intervention has the true network's answer."""
    names = list(clinic.nodes)
    joint = clinic_model.probability(names)
    observed = {
        name: TableConditional(tuple(names[place + 1 :]), _safe(joint, place)) for place, name in enumerate(names)
    }
    both = CausalModel(
        schema=clinic_model.schema,
        graph=clinic.graph,
        conditionals=clinic_model.conditionals,
        observed=observed,
        guarantee=clinic_model.guarantee,
        generator="marginals",
        plan=clinic_model.plan,
    )
    for cause in names:
        for effect in names:
            if effect != cause:
                do = {cause: "yes"}
                right = clinic_model.probability([effect], do=do)
                assert both.probability([effect], do=do) == pytest.approx(right, abs=1e-9)


def _safe(joint: Floats, place: int) -> Floats:
    """Return the law of the column at ``place`` given all after it; even where those never happen together."""
    table = np.moveaxis(joint.sum(axis=tuple(range(place))), 0, -1)
    total = table.sum(axis=-1, keepdims=True)
    return np.where(total > 0, table / np.where(total > 0, total, 1.0), 0.5)


def test_other_names_for_what_would_have_been_never_meet_a_column() -> None:
    fair = np.array([0.5, 0.5])
    same = np.array([[0.9, 0.1], [0.1, 0.9]])
    causal = {"x": TableConditional((), fair), "x′": TableConditional((), fair), "n": TableConditional((), fair)}
    observed = {
        "x": TableConditional((), fair),
        "x′": TableConditional(("x",), same),
        "n": TableConditional(("x",), same),
    }
    laws = laws_under(causal, observed, ["x"])
    assert len(laws) == 4
    assert set(causal) < set(laws)


# -- as a model


def test_an_intervention_draws_its_effects_in_the_order_of_the_columns() -> None:
    """Not in that of a set, which another process has in another order: a seed would not repeat anything there."""
    effects = [f"effect {number}" for number in range(12)]
    root, law = TableConditional((), np.array([0.5, 0.5])), TableConditional(("cause",), np.full((2, 2), 0.5))
    laws = {"other": root, "cause": root, **dict.fromkeys(effects, law)}
    assert list(laws_under(laws, laws, {"cause"})) == ["other", "cause", *effects]


def test_an_observed_law_that_does_not_fit_is_refused(confounded: tuple[CausalModel, Floats]) -> None:
    model, _ = confounded
    with pytest.raises(InputError, match="no law for column 'y'"):
        model_of("zxyw", model.conditionals, {name: model.observed[name] for name in "zxw"})
    wrong = {**model.observed, "w": TableConditional((), np.array([0.2, 0.3, 0.5]))}
    with pytest.raises(InputError, match="no law for column 'w'"):
        model_of("zxyw", model.conditionals, wrong)


def test_a_saved_model_keeps_both_laws(confounded: tuple[CausalModel, Floats], tmp_path: Any) -> None:
    model, joint = confounded
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert isinstance(again, CausalModel)
    assert again.probability(list("zxyw")) == pytest.approx(joint)
    assert again.probability(["w"], do={"x": "no"}) == pytest.approx(model.probability(["w"], do={"x": "no"}))
    assert again.sample(100, seed=3).equals(model.sample(100, seed=3))


def test_parents_that_go_together_keep_doing_so_in_the_rows() -> None:
    """The graph calls two parents unrelated; their family's table knows better, and the rows show it at no cost."""
    rng = np.random.default_rng(0)
    hidden = rng.random(20_000) < 0.5
    columns = {name: np.where(hidden ^ (rng.random(20_000) < 0.1), "yes", "no") for name in "ab"}
    both = (columns["a"] == "yes") & (columns["b"] == "yes")
    columns["c"] = np.where(both ^ (rng.random(20_000) < 0.05), "yes", "no")
    schema = Schema.from_dict({name: YES_NO for name in "abc"})
    graph = CausalGraph.from_edges([("a", "c"), ("b", "c")])
    model = synthesize(PrivateTable(pl.DataFrame(columns), schema), graph, epsilon=1.0, delta=1e-6, seed=1)
    drawn = model.sample(20_000, seed=0)
    assert (drawn["a"] == drawn["b"]).mean() == pytest.approx(0.82, abs=0.02)
    set_to = model.sample(20_000, do={"a": "yes"}, seed=0)
    assert (set_to["b"] == "yes").mean() == pytest.approx(0.5, abs=0.02)  # b is no effect of a
    assert (set_to["c"] == "yes").mean() == pytest.approx(0.5, abs=0.03)


def test_asia_keeps_its_interventions_with_an_observed_law(clinic: Network) -> None:
    network = asia()
    schema = Schema.from_dict({name: list(levels) for name, levels in network.levels.items()})
    frame = network.sample_frame(50_000, rng=np.random.default_rng(1))
    model = synthesize(PrivateTable(frame, schema), network.graph, epsilon=3.0, delta=1e-6, seed=1)
    assert isinstance(model, CausalModel)
    assert model.observed
    free = model.probability(["lung"])
    assert model.probability(["lung"], do={"either": "yes", "tub": "yes"}) == pytest.approx(free)
