"""Votes on what is left open: planned, paid once, and only where they fit the graph."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from escudo.causal import CausalGraph
from escudo.discovery import prepare, run_prepared
from escudo.discovery._discover import _with_arrow, split_budget
from escudo.errors import InputError
from escudo.privacy import MemoryAccount, PureEvent
from escudo.table import PrivateTable, Schema

ROWS = 12_000
WIDE = {"type": "numeric", "lower": -2, "upper": 2}


def pair(rng: np.random.Generator) -> pl.DataFrame:
    cause = rng.uniform(-1, 1, ROWS)
    return pl.DataFrame({"b": np.tanh(3 * cause) + 0.2 * rng.uniform(-1, 1, ROWS), "a": cause})


def asked(frame: pl.DataFrame, *, account: MemoryAccount | None = None, **columns: object):
    schema = Schema.from_dict({name: columns.get(name, WIDE) for name in frame.columns})
    prepared = prepare(schema, epsilon=2.0, delta=1e-6, method="gaussian", directions=0.5)
    return prepared, PrivateTable(frame, schema, account)


def test_an_open_edge_gets_the_direction_of_its_noise() -> None:
    prepared, table = asked(pair(np.random.default_rng(0)))
    found = run_prepared(prepared, table, seed=1)
    assert found.graph.edges == (("a", "b"),)
    assert found.graph.undirected_edges == ()
    assert "By votes of blocks: a → b (of 1 open)" in found.notes[-1]
    assert not found.guarantee.for_release


def test_the_whole_budget_is_planned_and_charged_once() -> None:
    account = MemoryAccount(epsilon=2.0, delta=1e-6)
    prepared, table = asked(pair(np.random.default_rng(0)), account=account)
    assert prepared.plan.leaves()[-1].event == PureEvent(epsilon=1.0)
    assert prepared.plan.guarantee().epsilon <= 2.0 + 1e-9
    found = run_prepared(prepared, table)
    assert [receipt.event for receipt in account.receipts] == [prepared.plan.event]
    assert found.plan == prepared.plan
    assert found.guarantee.epsilon == prepared.plan.guarantee().epsilon


def test_linear_effects_with_normal_noise_stay_open() -> None:
    rng = np.random.default_rng(0)
    cause = rng.normal(0, 0.4, ROWS)
    prepared, table = asked(pl.DataFrame({"a": cause, "b": cause + rng.normal(0, 0.3, ROWS)}))
    found = run_prepared(prepared, table, seed=3)
    assert found.graph.undirected_edges == (("a", "b"),)
    assert "no direction stood out" in found.notes[-1]


def test_with_nothing_open_nothing_is_voted_on_and_the_share_stays_spent() -> None:
    rng = np.random.default_rng(0)
    prepared, table = asked(pl.DataFrame({"a": rng.normal(0, 0.4, ROWS), "b": rng.normal(0, 0.4, ROWS)}))
    found = run_prepared(prepared, table, seed=1)
    assert "nothing was voted on" in found.notes[-1]


def test_a_vote_brings_what_follows_and_makes_no_new_collider() -> None:
    graph = CausalGraph.from_edges([], undirected=[("a", "b"), ("b", "c")])
    assert _with_arrow(graph, ("a", "b")).edges == (("a", "b"), ("b", "c"))
    settled = CausalGraph.from_edges([("a", "b")], undirected=[("b", "c")])
    assert _with_arrow(settled, ("c", "b")) is None  # a → b ← c would be a collider that the search ruled out
    assert _with_arrow(settled, ("a", "b")) is None  # not open
    known = CausalGraph.from_edges([], undirected=[("a", "b")], tiers=[["b"], ["a"]])
    assert _with_arrow(known, ("a", "b")) is None


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")], ids=["negative", "all", "nan"])
def test_a_share_is_a_part_of_the_budget(share: float) -> None:
    with pytest.raises(InputError, match="directions"):
        split_budget(1.0, share)


def test_columns_too_coarse_to_vote_on_stay_open_and_the_graph_is_not_lost() -> None:
    # The budget is charged before it is known which edges are open: whatever they are, there must be an answer.
    rng = np.random.default_rng(0)
    first = rng.integers(0, 2, ROWS)
    second = np.where(rng.random(ROWS) < 0.1, 1 - first, first)
    schema = Schema.from_dict({"a": [0, 1], "b": [0, 1]})
    prepared = prepare(schema, epsilon=2.0, delta=1e-6, directions=0.3)
    found = run_prepared(prepared, PrivateTable(pl.DataFrame({"a": first, "b": second}), schema), seed=1)
    assert found.graph.undirected_edges == (("a", "b"),)
    assert "nothing was voted on" in found.notes[-1]


def test_a_table_too_small_to_vote_on_keeps_its_graph_and_says_why() -> None:
    rng = np.random.default_rng(0)
    cause = rng.uniform(-1, 1, 50)
    frame = pl.DataFrame({"a": cause, "b": cause + rng.uniform(-0.1, 0.1, 50)})
    schema = Schema.from_dict({"a": WIDE, "b": WIDE})
    prepared = prepare(schema, epsilon=100.0, delta=1e-3, method="gaussian", directions=0.01)
    found = run_prepared(prepared, PrivateTable(frame, schema), seed=1)
    assert found.graph.undirected_edges == (("a", "b"),)
    assert "rows are too few" in found.notes[-1]
