"""Shares are not inflated: over 50 releases the mean of every one-way share is within its noise of the truth.

Levels are settled by what levels are like in the table, and none is negative, which raises the mean of a share that is
nearly nothing by up to 0.45 of its noise; the mean of 50 releases is off by chance by 0.14 of it. Both together stay
below 0.9 with an error rate of 5 % for all the 40 shares of a case together (Bonferroni at 3.2 deviations).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import polars as pl
import pytest

from escudo.causal import CausalGraph
from escudo.synthesis import fit, prepare, prepare_discovered
from escudo.table import PrivateTable, Schema

ROWS, RELEASES = 3_000, 50
COLUMNS: dict[str, Any] = {
    "work": ["a", "b", "c", "d", "e", "f"],
    "rare": ["no", "yes"],
    "age": {"type": "numeric", "lower": 0, "upper": 100, "bins": 6, "missing": True},
    "ill": ["no", "yes"],
}
GRAPH = CausalGraph.from_edges([("age", "ill"), ("work", "ill")])


def people() -> pl.DataFrame:
    """Return rows of which 4.8 % lack an age and 0.1 % have something rare, exactly."""
    rng = np.random.default_rng(24)
    age = rng.permutation(np.where(np.arange(ROWS) < 0.048 * ROWS, np.nan, rng.integers(0, 100, ROWS)))
    return pl.DataFrame({
        "work": rng.permutation(np.repeat(list("abcdef"), [1350, 900, 450, 144, 153, 3])),
        "rare": rng.permutation(np.where(np.arange(ROWS) < 0.001 * ROWS, "yes", "no")),
        "age": pl.Series(age, nan_to_null=True),
        "ill": np.where(rng.random(ROWS) < 0.1 + 0.3 * (age > 60), "yes", "no"),
        "who": np.arange(ROWS) // 2,
    })  # fmt: skip


@pytest.mark.parametrize(
    ("unit", "graph"), [("row", "none"), ("person", "stated"), ("person", "none"), ("person", "discovered")]
)
def test_the_mean_of_every_share_is_within_its_noise_of_the_truth(unit, graph):
    persons: dict[str, Any] = {"person_id": "who", "max_rows_per_person": 2} if unit == "person" else {}
    schema = Schema.from_dict(COLUMNS, **persons)
    table = PrivateTable(people(), schema)
    terms: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "public_rows": ROWS if unit == "row" else None}
    if graph == "discovered":
        prepared = prepare_discovered(schema, **terms)
    else:
        prepared = prepare(schema, GRAPH if graph == "stated" else None, **terms)
    models = [fit(prepared, table, seed=seed) for seed in range(RELEASES)]
    for name in schema.names:
        truth = table.counts(name) / ROWS
        shares = np.array([model.probability([name]) for model in models])
        bias, noise = shares.mean(axis=0) - truth, np.sqrt(((shares - truth) ** 2).mean(axis=0))
        assert (np.abs(bias) <= 0.9 * noise).all()
        assert (np.abs(bias) <= 0.01).all()  # 4.8 % came out as 9.7 % once, and 0.1 % as 2.5 %


FEW = 900
SIZES = {"sex": 2, "place": 25, "answer": 7, "month": 12, "kind": 3, "class": 5, "trade": 20, "old": 2}
LAWS = {name: np.arange(1.0, size + 1) ** -(0.3 * place) for place, (name, size) in enumerate(SIZES.items())}


def few(**persons: Any) -> tuple[PrivateTable, dict[str, np.ndarray]]:
    """Return a table with few rows for its levels, some columns with even shares and some not, and the shares."""
    rng = np.random.default_rng(5)
    codes = {name: rng.choice(law.size, FEW, p=law / law.sum()) for name, law in LAWS.items()}
    codes["trade"] = np.where(rng.random(FEW) < 0.5, codes["place"] % 20, codes["trade"])
    schema = Schema.from_dict({name: list(range(size)) for name, size in SIZES.items()}, **persons)
    table = PrivateTable(pl.DataFrame(codes | {"who": np.arange(FEW) // 3}), schema)
    return table, {name: np.bincount(codes[name], minlength=size) / FEW for name, size in SIZES.items()}


@pytest.mark.parametrize(
    ("relation", "unit", "graph"),
    [
        ("add_remove", "row", "none"),
        ("replace_one", "person", "stated"),
        ("replace_one", "row", "discovered"),
    ],
)
def test_where_rows_are_few_every_share_is_within_its_stated_noise_and_no_worse_than_alone(relation, unit, graph):
    # The mean of 50 releases is off by chance by 0.14 of the noise: four of that have an error rate below 1 % for all
    # 76 shares together. Shares may be off by 1.09 of their noise (``escudo.synthesis._shares``).
    table, truth = few(**({"person_id": "who", "max_rows_per_person": 3} if unit == "person" else {}))
    terms: dict[str, Any] = {"epsilon": 1.0 if unit == "row" else 2.5, "delta": 1e-6, "relation": relation}
    stated = CausalGraph.from_edges([("place", "trade")]) if graph == "stated" else None
    ours = prepare_discovered if graph == "discovered" else partial(prepare, graph=stated)
    prepared = {
        "ours": ours(table.schema, **terms),
        "alone": prepare(table.schema, None, generator="independent", **terms),
    }
    models = {way: [fit(each, table, seed=seed) for seed in range(RELEASES)] for way, each in prepared.items()}
    missed = {}
    for way, several in models.items():
        shares = {name: np.array([model.probability([name]) for model in several]) for name in SIZES}
        missed[way] = np.mean([np.abs(shares[name] - law).sum(axis=1).mean() / 2 for name, law in truth.items()])
        if way == "alone":
            continue
        for name, law in truth.items():
            told = [each for model in several for each in model.details["tables"] if each["columns"] == [name]]
            noise = np.mean([each["noise"] for each in told]) / FEW
            assert (np.abs(shares[name].mean(axis=0) - law) <= (1.09 + 4 * 0.14) * noise).all()
    assert missed["ours"] <= 1.15 * missed["alone"]  # of the budget, 12 % are for picks, used or not


@pytest.mark.parametrize("generator", ["moments", "independent"])
@pytest.mark.parametrize("unit", ["row", "person"])
def test_the_mean_of_every_share_is_within_its_noise_of_the_truth_by_moments(unit, generator):
    persons: dict[str, Any] = {"person_id": "who", "max_rows_per_person": 2} if unit == "person" else {}
    schema = Schema.from_dict(COLUMNS, **persons)
    table = PrivateTable(people(), schema)
    rows = ROWS if unit == "row" else None
    prepared = prepare(schema, GRAPH, generator=generator, epsilon=1.0, delta=1e-6, public_rows=rows)
    models = [fit(prepared, table, seed=seed) for seed in range(RELEASES)]
    stated = np.mean([model.details["noise"] for model in models]) / ROWS
    for name in schema.names:
        truth = table.counts(name) / ROWS
        shares = np.array([model.probability([name]) for model in models])
        bias, noise = shares.mean(axis=0) - truth, np.sqrt(((shares - truth) ** 2).mean(axis=0))
        assert (np.abs(bias) <= 0.9 * noise).all()
        assert (np.abs(bias)[truth < 0.06] <= 0.9 * stated).all()  # 0.1 % was off by 1.3 of it once


def test_rare_levels_of_a_wide_table_are_right_together_by_moments():
    # Of 60 columns 45 are never on, and noise is as loud as one in a hundred rows. The sum of all shares is off by
    # chance by 0.35 of its noise in 8 releases: it is within 2 with an error rate below 1e-7.
    rng = np.random.default_rng(24)
    often = np.repeat([0.0, 0.05, 0.3], [45, 10, 5])
    rows = (rng.random((1_000, often.size)) < often).astype(int)
    names = [f"x{place}" for place in range(often.size)]
    schema = Schema.from_dict({name: [0, 1] for name in names})
    table = PrivateTable(pl.DataFrame(rows, schema=names), schema)
    prepared = prepare(schema, None, generator="moments", epsilon=1.0, delta=1e-6)
    models = [fit(prepared, table, seed=seed) for seed in range(8)]
    shares = np.array([[model.probability([name])[1] for name in names] for model in models])
    stated = np.mean([model.details["noise"] for model in models]) / len(rows)
    assert shares[:, often == 0].mean() <= 0.5 * stated
    assert abs(shares.sum(axis=1).mean() - rows.mean(axis=0).sum()) <= 2 * stated * often.size**0.5  # was off by 6
