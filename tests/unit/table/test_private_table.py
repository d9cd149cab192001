from __future__ import annotations

import datetime
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from escudo.errors import EngineError, InputError, SchemaError
from escudo.privacy import Ledger, MemoryAccount
from escudo.table._columns import Categorical, Numeric
from escudo.table._schema import Schema
from escudo.table._table import PrivateTable

SCHEMA = Schema.from_dict({"smoke": ["no", "yes"], "age": {"type": "numeric", "lower": 0, "upper": 110, "bins": 22}})
SECRET = "Rumpelstiltskin"
ROWS = 12_347


def _frame(**columns: Any) -> pl.DataFrame:
    return pl.DataFrame({"smoke": ["yes", "no", None], "age": [31.0, 77.5, None], **columns})


def test_a_table_knows_its_schema_engine_unit_and_columns() -> None:
    table = PrivateTable(_frame(), SCHEMA)
    assert table.schema == SCHEMA
    assert table.engine == "polars"
    assert table.unit == "row"
    assert table.max_rows_per_person is None
    assert table.columns == ("smoke", "age")


def test_what_is_public_about_a_table_is_counted_only_where_neighbours_share_it() -> None:
    table = PrivateTable(_frame(), SCHEMA)
    assert table.neighbours.rows == 3
    assert table.under(rows=5).neighbours.rows == 5
    private = table.under(relation="add_remove")
    assert (private.relation, private.neighbours.rows) == ("add_remove", None)
    assert private.under(rows=4).neighbours.rows == 4
    assert private.under(rows=4).under(relation="replace_one").neighbours.rows == 4


@pytest.mark.parametrize("said", [{"rows": 0}, {"people": 0}, {"rows": -3}, {"relation": ""}])
def test_what_cannot_be_public_about_a_table_is_refused(said: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(said))):
        PrivateTable(_frame(), SCHEMA).under(**said)


@pytest.mark.parametrize("frame", ["data.parquet", {"smoke": ["no"]}, None, np.zeros((2, 2)), pl.Series([1])])
def test_what_is_no_frame_is_refused_with_the_frames_that_are_taken(frame: object) -> None:
    with pytest.raises(InputError, match=r"pandas, polars .* DuckDB relation") as refused:
        PrivateTable(frame, SCHEMA)
    assert type(frame).__name__ in str(refused.value)
    assert ("scan_parquet" in str(refused.value)) == isinstance(frame, str)


def test_a_schema_must_be_a_schema() -> None:
    with pytest.raises(InputError, match=r"Schema\.from_dict"):
        PrivateTable(_frame(), {"smoke": ["no", "yes"]})  # type: ignore[arg-type]


def test_frames_with_repeated_column_names_are_refused() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame([[SECRET, 1.0, 2.0]], columns=["smoke", "age", "age"])
    with pytest.raises(InputError, match="column names distinct") as refused:
        PrivateTable(frame, SCHEMA)
    assert SECRET not in _whole_story(refused.value)


def test_absent_columns_are_named_with_the_closest_one() -> None:
    with pytest.raises(SchemaError, match=r"column 'smoke';.*Did you mean 'smokes'"):
        PrivateTable(_frame().rename({"smoke": "smokes"}), SCHEMA)


def test_an_absent_person_id_is_named() -> None:
    schema = Schema(SCHEMA.fields, person_id="patient", max_rows_per_person=1)
    with pytest.raises(SchemaError, match="column 'patient'"):
        PrivateTable(_frame(), schema)


@pytest.mark.parametrize(
    ("column", "values", "found"),
    [
        (Numeric("x", 0, 1, 2), ["1", SECRET], "String"),
        (Numeric("x", 0, 1, 2), pl.Series(["1", SECRET], dtype=pl.Enum(["1", SECRET])), "Enum"),
        (Categorical("x", ["a", "b"]), [1, 2], "Int64"),
        (Categorical("x", ["a", "b"]), [True, False], "Boolean"),
        (Categorical("x", [1, 2]), ["1", "2"], "String"),
        (Categorical("x", [True, False]), ["true", "false"], "String"),
        (Categorical("x", ["2020-01-01"]), [datetime.date(2020, 1, 1)], "Date"),
        (Numeric("x", 0, 1, 2), [datetime.datetime(2020, 1, 1)], "Datetime"),
        (Categorical("x", [1]), [[1]], "List"),
    ],
)
def test_a_type_that_cannot_hold_the_column_is_refused_by_its_name_only(column: Any, values: Any, found: str) -> None:
    with pytest.raises(SchemaError, match=f"column 'x'.*is {found}; cast it to") as refused:
        PrivateTable(pl.DataFrame({"x": values}), Schema((column,)))
    assert SECRET not in str(refused.value)


