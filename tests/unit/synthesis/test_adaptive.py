"""What ``marginals`` looks for: no more than the plan shows is spent, and dependence nobody stated comes back."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

from escudo.causal import CausalGraph
from escudo.errors import InputError
from escudo.mechanisms import Purse
from escudo.privacy import ExponentialEvent, GaussianEvent, guarantee_of
from escudo.privacy._totals import leaves
from escudo.synthesis import CausalModel, _adaptive, _estimation, _laws, fit, prepare, synthesize
from escudo.synthesis._adaptive import average_repeats, candidate_tables
from escudo.synthesis._estimation import NoisyTable, Room, TableFits, arrange
from escudo.table import PrivateTable, Schema

YES_NO = ["no", "yes"]
NAMES = "abcdef"
SCHEMA = Schema.from_dict({name: YES_NO for name in NAMES})
GRAPH = CausalGraph.from_edges([("a", "b"), ("b", "c"), ("d", "e"), ("e", "f")])
BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}


def frame(rows: int = 20_000) -> pl.DataFrame:
    """Return two chains as the graph says, and a hidden cause of a and f that it does not know."""
    rng = np.random.default_rng(0)

    def copied(column: Any, share: float = 0.15) -> Any:
        return column ^ (rng.random(rows) < share)

    hidden = rng.random(rows) < 0.5
    a, d = copied(hidden, 0.05), rng.random(rows) < 0.3
    b, e = copied(a), copied(d)
    columns = {"a": a, "b": b, "c": copied(b), "d": d, "e": e, "f": copied(hidden, 0.05)}
    return pl.DataFrame({name: np.where(column, "yes", "no") for name, column in columns.items()})


def fitted(**options: Any) -> CausalModel:
    model = synthesize(PrivateTable(frame(), SCHEMA), GRAPH, seed=1, **{**BUDGET, **options})
    assert isinstance(model, CausalModel)
    return model


def planned_and_spent(prepared: Any, spy: Any, rows: int = 500) -> tuple[Counter[Any], Counter[Any]]:
    """Return how often the plan shows each event, and how often a run spent it."""
    prepared.run(
        PrivateTable(frame(rows), SCHEMA),
        Purse(spy, np.random.default_rng(0), plan=prepared.plan, guarantee=prepared.plan.guarantee()),
    )
    return Counter(dict(leaves(prepared.plan.event))), Counter(spy.events)


@pytest.mark.parametrize("relation", ["replace_one", "add_remove"])
@pytest.mark.parametrize("edges", ["full", "none"])
@pytest.mark.parametrize("rows", [60, 20_000])
def test_no_more_is_spent_than_the_plan_shows_and_all_noise_that_was_paid_for_is_used(
    relation: str, edges: str, rows: int, spy: Any
) -> None:
    prepared = prepare(SCHEMA, GRAPH if edges == "full" else None, relation=relation, **BUDGET)
    planned, spent = planned_and_spent(prepared, spy, rows)
    assert spent <= planned
    assert all(isinstance(event, ExponentialEvent) for event in planned - spent)
    picks = sum(count for event, count in spent.items() if isinstance(event, ExponentialEvent))
    assert (picks == 0) == (rows == 60 and relation == "replace_one")  # there, columns need all there is
    everything = [event for event, count in planned.items() for _ in range(count)]
    assert guarantee_of(everything, delta=1e-6).epsilon == pytest.approx(1.0, rel=2e-3)


def test_the_plan_does_not_depend_on_the_rows(spy: Any) -> None:
    """What rows decide is which tables are measured: events, their number and order of magnitude are settled before."""
    plans = [prepare(SCHEMA, None, relation="add_remove", **BUDGET).plan for _ in range(2)]
    assert plans[0] == plans[1]
    told = prepare(SCHEMA, None, relation="add_remove", public_rows=20_000, **BUDGET).plan
    assert told == plans[0]


def test_dependence_nobody_stated_comes_back_in_the_rows() -> None:
    true, drawn = frame(), fitted().sample(20_000, seed=0)
    apart = (true["a"] == true["f"]).mean()
    assert apart == pytest.approx(0.9, abs=0.02)
    assert (drawn["a"] == drawn["f"]).mean() == pytest.approx(apart, abs=0.03)
    assert (drawn["b"] == drawn["c"]).mean() == pytest.approx(0.85, abs=0.02)


def test_without_a_graph_all_dependence_is_found() -> None:
    model = synthesize(PrivateTable(frame(), SCHEMA), None, seed=1, **BUDGET)
    true, drawn = frame(), model.sample(20_000, seed=0)
    for first, second in [("a", "b"), ("b", "c"), ("d", "e"), ("e", "f"), ("a", "f"), ("a", "d")]:
        assert (drawn[first] == drawn[second]).mean() == pytest.approx((true[first] == true[second]).mean(), abs=0.03)


def test_where_rows_are_few_next_to_nothing_is_made_up() -> None:
    """At a small n·ε the rows of independent columns stay about independent."""
    rng = np.random.default_rng(0)
    data = pl.DataFrame({name: np.where(rng.random(1000) < 0.3, "yes", "no") for name in NAMES})
    model = synthesize(PrivateTable(data, SCHEMA), None, seed=1, epsilon=1.0, delta=1e-6)
    law = model.probability(["a", "b"])
    assert abs(law - np.outer(law.sum(axis=1), law.sum(axis=0))).sum() < 0.2


def test_where_columns_are_hardly_known_nothing_else_is_measured() -> None:
    """Columns of two levels in 20,000 rows are known at ε = 0.1 where a person has one of these, not where 200."""
    for most in (1, 200):
        schema = Schema.from_dict({name: YES_NO for name in NAMES}, person_id="who", max_rows_per_person=most)
        data = frame().with_columns(who=pl.int_range(pl.len()) // most)
        model = synthesize(PrivateTable(data, schema), None, seed=1, epsilon=0.1, delta=1e-6)
        measured = [each["columns"] for each in model.details["tables"]]
        assert [name for name in NAMES if [name] in measured] == list(NAMES)
        assert any(len(columns) > 1 for columns in measured) == (most == 1)


@pytest.mark.parametrize("edges", [[], [("place", "a")]])
@pytest.mark.parametrize("epsilon", [1.0, 3.0])
def test_a_column_that_cannot_be_learnt_does_not_keep_others_from_being_learnt(
    epsilon: float, edges: list[tuple[str, str]]
) -> None:
    """A place of 800 levels has two rows for each; pairs of the others are measured, and of it what is stated."""
    rng = np.random.default_rng(0)
    place, kind = rng.integers(0, 800, 1_600), rng.integers(0, 3, 800)
    columns = {name: (kind[place] + (rng.random(1_600) < 0.1)) % 3 for name in NAMES} | {"place": place}
    schema = Schema.from_dict(
        {name: [str(level) for level in range(800 if name == "place" else 3)] for name in columns}
    )
    table = PrivateTable(pl.DataFrame(columns).cast(pl.String), schema, relation="add_remove")
    graph = CausalGraph.from_edges(edges, list(schema.names)) if edges else None
    model = synthesize(table, graph, seed=1, epsilon=epsilon, delta=1e-6)
    several = [set(each["columns"]) for each in model.details["tables"] if len(each["columns"]) > 1]
    assert [columns for columns in several if "place" in columns] == [set(edge) for edge in edges]
    assert len(several) >= 5 + len(edges)


@pytest.mark.parametrize("ordered", [False, True])
def test_of_a_column_of_many_levels_that_is_known_pairs_are_measured(ordered: bool) -> None:
    """Of 400 levels 20 have nearly all of the rows; or all have ten rows each, and neighbours are counted together."""
    rng = np.random.default_rng(0)
    common = rng.random(4_000) < (0.0 if ordered else 0.95)
    place = np.where(common, rng.integers(0, 20, 4_000), rng.integers(0, 400, 4_000))
    columns = {name: (place // 134 if ordered else place % 3) for name in NAMES}
    levels = [str(level) for level in range(400)]
    spec = {"type": "ordinal" if ordered else "categorical", "levels": levels}
    schema = Schema.from_dict({**{name: levels[:3] for name in NAMES}, "place": spec})
    table = PrivateTable(pl.DataFrame(columns | {"place": place}).cast(pl.String), schema, relation="add_remove")
    measured = synthesize(table, None, seed=1, **BUDGET).details["tables"]
    assert any("place" in each["columns"] for each in measured if len(each["columns"]) > 1)


def test_small_shares_come_out_right_on_average(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over fifty releases the mean share of every level is within a quarter of the noise stated for a cell."""
    monkeypatch.setattr(_adaptive, "_SIMULATED", 2**12)
    rng = np.random.default_rng(0)
    laws = {
        "ill": [0.951, 0.048, 0.001],
        "age": [0.125] * 8,
        "town": [0.3, 0.3, 0.2, 0.1, 0.05, 0.03, 0.015, 0.005],
        "job": [0.5, 0.2, 0.1, 0.1, 0.05, 0.03, 0.015, 0.005],
    }
    schema = Schema.from_dict({name: [str(level) for level in range(len(law))] for name, law in laws.items()})
    data = pl.DataFrame({name: rng.choice(len(law), 3000, p=law) for name, law in laws.items()}).cast(pl.String)
    table = PrivateTable(data, schema, relation="add_remove")
    prepared = prepare(schema, None, relation="add_remove", epsilon=0.5, delta=1e-6)
    models = [fit(prepared, table, seed=seed) for seed in range(50)]
    stated = {leaf.name: leaf.once.scale / 3000 for leaf in prepared.plan.children[0].leaves()}
    for name in laws:
        truth = np.array([(data[name] == level).mean() for level in schema[name].levels])
        mean = np.mean([model.probability([name]) for model in models], axis=0)
        assert np.abs(mean - truth).max() < 0.25 * stated[name], name


