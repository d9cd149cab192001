"""Discovery where causes may be hidden: the search against d-separation, what is claimed, what is refused."""

from __future__ import annotations

import itertools

import numpy as np
import polars as pl
import pytest

import escudo
from escudo.causal import ARROW, CIRCLE, TAIL, AncestralGraph, CausalGraph
from escudo.discovery import AncestralDiscovery, discover, effect_of, prepare, run_prepared
from escudo.discovery._hidden import Known, _consistent, find_marks, judged
from escudo.discovery._pattern import REPEATS
from escudo.errors import GraphError, InputError, NotIdentifiableError
from escudo.privacy import MemoryAccount
from escudo.report import discovery_page, treatment_page
from escudo.synthesis import synthesize
from escudo.table import PrivateTable, Schema

NOTHING = Known({}, frozenset())
HIDDEN = CausalGraph.from_edges([("a", "b"), ("u", "b"), ("u", "c"), ("d", "c"), ("b", "e")], latents=["u"])


def hidden_rows(rows: int, seed: int = 0) -> pl.DataFrame:
    """Rows of a → b ← u → c ← d and b → e, u left out, all yes or no."""
    rng = np.random.default_rng(seed)
    a, u, d, first, second = rng.random((5, rows)) < 0.5
    b, c = (a.astype(int) + u + first >= 2), (d.astype(int) + u + second >= 2)
    e = np.where(rng.random(rows) < 0.8, b, rng.random(rows) < 0.5)
    return pl.DataFrame({name: values.astype(int) for name, values in zip("abcde", (a, b, c, d, e), strict=True)})


SCHEMA = Schema.from_dict({name: [0, 1] for name in "abcde"})


@pytest.fixture(scope="module")
def found() -> AncestralDiscovery:
    table = PrivateTable(hidden_rows(40_000), SCHEMA)
    return discover(table, epsilon=3.0, delta=1e-6, hidden_causes=True, seed=1)


def random_dag(rng: np.random.Generator) -> CausalGraph:
    names = [f"x{number}" for number in range(8)]
    arrows = [pair for pair in itertools.combinations(names, 2) if rng.random() < 0.28]
    return CausalGraph.from_edges(arrows, nodes=names, latents=set(rng.choice(names, 2, replace=False).tolist()))


def test_with_d_separation_for_evidence_the_search_finds_the_partial_ancestral_graph() -> None:
    rng = np.random.default_rng(0)
    for _ in range(25):
        graph = random_dag(rng)
        names = graph.observed

        def dependence(x: int, y: int, given: tuple[int, ...], graph=graph, names=names) -> float:
            return -1.0 if graph.d_separated(names[x], names[y], [names[z] for z in given]) else 1.0

        marks = find_marks(len(names), dependence, NOTHING, most=6, within=None)
        assert AncestralGraph.from_marks(names, marks) == graph.pag()


def test_what_was_not_seen_leaves_circles() -> None:
    # a — b — c without any dependence of a and c, given b or not: neither a chain nor a common effect shows.
    pairs = {(0, 1): 5.0, (1, 2): 5.0, (0, 2): -1.0}
    marks = find_marks(3, lambda x, y, given: pairs[min(x, y), max(x, y)], NOTHING, most=1, within=None)
    assert marks == [[0, CIRCLE, 0], [CIRCLE, 0, CIRCLE], [0, CIRCLE, 0]]


def test_hidden_common_causes_are_found(found: AncestralDiscovery) -> None:
    assert found.graph == HIDDEN.pag()
    assert found.graph.kind("b", "c") == "<->"
    assert min(found.edge_confidence.values()) > 0.9
    assert set(found.mark_confidence) == {("a", "b"), ("c", "b"), ("b", "c"), ("d", "c"), ("e", "b"), ("b", "e")}
    assert found.told[0][0] in {"a o→ b", "b ↔ c", "d o→ c", "b → e"}
    assert "AncestralDiscovery (exact): 5 nodes, 1 arrow, 1 hidden common cause, 2 half open" in repr(found)
    told = found.to_json()
    assert told["hidden_causes"] is True
    assert {edge["kind"] for edge in told["edges"]} == {"->", "<->", "o->"}
    assert found._repr_html_().count("<circle") == 2


