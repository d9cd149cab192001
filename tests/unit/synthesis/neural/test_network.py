"""Networks follow the graph: no column answers to another that is not its parent, in training and in running."""

from __future__ import annotations

import json
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from escudo.causal import CausalGraph
from escudo.mechanisms.dpsgd._layers import Tape, clipped_sum
from escudo.synthesis.neural._network import Network, Unit, columns_of, units_of

SIZES = {"direct": {}, "hidden": {"hidden": (3, 2)}, "hidden only": {"hidden": (4,), "direct": False}}
LATENT = {"latent": 2, "encoder": (5,), "decoder": (4,)}


def random_parameters(network: Network, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=network.layout.size).astype(np.float32) * 0.5


def made(schema, graph, *, latent: bool, **options) -> Network:
    units, _ = units_of(schema, graph, latent=latent)
    return Network(columns=columns_of(schema), units=units, **options, **(LATENT if latent else {}))


@pytest.mark.parametrize("kind", SIZES)
def test_a_column_answers_to_its_parents_and_to_nothing_else(schema, graph, kind):
    network = made(schema, graph, latent=False, **SIZES[kind])
    flat = random_parameters(network)
    names, codes = schema.names, np.array([[0, 0, 0, 0]])
    everything = np.arange(network.columns.width)
    tree = {k: {n: np.asarray(a, float) for n, a in v.items()} for k, v in network.layout.unflatten(flat).items()}

    def outputs(rows):
        return network.from_parents(tree, network.columns.features(rows, np).astype(float), everything)[0]

    before = outputs(codes)
    for place, name in enumerate(names):
        changed = codes.copy()
        changed[0, place] = 1
        moved = {
            names[owner] for owner in network.columns.owner[np.flatnonzero(np.abs(outputs(changed) - before) > 1e-9)]
        }
        assert moved == set(graph.children(name))


@pytest.mark.parametrize("latent", [False, True], ids=["no latent", "latent"])
@pytest.mark.parametrize("kind", SIZES)
def test_ghost_norms_hold_for_whole_networks(schema, graph, kind, latent):
    network = made(schema, graph, latent=latent, **SIZES[kind])
    flat = jnp.asarray(random_parameters(network))
    rows = jnp.asarray(np.random.default_rng(1).integers(0, 2, (5, 4)), jnp.uint8)
    key, clip = jax.random.key(3), 1.3

    def loss(flat, weights):
        return (network(Tape(network.layout.unflatten(flat)), rows, key) * weights).sum()

    each = jax.jit(jax.vmap(jax.grad(loss), in_axes=(None, 0)))(flat, jnp.eye(5))
    norms = jnp.linalg.norm(each, axis=1)
    expected = (each / jnp.maximum(1, norms / clip)[:, None]).sum(axis=0)
    summed = jax.jit(lambda tree: clipped_sum(network, tree, rows, key, jnp.ones(5), clip)[0])(
        network.layout.unflatten(flat)
    )
    np.testing.assert_allclose(network.layout.flatten(summed), expected, atol=5 * clip * 1e-4)


def test_masked_weights_never_get_a_gradient(schema, graph):
    network = made(schema, graph, latent=False)
    rows = jnp.asarray(np.random.default_rng(1).integers(0, 2, (5, 4)), jnp.uint8)
    tree = network.layout.unflatten(jnp.asarray(random_parameters(network)))
    summed = jax.jit(lambda tree: clipped_sum(network, tree, rows, jax.random.key(0), jnp.ones(5), 1.0)[0])(tree)
    assert (np.asarray(summed["direct"]["w"])[network.direct_mask == 0] == 0).all()
    assert np.abs(summed["direct"]["w"]).max() > 0


def test_a_new_network_starts_at_independence(schema, graph):
    network = made(schema, graph, latent=True, hidden=(3,))
    flat = network.layout.flatten(network.start(np.random.default_rng(0)))
    rows = np.random.default_rng(1).integers(0, 2, (6, 4)).astype(np.uint8)
    uniform = sum(np.log(schema[name].size) for name in schema.names)
    tree = network.layout.unflatten(flat)
    reconstruction = -network.columns.log_likelihood(
        jnp.asarray(rows), jnp.zeros((6, network.columns.width)), jnp.zeros((6, network.columns.biases))
    )
    np.testing.assert_allclose(reconstruction, uniform, rtol=1e-5)
    losses = jax.jit(lambda tree: network(Tape(tree), jnp.asarray(rows), jax.random.key(0)))(tree)
    assert (np.asarray(losses) >= uniform - 1e-4).all()  # the divergence of q from p comes on top


def test_the_paper_s_network_has_the_size_it_has_there():
    columns = columns_of_binary(222)
    network = Network(
        columns=columns,
        units=tuple(Unit((c,), ()) for c in range(222)),
        latent=10,
        encoder=(128, 64),
        decoder=(64, 128),
    )
    assert network.layout.size == 75_762


def columns_of_binary(count: int):
    from escudo.synthesis.neural._network import Columns, ColumnSpec

    return Columns((ColumnSpec(2),) * count)


def test_equal_networks_are_one_to_the_compiler(schema, graph):
    one, same = (made(schema, graph, latent=True) for _ in range(2))
    assert one == same
    assert hash(one) == hash(same)
    assert one != made(schema, None, latent=True)


# -- units


def test_a_condensed_graph_makes_one_unit_of_a_group(schema):
    condensed = CausalGraph.from_edges([("who", "what")], groups={"who": ("sex", "age"), "what": ("job", "grade")})
    units, graph = units_of(schema, condensed, latent=True)
    by_columns = {unit.columns: unit.parents for unit in units}
    places = {name: place for place, name in enumerate(schema.names)}
    assert by_columns[places["job"], places["grade"]] == tuple(sorted((places["sex"], places["age"])))
    assert by_columns[places["sex"], places["age"]] == ()
    assert set(graph.edges) == {(a, b) for a in ("sex", "age") for b in ("job", "grade")}


def test_what_a_graph_leaves_open_is_left_to_the_latent_or_joined_without_one(schema):
    partial = CausalGraph.from_edges([("sex", "job")])
    with_latent, followed = units_of(schema, partial, latent=True)
    assert set(followed.edges) == {("sex", "job")}
    assert sum(len(unit.parents) for unit in with_latent) == 1
    _, joined = units_of(schema, partial, latent=False)
    assert ("sex", "job") in joined.edges
    assert len(joined.edges) == 6  # every pair of four columns


def test_without_a_graph_and_with_a_latent_no_column_has_a_parent(schema):
    units, graph = units_of(schema, None, latent=True)
    assert all(unit.parents == () for unit in units)
    assert graph.edges == ()


def test_networks_need_nothing_but_jax_and_numpy():
    program = (
        "import sys, json\n"
        "from escudo.synthesis.neural import _network\n"
        "print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"
    )
    loaded = json.loads(subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout)
    assert not {"polars", "opendp", "scipy", "narwhals", "networkx", "jax", "dp_accounting"} & set(loaded)
