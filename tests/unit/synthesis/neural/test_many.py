"""Claims about many trainings at once."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import polars as pl
import pytest

from escudo.causal import CausalGraph
from escudo.mechanisms import Purse
from escudo.mechanisms.dpsgd._core import Knobs, Recipe
from escudo.privacy import MemoryAccount
from escudo.synthesis import prepare
from escudo.synthesis.neural import _many, begin, finish
from escudo.synthesis.neural._network import Columns, ColumnSpec, Network, Unit
from escudo.table import PrivateTable, Schema

GENERATORS = {
    "pre-trained": {"generator": "autoregressive", "hidden": (2,), "pretraining": 8, "steps": 4},
    "exact start": {"generator": "autoregressive", "steps": 4},
    "latent, in samples": {
        "generator": "vae", "latent": 1, "encoder": (), "decoder": (), "pretraining": 0, "start": "levels", "steps": 9,
        "batch": 12, "public_rows": 80,
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def small() -> tuple[Schema, CausalGraph, pl.DataFrame]:
    rng = np.random.default_rng(1)
    a = rng.integers(0, 2, 80)
    frame = pl.DataFrame({"a": a, "b": a + rng.integers(0, 2, 80)}).cast(pl.String)
    return Schema.from_dict({"a": ["0", "1"], "b": ["0", "1", "2"]}), CausalGraph.from_edges([("a", "b")]), frame


@pytest.mark.parametrize(
    ("name", "at_once"),
    [("pre-trained", 2), ("exact start", 1), ("latent, in samples", 2)],
    ids=["pre-trained", "exact start", "latent"],
)
def test_fits_made_together_are_those_of_fits_alone(name, at_once, small):
    schema, graph, frame = small
    prepared = prepare(schema, graph, epsilon=2.0, delta=1e-5, relation="add_remove", **GENERATORS[name])
    promise = prepared.plan.guarantee()

    def table(seed: int) -> PrivateTable:  # every other one lacks a row
        return PrivateTable(frame.head(79 + seed % 2), schema, MemoryAccount(relation="add_remove"))

    def alone(seed: int):
        own = table(seed)
        return prepared.run(own, Purse(own.account, np.random.default_rng(seed), plan=prepared.plan, guarantee=promise))

    fits = [begin(prepared, table(seed), seed=seed, guarantee=promise) for seed in range(3)]
    expected = alone(2)
    made = list(finish(prepared, fits, count=3, guarantee=promise, at_once=at_once))
    assert len(made) == 3
    for layer, array, _ in prepared.network.shapes:
        assert made[2].parameters[layer][array] == pytest.approx(expected.parameters[layer][array], abs=1e-5)
    assert not np.array_equal(made[0].parameters["base"]["b"], made[2].parameters["base"]["b"])
    assert made[2].codes(50, seed=3).tolist() == expected.codes(50, seed=3).tolist()


def test_an_account_is_charged_as_by_a_fit(small):
    schema, graph, frame = small
    prepared = prepare(schema, graph, epsilon=2.0, delta=1e-5, generator="autoregressive", steps=3)
    spent = []
    for run in ("alone", "begun"):
        table = PrivateTable(frame, schema, MemoryAccount(relation="replace_one"))
        if run == "alone":
            noise = np.random.default_rng(0)
            prepared.run(table, Purse(table.account, noise, plan=prepared.plan, guarantee=prepared.plan.guarantee()))
        else:
            begin(prepared, table, seed=0, guarantee=prepared.plan.guarantee())
        assert not any(receipt.for_release for receipt in table.account.receipts)
        spent.append(table.account.total(delta=1e-5).epsilon)
    assert spent[0] == spent[1]
    assert 1.9 < spent[0] <= 2.0


def test_a_start_is_measured_without_a_device():
    code = """
import numpy as np, polars as pl
from jax._src import xla_bridge
from escudo.synthesis import prepare
from escudo.synthesis.neural import begin
from escudo.table import PrivateTable, Schema
schema = Schema.from_dict({"a": ["0", "1"], "b": ["0", "1"]})
prepared = prepare(schema, None, epsilon=1.0, delta=1e-5, generator="vae", latent=1, encoder=(2,), decoder=(2,))
table = PrivateTable(pl.DataFrame({"a": ["0", "1"] * 9, "b": ["1", "1", "0"] * 6}), schema)
fit = begin(prepared, table, seed=0, guarantee=prepared.plan.guarantee())
assert len(fit.start) == prepared.network.layout.size
assert not xla_bridge.backends_are_initialized()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


class TestSamplesDrawnThere:
    """Samples drawn where jax runs, as on an accelerator."""

    network = Network(columns=Columns((ColumnSpec(2),) * 2), units=(Unit((0, 1), ()),))
    numbers = Knobs(*map(np.float32, (1.0, 0.0, 1.0, 0.1, 1e6, 0.0, 0.0)))

    def parameters(self, tables, *, at_once, steps=128, probability=0.05, knobs=numbers):
        start = np.zeros(self.network.layout.size, np.float32)
        copies = [_many.Copy(start=start, rows=rows, knobs=knobs, seed=place) for place, rows in enumerate(tables)]
        options = {"count": len(copies), "steps": steps, "probability": probability}
        return np.array(
            list(_many.train_many(self.network, Recipe(), copies, at_once=at_once, drawn_there=True, **options))
        )

    def test_a_training_does_not_depend_on_what_is_trained_beside_it(self):
        tables = [np.zeros((60 + place % 2, 2), np.uint8) for place in range(5)]
        together = self.parameters(tables, at_once=3)
        assert together == pytest.approx(self.parameters(tables, at_once=5), abs=1e-6)
        assert len({row.tobytes() for row in together}) == 5

    def test_rows_are_drawn_with_the_stated_chance_and_the_last_one_never_overflows(self, monkeypatch):
        """One row differs; a count of its draws is read off the sum that it adds to."""
        seen = []

        def counted(network, layout, recipe, data, knobs, state, slots):
            import jax
            import jax.numpy as jnp

            drawn = jnp.arange(slots.rows.shape[1]) < slots.count[:, None]
            jax.debug.callback(
                lambda rows, kept: seen.append((np.asarray(rows), np.asarray(kept))), data[slots.rows, 0], drawn
            )
            return state._replace(step=state.step + slots.rows.shape[0])

        monkeypatch.setattr(_many, "run", counted)
        rows = np.zeros((40, 2), np.uint8)
        rows[-1] = 1
        steps, chance = 4000, 0.3
        self.parameters([rows, rows[:-1]], at_once=2, steps=steps, probability=chance)
        with_record, without = 0, 0
        total = 0
        for values, kept in seen:
            for copy in range(values.shape[0]) if values.ndim == 3 else [None]:
                mine, mask = (values, kept) if copy is None else (values[copy], kept[copy])
                hits = int((mine * mask).sum())
                with_record, without = with_record + hits, without + (hits == 0)
                total += int(mask.sum())
        assert abs(with_record / steps - chance) < 4 * np.sqrt(chance * (1 - chance) / steps)
        assert without > 0  # the world without the record never draws it
        assert abs(total / steps - chance * 79) < 0.3


def test_segments_are_alike_where_they_can_be():
    assert set(_many._lengths(5000)) == {500}
    for steps in (1, 40, 127, 513, 1021, 4999):
        assert sum(_many._lengths(steps)) == steps
        assert len(set(_many._lengths(steps))) <= 2
