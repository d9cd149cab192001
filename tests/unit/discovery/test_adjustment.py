"""Adjustment sets: valid by brute force, smallest of all valid ones, and refusals that name the path."""

from __future__ import annotations

from itertools import chain, combinations

import numpy as np
import pytest

from escudo.causal import CausalGraph
from escudo.discovery._effect_of import check_adjustment, open_path, smallest_adjustment
from escudo.errors import GraphError, InputError, NotIdentifiableError

CONFOUNDED = [("age", "smoke"), ("age", "lung"), ("smoke", "tar"), ("tar", "lung"), ("lung", "xray")]


def sizes(graph: CausalGraph, **others: int) -> dict[str, int]:
    return {name: others.get(name, 2) for name in graph.nodes if name not in graph.latents}


def subsets(names: list[str]) -> list[tuple[str, ...]]:
    return list(chain.from_iterable(combinations(names, size) for size in range(len(names) + 1)))


def truly_valid(graph: CausalGraph, treatment: str, outcome: str, given: tuple[str, ...]) -> bool:
    """The adjustment criterion word by word: every causal path intact, every other path blocked."""
    causal = {n for n in graph.descendants(treatment) if n == outcome or outcome in graph.descendants(n)}
    below = causal | set(graph.descendants(causal)) if causal else set()
    if set(given) & below:
        return False
    kept = [edge for edge in graph.edges if not (edge[0] == treatment and edge[1] in causal)]
    pruned = CausalGraph.from_edges(kept, nodes=graph.nodes)
    return pruned.d_separated(treatment, outcome, given)


def random_graph(rng: np.random.Generator, latents: int) -> CausalGraph:
    names = [f"n{i}" for i in range(7)]
    edges = [(a, b) for a, b in combinations(names, 2) if rng.random() < 0.4]
    hidden = [f"n{i}" for i in rng.choice(5, size=latents, replace=False)]
    return CausalGraph.from_edges(edges, nodes=names, latents=hidden)


@pytest.mark.parametrize("latents", [0, 2])
def test_the_smallest_set_is_smallest_of_all_valid_ones(latents: int) -> None:
    rng = np.random.default_rng(latents)
    found = refused = 0
    for _ in range(120):
        graph = random_graph(rng, latents)
        cells = {name: int(rng.integers(2, 6)) for name in graph.nodes if name not in graph.latents}
        treatment, outcome = "n5", "n6"
        if outcome not in graph.descendants(treatment):
            continue
        others = [name for name in cells if name not in (treatment, outcome)]
        valid = [z for z in subsets(others) if truly_valid(graph, treatment, outcome, z)]
        if not valid:
            refused += 1
            with pytest.raises(NotIdentifiableError, match="stays open"):
                smallest_adjustment(graph, treatment, outcome, cells)
            continue
        found += 1
        chosen = smallest_adjustment(graph, treatment, outcome, cells)
        assert chosen in valid

        def table(z: tuple[str, ...], cells: dict[str, int] = cells) -> float:
            return float(np.prod([cells[name] for name in z]))

        assert table(chosen) == min(map(table, valid))
    assert found > 15
    assert (refused > 5) == (latents > 0)


def test_checking_a_set_agrees_with_the_criterion_on_every_subset() -> None:
    rng = np.random.default_rng(3)
    for _ in range(25):
        graph = random_graph(rng, 0)
        if "n6" not in graph.descendants("n3"):
            continue
        for given in subsets(["n0", "n1", "n2", "n4", "n5"]):
            if truly_valid(graph, "n3", "n6", given):
                check_adjustment(graph, "n3", "n6", given)
            else:
                with pytest.raises(NotIdentifiableError):
                    check_adjustment(graph, "n3", "n6", given)


def test_of_equally_small_sets_the_one_next_to_the_outcome_is_taken() -> None:
    graph = CausalGraph.from_edges([("a", "t"), ("a", "b"), ("b", "c"), ("c", "y"), ("t", "y")])
    assert smallest_adjustment(graph, "t", "y", sizes(graph)) == ("c",)
    assert smallest_adjustment(graph, "t", "y", sizes(graph, c=9, b=3)) == ("a",)


def test_two_small_columns_are_preferred_to_one_large() -> None:
    graph = CausalGraph.from_edges([("a", "m"), ("b", "m"), ("a", "t"), ("b", "t"), ("m", "y"), ("t", "y")])
    assert smallest_adjustment(graph, "t", "y", sizes(graph, m=8)) == ("a", "b")
    assert smallest_adjustment(graph, "t", "y", sizes(graph, m=3)) == ("m",)


def test_a_mediator_and_a_collider_are_left_alone() -> None:
    graph = CausalGraph.from_edges([("t", "m"), ("m", "y"), ("t", "s"), ("y", "s")])
    assert smallest_adjustment(graph, "t", "y", sizes(graph)) == ()
    with pytest.raises(NotIdentifiableError, match="'m' would hide part of the effect"):
        check_adjustment(graph, "t", "y", ["m"])
    with pytest.raises(NotIdentifiableError, match="'s' would hide"):
        check_adjustment(graph, "t", "y", ["s"])


def test_a_collider_of_causes_is_not_opened() -> None:
    graph = CausalGraph.from_edges([("a", "t"), ("a", "m"), ("b", "m"), ("b", "y"), ("t", "y")])
    assert smallest_adjustment(graph, "t", "y", sizes(graph)) == ()
    with pytest.raises(NotIdentifiableError, match="leaves the path t ← a → m ← b → y open"):
        check_adjustment(graph, "t", "y", ["m"])


