from __future__ import annotations

import itertools
import math
import uuid
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pytest

from escudo.errors import InputError
from escudo.table._columns import Categorical, Numeric
from escudo.table._counts import CountSensitivity, count_sensitivity
from escudo.table._schema import Schema
from escudo.table._table import PrivateTable

PEOPLE = 40
FIELDS = (
    Categorical("who", range(PEOPLE)),  # a copy of the person, so that a test can see whose rows were kept
    Categorical("ill", ["no", "yes"], missing=True),
    Numeric("age", 0, 100, 10),
)


def _schema(rows: int, fields: Any = FIELDS) -> Schema:
    return Schema(fields, person_id="id", max_rows_per_person=rows)


def _rows(seed: int = 0, people: int = PEOPLE) -> pl.DataFrame:
    """Person p has p mod 9 rows, in random order."""
    rng = np.random.default_rng(seed)
    who = np.concatenate([np.full(person % 9, person) for person in range(people)])
    rng.shuffle(who)
    return pl.DataFrame(
        {
            "who": who,
            "ill": [("no", "yes", "perhaps", None)[i] for i in rng.integers(0, 4, who.size)],
            "age": rng.uniform(-10, 120, who.size),
        }
    )


def _ids(kind: str, who: Any) -> list[Any]:
    """Name each person in one of many ways; all but the last keep to one type."""
    odd = [lambda p: p, lambda p: f"{p}", lambda p: p + 0.5, lambda p: uuid.UUID(int=p), lambda p: Decimal(p) / 4 + 100]
    made = {
        "integers": lambda p: int(p) * 7919 - 90_000,
        "text": lambda p: f"pätient {p}",
        "floats": lambda p: float(p),
        "mixed objects": lambda p: odd[p % len(odd)](int(p)),
    }
    return [made[kind](p) for p in who]


KINDS = ["integers", "text", "floats", "mixed objects"]


def _frame(rows: pl.DataFrame, kind: str, engine: str = "polars") -> Any:
    ids = _ids(kind, rows["who"].to_list())
    if kind == "mixed objects":
        pd = pytest.importorskip("pandas")
        return rows.to_pandas().assign(id=pd.Series(ids, dtype=object))
    frame = rows.with_columns(pl.Series("id", ids))
    return frame if engine == "polars" else pytest.importorskip("duckdb").from_arrow(frame.to_arrow())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 2, 5, 8, 10**20])
def test_exactly_the_allowed_number_of_rows_of_each_person_is_kept(kind: str, rows: int) -> None:
    kept = PrivateTable(_frame(_rows(), kind), _schema(rows)).counts("who")
    assert kept.tolist() == [min(rows, person % 9) for person in range(PEOPLE)]


