"""Moment sums: equal to counting by hand, exact, and bounded in length whatever the row."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from escudo.synthesis._moment_statistics import (
    UNIT,
    MomentLayout,
    NoisyMoments,
    clip_factors,
    row_squares,
    sum_rows,
    table_sums,
)
from escudo.table import PrivateTable, Schema

SIZES = {"a": 2, "b": 4, "single": 1, "d": 2, "wide": 12, "f": 2}
PAIRS = (("a", "b"), ("a", "d"), ("b", "d"), ("wide", "b"), ("single", "d"), ("b", "wide"))
CANDIDATES = (("a", "f"), ("d", "f"), ("wide", "f"), ("a", "wide"))
LAYOUT = MomentLayout(sizes=SIZES, pairs=PAIRS, candidates=CANDIDATES)


def rows(count: int, seed: int = 0) -> NDArray[np.uint8]:
    rng = np.random.default_rng(seed)
    return np.stack([rng.integers(0, size, count) for size in SIZES.values()], axis=1).astype(np.uint8)


def vectors(codes: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return each row's vector, spelled out entry by entry."""
    names = list(SIZES)
    made = []
    for row in codes:
        value = dict(zip(names, row.tolist(), strict=True))
        vector = [2 * (value[name] == level) for name in names for level in range(1, SIZES[name])]
        for strength, pairs in ((2, PAIRS), (1, CANDIDATES)):
            for a, b in pairs:
                vector += [
                    strength * (value[a] == i and value[b] == j) for i in range(1, SIZES[a]) for j in range(1, SIZES[b])
                ]
        made.append(vector)
    return np.array(made, dtype=np.int64)


def test_sums_equal_those_of_vectors_spelled_out_row_by_row() -> None:
    codes = rows(300)
    weights = np.random.default_rng(1).integers(1, UNIT, 300)
    expected = (vectors(codes) * weights[:, None]).sum(axis=0)
    assert LAYOUT.size == expected.size
    parts = [(codes[:100], weights[:100]), (codes[100:101], weights[100:101]), (codes[101:], weights[101:])]
    assert (sum_rows(LAYOUT, parts) == expected).all()


def test_squared_lengths_equal_those_of_vectors_spelled_out() -> None:
    codes = rows(300)
    squares = (vectors(codes) ** 2).sum(axis=1)
    assert (row_squares(LAYOUT, codes) == squares).all()
    assert squares.max() <= LAYOUT.largest_square
    full = np.array([[max(size - 1, 0) for size in SIZES.values()]], dtype=np.uint8)
    assert row_squares(LAYOUT, full)[0] == LAYOUT.largest_square


