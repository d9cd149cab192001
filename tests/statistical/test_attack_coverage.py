"""The bound that attacks report holds as often as they say, on a generator whose ε is known exactly."""

from __future__ import annotations

import numpy as np
import polars as pl
from hypothesis import settings

from escudo.attacks import attack
from escudo.privacy import Guarantee
from escudo.table import Schema
from escudo.utility import Rows

SCHEMA = Schema.from_dict({"a": ["0", "1"]})
EPSILON = 1.0
ATTACKS = min(400, 8 * settings.default.max_examples)


class TwoAnswers:
    """One synthetic row that says whether the record is 1, truthfully with probability e^ε / (1 + e^ε)."""

    claim = Guarantee(epsilon=EPSILON)

    def synthetic(self, rows, *, sets, size, seed):
        present = rows.record is not None and rows.record.codes[0, 0] == 1
        truthful = np.random.default_rng(seed).random() < np.exp(EPSILON) / (1 + np.exp(EPSILON))
        said = present if truthful else not present
        return [Rows(schema=rows.rest.schema, codes=np.array([[int(said)]]), numbers=np.full((1, 1), np.nan))] * sets


def test_the_true_epsilon_is_covered_in_95_of_100_attacks():
    rows = Rows.read(pl.DataFrame({"a": ["0"] * 11 + ["1"]}), SCHEMA)
    covered = accused = 0
    for seed in range(ATTACKS):
        found = attack(
            TwoAnswers(),
            rows,
            SCHEMA,
            choose=[11],
            attacks=[("nearest", "likelihood ratio")],
            shadows=6,
            trials=40,
            size=1,
            seed=seed,
        )
        covered += found.epsilon_lower <= EPSILON
        accused += found.violated
    assert covered >= 0.95 * ATTACKS
    assert accused <= 0.05 * ATTACKS
