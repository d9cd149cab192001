"""Which record goes into which block, what a block may do, and what a noisy sum of votes is worth."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from escudo.errors import InputError
from escudo.orientation import epsilon_needed, rows_needed, sign_probability
from escudo.orientation._blocks import DEPENDENT, FEWEST_DISTINCT, Blocks, cast, one_by_one
from escudo.orientation._direction import Batch
from escudo.orientation._procedures import PROCEDURES
from escudo.orientation._votes import (
    AGREEMENT,
    CHANCE,
    FEWEST,
    LARGEST,
    MOST_ROWS,
    SMALLEST,
    Seating,
    Voting,
    blocks_needed,
    chance_margin,
    seating_of,
    threshold_of,
)
from escudo.privacy import Neighbours
from escudo.table import Placed

Floats = NDArray[np.float64]


def batched(values: Floats, size: int, person: NDArray[np.int64] | None = None) -> Iterator[Batch]:
    for start in range(0, len(values), size):
        part = slice(start, start + size)
        yield Batch(values[part], None if person is None else person[part])


def by_position(rows: int, **options: int) -> Seating:
    return seats(rows, **options)


def seats(
    rows: int | None, relation: str = "replace_one", unit: str = "row", *, epsilon: float = 1.0, **options: int
) -> Seating:
    most = 1 if unit == "person" else None
    neighbours = Neighbours(relation=relation, unit=unit, max_rows_per_person=most, rows=rows)
    return seating_of(neighbours, epsilon=epsilon, **options)


# -- by position


@pytest.mark.parametrize("rows", [800, 1234, 40_000])
def test_every_seat_is_taken_by_a_row_of_its_own(rows: int) -> None:
    seating = by_position(rows)
    seated = seating.gather(batched(np.arange(rows, dtype=float)[:, None], 100), 1).ravel()
    assert seated.size == seating.blocks * seating.size <= rows
    assert rows - seated.size < seating.blocks
    assert np.unique(seated).size == seated.size


@pytest.mark.parametrize("size", [1, 7, 5000])
def test_the_batches_in_which_rows_come_do_not_matter(size: int) -> None:
    seating = by_position(1500)
    values = np.random.default_rng(0).random((1500, 2))
    assert np.array_equal(seating.gather(batched(values, size), 2), seating.gather(batched(values, 300), 2))


@pytest.mark.parametrize("unit", ["position", "value", "person"])
def test_blocks_vote_alike_wherever_their_records_are(unit: str) -> None:
    """Rows in parts, as workers have them: each part sends what has a seat, and several of them judge the blocks."""
    rng = np.random.default_rng(7)
    rows = 6000
    cause = np.round(rng.random(rows), 2)
    values = np.column_stack([cause, np.clip(cause**3 + rng.normal(0, 0.1, rows), 0, 1), rng.random(rows)])
    values[rng.random(values.shape) < 0.02] = np.nan
    person = rng.integers(0, 900, rows)
    seating = {
        "position": by_position(rows),
        "value": seats(rows, "add_remove"),
        "person": seats(900, "replace_one", "person", blocks=20),
    }[unit]
    known = person if unit == "person" else None
    voting = Voting(seating, PROCEDURES["committee"], ((0, 1), (2, 1)), people=unit == "person")
    wanted = voting.votes(seating.gather(batched(values, 512, known), 3))
    assert np.any(wanted)
    sent = []
    cuts = [0, 1, 2500, 2500, 5999, rows]
    for start, stop in pairwise(cuts):
        places = range(start, stop, 300)
        batches = [(values[at : min(at + 300, stop)], person[at : min(at + 300, stop)], at) for at in places]
        found = [voting.first([one]) for one in voting.placed(batches)]
        sent += [voting.first(found)] if found else []
    order = rng.permutation(seating.blocks)
    votes = np.zeros_like(wanted)
    for some in np.array_split(order, 3):
        mine = [Placed(*(part[np.isin(one.group, some)] for part in one)) for one in reversed(sent)]
        blocks, cast_there = voting.found(voting.first(mine))
        votes[blocks] = cast_there
    assert np.array_equal(votes, wanted)


def test_the_assignment_is_public_and_another_seed_gives_another() -> None:
    values = np.arange(2000.0)[:, None]
    first, again, other = (by_position(2000, shuffle=seed).gather(batched(values, 500), 1) for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_blocks_are_drawn_from_the_whole_table() -> None:
    values = np.arange(4000.0)[:, None]
    seated = by_position(4000).gather(batched(values, 999), 1)
    assert np.abs(seated.mean(axis=(1, 2)) - 2000).max() < 350


def test_a_table_with_more_rows_than_take_part_gives_one_row_of_every_stretch() -> None:
    seating = Seating(blocks=4, size=10, rows=1000, assigned_by="position", shuffle=0, sensitivity=2)
    seated = np.sort(seating.gather(batched(np.arange(1000.0)[:, None], 64), 1).ravel())
    assert (seated // 25).tolist() == list(range(40))


def test_a_table_shorter_than_stated_leaves_seats_empty() -> None:
    seated = by_position(1000).gather(batched(np.ones((990, 1)), 100), 1)
    assert np.isnan(seated).sum() == 10


# -- by value


def test_all_rows_of_a_person_lie_in_one_block() -> None:
    seating = seats(1000, unit="person")
    person = np.random.default_rng(0).integers(0, 1000, 1500)
    seated = seating.gather(batched(person[:, None].astype(float), 256, person), 1)[:, :, 0]
    homes = [set(block[~np.isnan(block)]) for block in seated]
    assert sum(map(len, homes)) == len(set.union(*homes)) == np.unique(person).size
    assert max(map(len, homes)) < 3 * min(map(len, homes))


@pytest.mark.parametrize(("relation", "unit"), [("add_remove", "row"), ("replace_one", "person")])
def test_a_block_never_sees_more_than_its_largest_however_many_come(relation, unit) -> None:  # type: ignore[no-untyped-def]
    seating = seats(2000, relation, unit=unit)
    rng = np.random.default_rng(0)
    person = rng.integers(0, 2000, 60_000) if unit == "person" else None
    seated = seating.gather(batched(rng.random((60_000, 1)), 5000, person), 1)
    assert seated.shape[1] == LARGEST
    assert not np.isnan(seated).any()


def test_of_a_person_with_many_rows_a_full_block_seats_few() -> None:
    seating = Seating(blocks=1, size=50, rows=None, assigned_by="value", shuffle=0, sensitivity=4)
    person = np.repeat(np.arange(40), 30)
    rows = np.column_stack([person, np.random.default_rng(0).random(person.size)]).astype(float)
    seated = seating.gather(batched(rows, 100, person), 2)
    assert np.unique(seated[0, :, 0]).size > 15  # seated by person they would be two


def test_a_rows_block_depends_on_its_own_values_alone() -> None:
    seating = seats(1000, "add_remove")
    values = np.random.default_rng(0).random((1000, 2))
    whole = seating.gather(batched(values, 100), 2)
    less = seating.gather(batched(np.delete(values, 17, axis=0), 100), 2)
    changed = [not np.array_equal(a, b, equal_nan=True) for a, b in zip(whole, less, strict=True)]
    assert sum(changed) == 1


def test_of_rows_a_full_block_seats_some_of_every_size() -> None:
    seating = Seating(blocks=1, size=100, rows=None, assigned_by="value", shuffle=0, sensitivity=2)
    rows = np.random.default_rng(0).random((1000, 2))
    seated = seating.gather(batched(rows, 100), 2)[0]
    assert np.abs(np.median(seated, axis=0) - 0.5).max() < 0.15  # the smallest would have a median of 0.05


def test_a_full_block_turns_further_records_away() -> None:
    seating = Seating(blocks=2, size=5, rows=None, assigned_by="value", shuffle=0, sensitivity=4)
    person = np.repeat(np.arange(40), 2)
    seated = seating.gather(batched(np.arange(80.0)[:, None], 7, person), 1)
    assert not np.isnan(seated).any()


# -- how many


@pytest.mark.parametrize(
    ("epsilon", "rows", "blocks"),
    [(1.0, 1900, 20), (5.0, 1900, 20), (0.1, 4000, 125), (0.1, 19_000, 200), (1.0, 400, 12), (1.0, 1_000_000, 10_417)],
)
def test_small_budgets_and_large_tables_get_more_blocks(epsilon: float, rows: int, blocks: int) -> None:
    seating = seats(rows, epsilon=epsilon)
    assert seating.blocks == blocks
    assert SMALLEST <= seating.size <= LARGEST


def test_where_noise_is_doubled_so_are_the_blocks() -> None:
    people = seats(3800, unit="person")
    assert (people.sensitivity, people.blocks) == (4, 2 * FEWEST)


def test_memory_is_bounded_however_large_the_table() -> None:
    seating = seats(10**9, epsilon=1e-4)
    assert seating.blocks * seating.size <= MOST_ROWS


@pytest.mark.parametrize(
    ("relation", "unit", "sensitivity"),
    [("replace_one", "row", 2), ("add_remove", "row", 2), ("add_remove", "person", 2), ("replace_one", "person", 4)],
)
def test_the_sensitivity_follows_from_how_records_find_their_block(relation, unit, sensitivity) -> None:  # type: ignore[no-untyped-def]
    assert seats(5000, relation, unit).sensitivity == sensitivity


def test_a_private_number_of_rows_must_be_stated() -> None:
    with pytest.raises(InputError, match="state a rough public number with rows="):
        seats(None, "add_remove")


@pytest.mark.parametrize(("rows", "blocks"), [(63, None), (100, 60), (4000, 1), (4000, 2.5)])
def test_too_few_rows_or_blocks_are_refused(rows: int, blocks: int | None) -> None:
    with pytest.raises(InputError):
        seats(rows, blocks=blocks)


# -- casting


def records(blocks: int, n: int, seed: int = 0) -> Floats:
    """Return blocks whose columns depend on each other."""
    drawn = np.random.default_rng(seed).random((blocks, n, 2))
    drawn[:, :, 1] = 0.7 * drawn[:, :, 0] + 0.3 * drawn[:, :, 1]
    return drawn


def always(blocks: Blocks) -> Floats:
    return np.ones(blocks.count)


def test_a_coarse_or_constant_column_votes_zero() -> None:
    data = records(4, 60)
    data[0, :, 0] = 0.5
    for block, steps in ((1, FEWEST_DISTINCT - 1), (2, FEWEST_DISTINCT)):
        data[block, :, 1] = np.floor(steps * np.argsort(np.argsort(data[block, :, 1])) / 60)
    assert cast(always, data).tolist() == [0, 0, 1, 1]


def test_columns_that_do_not_depend_on_each_other_make_no_vote() -> None:
    rng = np.random.default_rng(1)
    shapes = (rng.normal(size=(400, 60)), rng.lognormal(size=(400, 60)), rng.integers(0, 12, (400, 60)).astype(float))
    for x, y in ((shapes[0], shapes[1]), (shapes[1], shapes[2])):
        assert cast(always, np.stack([x, y], axis=2)).mean() < 2 * DEPENDENT


@pytest.mark.parametrize("shape", ["rises", "bends", "widens"])
def test_columns_that_depend_on_each_other_vote(shape: str) -> None:
    rng = np.random.default_rng(2)
    x, noise = rng.uniform(-1, 1, (50, 200)), rng.normal(size=(50, 200))
    y = {"rises": x + noise, "bends": 3 * x**2 + noise, "widens": (0.2 + np.abs(x)) * noise}[shape]
    assert cast(always, np.stack([x, y], axis=2)).mean() > 0.9
    assert cast(always, np.stack([y, x], axis=2)).mean() > 0.9


def test_incomplete_records_are_left_out_of_their_block_only() -> None:
    data = records(3, 60)
    data[0, :45, 0] = np.nan  # 15 complete
    data[1, :44, 1] = np.nan  # 16 complete
    seen: list[int] = []

    def prefer(blocks: Blocks) -> Floats:
        assert not np.isnan(blocks.x.values).any()
        seen.append(blocks.x.values.shape[1])
        return np.ones(blocks.count)

    assert cast(prefer, data).tolist() == [0, 1, 1]
    assert sorted(seen) == [16, 60]


@pytest.mark.parametrize(
    "answer",
    [np.nan, np.inf, 1e-11, 0.0],
    ids=["nan", "infinity", "rounding", "zero"],
)
def test_what_is_no_clear_preference_votes_zero(answer: float) -> None:
    assert cast(one_by_one(lambda x, y: answer), records(2, 50)).tolist() == [0, 0]


def test_a_function_that_fails_costs_its_own_block_only() -> None:
    data = records(5, 50)
    data[3, 0] = 0.999

    def picky(x: Floats, y: Floats) -> float:
        warnings.warn("this would quote a value", stacklevel=1)
        if x[0] == 0.999:
            raise ZeroDivisionError("private value")
        return -2.5

    assert cast(one_by_one(picky), data).tolist() == [-1, -1, -1, 0, -1]


def test_a_procedure_that_fails_on_one_block_is_asked_again_for_the_others_alone() -> None:
    data = records(5, 50)
    data[3, 0] = 0.999

    def brittle(blocks: Blocks) -> Floats:
        if (blocks.x.values[:, 0] == 0.999).any():
            raise np.linalg.LinAlgError("private value")
        return np.ones(blocks.count)

    assert cast(brittle, data).tolist() == [1, 1, 1, 0, 1]


def test_a_function_is_asked_once_per_block() -> None:
    asked: list[float] = []

    def failing(x: Floats, y: Floats) -> float:
        asked.append(float(x[0]))
        raise ValueError

    data = records(6, 50)
    assert cast(one_by_one(failing), data).tolist() == [0] * 6
    assert asked == data[:, 0, 0].tolist()


@pytest.mark.parametrize("answer", ["yes", None, [1.0, 2.0]], ids=["text", "none", "list"])
def test_a_function_that_gives_no_number_votes_zero(answer: object) -> None:
    assert cast(one_by_one(lambda x, y: answer), records(3, 50)).tolist() == [0, 0, 0]  # type: ignore[arg-type,return-value]


def test_a_function_cannot_change_the_records() -> None:
    data = records(2, 50)
    kept = data.copy()

    def vandal(x: Floats, y: Floats) -> float:
        x[:], y[:] = 0.0, 1.0
        return 1.0

    assert cast(one_by_one(vandal), data).tolist() == [1, 1]
    assert np.array_equal(data, kept)


# -- what a margin is worth


def test_planning_refuses_numbers_that_mean_nothing() -> None:
    for ask, message in (
        (lambda: rows_needed(0), "epsilon must be greater than 0"),
        (lambda: epsilon_needed(0), "rows must be a whole number of at least 1"),
        (lambda: sign_probability(1.0, 0, 2.0), "blocks must be a whole number of at least 1"),
        (lambda: sign_probability(1.0, 20, 0.0), "scale must be greater than 0"),
    ):
        with pytest.raises(InputError, match=message):
            ask()


def test_the_sign_probability_is_bayes_rule_with_every_margin_equally_likely() -> None:
    rng = np.random.default_rng(0)
    blocks, scale = 12, 5.0
    ratio = np.exp(-1 / scale)
    truth = rng.integers(-blocks, blocks + 1, 400_000)
    noise = rng.geometric(1 - ratio, truth.size) - rng.geometric(1 - ratio, truth.size)
    for margin in (1, 6, 12):
        given = truth[truth + noise == margin]
        expected = np.mean(given > 0) + np.mean(given == 0) / 2
        assert sign_probability(margin, blocks, scale) == pytest.approx(expected, abs=0.015)


@pytest.mark.parametrize("scale", [0.02, 2.0, 40.0, 1e6])
@pytest.mark.parametrize("margin", [0, 1, 7, 12, 30])
def test_the_sign_probability_is_the_sum_it_stands_for(margin: int, scale: float) -> None:
    weights = np.exp(-np.abs(min(margin, 12) - np.arange(-12, 13)) / scale)
    expected = (weights[13:].sum() + weights[12] / 2) / weights.sum()
    assert sign_probability(margin, 12, scale) == pytest.approx(expected, abs=1e-12)
    assert 0.5 - 1e-12 <= sign_probability(-margin, 12, scale) <= 1.0


def test_needs_are_found_fast_at_any_budget() -> None:
    assert rows_needed(1e-6) > 1e8
    assert epsilon_needed(10**9) < 1e-6 * 2


def test_a_margin_beyond_all_blocks_makes_nothing_surer() -> None:
    assert sign_probability(500, 20, 40) == sign_probability(20, 20, 40) < 0.65


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
@pytest.mark.parametrize(("blocks", "scale"), [(20, 2.0), (20, 0.2), (200, 20.0), (49, 0.2), (12, 2.0), (489, 2.0)])
def test_coins_come_to_a_verdict_by_chance_and_noise_as_seldom_as_is_said(law, blocks: int, scale: float) -> None:  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(0)
    coins = 2 * rng.binomial(blocks, 0.5, 200_000) - blocks
    if law == "laplace":
        stay = 1 - np.exp(-1 / scale)
        noise = rng.geometric(stay, coins.size) - rng.geometric(stay, coins.size)
    else:
        noise = np.round(scale * rng.standard_normal(coins.size))
    exceeded = np.mean(np.abs(coins + noise) > chance_margin(blocks, scale, law))
    assert CHANCE / 3 < exceeded < 1.6 * CHANCE  # coins come in steps of 2


def test_where_even_agreement_could_be_chance_there_is_no_rule_but_an_explicit_one_stands() -> None:
    assert threshold_of(20, 40.0, None) is None
    assert threshold_of(5, 0.01, None) is None
    assert threshold_of(20, 40.0, 0.0) == 0.0
    assert threshold_of(20, 2.0, None) == chance_margin(20, 2.0) > AGREEMENT * 20
    assert threshold_of(400, 2.0, None) == AGREEMENT * 400


def test_needs_agree_with_each_other() -> None:
    for epsilon in (0.03, 0.1, 0.5):
        rows = rows_needed(epsilon)
        assert rows == LARGEST * blocks_needed(epsilon)
        assert epsilon / 1.2 < epsilon_needed(rows) < 1.2 * epsilon
    assert rows_needed(0.1, sensitivity=4) > 1.8 * rows_needed(0.1)