def test_what_was_picked_is_never_an_arrow_and_no_intervention_travels_along_it() -> None:
    model = fitted()
    assert set(model.graph.edges) == set(GRAPH.edges)
    free = model.probability(["f"])
    assert model.probability(["f"], do={"a": "yes"}) == pytest.approx(free, abs=1e-6)
    assert abs(model.probability(["f"], given={"a": "yes"}) - free).max() > 0.2
    assert model.probability(["b"], do={"a": "yes"})[1] == pytest.approx(0.85, abs=0.03)


def test_the_plan_says_what_may_be_bought() -> None:
    text = str(prepare(SCHEMA, GRAPH, **BUDGET).plan)
    assert "pick a table the model gets wrong" in text
    assert "units of noise for picked tables" in text


def test_where_no_pair_is_left_nothing_is_picked() -> None:
    schema = Schema.from_dict({name: YES_NO for name in "abc"})
    graph = CausalGraph.from_edges([("a", "c"), ("b", "c")])
    assert "pick" not in str(prepare(schema, graph, **BUDGET).plan)
    three = prepare(schema, None, **BUDGET).plan  # all pairs of three columns are measured at once
    assert "pick" not in str(three)
    assert [leaf.name for leaf in three.leaves()] == ["a", "b", "c", "a, b", "a, c", "b, c"]


