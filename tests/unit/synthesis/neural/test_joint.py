"""Graph and network learnt together: one budget, one clipped vector, no cycles, and modest claims."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from escudo import release
from escudo.causal import CausalGraph
from escudo.errors import InputError, NotIdentifiableError
from escudo.privacy import MemoryAccount
from escudo.report._release_report import limits_of
from escudo.synthesis import load, prepare, synthesize
from escudo.synthesis.neural._joint import _ordered, arrows_of, open_pairs
from escudo.synthesis.neural._network import Columns, ColumnSpec, JointNetwork
from escudo.table import PrivateTable, Schema

NAMES = ("a", "b", "c", "d")
SCHEMA = Schema.from_dict({name: ["0", "1"] for name in NAMES})
BUDGET: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-5, "discover": "joint"}


def frame(rows: int = 4000) -> pl.DataFrame:
    """a → b → c, and d by itself."""
    rng = np.random.default_rng(7)
    a = rng.random(rows) < 0.5
    b = np.where(rng.random(rows) < 0.85, a, ~a)
    c = np.where(rng.random(rows) < 0.85, b, ~b)
    return pl.DataFrame(
        {name: np.where(bits, "1", "0") for name, bits in zip(NAMES, (a, b, c, rng.random(rows) < 0.3), strict=True)}
    )


def every_pair(count: int) -> tuple[tuple[int, int], ...]:
    return tuple((i, j) for i in range(count) for j in range(count) if i != j)


@pytest.fixture(scope="module")
def model():
    account = MemoryAccount(epsilon=4.0, delta=1e-5)
    table = PrivateTable(frame(), SCHEMA, account)
    made = synthesize(table, None, generator="autoregressive", seed=2, **BUDGET)
    assert len(account.receipts) == 1  # one charge for graph and network
    return made


def test_edges_and_laws_are_found_under_one_budget(model):
    assert {frozenset(edge) for edge in model.graph.edges} >= {frozenset("ab"), frozenset("bc")}
    assert not any("d" in edge for edge in model.graph.edges)
    assert model.guarantee.epsilon <= 4.0
    made, real = model.codes(4000, seed=0), np.concatenate(list(PrivateTable(frame(), SCHEMA).batches(5000)))
    assert np.corrcoef(made.T)[0, 1] == pytest.approx(np.corrcoef(real.T)[0, 1], abs=0.1)


def test_directions_that_were_learnt_are_no_claim(model, tmp_path):
    with pytest.raises(NotIdentifiableError, match="direction"):
        model.sample(5, do={"b": "1"})
    model.sample(5, do={"d": "1"})  # it is joined to nothing
    assert model.details["discovery"]["method"] == "joint"
    assert all(not edge["directed"] for edge in model.details["discovery"]["edges"])
    assert {edge["confidence"] for edge in model.details["discovery"]["edges"]} == {None}  # nobody measured it
    said = " ".join(text for group in limits_of(model, (), None).values() for _, text in group)
    assert "edges are was not measured" in said
    assert "a confidence of 90 %" not in said
    model.save(tmp_path / "model")
    assert (load(tmp_path / "model").codes(50, seed=1) == model.codes(50, seed=1)).all()


@pytest.mark.parametrize("size", [2, 3])
def test_a_row_s_gates_are_part_of_the_vector_that_is_clipped(size):
    """The length that is clipped is that of the whole gradient, gates and places included, worked out by jax itself."""
    import jax
    import jax.numpy as jnp

    from escudo.mechanisms.dpsgd import Tape, row_norms

    network = JointNetwork(Columns((ColumnSpec(size),) * 3), every_pair(3), ((0, 1),))
    rng = np.random.default_rng(1)
    flat = rng.normal(size=network.layout.size).astype(np.float32)
    rows = rng.integers(0, size, (6, 3)).astype(np.uint8)
    key = jax.random.key(0)

    def loss(flat: Any, row: Any) -> Any:
        return network(Tape(network.layout.unflatten(flat)), row[None], key)[0]

    exact = jax.vmap(lambda row: jax.grad(loss)(jnp.asarray(flat), row))(jnp.asarray(rows))
    parts = network.layout.unflatten(exact[0])
    assert np.abs(parts["edges"]["b"]).max() > 1e-3
    assert np.abs(parts["order"]["b"]).max() > 1e-3
    norms = np.asarray(row_norms(network, network.layout, flat, rows, key))
    assert norms == pytest.approx(np.linalg.norm(np.asarray(exact), axis=1), rel=1e-4)


def test_what_is_kept_has_no_cycle_and_keeps_what_is_known():
    network = JointNetwork(Columns((ColumnSpec(2),) * 5), every_pair(5), ((4, 0),))
    rng = np.random.default_rng(3)
    none = network.layout.unflatten(np.zeros(network.layout.size))
    for _ in range(20):
        learnt = network.layout.unflatten(rng.normal(size=network.layout.size))
        parents, kept = arrows_of(network, learnt, none)
        CausalGraph.from_edges([(f"{p}", f"{c}") for c, several in parents.items() for p in several])  # no cycle
        assert 4 in parents[0]
        assert len(kept) == 9
    assert _ordered(np.array([0.0, -1.0, 2.0]), ((2, 1),)) == [0, 2, 1]


def test_forbidden_pairs_are_no_candidates():
    graph = CausalGraph.from_edges([("a", "b")], nodes=NAMES, forbidden=[("c", "d"), ("d", "c")])
    pairs, known = open_pairs(SCHEMA, graph)
    assert known == ((0, 1),)
    assert (1, 0) not in pairs
    assert (2, 3) not in pairs
    assert (3, 2) not in pairs
    assert len(pairs) == 12 - 3


def test_options_that_do_not_go_with_it_are_refused():
    for option in ({"hidden": (4,)}, {"start_share": 0.5}, {"pretraining": 5}, {"clip_norm": 1.0}, {"checkpoint": "x"}):
        with pytest.raises(InputError, match=next(iter(option))):
            prepare(SCHEMA, None, generator="autoregressive", **BUDGET, **option)
    with pytest.raises(InputError, match="discover"):
        prepare(SCHEMA, None, generator="vae", **{**BUDGET, "discover": "first"})
    with pytest.raises(InputError, match="discover"):
        prepare(SCHEMA, None, generator="vae", architecture="plain", public_rows=10, **BUDGET)
    wide = Schema.from_dict({f"x{number}": ["0", "1"] for number in range(100)})
    with pytest.raises(InputError, match="100 columns"):
        prepare(wide, None, generator="autoregressive", **BUDGET)


def test_a_release_may_ask_for_it_by_graph_discover(tmp_path):
    options = {"epsilon": 4.0, "delta": 1e-5, "seed": 1, "latent": 2, "encoder": (8,), "decoder": (8,), "steps": 60}
    files = release(PrivateTable(frame(), SCHEMA), tmp_path / "out", "discover", generator="vae", **options)
    assert "Nobody stated this graph" in files.report.read_text()
    assert files.fitted.network.latent == 2