def test_it_measures_and_spends_what_discovery_does() -> None:
    frame = hidden_rows(2_000)
    for options in ({}, {"method": "two-stage"}):
        accounts = MemoryAccount(), MemoryAccount()
        plain = discover(PrivateTable(frame, SCHEMA, ledger=accounts[0]), epsilon=1.0, delta=1e-6, seed=2, **options)
        both = discover(
            PrivateTable(frame, SCHEMA, ledger=accounts[1]),
            epsilon=1.0,
            delta=1e-6,
            seed=2,
            hidden_causes=True,
            **options,
        )
        assert str(plain.plan) == str(both.plan)
        assert [one.event for one in accounts[0].receipts] == [one.event for one in accounts[1].receipts]
        assert plain.guarantee == both.guarantee


def test_numbers_are_found_by_their_moments() -> None:
    rng = np.random.default_rng(3)
    rows = 40_000
    a, u, d = rng.normal(size=(3, rows))
    b, c = a + u + rng.normal(size=rows), u + d + rng.normal(size=rows)
    values = {"a": a, "b": b, "c": c, "d": d, "e": b + rng.normal(size=rows)}
    frame = pl.DataFrame({name: np.clip(column, -9, 9) for name, column in values.items()})
    schema = Schema.from_dict({name: {"type": "numeric", "lower": -9, "upper": 9} for name in frame.columns})
    seen = discover(PrivateTable(frame, schema), epsilon=1.0, delta=1e-6, hidden_causes=True, seed=1)
    assert seen.method == "gaussian"
    assert seen.graph == HIDDEN.pag()


def test_too_few_rows_claim_nothing() -> None:
    table = PrivateTable(hidden_rows(60), SCHEMA)
    nothing = discover(table, epsilon=0.1, delta=1e-6, hidden_causes=True, seed=1)
    assert nothing.cannot_tell
    assert not nothing.mark_confidence
    assert {kind for _, kind, _ in nothing.graph.edges} <= {"o-o"}


def test_what_is_known_is_kept() -> None:
    table = PrivateTable(hidden_rows(20_000), SCHEMA)
    known = CausalGraph.from_edges([("a", "b")], nodes=list("abcde"), tiers=[["a", "d"], ["b", "c", "e"]])
    kept = discover(table, epsilon=3.0, delta=1e-6, knowledge=known, hidden_causes=True, seed=1)
    assert kept.graph.kind("a", "b") == "->"
    assert ("b", "a") not in kept.mark_confidence
    assert kept.told[[name for name, _, _ in kept.told].index("a → b")][2] == "a given, b given"
    assert kept.graph.kind("d", "c") in ("o->", "->")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"directions": 0.5}, "as if no cause were hidden"),
        ({"method": "joint"}, "a model without hidden causes"),
        ({"knowledge": CausalGraph.from_edges([], nodes=["a", "b"], forbidden=[("a", "b")])}, "Say it by tiers"),
    ],
)
def test_what_assumes_that_nothing_is_hidden_is_refused(options: dict, said: str) -> None:
    account = MemoryAccount()
    with pytest.raises(InputError, match=said):
        discover(PrivateTable(hidden_rows(500), SCHEMA, ledger=account), epsilon=1.0, hidden_causes=True, **options)
    assert not account.receipts