def test_a_true_graph_loses_little_by_what_is_looked_for() -> None:
    schema = Schema.from_dict({name: YES_NO for name in "abcde"})
    graph = CausalGraph.from_edges([("a", "b"), ("b", "c"), ("d", "e")])
    table = PrivateTable(frame().select("a", "b", "c", "d", "e"), schema)
    drawn = synthesize(table, graph, seed=1, **BUDGET).sample(20_000, seed=0)
    assert (drawn["a"] == drawn["b"]).mean() == pytest.approx(0.85, abs=0.02)
    assert (drawn["a"] == drawn["d"]).mean() == pytest.approx((frame()["a"] == frame()["d"]).mean(), abs=0.02)


def test_beside_large_families_open_arrows_are_looked_for_and_nothing_else() -> None:
    names = [f"p{i:02}" for i in range(16)]
    schema = Schema.from_dict({name: [0, 1] for name in [*names, "child", "apart"]})
    rng = np.random.default_rng(0)
    codes = (rng.random((4000, 18)) < 0.4).astype(int)
    codes[:, 17] = codes[:, 3] ^ (rng.random(4000) < 0.1)
    graph = CausalGraph.from_edges([(name, "child") for name in names])
    table = PrivateTable(pl.DataFrame(codes, schema=schema.names), schema)
    model = synthesize(table, graph, seed=1, **BUDGET)
    assert isinstance(model, CausalModel)
    assert not model.observed
    assert model.graph.parents("apart") == ("p03",)
    assert model.sample(100, seed=0).height == 100
    without = Schema.from_dict({name: [0, 1] for name in [*names, "child"]})
    assert "pick" not in str(prepare(without, graph, **BUDGET).plan)


