"""Where one more unit of noise goes, where tables are released in parts."""

from __future__ import annotations

import numpy as np
import pytest

from escudo.privacy import Neighbours
from escudo.synthesis._balance import ROWS, Needed, columns_first, error_of, nearness, unevenness, worth_of
from escudo.synthesis._estimation import NoisyTable, agreeing, completed, margins_of
from escudo.synthesis._residuals import Unit

UNIT = Unit.of(Neighbours(relation="add_remove"), 50.0)


def test_a_unit_is_worth_what_it_takes_off_the_square_of_an_error() -> None:
    """Against the difference that a small part of a unit makes."""
    held = np.array([5.0, 400.0, 90.0, 1000.0])
    shape, noise, part = (2, 2), 20.0, 1e-6
    after = (noise**-2.0 + part / UNIT.noise(shape) ** 2) ** -0.5
    gained = (error_of(shape, noise, held) ** 2 - error_of(shape, after, held) ** 2) / part
    assert worth_of(shape, noise, held) / UNIT.scale**2 == pytest.approx(gained, rel=1e-3)


def test_columns_get_least_if_pairs_speak_for_all_others_and_more_the_louder_they_are() -> None:
    names = "abcdefgh"
    held = {name: np.array([700.0, 300.0]) for name in names}

    def given(noise: float, *, alone: bool) -> list[str]:
        found, least = columns_first(UNIT, 200, 10, dict.fromkeys(names, noise), held, held)
        return [name for (name,) in (found if alone else found[:least])]

    few, many = given(40.0, alone=False), given(40.0, alone=True)
    assert 0 < len(few) < len(many) < 200
    assert max(few.count(name) for name in names) - min(few.count(name) for name in names) <= 1
    assert len(given(10.0, alone=True)) < len(many)


def test_of_columns_of_which_nothing_is_known_all_cells_are_full() -> None:
    unknown = {"a": np.full(2, np.inf), "b": np.full(3, np.inf), "c": np.full(4, np.inf)}
    given, least = columns_first(UNIT, 60, 2, dict.fromkeys("abc", 80.0), unknown, unknown)
    found = given[:least]
    assert 0 < len(found) < 60
    assert found.count(("c",)) > found.count(("a",))


def test_a_row_more_moves_a_column_of_which_only_contrasts_are_known_as_far_as_it_is_uneven() -> None:
    """Against the margins of the same residuals when the number of rows is taken for another."""
    for levels, joint in (([900.0, 60.0, 40.0], False), ([950.0, 50.0], False), ([500.0, 500.0], False)):
        counts = np.array(levels)
        inner = [NoisyTable(("a",), counts - counts.mean(), 1e-3, inner=True)]
        one, other = (margins_of(inner, total)["a"] / total for total in (1000.0, 1001.0))
        moved = 1000 * np.abs(one - other).sum()
        assert moved == pytest.approx(unevenness(counts, joint=joint), rel=0.01, abs=1e-3)
    assert unevenness(np.array([950.0, 50.0]), joint=True) == pytest.approx(0.1)


def test_the_number_of_rows_gets_units_where_it_is_loud_and_columns_are_uneven() -> None:
    def given(share: float, off: float) -> int:
        held = {name: np.array([share, 1 - share]) * 20_000 for name in "abcdefgh"}
        found, least = columns_first(UNIT, 200, 10, dict.fromkeys(held, 40.0), held, held, off=off)
        return found[:least].count(ROWS)

    assert given(0.97, 0.0) == 0
    assert given(0.97, 40.0) > given(0.97, 20.0) > 0
    assert given(0.97, 40.0) > given(0.6, 40.0)
    assert given(0.5, 40.0) == 0


def test_what_is_needed_most_is_measured_first() -> None:
    rng = np.random.default_rng(0)
    a = rng.integers(0, 2, 4000)
    drawn = {"a": a, "b": np.where(rng.random(4000) < 0.1, 1 - a, a), "c": rng.integers(0, 2, 4000)}
    margins = {name: np.array([2000.0, 2000.0]) for name in drawn}
    tables = [NoisyTable((name,), margins[name], 20.0) for name in drawn]
    tables += [
        NoisyTable(pair, np.zeros((2, 2)), scale, inner=True)
        for pair, scale in ((("a", "b"), 90.0), (("a", "c"), 20.0))
    ]
    needed = Needed(tables, ["a", "b", "c"], drawn, dict.fromkeys("abc", 2), margins, 4000.0)
    assert needed.neediest == ("a", "b")
    needed.renew(NoisyTable(("a", "b"), np.zeros((2, 2)), 1.0, inner=True))
    assert needed.neediest != ("a", "b")


def test_columns_that_say_all_of_each_other_are_near_and_unrelated_ones_are_not() -> None:
    rng = np.random.default_rng(0)
    one = rng.integers(0, 3, 20_000)
    found = nearness([one, 2 - one, rng.integers(0, 4, 20_000)], [3, 3, 4])
    assert found[0, 1] == pytest.approx(1.0, abs=0.01)
    assert found[0, 2] < 0.01


def test_a_residual_says_nothing_of_its_columns_and_gets_their_sums() -> None:
    exact = np.array([[30.0, 10.0], [20.0, 40.0]])
    inner = exact - exact.mean(axis=0) - exact.mean(axis=1, keepdims=True) + exact.mean()
    alone = [NoisyTable(("a",), exact.sum(axis=1), 1e-3), NoisyTable(("b",), exact.sum(axis=0), 1e-3)]
    tables = [*alone, NoisyTable(("a", "b"), inner, 0.5, inner=True)]
    margins = margins_of(tables, total=100.0)
    assert np.allclose(margins["a"], [40, 60])
    assert np.allclose(completed(tables, margins)[-1].counts, exact)
    assert np.allclose(agreeing(tables, total=100.0)[-1].counts, exact, atol=0.1)


def test_a_residual_of_three_columns_gets_the_interactions_of_its_pairs() -> None:
    rng = np.random.default_rng(1)
    exact = rng.integers(20, 90, (2, 3, 2)).astype(float)
    names = ("a", "b", "c")

    def residual(table: np.ndarray) -> np.ndarray:
        for axis in range(table.ndim):
            table = table - table.mean(axis=axis, keepdims=True)
        return table

    tables = [NoisyTable((name,), exact.sum(axis=tuple({0, 1, 2} - {axis})), 1.0) for axis, name in enumerate(names)]
    tables += [
        NoisyTable(("a", "b"), residual(exact.sum(axis=2)), 1.0, inner=True),
        NoisyTable(("c", "b"), residual(exact.sum(axis=0)).T, 1.0, inner=True),
        NoisyTable(("a", "c"), exact.sum(axis=1), 1.0),  # a whole one will do as well
        NoisyTable(names, residual(exact), 1.0, inner=True),
    ]
    total = float(exact.sum())
    assert np.allclose(completed(tables, margins_of(tables, total=total))[-1].counts, exact)
    assert np.allclose(agreeing(tables, total=total)[-1].counts, exact, atol=0.1)