def test_dictionary_types_are_judged_by_the_type_of_their_values() -> None:
    pa = pytest.importorskip("pyarrow")
    numbers, texts = Schema((Numeric("x", 0, 9, 3),)), Schema((Categorical("x", ["a"]),))
    frame = pa.table({"x": pa.array([1, 2]).dictionary_encode()})
    assert PrivateTable(frame, numbers).counts("x").tolist() == [2, 0, 0]
    with pytest.raises(SchemaError, match="column 'x'"):
        PrivateTable(frame, texts)


def test_categories_of_pandas_come_from_values_and_are_never_judged() -> None:
    pd = pytest.importorskip("pandas")
    texts, numbers = Schema((Categorical("x", ["a"], missing=True),)), Schema((Numeric("x", 0, 9, 3, missing=True),))
    for values, as_texts, as_numbers in (
        (["a", "b"], [1, 1], [0, 0, 0, 2]),
        (["a", 7], [1, 1], [0, 0, 1, 1]),
        ([1, 7], [0, 2], [1, 0, 1, 0]),
        ([None, None], [0, 2], [0, 0, 0, 2]),
        (["a", "\ud800"], [1, 1], [0, 0, 0, 2]),
    ):
        frame = pd.DataFrame({"x": pd.Categorical(pd.Series(values, dtype=object))})
        assert PrivateTable(frame, texts).counts("x").tolist() == as_texts
        assert PrivateTable(frame, numbers).counts("x").tolist() == as_numbers


def test_a_column_without_any_value_counts_as_missing() -> None:
    pa = pytest.importorskip("pyarrow")
    schema = Schema((Categorical("x", ["a"], missing=True), Numeric("y", 0, 1, 2, missing=True)))
    for frame in (pl.DataFrame({"x": [None, None], "y": [None, None]}), pa.table({"x": pa.nulls(2), "y": pa.nulls(2)})):
        assert PrivateTable(frame, schema).counts(["x", "y"]).tolist() == [[0, 0, 0], [0, 0, 2]]


@pytest.mark.parametrize("dtype", [pl.Binary, pl.Date, pl.List(pl.Int64)])
def test_a_person_id_must_be_whole_numbers_or_text(dtype: Any) -> None:
    schema = Schema(SCHEMA.fields, person_id="patient", max_rows_per_person=1)
    with pytest.raises(SchemaError, match=r"person id 'patient'.*cast it to whole numbers or text"):
        PrivateTable(_frame(patient=pl.Series([None, None, None], dtype=dtype)), schema)


def test_a_frame_without_columns_is_refused() -> None:
    with pytest.raises(SchemaError, match="does not have"):
        PrivateTable(pl.DataFrame(), SCHEMA)


def test_an_empty_lazy_frame_counts_nothing() -> None:
    table = PrivateTable(_frame().clear().lazy(), SCHEMA)
    assert table.counts(["smoke", "age"]).sum() == 0
    assert list(table.batches()) == []


def test_nothing_is_read_before_something_is_asked() -> None:
    read: list[str] = []

    def spy(frame: pl.DataFrame) -> pl.DataFrame:
        read.append("read")
        return frame

    lazy = _frame().lazy().map_batches(spy, schema={"smoke": pl.String, "age": pl.Float64})
    table = PrivateTable(lazy, SCHEMA)
    repr(table)
    table._repr_html_()
    batches = table.batches()
    assert not read
    assert table.counts("smoke").tolist() == [2, 1]
    assert read
    assert len(next(batches)) == 3


def test_columns_outside_the_schema_are_never_touched() -> None:
    def explode(frame: pl.Series) -> pl.Series:
        raise AssertionError("touched")

    lazy = _frame().lazy().with_columns(pl.col("age").map_batches(explode, return_dtype=pl.Float64).alias("private"))
    assert PrivateTable(lazy, SCHEMA).counts(["smoke"]).sum() == 3


