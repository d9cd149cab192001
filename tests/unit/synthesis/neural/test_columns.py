"""Features and likelihoods: the right law for each kind of column, and never a cell outside the schema."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from escudo.synthesis.neural._network import Columns, ColumnSpec, columns_of
from escudo.table import Schema

PLACES = (-1.0, -0.5, 0.0, 0.5, 1.0)
COLUMNS = Columns(
    (ColumnSpec(2), ColumnSpec(4), ColumnSpec(6, PLACES), ColumnSpec(2), ColumnSpec(5, PLACES), ColumnSpec(1))
)
CODES = np.array([[0, 3, 5, 1, 0, 0], [1, 0, 2, 0, 4, 0]], np.uint8)


def numbers(seed: int, width: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(len(CODES), width)).astype(np.float32)


def slow_logits(column: int, row: int, outputs: np.ndarray, biases: np.ndarray) -> np.ndarray:
    """The law of one column in one row, from its definition."""
    spec = COLUMNS.specs[column]
    own = outputs[row, COLUMNS.owner == column]
    block = next(block for block in COLUMNS.blocks if column in block.columns)
    start = block.bias_start + int(np.flatnonzero(block.columns == column)[0]) * (block.size - 1)
    base = np.concatenate([[0.0], biases[row, start : start + block.size - 1]])
    return base + spec.features() @ own


def test_every_column_has_its_features_and_nobody_elses():
    features = COLUMNS.features(CODES, np)
    assert features.shape == (2, COLUMNS.width)
    for column, spec in enumerate(COLUMNS.specs):
        for row in range(2):
            np.testing.assert_allclose(
                features[row, COLUMNS.owner == column], spec.features()[CODES[row, column]], atol=1e-6
            )


def test_jax_and_numpy_give_the_same_features():
    np.testing.assert_allclose(COLUMNS.features(jnp.asarray(CODES), jnp), COLUMNS.features(CODES, np), atol=1e-6)


def test_the_likelihood_is_the_product_of_the_columns_laws():
    outputs, biases = numbers(1, COLUMNS.width), numbers(2, COLUMNS.biases)
    found = COLUMNS.log_likelihood(jnp.asarray(CODES), jnp.asarray(outputs), jnp.asarray(biases))
    for row in range(2):
        total = 0.0
        for column in range(len(COLUMNS.specs)):
            logits = slow_logits(column, row, outputs, biases)
            total += logits[CODES[row, column]] - np.log(np.exp(logits).sum())
        assert found[row] == pytest.approx(total, abs=1e-4)


def test_the_laws_that_are_drawn_from_are_those_that_were_fitted():
    outputs, biases = numbers(3, COLUMNS.width), numbers(4, COLUMNS.biases)
    for block in COLUMNS.blocks:
        laws = np.exp(COLUMNS.log_laws(outputs, biases, np, block))
        np.testing.assert_allclose(laws.sum(axis=-1), 1.0, atol=1e-5)
        for member, column in enumerate(block.columns):
            logits = slow_logits(int(column), 0, outputs, biases)
            np.testing.assert_allclose(laws[0, member], np.exp(logits) / np.exp(logits).sum(), atol=1e-5)


def test_an_ordered_law_can_be_a_truncated_gaussian():
    spec = ColumnSpec(21, tuple(np.linspace(-1, 1, 21)))
    wanted = -((np.linspace(-1, 1, 21) - 0.4) ** 2) / (2 * 0.3**2)
    design = np.column_stack([np.ones(21), spec.features()])
    left = wanted - design @ np.linalg.lstsq(design, wanted, rcond=None)[0]
    assert np.abs(left).max() < 1e-9


def test_a_missing_value_has_a_feature_of_its_own_and_no_place():
    features = ColumnSpec(6, PLACES).features()
    np.testing.assert_array_equal(features[5], [0, 0, 0, 1])
    assert (features[:5, 3] == 0).all()


def test_columns_of_a_schema_are_ordered_where_the_schema_says_so():
    schema = Schema.from_dict(
        {
            "a": ["no", "yes"],
            "b": {"type": "ordinal", "levels": ["low", "mid", "high", "top"]},
            "c": {"type": "numeric", "lower": 0, "upper": 1, "bins": 8, "missing": True},
            "d": {"type": "numeric", "lower": 0, "upper": 1, "bins": 3},
            "e": ["x", "y", "z", "w"],
        }
    )
    specs = columns_of(schema).specs
    assert [spec.size for spec in specs] == [2, 4, 9, 3, 4]
    assert [len(spec.places) for spec in specs] == [0, 4, 8, 0, 0]
