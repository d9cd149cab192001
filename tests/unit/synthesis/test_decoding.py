"""Cells become values the schema allows, spread inside bins as the histogram suggests."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from escudo.synthesis._laws import decode, typical_numbers
from escudo.table import Schema


def numbers(spec: dict[str, object], codes: np.ndarray) -> pl.Series:
    schema = Schema.from_dict({"x": {"type": "numeric", **spec}})
    return decode(schema, {"x": codes}, rng=np.random.default_rng(0))["x"]


def test_levels_keep_their_type_and_the_missing_cell_becomes_null() -> None:
    schema = Schema.from_dict(
        {"s": {"type": "categorical", "levels": ["no", "yes"], "missing": True}, "i": [3, 5], "b": {"type": "boolean"}}
    )
    frame = decode(
        schema,
        {"s": np.array([0, 1, 2]), "i": np.array([1, 0, 1]), "b": np.array([1, 0, 1])},
        rng=np.random.default_rng(0),
    )
    assert frame["s"].to_list() == ["no", "yes", None]
    assert frame["i"].to_list() == [5, 3, 5]
    assert frame["b"].dtype == pl.Boolean


@pytest.mark.parametrize("spec", [{"lower": 0, "upper": 10, "bins": 4}, {"edges": [-1.5, 0.0, 0.25, 9.0]}])
def test_every_number_encodes_back_to_its_own_bin(spec: dict[str, object]) -> None:
    schema = Schema.from_dict({"x": {"type": "numeric", **spec}})
    codes = np.random.default_rng(1).integers(0, schema["x"].size, 5000)
    values = numbers(spec, codes)
    assert (schema["x"].encode(values.to_numpy()) == codes).all()


def test_whole_numbers_stay_whole_and_inside_their_bins() -> None:
    codes = np.repeat(np.arange(22), 200)
    values = numbers({"lower": 0, "upper": 110, "bins": 22, "integer": True}, codes)
    assert values.dtype == pl.Int64
    assert (values.to_numpy() // 5 == codes)[codes < 21].all()
    assert set(values.to_numpy()[codes == 21]) <= set(range(105, 111))


def test_whole_numbers_beyond_64_bits_end_at_the_largest_and_do_not_fail() -> None:
    wide: dict[str, object] = {"lower": -1e300, "upper": 1e300, "bins": 2, "integer": True, "missing": True}
    values = numbers(wide, np.array([0, 1, 2]))
    assert values.dtype == pl.Int64
    assert values.to_list() == [-(2**63), 2**63 - 1024, None]


def test_density_inside_a_bin_follows_the_slope_of_the_histogram() -> None:
    codes = np.repeat([0, 1, 2], [1000, 3000, 5000])
    middle = numbers({"lower": 0, "upper": 3, "bins": 3}, codes).to_numpy()[codes == 1]
    # slope (5000 - 1000) / (4 * 3000) = 1/3 puts the mean of the bin at 1.5 + 1/18
    assert abs(middle.mean() - (1.5 + 1 / 18)) < 5 * middle.std() / np.sqrt(middle.size)


def test_a_tail_follows_the_power_law_that_its_bin_and_the_one_before_follow() -> None:
    pareto = 1_000 * np.random.default_rng(3).random(200_000) ** (-1 / 2.5)
    edges = [0, 1_000, 1_500, 3_000, 100_000]
    schema = Schema.from_dict({"x": {"type": "numeric", "edges": edges}})
    codes = schema["x"].encode(pareto)
    tail = numbers({"edges": edges}, codes).to_numpy()[codes == 3]
    assert tail.mean() == pytest.approx(pareto[codes == 3].mean(), rel=0.05)
    assert np.median(tail) == pytest.approx(np.median(pareto[codes == 3]), rel=0.02)


def test_a_bound_far_away_does_not_set_the_mean_of_the_last_bin() -> None:
    codes = np.repeat([0, 1, 2], [1000, 10, 500])  # nothing says how the last bin falls off
    last = numbers({"edges": [0, 10, 20, 10_000_000]}, codes).to_numpy()[codes == 2]
    assert last.mean() < 20 * 3 * 2
    below = numbers({"edges": [-10_000_000, -20, -10, 0]}, 2 - codes).to_numpy()[codes == 2]
    assert below.mean() > -20 * 3 * 2


def test_a_bin_of_a_tail_stands_for_what_is_typical_of_it_and_not_for_its_middle() -> None:
    tail = Schema.from_dict({"x": {"type": "numeric", "edges": [-4_000_000, -1_000, -500, 0, 500, 1_000, 4_000_000]}})
    found = typical_numbers(tail["x"])
    assert found[1:5].tolist() == [-750, -250, 250, 750]
    assert [-found[0], found[5]] == pytest.approx([2_000, 2_000], rel=1e-3)
    stated = Schema.from_dict({"x": {"type": "numeric", "lower": 0, "upper": 40, "bins": 4, "integer": True}})
    assert typical_numbers(stated["x"]).tolist() == [4.5, 14.5, 24.5, 35.0]


def test_missing_numbers_are_null() -> None:
    assert numbers({"lower": 0, "upper": 1, "bins": 2, "missing": True}, np.array([0, 2])).null_count() == 1


def test_no_rows_keep_their_columns() -> None:
    assert numbers({"lower": 0, "upper": 1, "bins": 2}, np.zeros(0, dtype=np.int64)).len() == 0