def test_what_is_shown_holds_no_value_and_no_number_of_rows() -> None:
    data = {"smoke": ["yes"] * (ROWS - 1) + [SECRET], "age": [61.125] * ROWS}
    pd, duckdb = pytest.importorskip("pandas"), pytest.importorskip("duckdb")
    polars = pl.DataFrame(data)
    frames = [
        polars,
        polars.lazy(),
        pd.DataFrame(data),
        polars.to_arrow(),
        duckdb.from_arrow(polars.to_arrow()),
    ]
    for frame in frames:
        table = PrivateTable(frame, SCHEMA)
        shown = " ".join([repr(table), str(table), table._repr_html_(), repr(table._source), f"{table.account!r}"])
        for hidden in (SECRET, "61.125", str(ROWS), f"{ROWS:,}"):
            assert hidden not in shown


def test_the_html_card_escapes_names() -> None:
    name = "<script>alert(1)</script>"
    table = PrivateTable(pl.DataFrame({name: ["a"]}), Schema((Categorical(name, ["a"]),)))
    assert name not in table._repr_html_()


def test_an_engine_error_never_shows_values() -> None:
    def fail(series: pl.Series) -> pl.Series:
        raise ValueError(f"cannot parse {SECRET}")

    lazy = _frame().lazy().with_columns(pl.col("age").map_batches(fail, return_dtype=pl.Float64))
    table = PrivateTable(lazy, SCHEMA)
    for ask in (
        lambda: table.counts("age"),
        lambda: list(table.batches()),
        lambda: table.value_counts("age"),
        lambda: table.with_columns(Numeric("age", 0, 1, 1)).counts("age"),
    ):
        with pytest.raises(EngineError, match="polars engine failed while") as failed:
            ask()
        assert SECRET not in _whole_story(failed.value)
        assert "escudo schema check" in str(failed.value)
        assert failed.value.exit_code == 2  # the data's fault or the machine's, no bug of ours
        assert failed.value.__cause__ is None
        assert failed.value.__context__ is None


def _whole_story(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)) + repr(error.__context__) + repr(error.__cause__)


def test_columns_may_have_any_name_in_any_engine() -> None:
    duckdb = pytest.importorskip("duckdb")
    names = ["n", 'say "cheese"', "person", "c0", "absent", "ünï çode", "two\nlines", "select", "w0"]
    data = pl.DataFrame({name: ["a", "b", "b"] for name in names} | {"person_number": [1, 1, 2]})
    fields = tuple(Categorical(name, ["a", "b"]) for name in names)
    connection = duckdb.connect()
    for person in ({}, {"person_id": "person_number", "max_rows_per_person": 5}):
        for frame in (data, data.to_arrow(), connection.from_arrow(data.to_arrow())):
            table = PrivateTable(frame, Schema(fields, **person))
            assert [counts.tolist() for counts in table.counts([[name] for name in names])] == [[1, 2]] * len(names)


@pytest.mark.parametrize("name", ["*", "^a.*$"])
def test_a_name_that_polars_would_read_as_a_pattern_is_refused(name: str) -> None:
    with pytest.raises(SchemaError, match="rename it"):
        PrivateTable(pl.DataFrame({name: ["a"], "apple": ["b"]}), Schema((Categorical(name, ["a"]),)))


@pytest.mark.parametrize(("default", "collation"), [("", "COLLATE NOCASE"), ("nocase", "")])
def test_duckdb_text_is_compared_by_exact_characters_under_any_collation(default: str, collation: str) -> None:
    connection = pytest.importorskip("duckdb").connect()
    connection.execute(f"SET default_collation = '{default}'")
    connection.execute(f"CREATE TABLE t (x VARCHAR {collation})")
    connection.execute("INSERT INTO t VALUES ('no'), ('NO'), ('yes')")
    table = PrivateTable(connection.table("t"), Schema((Categorical("x", ["no", "yes"], missing=True),)))
    assert table.counts("x").tolist() == [1, 1, 1]