def test_where_the_observed_law_is_full_what_is_held_is_measured_again(
    monkeypatch: pytest.MonkeyPatch, spy: Any
) -> None:
    monkeypatch.setattr(_estimation, "_MAX_TOTAL", 30)  # the two chains have 20 cells, and with a pair 24 at least
    prepared = prepare(SCHEMA, GRAPH, **BUDGET)
    planned, spent = planned_and_spent(prepared, spy, 20_000)
    assert spent <= planned
    assert not any(isinstance(event, GaussianEvent) for event in planned - spent)


def test_where_the_graph_itself_is_too_much_for_the_observed_law_rows_follow_its_arrows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_estimation, "_MAX_TOTAL", 10)
    model = fitted()
    assert not model.observed
    assert (model.sample(20_000, seed=0)["a"] == model.sample(20_000, seed=0)["b"]).mean() > 0.8


@pytest.mark.parametrize("left_out", ["nothing", "f"])
def test_where_rows_follow_the_arrows_what_has_no_room_is_not_counted_and_nothing_changes(
    left_out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_estimation, "_MAX_TOTAL", 10)
    graph = CausalGraph.from_edges([edge for edge in GRAPH.edges if left_out not in edge])
    prepared = prepare(SCHEMA, graph, **BUDGET)
    shares, every = prepared.shares, candidate_tables(SCHEMA, list(prepared.shares.families))
    kept = {*shares.families, *((name, left_out) for name in NAMES)}
    assert len(shares.candidates) == (8 if left_out == "f" else 4) < len(every) == 15
    assert set(shares.candidates) == kept & set(every)
    counted: list[int] = []
    real = PrivateTable.counts
    monkeypatch.setattr(PrivateTable, "counts", lambda self, asked: counted.append(len(asked)) or real(self, asked))
    models = [
        replace(prepared, shares=replace(shares, candidates=tuple(candidates))).run(
            PrivateTable(frame(), SCHEMA), Purse(None, 1, plan=prepared.plan, guarantee=prepared.plan.guarantee())
        )
        for candidates in (shares.candidates, every)
    ]
    assert counted[0] < counted[1]
    assert models[0].sample(500, seed=0).equals(models[1].sample(500, seed=0))
    assert models[0].details == models[1].details


