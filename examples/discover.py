"""Discovery: a causal graph from a private table, with how sure it is of each edge, and what knowledge adds.

Twenty thousand simulated patients; what acts on what is known here, so the answer can be checked.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from escudo import CausalGraph, PrivateTable, Schema, discover

ROWS = 20_000
NAMES = ("age", "diet", "dose", "pressure", "risk")
TRUTH = CausalGraph.from_edges(
    [("age", "dose"), ("dose", "pressure"), ("diet", "pressure"), ("pressure", "risk")], nodes=NAMES
)
PATTERN = TRUTH.cpdag()  # what data can tell of it: one direction stays open


def main() -> None:
    rng = np.random.default_rng(0)
    age, diet = rng.normal(size=(2, ROWS))
    dose = age + rng.normal(size=ROWS)
    pressure = dose - diet + rng.normal(size=ROWS)
    risk = 0.8 * pressure + rng.normal(size=ROWS)
    frame = pl.DataFrame(dict(zip(NAMES, (age, diet, dose, pressure, risk), strict=True)))
    schema = Schema.from_dict({name: {"type": "numeric", "lower": -10, "upper": 10} for name in NAMES})
    table = PrivateTable(frame, schema)

    found = discover(table, epsilon=0.5, delta=1e-6, method="gaussian", seed=1)
    for edge, sure in found.edge_confidence.items():
        print(f"{edge[0]} and {edge[1]}: {sure:.0%}")
    assert found.graph == PATTERN
    print("directions told:", ", ".join(f"{a} → {b}" for a, b in found.graph.edges))
    print("direction open: ", ", ".join(f"{a} — {b}" for a, b in found.graph.undirected_edges))

    # Nothing acts on a person's age. That settles the last edge, and costs nothing.
    known = CausalGraph.from_edges([], nodes=NAMES, tiers=[["age"], ["dose"]])
    settled = discover(table, epsilon=0.5, delta=1e-6, method="gaussian", knowledge=known, seed=1)
    assert settled.graph.is_dag
    assert set(settled.graph.edges) == set(TRUTH.edges)
    print("with what is known:", ", ".join(f"{a} → {b}" for a, b in settled.graph.edges))

    # Too little budget: it says so instead of drawing a wrong graph.
    silent = discover(table, epsilon=0.001, delta=1e-6, method="gaussian", seed=1)
    assert silent.cannot_tell
    print("at ε = 0.001:", silent.cannot_tell)
    print(found.guarantee)


if __name__ == "__main__":
    main()