class TestAccount:
    def test_without_a_ledger_an_account_in_memory_with_the_schemas_unit_is_used(self) -> None:
        schema = Schema(SCHEMA.fields, person_id="patient", max_rows_per_person=4)
        account = PrivateTable(_frame(patient=[1, 2, 3]), schema).account
        assert isinstance(account, MemoryAccount)
        assert (account.unit, account.max_rows_per_person) == ("person", 4)

    def test_a_ledger_or_its_url_gives_the_datasets_account(self, tmp_path: Path) -> None:
        url = f"sqlite:///{tmp_path / 'ledger.db'}"
        ledger = Ledger(url)
        ledger.open("clinic", epsilon=2.0, relation="add_remove")
        for given in (url, ledger):
            table = PrivateTable(_frame(), SCHEMA, ledger=given, dataset="clinic")
            assert table.account.relation == "add_remove"
            assert table.sensitivity().l1 == 1

    def test_an_account_can_be_given_itself(self) -> None:
        account = MemoryAccount(epsilon=1.0)
        assert PrivateTable(_frame(), SCHEMA, ledger=account).account is account

    def test_a_ledger_needs_a_dataset_and_a_dataset_a_ledger(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"dataset='\.\.\.'"):
            PrivateTable(_frame(), SCHEMA, ledger=f"sqlite:///{tmp_path / 'ledger.db'}")
        with pytest.raises(InputError, match="ledger too"):
            PrivateTable(_frame(), SCHEMA, dataset="clinic")
        with pytest.raises(InputError, match="ledger too"):
            PrivateTable(_frame(), SCHEMA, ledger=MemoryAccount(), dataset="clinic")

    def test_what_is_no_ledger_is_refused(self) -> None:
        with pytest.raises(InputError, match="got int"):
            PrivateTable(_frame(), SCHEMA, ledger=3, dataset="clinic")  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        "account", [MemoryAccount(), MemoryAccount(unit="person", max_rows_per_person=5)], ids=["row", "person"]
    )
    def test_an_account_of_another_unit_is_refused(self, account: MemoryAccount) -> None:
        schema = Schema(SCHEMA.fields, person_id="patient", max_rows_per_person=4)
        with pytest.raises(InputError, match="but the schema one person with at most 4 rows"):
            PrivateTable(_frame(patient=[1, 2, 3]), schema, ledger=account)


@pytest.mark.parametrize("seed", [-1, 1.5, "x", None, True])
def test_the_sample_seed_must_be_a_whole_number(seed: Any) -> None:
    with pytest.raises(InputError, match="sample_seed"):
        PrivateTable(_frame(), SCHEMA, sample_seed=seed)


def test_the_same_table_can_be_cut_anew_and_charged_elsewhere() -> None:
    table = PrivateTable(pl.DataFrame({"x": [1, 2, 3]}), Schema((Numeric("x", 0, 4, 2),)), sample_seed=5)
    fine = table.with_columns(Numeric("x", 0, 4, 4))
    assert fine.counts("x").tolist() == [0, 1, 1, 1]
    assert table.counts("x").tolist() == [1, 2]
    assert fine.account is table.account
    other = MemoryAccount(relation="add_remove")
    assert table.with_account(other).account is other
    with pytest.raises(SchemaError, match="no column 'y'"):
        table.with_columns(Numeric("y", 0, 4, 4))
    with pytest.raises(SchemaError, match="its type in the table is Int64"):
        table.with_columns(Categorical("x", ["a"]))
    with pytest.raises(InputError, match="protects one person"):
        table.with_account(MemoryAccount(unit="person", max_rows_per_person=2))


def test_hashes_of_people_need_people_and_columns_are_named_once() -> None:
    table = PrivateTable(pl.DataFrame({"x": [1, 2, 3]}), Schema((Numeric("x", 0, 4, 2),)))
    with pytest.raises(InputError, match="no person_id"):
        table.person_batches()
    with pytest.raises(InputError, match="names 'x' twice"):
        table.batches(columns=["x", "x"])
    with pytest.raises(SchemaError, match="no column 'z'"):
        table.value_counts("z")


def test_levels_without_an_order_have_no_way_from_0_to_1() -> None:
    frame = pl.DataFrame({"x": ["a", "b", "c"], "one": ["a", "a", "z"]})
    table = PrivateTable(frame, Schema((Categorical("x", ["a", "b", "c"]), Categorical("one", ["a"], missing=True))))
    with pytest.raises(SchemaError, match=r"'x' is categorical without an order .* encode='codes'"):
        table.batches(columns=["x"], encode="shares")
    (alone,) = table.batches(columns=["one"], encode="shares")
    np.testing.assert_array_equal(alone[:, 0], [0.0, 0.0, np.nan])
