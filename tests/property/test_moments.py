"""The clipped moment vector: no neighbour moves it further than the proof says, and it sums what it claims."""

from __future__ import annotations

import itertools
import math

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from escudo.synthesis._moment_statistics import UNIT, MomentLayout, clip_factors, row_squares, sum_rows

Sizes = dict[str, int]


@st.composite
def layouts(draw: st.DrawFn) -> MomentLayout:
    """Small layouts with columns of 1 to 12 levels, arrows and candidates along the order."""
    sizes = {f"c{i}": draw(st.integers(1, 12)) for i in range(draw(st.integers(1, 5)))}
    pairs = list(itertools.combinations(sizes, 2))
    kinds = [draw(st.sampled_from(["none", "pair", "candidate"])) for _ in pairs]
    return MomentLayout(
        sizes=sizes,
        pairs=tuple(p for p, kind in zip(pairs, kinds, strict=True) if kind == "pair"),
        candidates=tuple(p for p, kind in zip(pairs, kinds, strict=True) if kind == "candidate"),
    )


def rows_of(layout: MomentLayout, draw: st.DataObject, count: int) -> np.ndarray:
    row = st.tuples(*(st.integers(0, size - 1) for size in layout.sizes.values()))
    return np.array([draw.draw(row) for _ in range(count)], dtype=np.int64).reshape(count, len(layout.sizes))


def vector(layout: MomentLayout, codes: np.ndarray) -> np.ndarray:
    """The vector of one row, written from the definition."""
    values = dict(zip(layout.sizes, codes.tolist(), strict=True))
    entries = []
    for name, size in layout.sizes.items():
        entries += [2 * (values[name] == level) for level in range(1, size)]
    for strength, pairs in ((2, layout.pairs), (1, layout.candidates)):
        for cause, effect in pairs:
            levels = itertools.product(range(1, layout.sizes[cause]), range(1, layout.sizes[effect]))
            entries += [strength * (values[cause] == a and values[effect] == b) for a, b in levels]
    return np.array(entries, dtype=np.int64)


def clipped_sum(layout: MomentLayout, codes: np.ndarray, square: int) -> np.ndarray:
    return sum_rows(layout, [(codes, clip_factors(layout, square)[row_squares(layout, codes)])])


@given(layouts(), st.data(), st.integers(1, 60))
def test_the_sum_is_the_clipped_vectors_of_the_rows(layout: MomentLayout, data: st.DataObject, square: int) -> None:
    codes = rows_of(layout, data, 4)
    vectors = [vector(layout, row) for row in codes]
    squares = [int(v @ v) for v in vectors]
    assert row_squares(layout, codes).tolist() == squares
    expected = sum(math.isqrt(UNIT**2 // max(s, square)) * v for s, v in zip(squares, vectors, strict=True))
    assert clipped_sum(layout, codes, square).tolist() == np.asarray(expected).tolist()


@given(layouts(), st.data(), st.integers(1, 60))
def test_no_row_moves_the_sum_further_than_the_proof_says(
    layout: MomentLayout, data: st.DataObject, square: int
) -> None:
    one, other = (clipped_sum(layout, rows_of(layout, data, 1), square) for _ in range(2))
    assert int(one.astype(object) @ one.astype(object)) <= UNIT**2
    moved = (one - other).astype(object)
    assert int(moved @ moved) <= 2 * UNIT**2


@given(layouts(), st.data(), st.floats(0, 1e6))
def test_whatever_the_suspects_and_the_clip_bound_no_row_moves_a_second_release_further(
    layout: MomentLayout, data: st.DataObject, square: float
) -> None:
    """Suspects and bound come from an earlier release, so the proof must hold for each choice: all pairs of rows."""
    suspects = [pair for pair in layout.candidates if data.draw(st.booleans())]
    kept = {name: min(size, 3) for name, size in layout.sizes.items()}
    second = MomentLayout(sizes=kept, pairs=(*layout.pairs, *suspects))
    assume(second.size > 0)
    bound = second.bound(square)
    every = np.array(list(itertools.product(*(range(size) for size in kept.values()))))
    codes = every[-1 :: -max(len(every) // 40, 1)]  # the longest first
    moved = np.array([clipped_sum(second, row[None, :], bound) for row in codes], dtype=object)
    products = moved @ moved.T
    lengths = np.diag(products)
    assert lengths.max() <= UNIT**2  # add or remove
    assert (lengths[:, None] + lengths[None, :] - 2 * products).max() <= 2 * UNIT**2  # replace


def test_the_bounds_are_nearly_reached() -> None:
    layout = MomentLayout(sizes={"a": 2, "b": 3}, pairs=())
    first, second = (clipped_sum(layout, np.array([row]), 4) for row in ([1, 0], [0, 2]))
    assert np.linalg.norm(first) > 0.999 * UNIT
    assert np.linalg.norm(first - second) > 0.999 * math.sqrt(2) * UNIT
