"""What validity rests on: whatever is bet, by whatever rule on the past, a true claim loses nothing on average."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from escudo.auditing._bounds import clopper_pearson
from escudo.auditing._cells import cut, grain
from escudo.auditing._outputs import Encoder
from escudo.auditing._wealth import Book, Points, Stage, View, log_factors, stakes

CELLS = 6
weights = arrays(np.float64, (2, CELLS), elements=st.floats(0.0, 1.0)).filter(lambda a: (a.sum(axis=1) > 0.1).all())
counts = arrays(np.float64, (CELLS, 2), elements=st.integers(0, 500).map(float))
losses = st.floats(0.0, 6.0)
slacks = st.one_of(st.just(0.0), st.floats(0.0, 0.3))


def tight_delta(laws, epsilon):
    """The smallest δ for which the two laws satisfy (ε, δ), in both directions."""
    first, second = laws
    factor = math.exp(epsilon)
    return max(np.maximum(first - factor * second, 0).sum(), np.maximum(second - factor * first, 0).sum())


@given(weights, counts, losses)
def test_no_bet_wins_on_average_against_a_claim_that_is_just_true(laws, before, epsilon):
    laws = laws / laws.sum(axis=1, keepdims=True)
    point = np.array([epsilon]), np.array([min(tight_delta(laws, epsilon), 0.999)])
    phi, size = stakes(before, *point, 5, 1000.0)
    factors = np.exp(log_factors(phi, size, *point))
    expected = (factors * (laws.T / 2)).sum(axis=(-2, -1))  # a fair coin chooses the law
    assert (expected <= 1 + 1e-9).all()
    assert (factors >= 0).all()


@given(
    weights,
    arrays(np.float64, (1, 1, CELLS), elements=st.floats(-1.0, 1.0)),
    st.floats(0.0, 1.0),
    losses,
)
def test_the_same_holds_for_any_stakes_whatever(laws, phi, size, epsilon):
    laws = laws / laws.sum(axis=1, keepdims=True)
    point = np.array([epsilon]), np.array([tight_delta(laws, epsilon)])
    with np.errstate(divide="ignore"):
        factors = np.exp(log_factors(phi, np.full((1, 1, 4), size * 0.999), *point))
    assert ((factors * (laws.T / 2)).sum(axis=(-2, -1)) <= 1 + 1e-9).all()


@given(st.lists(counts, min_size=1, max_size=3), st.integers(0, 2), losses, slacks)
def test_moving_capital_between_accounts_neither_makes_nor_loses_any(befores, dropped, epsilon, delta):
    pairs = len(befores)
    book = Book(pairs)
    points = Points(book, np.array([epsilon]), np.array([delta]))
    stages = [
        Stage(i, (View(before, np.arange(CELLS), np.zeros((CELLS, 2), dtype=np.int64)),), True, 1e4)
        for i, before in enumerate(befores)
    ]
    for stage in stages:
        book.open(stage)
    assert abs(points.log_wealth()[0]) < 1e-9
    for stage in stages:
        book.close(stage)
    if pairs > 1:
        book.drop((dropped % pairs,))
    assert abs(points.log_wealth()[0]) < 1e-9


@given(counts, counts, losses, slacks)
def test_wealth_from_counts_is_the_product_over_single_runs(before, seen, epsilon, delta):
    after = np.minimum(seen, 20).astype(np.int64)
    point = np.array([epsilon]), np.array([delta])
    book = Book(1)
    points = Points(book, *point)
    view = View(before, np.arange(CELLS), np.zeros((CELLS, 2), dtype=np.int64))
    book.open(Stage(0, (view,), False, 1e4))
    points.follow()
    start = points.capital[0].copy()
    view.counts[...] = after
    whole = points.log_wealth()[0]
    table = points.tables(0)[0][0]
    each = start[0].copy()
    for cell in range(CELLS):
        for side in range(2):
            for _ in range(after[cell, side]):
                each[: len(table)] += table[:, cell, side]
    assert abs(np.logaddexp.reduce(each) - whole) < 1e-6 * max(1, abs(whole))


@given(arrays(np.float64, st.integers(1, 200), elements=st.floats(-1e6, 1e6)), st.integers(2, 40))
def test_every_number_has_one_cell_and_cells_keep_the_order(numbers, most):
    cells = cut(numbers, most)
    found = cells(np.sort(numbers))
    assert (np.diff(found) >= 0).all()
    assert found.max() < cells.cells
    assert cells(np.array([np.nan]))[0] == cells.cells - 1


@given(st.floats(-1e300, 1e300).filter(lambda x: abs(x) > 1e-290))
def test_the_grain_is_the_largest_power_of_two_that_divides(number):
    exponent = int(grain(np.array([number]))[0])
    quotient = math.ldexp(number, -exponent)
    assert quotient == math.floor(quotient)
    assert math.floor(quotient) % 2 == 1


scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5))
outputs = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner))


@given(st.lists(outputs, min_size=1, max_size=4))
def test_anything_can_be_an_output_and_equal_outputs_are_encoded_alike(several):
    encoder = Encoder()
    encoded = encoder.encode(several + several)
    half = len(several)
    assert (encoded.codes[:half] == encoded.codes[half:]).all()
    assert np.array_equal(encoded.values[:half], encoded.values[half:], equal_nan=True)


@given(st.integers(0, 200), st.integers(1, 200), st.floats(0.001, 0.4))
def test_clopper_pearson_bounds_contain_the_share(hits, runs, alpha):
    hits = min(hits, runs)
    low, high = clopper_pearson(hits, runs, alpha)
    assert 0 <= low <= hits / runs <= high <= 1