def test_an_effect_is_estimated_where_nothing_hidden_can_matter_and_refused_elsewhere(
    found: AncestralDiscovery,
) -> None:
    account = MemoryAccount()
    table = PrivateTable(hidden_rows(40_000), SCHEMA, ledger=account)
    for treatment, outcome in (("a", "e"), ("d", "c")):
        with pytest.raises(NotIdentifiableError, match="what the graph leaves open"):
            effect_of(table, treatment, outcome, graph=found.graph, epsilon=1.0)
    with pytest.raises(InputError, match="'e' is no cause of 'b'"):
        effect_of(table, "e", "b", graph=found.graph, epsilon=1.0)
    assert not account.receipts
    effect = effect_of(table, "b", "e", graph=found.graph, epsilon=1.0, seed=1)
    assert effect.adjustment == ()
    assert effect.interval[0] < 0.8 < effect.interval[1]
    assert treatment_page(effect, graph=found.graph).count("<svg") >= 2


def test_no_generator_follows_it(found: AncestralDiscovery) -> None:
    with pytest.raises(GraphError, match="no generator can follow it"):
        synthesize(PrivateTable(hidden_rows(500), SCHEMA), found.graph, epsilon=1.0)


def test_the_page_draws_circles_and_says_what_marks_mean(found: AncestralDiscovery) -> None:
    page = discovery_page(found, dataset="visits")
    assert page.count("<circle") >= 2
    for said in ("Two heads: something hidden acts on both", "b ↔ c", "pag=true", "1 with a hidden common cause"):
        assert said in page
    assert "The denser graph" not in page


def test_prepared_it_is_the_same(found: AncestralDiscovery) -> None:
    prepared = prepare(SCHEMA, epsilon=3.0, delta=1e-6, hidden_causes=True)
    again = run_prepared(prepared, PrivateTable(hidden_rows(40_000), SCHEMA), seed=1)
    assert isinstance(again, AncestralDiscovery)
    assert again.graph == found.graph
    asked = escudo.plan(discover, SCHEMA, epsilon=3.0, delta=1e-6, hidden_causes=True)
    assert str(asked).splitlines() == [*str(prepared.plan).splitlines(), "Reads the rows once."]


@pytest.mark.parametrize(("missed", "kind"), [(0, "->"), (1, "o->")])
def test_a_tail_is_claimed_only_if_it_came_back_every_time(missed: int, kind: str) -> None:
    sure, open_tail = [[0, ARROW], [TAIL, 0]], [[0, ARROW], [CIRCLE, 0]]
    again = [sure] * (REPEATS - missed) + [open_tail] * missed
    found = judged(["cause", "effect"], sure, iter(again), NOTHING)
    assert found.graph.kind("cause", "effect") == kind
    assert (("effect", "cause") in found.mark_confidence) == (missed == 0)


def test_marks_that_cannot_all_be_right_become_circles() -> None:
    rng = np.random.default_rng(7)
    changed = 0
    for _ in range(200):
        marks = [[0] * 5 for _ in range(5)]
        for a, b in itertools.combinations(range(5), 2):
            if rng.random() < 0.7:
                marks[a][b], marks[b][a] = (int(mark) for mark in rng.choice([CIRCLE, ARROW, TAIL], size=2))
        before = [row[:] for row in marks]
        likely = {(a, b): float(rng.random()) for a, b in itertools.permutations(range(5), 2) if marks[a][b] > CIRCLE}
        graph = _consistent("abcde", marks, likely)  # raises if it were none
        changed += before != marks
        for a, b in itertools.permutations(range(5), 2):
            assert marks[a][b] in (before[a][b], CIRCLE) or not before[a][b]
            assert bool(graph.kind("abcde"[a], "abcde"[b])) == bool(before[a][b])
    assert changed > 100


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"edge_confidence": {}}, "each once"),
        ({"mark_confidence": {("b", "a"): 0.5}}, "must name arrows and tails"),
        ({"mark_confidence": {("a", "b"): 1.5}}, "between 0 and 1"),
    ],
)
def test_an_answer_that_contradicts_itself_is_refused(found: AncestralDiscovery, change: dict, said: str) -> None:
    content = {name: getattr(found, name) for name in AncestralDiscovery.__dataclass_fields__}
    with pytest.raises(InputError, match=said):
        AncestralDiscovery(**{**content, **change})