def test_a_direction_that_others_imply_need_not_be_drawn() -> None:
    # z → t — m with z and m apart: m → t would make a new v-structure, so t → m, and the effect is identified.
    graph = CausalGraph.from_edges([("z", "t"), ("m", "y")], undirected=[("t", "m")])
    assert smallest_adjustment(graph, "t", "y", sizes(graph)) == ()


def test_a_hidden_common_cause_is_named_with_its_path() -> None:
    graph = CausalGraph.from_edges([*CONFOUNDED, ("genes", "smoke"), ("genes", "lung")], latents=["genes"])
    with pytest.raises(NotIdentifiableError, match=r"path smoke ← genes → lung stays open .*'genes' is not observed"):
        smallest_adjustment(graph, "smoke", "lung", sizes(graph))


def test_a_column_the_table_lacks_is_not_adjusted_for() -> None:
    graph = CausalGraph.from_edges(CONFOUNDED)
    with pytest.raises(NotIdentifiableError, match="smoke ← age → lung"):
        smallest_adjustment(graph, "smoke", "lung", {"smoke": 2, "lung": 2, "tar": 2})


def test_without_a_causal_path_nothing_is_spent_to_learn_a_zero() -> None:
    graph = CausalGraph.from_edges(CONFOUNDED)
    with pytest.raises(InputError, match="no causal path from 'lung' to 'smoke': by the graph the effect is 0"):
        smallest_adjustment(graph, "lung", "smoke", sizes(graph))


def test_an_open_edge_that_can_go_one_way_only_is_not_completed_silently() -> None:
    graph = CausalGraph.from_edges([("pollution", "lung")], undirected=[("smoke", "lung")])
    with pytest.raises(NotIdentifiableError, match=r"leaves smoke — lung open, .* one direction only, lung → smoke"):
        smallest_adjustment(graph, "smoke", "lung", sizes(graph))


@pytest.mark.parametrize(("treatment", "outcome", "match"), [("smok", "lung", "smoke"), ("smoke", "u", "outcome 'u'")])
def test_unknown_names_are_refused(treatment: str, outcome: str, match: str) -> None:
    with pytest.raises(GraphError, match=match):
        smallest_adjustment(CausalGraph.from_edges(CONFOUNDED), treatment, outcome, {"smoke": 2})


def test_a_latent_treatment_is_refused() -> None:
    graph = CausalGraph.from_edges([("t", "y")], latents=["t"])
    with pytest.raises(GraphError, match="treatment 't' is latent"):
        smallest_adjustment(graph, "t", "y", {"y": 2})


def test_a_column_outside_the_graph_cannot_be_checked() -> None:
    with pytest.raises(GraphError, match="does not have 'sex'"):
        check_adjustment(CausalGraph.from_edges(CONFOUNDED), "smoke", "lung", ["sex"])


class TestPartialGraphs:
    def test_an_undirected_edge_that_decides_is_named(self) -> None:
        graph = CausalGraph.from_edges([("z", "y"), ("t", "y")], undirected=[("z", "t")])
        with pytest.raises(NotIdentifiableError, match="direction of t — z"):
            smallest_adjustment(graph, "t", "y", sizes(graph))

    def test_an_undirected_edge_elsewhere_does_no_harm(self) -> None:
        graph = CausalGraph.from_edges([("b", "t"), ("c", "t"), ("t", "y"), ("b", "y")], undirected=[("a", "b")])
        assert smallest_adjustment(graph, "t", "y", sizes(graph)) == ("b",)

    def test_the_set_is_valid_in_every_graph_of_the_class(self) -> None:
        rng = np.random.default_rng(8)
        tried = 0
        for _ in range(150):
            truth = random_graph(rng, 0)
            if "n6" not in truth.descendants("n4"):
                continue
            try:
                chosen = smallest_adjustment(truth.cpdag(), "n4", "n6", sizes(truth))
            except (NotIdentifiableError, InputError):
                continue
            tried += 1
            assert truly_valid(truth, "n4", "n6", chosen)
        assert tried > 30


def test_groups_of_columns_are_taken_apart() -> None:
    graph = CausalGraph.from_edges([("home", "t"), ("home", "y"), ("t", "y")], groups={"home": ["street", "income"]})
    assert smallest_adjustment(graph, "t", "y", {"street": 3, "income": 4, "t": 2, "y": 2}) == ("street", "income")


def test_an_open_path_may_run_through_the_descendant_of_a_collider() -> None:
    graph = CausalGraph.from_edges([("a", "m"), ("b", "m"), ("m", "d")])
    assert open_path(graph, "a", "b", []) == ""
    assert open_path(graph, "a", "b", ["d"]) == "a → m ← b"


def test_a_node_that_is_no_column_is_named_as_what_keeps_the_path_open() -> None:
    graph = CausalGraph.from_edges(CONFOUNDED)
    columns = {name: size for name, size in sizes(graph).items() if name != "age"} | {"Age": 2}
    with pytest.raises(
        NotIdentifiableError, match=r"path smoke ← age → lung stays open .*'age' is no column of the schema.* 'Age'"
    ):
        smallest_adjustment(graph, "smoke", "lung", columns)
