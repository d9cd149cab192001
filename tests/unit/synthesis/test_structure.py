"""What a graph states about a table, and what it leaves open."""

from __future__ import annotations

import pytest

from escudo.causal import CausalGraph
from escudo.errors import GraphError
from escudo.synthesis._structure import structure_of
from escudo.table import Schema

YES_NO = ["no", "yes"]


def schema_of(*names: str) -> Schema:
    return Schema.from_dict({name: YES_NO for name in names})


def test_a_full_graph_states_all_its_arrows_and_leaves_nothing_open() -> None:
    structure = structure_of(schema_of("a", "b", "c"), CausalGraph.from_edges([("a", "b"), ("a", "c")]))
    assert structure.parents == {"a": (), "b": ("a",), "c": ("a",)}
    assert structure.open_arrows == ()
    assert len(structure.open_effects) == 0


def test_without_a_graph_every_pair_is_open_in_schema_order() -> None:
    structure = structure_of(schema_of("a", "b", "c"), None)
    assert set(structure.open_arrows) == {("a", "b"), ("a", "c"), ("b", "c")}
    assert len(structure.open_effects) == 2


def test_a_column_the_graph_leaves_out_is_open_as_an_effect_of_the_others() -> None:
    structure = structure_of(schema_of("a", "b", "late"), CausalGraph.from_edges([("a", "b")]))
    assert set(structure.open_arrows) == {("a", "late"), ("b", "late")}
    assert len(structure.open_effects) == 1


def test_a_forbidden_arrow_is_never_open() -> None:
    graph = CausalGraph.from_edges([("a", "b")], nodes=["late"], forbidden=[("a", "late")])
    structure = structure_of(schema_of("a", "b", "late"), graph)
    assert ("a", "late") not in structure.open_arrows


def test_a_latent_joins_its_children_from_earlier_to_later() -> None:
    graph = CausalGraph.from_edges([("u", "a"), ("u", "b"), ("a", "c")], latents=["u"])
    structure = structure_of(schema_of("a", "b", "c"), graph)
    joined = {pair for pair in structure.arrows if set(pair) == {"a", "b"}}
    assert len(joined) == 1
    assert ("a", "c") in structure.arrows


def test_arrows_between_groups_are_open_in_the_groups_direction_only() -> None:
    graph = CausalGraph.from_edges([("causes", "effects")], groups={"causes": ["a", "b"], "effects": ["c", "d"]})
    structure = structure_of(schema_of("a", "b", "c", "d"), graph)
    assert structure.arrows == ()
    assert {("a", "c"), ("a", "d"), ("b", "c"), ("b", "d")} <= set(structure.open_arrows)
    assert not {("c", "a"), ("d", "b")} & set(structure.open_arrows)
    assert len(structure.open_effects) == 3


def test_undirected_edges_get_some_direction() -> None:
    structure = structure_of(schema_of("a", "b"), CausalGraph.from_edges([], undirected=[("a", "b")]))
    assert len(structure.arrows) == 1


def test_a_node_outside_the_schema_is_named_with_the_remedy() -> None:
    with pytest.raises(GraphError, match=r"smoek.*latent"):
        structure_of(schema_of("smoke", "lung"), CausalGraph.from_edges([("smoek", "lung")]))


def test_open_arrows_and_stated_arrows_together_have_no_cycle() -> None:
    graph = CausalGraph.from_edges([("c", "a")], groups={"g": ["d", "e"]})
    structure = structure_of(schema_of("a", "b", "c", "d", "e"), graph)
    CausalGraph.from_edges([*structure.arrows, *structure.open_arrows])  # raises on a cycle