@pytest.mark.parametrize("engine", ["polars", "duckdb"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_kept_of_a_person_does_not_depend_on_anybody_else(kind: str, engine: str) -> None:
    rows = _rows(1, people=18)
    tables = [("ill", "age"), ("who", "ill"), ("age", "who")]
    schema = _schema(3)
    together = PrivateTable(_frame(rows, kind, engine), schema).counts(tables)
    alone = [np.zeros_like(counts) for counts in together]
    for person in sorted(set(rows["who"])):
        own = PrivateTable(_frame(rows.filter(pl.col("who") == person), kind, engine), schema)
        for total, counts in zip(alone, own.counts(tables), strict=True):
            total += counts
    for counts, total in zip(together, alone, strict=True):
        np.testing.assert_array_equal(counts, total)


def test_the_sample_does_not_depend_on_the_order_of_the_rows() -> None:
    rows = _rows(2)
    fields = (FIELDS[1], FIELDS[2])
    found = []
    for seed in range(3):
        table = PrivateTable(_frame(rows.sample(fraction=1, shuffle=True, seed=seed), "text"), _schema(3, fields))
        scaled = np.concatenate(list(table.batches(columns=["age"], encode="scaled"))).ravel()
        found.append((table.counts(["ill", "age"]).tolist(), np.sort(scaled).tolist()))
    assert found[0] == found[1] == found[2]


def test_all_queries_see_the_same_sample() -> None:
    table = PrivateTable(_frame(_rows(3), "integers"), _schema(2))
    full = table.counts(["who", "ill", "age"])
    np.testing.assert_array_equal(table.counts(["ill", "age"]), full.sum(axis=0))
    np.testing.assert_array_equal(table.counts("age"), full.sum(axis=(0, 1)))
    cells = np.zeros_like(full)
    np.add.at(cells, tuple(np.concatenate(list(table.batches(7))).T), 1)
    np.testing.assert_array_equal(cells, full)
    scaled = np.concatenate(list(table.batches(7, ["age"], encode="scaled"))).ravel()
    np.testing.assert_array_equal(np.histogram((scaled + 1) * 50, bins=10, range=(0, 100))[0], full.sum(axis=(0, 1)))


def test_the_seed_is_public_and_decides_the_sample() -> None:
    frame = _frame(_rows(4), "text")
    first = PrivateTable(frame, _schema(2), sample_seed=1).counts(["who", "ill", "age"])
    again = PrivateTable(frame, _schema(2), sample_seed=1).counts(["who", "ill", "age"])
    other = PrivateTable(frame, _schema(2), sample_seed=2).counts(["who", "ill", "age"])
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    np.testing.assert_array_equal(first.sum(axis=(1, 2)), other.sum(axis=(1, 2)))


@pytest.mark.parametrize("kind", ["integers", "text"])
def test_every_row_is_equally_likely_to_be_kept(kind: str) -> None:
    people, rows, kept = 3000, 5, 2
    frame = pl.DataFrame({"who": np.repeat(np.arange(people), rows), "place": np.tile(np.arange(rows), people)})
    frame = frame.with_columns(pl.Series("id", _ids(kind, frame["who"])))
    counts = PrivateTable(frame, _schema(kept, (Categorical("place", range(rows)),))).counts("place")
    assert counts.sum() == people * kept
    # Each count is binomial if the hash spreads evenly: five standard deviations, a false alarm in a million.
    deviation = math.sqrt(people * (kept / rows) * (1 - kept / rows))
    assert np.abs(counts - people * kept / rows).max() < 5 * deviation


@pytest.mark.parametrize("engine", ["polars", "duckdb"])
@pytest.mark.parametrize("kind", ["integers", "text", "floats"])
def test_rows_without_a_person_are_left_out(kind: str, engine: str) -> None:
    rows = _rows(5)
    ids = pl.Series("id", _ids(kind, rows["who"]))
    frame: Any = rows.with_columns(pl.when(pl.col("who") % 3 == 0).then(None).otherwise(ids).alias("id"))
    if kind == "floats":
        frame = frame.with_columns(pl.col("id").fill_null(math.nan))
    if engine == "duckdb":
        frame = pytest.importorskip("duckdb").from_arrow(frame.to_arrow())
    kept = PrivateTable(frame, _schema(4)).counts("who")
    assert kept.tolist() == [0 if person % 3 == 0 else min(4, person % 9) for person in range(PEOPLE)]


@pytest.mark.parametrize(
    "dtype", [pl.Int8, pl.UInt8, pl.UInt16, pl.Int64, pl.UInt64, pl.Int128, pl.Float32, pl.Float64]
)
def test_the_type_of_a_whole_number_does_not_matter(dtype: Any) -> None:
    rows = _rows(6)
    plain = PrivateTable(rows.with_columns(id="who"), _schema(2)).counts(["who", "ill", "age"])
    cast = PrivateTable(rows.with_columns(id=pl.col("who").cast(dtype)), _schema(2)).counts(["who", "ill", "age"])
    np.testing.assert_array_equal(cast, plain)


def test_the_largest_whole_numbers_are_people_too() -> None:
    frame = pl.DataFrame({"who": [0, 1, 2] * 4, "id": pl.Series([2**64 - 1, 0, 2**63] * 4, dtype=pl.UInt64)})
    assert PrivateTable(frame, _schema(2, (Categorical("who", range(3)),))).counts("who").tolist() == [2, 2, 2]


@pytest.mark.parametrize(("default", "collation"), [("", "COLLATE NOCASE"), ("nocase", "")])
def test_ids_that_differ_in_case_are_different_people_under_any_collation(default: str, collation: str) -> None:
    connection = pytest.importorskip("duckdb").connect()
    connection.execute(f"SET default_collation = '{default}'")
    connection.execute(f"CREATE TABLE t (who INT, id VARCHAR {collation})")
    connection.execute("INSERT INTO t SELECT i % 2, CASE WHEN i % 2 = 0 THEN 'ann' ELSE 'ANN' END FROM range(20) r(i)")
    table = PrivateTable(connection.table("t"), _schema(3, (Categorical("who", [0, 1]),)))
    assert table.counts("who").tolist() == [3, 3]


class TestSensitivity:
    """The stated sensitivities are the largest that any two neighbouring tables reach."""

    @pytest.mark.parametrize("rows", [1, 2, 3])
    @pytest.mark.parametrize("tables", [1, 2])
    @pytest.mark.parametrize("relation", ["replace_one", "add_remove"])
    def test_it_is_attained_and_never_exceeded(self, relation: Any, tables: int, rows: int) -> None:
        cells = list(itertools.product(range(3), range(2)))  # two columns, counted in one or two tables
        people = [hand for number in range(rows + 1) for hand in itertools.combinations_with_replacement(cells, number)]

        def counted(hand: tuple[tuple[int, int], ...]) -> Any:
            first, second = np.zeros(3), np.zeros(2)
            for a, b in hand:
                first[a] += 1
                second[b] += 1
            return first if tables == 1 else np.concatenate([first, second])

        vectors = np.array([counted(hand) for hand in people])
        others = vectors if relation == "replace_one" else np.zeros((1, vectors.shape[1]))
        change = np.abs(vectors[:, None, :] - others[None, :, :])
        unit: Any = "row" if rows == 1 else "person"
        stated = count_sensitivity(
            tables, relation=relation, unit=unit, max_rows_per_person=None if unit == "row" else rows
        )
        assert change.sum(axis=2).max() == stated.l1
        assert math.isclose(np.sqrt((change**2).sum(axis=2)).max(), stated.l2, rel_tol=1e-12)
        if rows == 1:
            assert (change > 0).sum(axis=2).max() == stated.changed_cells
            assert change.max() == 1
        else:
            assert change.max() > 1
            assert stated.changed_cells is None

    def test_a_person_of_one_row_is_as_sensitive_as_a_row(self) -> None:
        assert count_sensitivity(3, unit="person", max_rows_per_person=1) == count_sensitivity(3)

    def test_square_roots_are_rounded_up(self) -> None:
        from fractions import Fraction

        for tables in range(1, 200):
            assert Fraction(count_sensitivity(tables).l2) ** 2 >= 2 * tables
        assert count_sensitivity(2).l2 == 2.0

    def test_a_table_states_its_own(self) -> None:
        person = PrivateTable(_frame(_rows(), "text"), _schema(3))
        assert person.sensitivity() == CountSensitivity(l1=6.0, l2=pytest.approx(3 * math.sqrt(2)), changed_cells=None)
        assert person.sensitivity(4, relation="add_remove").l2 == 6.0
        row = PrivateTable(_rows(), Schema(FIELDS))
        assert row.sensitivity(8) == CountSensitivity(l1=16.0, l2=4.0, changed_cells=16)

    @pytest.mark.parametrize("tables", [0, -1, 1.5, True])
    def test_the_number_of_tables_must_be_positive(self, tables: Any) -> None:
        with pytest.raises(InputError, match="tables"):
            count_sensitivity(tables)

    def test_the_unit_and_its_rows_go_together(self) -> None:
        with pytest.raises(InputError, match="max_rows_per_person"):
            count_sensitivity(unit="person")
        with pytest.raises(InputError, match="max_rows_per_person"):
            count_sensitivity(max_rows_per_person=3)
        with pytest.raises(InputError, match="relation"):
            count_sensitivity(relation="neighbours")  # type: ignore[arg-type]


def test_a_text_that_is_no_valid_unicode_is_no_error_in_a_column_nor_as_a_person() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(
        {
            "x": pd.Series(["a", "\ud800", "b", None, "a"], dtype=object),
            "who": pd.Series(["\ud800", "q", "\ud800", "s", "\udfff"], dtype=object),
        }
    )
    column = Categorical("x", ["a", "b"], missing=True)
    table = PrivateTable(frame, Schema((column,), person_id="who", max_rows_per_person=1))
    assert table.counts("x").sum() == table.record_count() == 4
    assert dict(PrivateTable(frame, Schema((column,))).value_counts("x")) == {"a": 2, "b": 1}
