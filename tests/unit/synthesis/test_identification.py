"""Latents: the observed law is kept without them, and interventions they confound are refused."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from escudo.causal import CausalGraph
from escudo.errors import NotIdentifiableError
from escudo.synthesis._structure import check_identified, without_latents


def fitted(graph: CausalGraph) -> CausalGraph:
    """The graph a generator follows: arrows among columns, and those out of latents."""
    hidden = [edge for edge in graph.edges if edge[0] in graph.latents]
    return CausalGraph.from_edges([*without_latents(graph), *hidden], nodes=graph.nodes, latents=graph.latents)


def test_without_latents_nothing_changes() -> None:
    graph = CausalGraph.from_edges([("a", "b"), ("b", "c")])
    assert set(without_latents(graph)) == {("a", "b"), ("b", "c")}
    check_identified(graph, ["a", "b", "c"])


def test_causes_of_a_latent_act_on_its_effects() -> None:
    graph = CausalGraph.from_edges([("a", "u"), ("u", "b"), ("u", "c"), ("b", "c")], latents=["u"])
    assert set(without_latents(graph)) == {("a", "b"), ("a", "c"), ("b", "c")}


def test_latents_of_latents_confound_too() -> None:
    graph = CausalGraph.from_edges(
        [("w", "u"), ("w", "v"), ("u", "a"), ("v", "b"), ("a", "b")], latents=["u", "v", "w"]
    )
    with pytest.raises(NotIdentifiableError, match="'a' is not identified"):
        check_identified(fitted(graph), ["a"])


FRONT = CausalGraph.from_edges([("x", "m"), ("m", "y"), ("u", "m"), ("u", "y")], latents=["u"])
CHAIN = CausalGraph.from_edges(
    [("u", "x"), ("u", "a"), ("v", "a"), ("v", "y"), ("a", "z"), ("z", "x"), ("x", "y")], latents=["u", "v"]
)
PAIR = CausalGraph.from_edges([("u", "a"), ("u", "b"), ("a", "b"), ("a", "c"), ("b", "c"), ("c", "d")], latents=["u"])


def test_a_chain_of_shared_latents_is_refused_even_without_one_in_common() -> None:
    with pytest.raises(NotIdentifiableError, match=r"'x'.*unobserved 'u'.*'y'"):
        check_identified(fitted(CHAIN), ["x"])


@pytest.mark.parametrize("graph", [FRONT, CHAIN, PAIR])
def test_the_observed_law_is_kept(graph: CausalGraph) -> None:
    observed = fitted(graph)
    columns = [name for name in observed.topological_order() if name not in graph.latents]
    joint = law(random_model(graph), columns, {})
    answer = np.ones_like(joint)
    for name in columns:
        answer = answer * conditional(joint, columns, name, [p for p in observed.parents(name) if p in columns])
    assert np.allclose(answer, joint, atol=1e-9)


@pytest.mark.parametrize(
    ("graph", "cause"),
    [
        (FRONT, "x"),
        (FRONT, "y"),
        (CHAIN, "z"),
        (CHAIN, "y"),
        (PAIR, "b"),
        (PAIR, "c"),
    ],
)
def test_what_is_allowed_has_the_true_interventional_law(graph: CausalGraph, cause: str) -> None:
    observed = fitted(graph)
    columns = [name for name in observed.topological_order() if name not in graph.latents]
    check_identified(observed, [cause])
    sem = random_model(graph)
    joint = law(sem, columns, {})
    for value in (0, 1):
        answer = np.ones_like(joint)
        for name in columns:
            if name == cause:
                answer *= axis(np.eye(2)[value], columns, name)
            else:
                answer = answer * conditional(joint, columns, name, [p for p in observed.parents(name) if p in columns])
        assert np.allclose(answer, law(sem, columns, {cause: value}), atol=1e-9)


def random_model(graph: CausalGraph) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
    """For each binary node its parents and p(1 | parents)."""
    rng = np.random.default_rng(3)
    return {
        name: (tuple(graph.parents(name)), rng.uniform(0.1, 0.9, (2,) * len(graph.parents(name))))
        for name in graph.topological_order()
    }


def law(sem: dict[str, tuple[tuple[str, ...], np.ndarray]], columns: list[str], do: dict[str, int]) -> np.ndarray:
    """The law of some columns by adding up all worlds."""
    joint = np.zeros((2,) * len(columns))
    for values in product((0, 1), repeat=len(sem)):
        world = dict(zip(sem, values, strict=True))
        weight = 1.0
        for name, (parents, chance) in sem.items():
            on = chance[tuple(world[parent] for parent in parents)]
            weight *= float(world[name] == do[name]) if name in do else (on if world[name] else 1 - on)
        joint[tuple(world[name] for name in columns)] += weight
    return joint


def conditional(joint: np.ndarray, columns: list[str], name: str, given: list[str]) -> np.ndarray:
    """p(name | given), shaped to multiply with the joint law."""
    others = tuple(place for place, column in enumerate(columns) if column not in (name, *given))
    family = joint.sum(axis=others, keepdims=True)
    return family / family.sum(axis=columns.index(name), keepdims=True)


def axis(vector: np.ndarray, columns: list[str], name: str) -> np.ndarray:
    return vector.reshape([2 if column == name else 1 for column in columns])