def test_where_room_is_seen_at_once_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeing it is quick: a pair may be missed, but what arranging everything anew refuses is hardly ever offered."""
    monkeypatch.setattr(_estimation, "_MAX_CELLS", 60)
    monkeypatch.setattr(_estimation, "_MAX_TOTAL", 200)
    names = list("abcdefgh")
    every = [(a, b) for place, a in enumerate(names) for b in names[place + 1 :]]
    seen, wrong, missed, refused = 0, 0, 0, 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        sizes = {name: int(rng.integers(2, 5)) for name in names}
        pairs: list[Any] = []
        for number in rng.permutation(len(every))[:12]:
            if arrange(sizes, [*pairs, every[number]]) is not None:
                pairs.append(every[number])
        fits = TableFits(sizes, dict.fromkeys(names, ()), [(name,) for name in names], 100)
        quick, thorough = (Room(fits, pairs, exactly=exactly) for exactly in (False, True))
        for pair in every:
            fitting = fits.given([*pairs, pair]) is not None
            seen, wrong = seen + quick.holds(pair), wrong + (quick.holds(pair) and not fitting)
            missed, refused = missed + (fitting and not quick.holds(pair)), refused + (not thorough.holds(pair))
            assert thorough.holds(pair) >= fitting
    assert wrong <= 0.01 * seen
    assert missed <= 0.2 * seen
    assert refused > 100


def test_too_many_levels_are_refused_with_a_way_out() -> None:
    schema = Schema.from_dict({f"c{i}": [str(level) for level in range(700)] for i in range(10)})
    with pytest.raises(InputError, match=r"7,000 levels.*fewer levels or bins"):
        prepare(schema, None, **BUDGET)


def test_repair_is_deprecated_and_still_true_or_false() -> None:
    with pytest.raises(InputError, match="repair must be true or false"):
        prepare(SCHEMA, GRAPH, repair="maybe", **BUDGET)
    with pytest.warns(DeprecationWarning, match="repair"):
        old = prepare(SCHEMA, GRAPH, repair=True, **BUDGET)
    assert old.plan == prepare(SCHEMA, GRAPH, **BUDGET).plan


def test_candidates_are_larger_tables_and_the_pairs_in_none_of_them() -> None:
    schema = Schema.from_dict({"a": YES_NO, "b": YES_NO, "one": ["x"], "c": YES_NO, "d": YES_NO})
    assert candidate_tables(schema, [("b", "a"), ("c",)])[:2] == [("b", "a"), ("a", "c")]
    assert candidate_tables(schema, [("a", "b", "c")]) == [("a", "d"), ("b", "d"), ("c", "d"), ("a", "b", "c")]


def test_two_releases_of_a_table_are_averaged_by_their_precision() -> None:
    tables = [NoisyTable(("a",), np.array([10.0, 0.0]), 1.0), NoisyTable(("a",), np.array([0.0, 10.0]), 2.0)]
    (one,) = average_repeats(tables)
    assert one.counts.tolist() == pytest.approx([8.0, 2.0])
    assert one.scale == pytest.approx((1 + 1 / 4) ** -0.5)


def test_how_two_columns_act_together_on_a_third_comes_back_where_rows_are_many() -> None:
    """c is likely where either a or b is there, and not where both are: pairs cannot say that."""
    rng = np.random.default_rng(0)
    a, b, e = (rng.random(40_000) < 0.5 for _ in range(3))
    c = rng.random(40_000) < np.array([[0.1, 0.9], [0.9, 0.5]])[a.astype(int), b.astype(int)]
    d = a ^ (rng.random(40_000) < 0.1)
    columns = dict(zip("abcde", (a, b, c, d, e), strict=True))
    data = pl.DataFrame({name: np.where(column, "yes", "no") for name, column in columns.items()})
    schema = Schema.from_dict({name: YES_NO for name in columns})
    model = synthesize(PrivateTable(data, schema), None, seed=1, epsilon=3.0, delta=1e-6)
    cells = a * 4 + b * 2 + c
    true = np.bincount(cells, minlength=8) / a.size
    found = model.probability(["a", "b", "c"]).ravel()
    most_even = 0.5 * np.abs(_only_pairs(true) - true).sum()
    assert most_even > 0.05
    assert 0.5 * np.abs(found - true).sum() < most_even / 4


def _only_pairs(law: Any) -> Any:
    """Return the most even law of three columns with the pairs of this one."""
    cube, even = law.reshape(2, 2, 2), np.full((2, 2, 2), 1 / 8)
    for _ in range(200):
        for axis in range(3):
            even = even * (cube.sum(axis=axis, keepdims=True) / even.sum(axis=axis, keepdims=True))
    return even.ravel()


def test_triples_are_looked_for_only_where_rows_are_many_and_pairs_were_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    offered: list[tuple[str, ...]] = []
    seen = _adaptive._Run.triples

    def triples(self: Any) -> Any:
        found = seen(self)
        offered.extend(found)
        assert all(set(pair) <= set(each) for each in found for pair in [each[:2], each[1:]])
        measured = {frozenset(each) for each in self.tables if len(each) == 2}
        assert all(frozenset(pair) in measured for each in found for pair in itertools.combinations(each, 2))
        return found

    monkeypatch.setattr(_adaptive._Run, "triples", triples)
    synthesize(PrivateTable(frame(1000), SCHEMA), None, seed=1, epsilon=0.1, delta=1e-6)
    assert not offered
    synthesize(PrivateTable(frame(), SCHEMA), None, seed=1, epsilon=3.0, delta=1e-6)
    assert offered


def _two_causes(rows: int) -> pl.DataFrame:
    """Return two unrelated causes, which act on c most where both are there, and three columns more."""
    rng = np.random.default_rng(3)
    a, b, d = (rng.random(rows) < share for share in (0.5, 0.5, 0.3))
    c = rng.random(rows) < np.array([[0.1, 0.2], [0.2, 0.9]])[a.astype(int), b.astype(int)]
    e, f = d ^ (rng.random(rows) < 0.2), rng.random(rows) < 0.4
    columns = dict(zip(NAMES, (a, b, c, d, e, f), strict=True))
    return pl.DataFrame({name: np.where(column, "yes", "no") for name, column in columns.items()})


@pytest.mark.parametrize(("relation", "graph"), [("add_remove", None), ("add_remove", GRAPH), ("replace_one", None)])
def test_where_nobody_says_what_acts_together_two_measured_pairs_are_enough_for_a_triple(
    relation: Any, graph: CausalGraph | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its third pair is then measured with it. Beside a graph, and where whole tables are released, all are needed."""
    open_triples, runs, seen = set[tuple[str, ...]](), list[Any](), _adaptive._Run.triples

    def triples(self: Any) -> Any:
        found = seen(self)
        open_triples.update(each for each in found if self.missing(each))
        runs.append(self)
        return found

    monkeypatch.setattr(_adaptive._Run, "triples", triples)
    table = PrivateTable(_two_causes(20_000), SCHEMA, relation=relation)
    synthesize(table, graph, seed=1, epsilon=3.0, delta=1e-6)
    assert bool(open_triples) == (relation == "add_remove" and graph is None)
    measured = {frozenset(each) for each in runs[-1].tables}
    triples_measured = [each for each in runs[-1].picked if len(each) == 3]
    pairs = [frozenset(pair) for each in triples_measured for pair in itertools.combinations(each, 2)]
    assert measured.issuperset(pairs)
    assert len(set(map(frozenset, runs[-1].picked))) == len(runs[-1].picked)