@pytest.mark.parametrize("columns", [3, 40])
def test_squared_lengths_are_the_same_with_few_and_with_many_pairs(columns: int) -> None:
    names = [f"c{i}" for i in range(columns)]
    pairs = tuple((a, b) for i, b in enumerate(names) for a in names[:i])
    codes = np.random.default_rng(0).integers(0, 2, (50, columns)).astype(np.uint8)
    on = codes.sum(axis=1).astype(int)
    many = MomentLayout(sizes=dict.fromkeys(names, 2), pairs=pairs)
    assert (row_squares(many, codes) == 4 * on + 4 * on * (on - 1) // 2).all()
    few = MomentLayout(sizes=dict.fromkeys(names, 2), pairs=pairs[:1])
    assert (row_squares(few, codes) == 4 * on + 4 * codes[:, 0] * codes[:, 1]).all()


@pytest.mark.parametrize("square", [1, 4, 7, 29, 60])
def test_no_row_is_longer_than_the_unit_and_none_within_the_bound_is_shortened(square: int) -> None:
    factors = clip_factors(LAYOUT, square)
    lengths = np.arange(len(factors))
    assert all(int(factor) ** 2 * int(length) <= UNIT**2 for factor, length in zip(factors, lengths, strict=True))
    assert (factors[: square + 1] == math.isqrt(UNIT**2 // square)).all()
    assert (np.diff(factors) <= 0).all()
    # as long as whole numbers allow
    longer = lengths > square
    assert ((factors[longer] + 1) ** 2 * lengths[longer] > UNIT**2).all()


def test_a_family_knows_its_entries_and_what_was_not_counted() -> None:
    codes = rows(200, seed=3)
    sums = sum_rows(LAYOUT, [(codes, np.ones(200, dtype=np.int64))]) // LAYOUT.strengths
    family = LAYOUT.family("b", ("a", "wide", "f"))
    assert family.shape == (1 + 1 + 11 + 1, 3)
    assert (family[-1] == -1).all()  # f → b is no pair
    names = list(SIZES)
    a, b, wide = (codes[:, names.index(name)] for name in ("a", "b", "wide"))
    for level in range(1, 4):
        assert sums[family[0, level - 1]] == (b == level).sum()
        assert sums[family[1, level - 1]] == ((a == 1) & (b == level)).sum()
        assert sums[family[1 + 5, level - 1]] == ((wide == 5) & (b == level)).sum()


def test_a_table_is_summed_batch_by_batch_as_if_it_were_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("escudo.synthesis._moment_statistics._MAX_BATCH", 17)
    codes = rows(100, seed=5)
    schema = Schema.from_dict({name: [str(level) for level in range(size)] for name, size in SIZES.items()})
    frame = pl.DataFrame(codes, schema=list(SIZES)).cast(pl.String)
    sums, count = table_sums(PrivateTable(frame, schema), LAYOUT, 20)
    weights = clip_factors(LAYOUT, 20)[row_squares(LAYOUT, codes)]
    assert count == 100
    assert (sums == (vectors(codes) * weights[:, None]).sum(axis=0)).all()


def test_released_sums_come_back_in_rows_with_their_noise() -> None:
    codes = rows(100, seed=6)
    square = LAYOUT.largest_square
    weights = clip_factors(LAYOUT, square)[row_squares(LAYOUT, codes)]
    moments = NoisyMoments.from_release(
        LAYOUT, sum_rows(LAYOUT, [(codes, weights)]).astype(float), 5.0 * UNIT, square=square, rows=100
    )
    ones = vectors(codes).astype(bool).sum(axis=0)
    assert moments.values == pytest.approx(ones)
    noise = 5.0 * math.sqrt(square) / LAYOUT.strengths
    assert moments.scale == pytest.approx(noise, rel=1e-4)


def test_a_pair_is_read_from_either_end() -> None:
    layout = MomentLayout(sizes={"a": 3, "b": 4}, pairs=(("a", "b"),))
    forwards, backwards = layout.family("b", ("a",)), layout.family("a", ("b",))
    assert forwards.shape == (3, 3)
    assert backwards.shape == (4, 2)
    assert (backwards[1:] == forwards[1:].T).all()
    assert layout.block(("b", "a")) == layout.block(("a", "b")) == ("a", "b")
    assert (MomentLayout(sizes={"a": 3, "b": 4}, pairs=()).family("a", ("b",))[1:] == -1).all()


def test_a_part_of_a_layout_finds_its_places_in_the_whole() -> None:
    part = MomentLayout(sizes=SIZES, pairs=(("wide", "b"), ("a", "f"), ("a", "b")))
    codes, weights = rows(200), np.ones(200, dtype=np.int64)
    whole = sum_rows(LAYOUT, [(codes, weights)]) // LAYOUT.strengths
    assert (whole[LAYOUT.places(part)] == sum_rows(part, [(codes, weights)]) // part.strengths).all()
    assert (LAYOUT.places(LAYOUT) == np.arange(LAYOUT.size)).all()


def test_a_pair_is_counted_once() -> None:
    with pytest.raises(AssertionError, match="named twice"):
        MomentLayout(sizes={"a": 2, "b": 2}, pairs=(("a", "b"),), candidates=(("a", "b"),))


@pytest.mark.parametrize(
    ("square", "bound"),
    [(0.0, 4), (3.9, 4), (10.7, 10), (1e9, LAYOUT.largest_square), (math.inf, LAYOUT.largest_square)],
    ids=["0", "3.9", "10.7", "much", "no bound"],
)
def test_a_clip_bound_is_at_least_one_level_and_at_most_the_longest_row(square: float, bound: int) -> None:
    assert LAYOUT.bound(square) == bound
