"""People with their visits, released together: what a treatment at one visit does to the later ones.

A clinic is simulated, so the truth is known: everybody is treated, or nobody, in two more simulations. The noise is
seeded, so that the example always prints the same; a release has no seed.
"""

from __future__ import annotations

import polars as pl

import escudo
from escudo.synthesis import clinic

PEOPLE, EPSILON, DELTA, VISIT = 6_000, 2.0, 1e-6, 5


def severe(visits: pl.DataFrame) -> float:
    """Return the share of severe ones among everybody's visits of one number."""
    numbered = visits.sort("patient", "date", maintain_order=True).with_columns(
        pl.int_range(1, pl.len() + 1).over("patient").alias("nth")
    )
    return float((numbered.filter(pl.col("nth") == VISIT)["severity"] == "severe").mean())  # type: ignore[arg-type]


def main() -> None:
    """Release, sample, intervene, compare with the truth."""
    private = clinic(PEOPLE, seed=7)
    tables = escudo.PrivateTables(private.frames, private.schema)
    print(escudo.plan(escudo.synthesize, tables, private.graph, epsilon=EPSILON, delta=DELTA))
    model = escudo.synthesize(tables, private.graph, epsilon=EPSILON, delta=DELTA, seed=1)
    drawn = model.sample(PEOPLE, seed=1)
    people, visits = drawn["patients"], drawn["visits"]
    assert set(visits["patient"]) <= set(people["patient"])
    print(f"{people.height:,} synthetic patients with {visits.height:,} visits; one of them:")
    print(visits.filter(pl.col("patient") == visits["patient"][0]))
    found = [severe(model.sample(20_000, do={"visits.treat": level}, seed=2)["visits"]) for level in ("yes", "no")]
    truth = [severe(clinic(20_000, treat=level, seed=3).frames["visits"]) for level in ("yes", "no")]
    print(f"Severe at visit {VISIT}, everybody treated against nobody: {found[0] - found[1]:+.3f} by the model, "
          f"{truth[0] - truth[1]:+.3f} in truth.")  # fmt: skip
    assert abs((found[0] - found[1]) - (truth[0] - truth[1])) < 0.1
    print(model.guarantee)
    asked = "visits.treat@prev", "visits.severity"  # treatment at one visit, severity at the next
    effect = escudo.effect_of(tables, *asked, outcome_level="severe", graph=private.graph, epsilon=1.0, seed=1)
    print(effect)
    print(escudo.evaluate(private.frames, clinic(PEOPLE, seed=8).frames, drawn, private.schema, model=model))


if __name__ == "__main__":
    main()