def test_what_a_triple_cannot_take_away_counts_against_it() -> None:
    """Noise of its columns and pairs stays when it is measured; pairs score as they do by themselves."""
    rng = np.random.default_rng(0)
    sizes = dict.fromkeys("abc", 2)
    laws: Any = {name: _laws.TableConditional((), np.array([0.5, 0.5])) for name in sizes}
    exact = {columns: rng.integers(100, 900, [2] * len(columns)) for columns in [("a", "b"), ("a", "b", "c")]}
    fits = TableFits(sizes, {}, [], 4000)
    noise, gain = np.full(2, 10.0), np.ones(2)
    scored = [
        _adaptive.scores(laws, exact, noise, gain, fits, dict.fromkeys(_adaptive.smaller_than(("a", "b", "c")), scale))
        for scale in (0.0, 10.0, 20.0)
    ]
    assert [pair for pair, _ in scored] == pytest.approx([scored[0][0]] * 3)
    # Of 8 cells √⅛ of the noise, of four pairs' cells a half, of two columns' √½: each less than a cell holds.
    errors = [
        (8 * 10 * 8**-0.5) ** 2 + 3 * (4 * scale / 2) ** 2 + 3 * (2 * scale * 2**-0.5) ** 2 for scale in (0, 10, 20)
    ]
    apart = scored[0][1] + np.sqrt(2 / np.pi * errors[0])
    assert [triple for _, triple in scored] == pytest.approx([apart - np.sqrt(2 / np.pi * error) for error in errors])


def test_a_number_of_rows_that_is_loud_is_measured_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nearly all rows are at one level of each column: what is wrong of it is wrong of every column."""
    rng = np.random.default_rng(0)
    names = [f"x{place}" for place in range(12)]
    schema = Schema.from_dict(dict.fromkeys(names, YES_NO))
    rare = pl.DataFrame({name: np.where(rng.random(1500) < 0.04, "yes", "no") for name in names})

    def missed() -> float:
        table = PrivateTable(rare, schema, relation="add_remove")
        models = [synthesize(table, None, epsilon=0.2, delta=1e-6, seed=seed) for seed in range(12)]
        return float(np.sqrt(np.mean([(model.details["rows"] - 1500) ** 2 for model in models])))

    with_units, first = missed(), _adaptive.columns_first
    monkeypatch.setattr(_adaptive, "columns_first", lambda *args, off=0.0, **named: first(*args, **named))
    assert with_units < 0.8 * missed()
