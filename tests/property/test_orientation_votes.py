"""Attacks on the sensitivity of votes: no neighbour moves the exact margins further than the noise was made for."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from escudo.orientation import PROCEDURES, PairData
from escudo.orientation._blocks import Blocks, Preference, cast, one_by_one
from escudo.orientation._direction import Batch, batches_of
from escudo.orientation._votes import Seating, seating_of
from escudo.privacy import Neighbours
from escudo.table import PrivateTable, Schema

Floats = NDArray[np.float64]
ROWS = 400
SPEC = {"type": "numeric", "lower": 0.0, "upper": 1.0, "missing": True}


def unruly(x: Floats, y: Floats) -> float:
    """A procedure as unstable as can be: any change of its block turns a coin over, and some make it fail."""
    digest = hashlib.sha256(x.tobytes() + y.tobytes()).digest()[0]
    if digest % 5 == 0:
        raise ArithmeticError
    return float(digest % 3) - 1.0


def data(seed: int, rows: int = ROWS, *, strength: float = 0.5) -> Floats:
    rng = np.random.default_rng(seed)
    x = rng.random(rows)
    return np.c_[x, np.clip(strength * x + (1 - strength) * rng.random(rows), 0, 1)]


def margin(
    values: Floats, prefer: Preference, *, relation: Any, people: NDArray[np.int64] | None = None, blocks: int = 8
) -> int:
    """Return the exact margin that would be released with noise, through the table as a user has it."""
    frame = pl.DataFrame(values, schema=["x", "y"], orient="row").fill_nan(None)
    terms: dict[str, Any] = {}
    if people is not None:
        frame = frame.with_columns(pl.Series("who", people))
        terms = {"person_id": "who", "max_rows_per_person": 4}
    table = PrivateTable(frame, Schema.from_dict({"x": SPEC, "y": SPEC}, **terms))
    known = {} if relation == "replace_one" else {"rows": ROWS}
    seating = seating_of(table.under(relation=relation, **known).neighbours, epsilon=1.0, blocks=blocks)
    return int(cast(prefer, seating.gather(PairData(table, "x", "y").batches(), 2)).sum())


records = st.tuples(*[st.one_of(st.floats(0, 1), st.just(float("nan")), st.floats(-1e300, 1e300))] * 2)


@pytest.mark.parametrize("name", ["unruly", "committee", "committee-3", "trained"])
@given(seed=st.integers(0, 50), row=st.integers(0, ROWS - 1), new=records)
def test_replacing_a_row_moves_the_margin_by_at_most_2(
    name: str, seed: int, row: int, new: tuple[float, float]
) -> None:
    prefer = one_by_one(unruly) if name == "unruly" else PROCEDURES[name].prefer
    here, there = data(seed), data(seed)
    there[row] = new
    moved = margin(there, prefer, relation="replace_one") - margin(here, prefer, relation="replace_one")
    assert abs(moved) <= 2


def always(blocks: Blocks) -> Floats:
    """A procedure that votes the same wherever it is let: what moves is whether a block may vote."""
    return np.ones(blocks.count)


@given(seed=st.integers(0, 50), row=st.integers(0, ROWS - 1), new=records, strength=st.floats(0, 0.4))
def test_a_block_that_may_or_may_not_vote_moves_the_margin_by_no_more(
    seed: int, row: int, new: tuple[float, float], strength: float
) -> None:
    here, there = data(seed, strength=strength), data(seed, strength=strength)
    there[row] = new
    for prefer, most in ((always, 1), (one_by_one(unruly), 2)):
        moved = margin(there, prefer, relation="replace_one") - margin(here, prefer, relation="replace_one")
        assert abs(moved) <= most


def test_one_row_decides_whether_its_block_votes() -> None:
    here = data(0, strength=0.3)
    base, moves = margin(here, always, relation="replace_one"), set()
    for row in range(0, ROWS, 4):
        there = here.copy()
        there[row] = (0.0, 1.0)
        moves.add(margin(there, always, relation="replace_one") - base)
    assert moves == {-1, 0, 1}


@given(seed=st.integers(0, 50), row=st.integers(0, ROWS - 1), new=records)
def test_adding_a_row_moves_the_margin_by_at_most_2(seed: int, row: int, new: tuple[float, float]) -> None:
    prefer = one_by_one(unruly)
    here = data(seed)
    there = np.insert(here, row, new, axis=0)
    moved = margin(there, prefer, relation="add_remove") - margin(here, prefer, relation="add_remove")
    assert abs(moved) <= 2


@given(
    seed=st.integers(0, 50),
    person=st.integers(0, ROWS // 2 - 1),
    identity=st.integers(-(2**40), 2**40),
    new=st.lists(records, min_size=1, max_size=6),
)
def test_replacing_a_person_with_all_their_rows_moves_the_margin_by_at_most_4(
    seed: int, person: int, identity: int, new: list[tuple[float, float]]
) -> None:
    prefer = one_by_one(unruly)
    here, whose = data(seed), np.arange(ROWS) // 2
    if identity in whose:
        identity = person
    others = whose != person
    there = np.vstack([here[others], np.array(new)])
    people = np.append(whose[others], np.full(len(new), identity))
    moved = margin(there, prefer, relation="replace_one", people=people) - margin(
        here, prefer, relation="replace_one", people=whose
    )
    assert abs(moved) <= 4


@given(seed=st.integers(0, 50), person=st.integers(0, ROWS // 2 - 1))
def test_removing_a_person_with_all_their_rows_moves_the_margin_by_at_most_2(seed: int, person: int) -> None:
    prefer = one_by_one(unruly)
    here, whose = data(seed), np.arange(ROWS) // 2
    others = whose != person
    moved = margin(here[others], prefer, relation="add_remove", people=whose[others]) - margin(
        here, prefer, relation="add_remove", people=whose
    )
    assert abs(moved) <= 2


def mean_sign(blocks: Blocks) -> Floats:
    """A procedure that a single extreme record can turn."""
    return blocks.x.values.mean(axis=1) - 0.5


def test_the_bound_of_2_is_attained_by_replacing_a_row() -> None:
    x = np.tile([0.499, 0.501], ROWS // 2) + 1e-6 * np.arange(ROWS)
    here = np.c_[x, x + 1e-4 * data(0)[:, 1]]
    moves = []
    for row in range(0, ROWS, 7):
        there = here.copy()
        there[row, 0] = 0.0 if here[row, 0] > 0.5 else 1.0
        moves.append(margin(there, mean_sign, relation="replace_one") - margin(here, mean_sign, relation="replace_one"))
    assert max(map(abs, moves)) == 2


def test_the_bound_of_4_is_attained_by_replacing_a_person_who_moves_to_another_block() -> None:
    rng = np.random.default_rng(0)
    whose = np.arange(ROWS)
    most = 0
    for _ in range(300):
        # Every block just above or below; one person leaves a block they hold up, and pulls another one down.
        x = 0.5 + 2e-4 * rng.standard_normal(ROWS)
        here = np.c_[x, x + 1e-5 * rng.random(ROWS)]
        who = int(rng.integers(ROWS))
        here[who, 0] = 1.0
        there, people = here.copy(), whose.copy()
        there[who, 0], people[who] = 0.0, ROWS + int(rng.integers(10_000))
        moved = margin(there, mean_sign, relation="replace_one", people=people, blocks=4) - margin(
            here, mean_sign, relation="replace_one", people=whose, blocks=4
        )
        most = max(most, abs(moved))
        if most == 4:
            break
    assert most == 4


def test_hill_climbing_finds_no_neighbour_beyond_the_bound() -> None:
    rng = np.random.default_rng(1)
    prefer = PROCEDURES["committee"].prefer
    here = data(3)
    base = margin(here, prefer, relation="replace_one")
    corners = np.array([[0, 0], [0, 1], [1, 0], [1, 1], [0.5, 0.5], [np.nan, 0.5]])
    worst = 0
    for _ in range(60):
        there = here.copy()
        there[rng.integers(ROWS)] = corners[rng.integers(len(corners))]
        moved = margin(there, prefer, relation="replace_one") - base
        if abs(moved) > worst:  # go on from the worst neighbour: each step is again a neighbour of its start
            worst = abs(moved)
        here, base = (there, base + moved) if rng.random() < 0.5 else (here, base)
    assert worst <= 2


@given(seed=st.integers(0, 30), row=st.integers(0, ROWS - 1), new=st.tuples(*[st.floats(0, 1)] * 3))
def test_all_margins_of_many_pairs_move_by_at_most_2_each(seed: int, row: int, new: tuple[float, float, float]) -> None:
    rng = np.random.default_rng(seed)
    here = rng.random((ROWS, 3))
    there = here.copy()
    there[row] = new

    def margins(values: Floats) -> NDArray[np.int64]:
        table = PrivateTable(
            pl.DataFrame(values, schema=["a", "b", "c"], orient="row"), Schema.from_dict(dict.fromkeys("abc", SPEC))
        )
        seating = seating_of(Neighbours(rows=ROWS), epsilon=1.0, blocks=8)
        gathered = seating.gather(batches_of(table, ("a", "b", "c")), 3)
        chosen = ([0, 1], [0, 2], [1, 2])
        return np.array([cast(one_by_one(unruly), gathered[:, :, pair]).sum() for pair in chosen])

    moved = margins(there) - margins(here)
    assert np.abs(moved).sum() <= 2 * 3
    assert np.sqrt((moved**2).sum()) <= 2 * np.sqrt(3)


@given(seed=st.integers(0, 10**6), persons=st.booleans(), cuts=st.integers(1, 7))
def test_seats_do_not_depend_on_the_order_or_the_pieces_in_which_rows_come(seed: int, persons: bool, cuts: int) -> None:
    rng = np.random.default_rng(seed)
    rows = int(rng.integers(1, 900))
    values = rng.integers(0, 4, (rows, 2)) / 4 if rng.random() < 0.5 else rng.random((rows, 2))
    values[rng.random(rows) < 0.1, 0] = np.nan
    whose = rng.integers(0, 2**31 - 1, rows)[rng.integers(0, rows, rows)] if persons else None
    seating = Seating(blocks=5, size=60, rows=None, assigned_by="value", shuffle=seed % 3, sensitivity=2)

    def gathered(order: NDArray[np.int64], pieces: int) -> NDArray[np.float64]:
        parts = np.array_split(order, pieces)
        return seating.gather([Batch(values[part], None if whose is None else whose[part]) for part in parts], 2)

    everyone = gathered(np.arange(rows), 1)
    assert np.array_equal(everyone, gathered(rng.permutation(rows), cuts), equal_nan=True)
    # Somebody who goes, and whose rows were anywhere among the others', changes one block and no other.
    gone = int(rng.integers(rows))
    left = np.flatnonzero(np.arange(rows) != gone if whose is None else whose != whose[gone])
    others = gathered(rng.permutation(left), cuts)
    assert sum(not np.array_equal(a, b, equal_nan=True) for a, b in zip(everyone, others, strict=True)) <= 1
