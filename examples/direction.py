"""Which of two columns causes the other: three private ways to ask, and what each one costs and protects.

Stations on a simulated mountain: height causes frost. The table is private; its bounds and its size are public.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from escudo import PrivateTable, Schema, plan
from escudo.orientation import direction
from escudo.privacy import MemoryAccount

ROWS = 4000
METRES = {"type": "numeric", "lower": 0, "upper": 3000}
DAYS = {"type": "numeric", "lower": 0, "upper": 365}


def stations(rows: int, seed: int) -> pl.DataFrame:
    """Draw stations: frost is rarest on the slopes, above the cold air of the valleys, plus noise."""
    rng = np.random.default_rng(seed)
    height = rng.uniform(0, 3000, rows)
    frost = 40 + 280 * ((height - 1000) / 2000) ** 2 + rng.normal(0, 20, rows)
    return pl.DataFrame({"height": height, "frost": frost.clip(0, 365)})


def main() -> None:
    schema = Schema.from_dict({"height": METRES, "frost": DAYS})
    account = MemoryAccount(epsilon=3.0)
    table = PrivateTable(stations(ROWS, seed=1), schema, account)

    # Votes of disjoint blocks: nothing is public, and a pure ε covers every row. The default.
    print(plan(direction, table, "frost", "height", epsilon=0.5))
    voted = direction(table, "frost", "height", epsilon=0.5, seed=1)
    print(voted, end="\n\n")
    assert voted.verdict == "height->frost"
    assert voted.margin < 0, "below 0: the second column is the cause"

    # The gap of two scores. Half of the rows fit the regressions behind a noisy histogram, half are scored; nobody is
    # in both, so the two do not add up.
    gap = direction(table, "height", "frost", epsilon=1.0, method="gap", seed=1)
    print(gap, end="\n\n")
    assert gap.verdict == "height->frost"
    assert gap.guarantee.epsilon <= 1.0

    # The published method wants public records to train on, and then far less ε does for the gap.
    known = stations(2000, seed=2)
    cheap = direction(table, "height", "frost", epsilon=0.1, method="gap", train=known, seed=1)
    paper = direction(table, "height", "frost", epsilon=1.0, method="paper", train=known, seed=1)
    print(cheap, end="\n\n")
    print(paper, end="\n\n")
    assert cheap.verdict == paper.verdict == "height->frost"

    # Without public records the published method would drown its scores in noise: it says so and spends nothing.
    drowned = direction(table, "height", "frost", epsilon=0.2, method="paper", constants="paper", seed=1)
    print(drowned)
    assert not drowned.released
    spent = account.total().epsilon
    assert spent is not None
    print(f"\nSpent in all: {spent:.2f} of 3.00")
    assert abs(spent - 2.6) < 1e-6


if __name__ == "__main__":
    main()
