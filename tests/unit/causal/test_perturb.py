"""Graphs with errors: as many as asked for, of the kind asked for, and never a cycle."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escudo.causal import CausalGraph
from escudo.errors import GraphError, InputError

NAMES = [f"n{number}" for number in range(9)]
GRAPH = CausalGraph.from_edges(
    [("n0", "n2"), ("n1", "n2"), ("n2", "n3"), ("n2", "n4"), ("n3", "n5"), ("n4", "n5"), ("n1", "n6"), ("n6", "n7")],
    nodes=NAMES,
    tiers=[NAMES[:2], NAMES[2:]],
)


@given(add=st.integers(0, 6), remove=st.integers(0, 4), reverse=st.integers(0, 2), seed=st.integers(0, 10**6))
def test_every_error_counts_once_and_the_graph_stays_acyclic(add, remove, reverse, seed):
    wrong = GRAPH.perturb(add=add, remove=remove, reverse=reverse, seed=seed)  # a cycle would raise
    before, after = set(GRAPH.edges), set(wrong.edges)
    turned = {(a, b) for a, b in before if (b, a) in after}
    assert len(turned) == reverse
    assert len(before - after) == remove + reverse
    assert len(after - before) == add + reverse
    assert wrong.shd(GRAPH) == add + remove + reverse
    assert wrong.nodes == GRAPH.nodes


def test_the_seed_says_which_arrows():
    changes = {"add": 2, "remove": 2, "reverse": 1}
    assert GRAPH.perturb(**changes, seed=4) == GRAPH.perturb(**changes, seed=4)
    assert len({frozenset(GRAPH.perturb(**changes, seed=seed).edges) for seed in range(8)}) > 4


def test_nothing_asked_for_leaves_the_arrows_as_they_are():
    assert set(GRAPH.perturb().edges) == set(GRAPH.edges)


def test_an_arrow_that_would_close_a_circle_is_never_turned_round():
    triangle = CausalGraph.from_edges([("a", "b"), ("b", "c"), ("a", "c")])
    for seed in range(20):
        assert triangle.perturb(reverse=1, seed=seed).shd(triangle) == 1


def test_latents_get_no_new_arrows_and_keep_those_they_have():
    graph = CausalGraph.from_edges([("u", "a"), ("u", "b")], nodes=["a", "b", "c"], latents=["u"])
    wrong = graph.perturb(add=3, seed=1)
    assert wrong.latents == {"u"}
    assert {edge for edge in wrong.edges if "u" in edge} == {("u", "a"), ("u", "b")}


@pytest.mark.parametrize("change", ["add", "remove", "reverse"])
def test_more_than_there_is_is_refused(change):
    with pytest.raises(GraphError, match=change):
        CausalGraph.from_edges([("a", "b")]).perturb(**{change: 2})
    with pytest.raises(InputError, match=change):
        GRAPH.perturb(**{change: -1})
