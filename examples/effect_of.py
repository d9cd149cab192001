"""An effect from a private table: confounding taken out by the graph, an interval that knows the noise.

A drug that helps, given mostly to those who are worse off: the plain comparison says that it harms.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from escudo import CausalGraph, PrivateTable, Schema, effect_of
from escudo.errors import NotIdentifiableError

ROWS = 20_000
HELP = 0.2  # what the drug adds to the chance of getting well


def main() -> None:
    rng = np.random.default_rng(5)
    ill = rng.integers(0, 3, ROWS)
    drug = rng.random(ROWS) < np.array([0.1, 0.5, 0.9])[ill]
    well = rng.random(ROWS) < np.array([0.7, 0.45, 0.1])[ill] + HELP * drug
    frame = pl.DataFrame(
        {
            "illness": np.array(["mild", "moderate", "severe"])[ill],
            "drug": np.where(drug, "yes", "no"),
            "well": np.where(well, "yes", "no"),
        }
    )
    schema = Schema.from_dict({"illness": ["mild", "moderate", "severe"], "drug": ["no", "yes"], "well": ["no", "yes"]})
    table = PrivateTable(frame, schema)
    graph = CausalGraph.from_edges([("illness", "drug"), ("illness", "well"), ("drug", "well")])

    naive = effect_of(table, "drug", "well", trial=True, epsilon=0.5, seed=1)
    assert naive.interval[1] < 0
    print("as if it were a trial:", naive.verdict)

    found = effect_of(table, "drug", "well", graph=graph, epsilon=0.5, seed=1)
    assert found.adjustment == ("illness",)
    assert found.interval[0] < HELP < found.interval[1]
    print("by the graph:         ", found.verdict)
    print(found.plan)
    for arm in found.arms:
        print(f"   do(drug = {arm.level}): {arm.mean:.3f}  [{arm.interval[0]:.3f}, {arm.interval[1]:.3f}]")

    # A thousandth of that budget: the interval takes in everything that cannot be ruled out.
    silent = effect_of(table, "drug", "well", graph=graph, epsilon=0.0005, seed=1)
    assert not silent.contrasts[0].sign_known
    print("with too little budget:", silent.verdict)

    # If illness is not recorded, no adjustment helps, and nothing is spent to find that out.
    hidden = CausalGraph.from_edges(graph.edges, latents=["illness"])
    try:
        effect_of(table, "drug", "well", graph=hidden, epsilon=0.5)
    except NotIdentifiableError as error:
        print("refused:", error)
    else:
        raise AssertionError("an effect that is not identified must be refused")
    print(found.guarantee)


if __name__ == "__main__":
    main()
