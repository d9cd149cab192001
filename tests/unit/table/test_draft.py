from __future__ import annotations

import datetime as dt
import json
import math
import traceback
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from time import process_time
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from escudo.errors import InputError, SchemaError
from escudo.table import Categorical, Column, Numeric, PrivateTable, Schema, check, draft, outline, scan
from escudo.table._files import hide_values

ROWS = 60
CLINIC = pl.DataFrame(
    {
        "patient_id": [f"P{i // 2}" for i in range(ROWS)],
        "smoke": ["no", "yes", None] * (ROWS // 3),
        "age": [17 + (i * 6) % 77 for i in range(ROWS)],
        "stage": [1, 2, 3, 4] * (ROWS // 4),
        "weight": [40.5 + i for i in range(ROWS)],
        "dose": [float("nan"), 1.0, 2.0] * (ROWS // 3),
        "steps": [float(100 * i) for i in range(ROWS)],
        "alive": [True, False, True] * (ROWS // 3),
        "seen": [dt.date(2026, 1, 1)] * ROWS,
        "code": [f"free text {i}" for i in range(ROWS)],
    }
)
EXPECTED = {
    "smoke": Categorical("smoke", ["no", "yes"], missing=True, confirmed=False),
    "age": Numeric("age", 10, 100, integer=True, confirmed=False),
    "stage": Categorical("stage", [1, 2, 3, 4], confirmed=False),
    "weight": Numeric("weight", 40, 100, confirmed=False),
    "dose": Categorical("dose", [1, 2], missing=True, confirmed=False),
    "steps": Numeric("steps", 0, 6000, integer=True, confirmed=False),
    "alive": Categorical("alive", [False, True], confirmed=False),
    "seen": Numeric("seen", "2026-01-01", "2026-12-31", date="%Y-%m-%d", confirmed=False),
}


def _duckdb(frame: pl.DataFrame) -> duckdb.DuckDBPyRelation:
    return duckdb.connect().from_arrow(frame.to_arrow())


ENGINES = {
    "polars": lambda frame: frame,
    "polars lazy": lambda frame: frame.lazy(),
    "pandas": lambda frame: pd.DataFrame(frame.to_dict(as_series=False)),
    "pyarrow": lambda frame: frame.to_arrow(),
    "duckdb": _duckdb,
}


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_gives_the_same_draft(engine):
    objects = ("seen",) if engine == "pandas" else ()  # which has no type for dates
    schema = draft(ENGINES[engine](CLINIC.drop(objects)))
    assert schema.columns == {name: column for name, column in EXPECTED.items() if name not in objects}
    assert not schema.confirmed
    assert schema.unconfirmed == schema.names


def test_a_draft_says_what_was_read_and_what_was_left_out():
    text = draft(CLINIC).to_toml()
    assert "# Drafted from the data by escudo: for the custodian's eyes only" in text
    assert "# levels read from the data\n[columns.smoke]" in text
    assert "# lower and upper read from the data: the smallest and largest value of someone" in text
    assert "# Left out 'patient_id': it seems to identify people." in text
    assert "#   person_id = 'patient_id'" in text
    assert "# lower and upper read from the data: the years of the first and last day" in text
    assert "# Left out 'code': it seems to identify people." in text
    assert text.count("confirmed = false") == len(EXPECTED) + 1  # once in the instructions


def test_a_draft_survives_its_file_and_stays_unconfirmed(tmp_path):
    path = tmp_path / "draft.toml"
    draft(CLINIC).write(path)
    assert Schema.read(path).columns == EXPECTED


def test_text_with_many_levels_is_left_open():
    towns = [f"town {i % 300}" for i in range(900)]
    schema = draft(pl.DataFrame({"town": towns, "x": [1, 2, 3] * 300}))
    assert schema.open_columns == ("town",)
    assert "more than 200 levels" in schema["town"].note


def test_low_cardinality_identifier_names_stay_usable_and_high_ones_do_not():
    ids = list(range(100))
    frame = pl.DataFrame({"district_id": [i % 5 for i in ids], "personId": ids, "covid": ids, "ID": ids, "paid": ids})
    assert draft(frame).names == ("district_id", "covid", "paid")
    assert outline(frame).names == ("covid", "paid")


@pytest.mark.parametrize(
    ("values", "bounds"),
    [
        ([17.3, 91.2], (10, 100)),
        ([-0.031, 0.044], (-0.04, 0.05)),
        ([1.5, 1.5], (1.5, 3)),
        ([-2.5, -2.5], (-2.5, 0)),
        ([0.5, math.inf, -math.inf, math.nan, 0.75], (0.5, 0.75)),
        ([1e-300, 2.5e-300], (1e-300, 2.5e-300)),
        ([0.25, 1e15 + 0.5], (0, 1.1e15)),
    ],
)
def test_bounds_are_rounded_outward(values, bounds):
    column = draft(pl.DataFrame({"x": values}))["x"]
    assert (column.lower, column.upper) == bounds
    finite = [value for value in values if math.isfinite(value)]
    assert column.lower <= min(finite)
    assert column.upper >= max(finite)


@pytest.mark.parametrize(
    "values", [[-1.7e308, 1.7e308, 0.5], [5e-324, 1e-323, 0.0], [math.inf, -math.inf], [2**60 + i for i in range(30)]]
)
def test_bounds_that_floating_point_cannot_cut_stay_open(values):
    column = draft(pl.DataFrame({"x": values}))["x"]
    assert isinstance(column, Numeric)
    assert column.open


def test_whole_numbers_beyond_any_level_stay_open():
    assert draft(pl.DataFrame({"x": [2**60, 2**61]})).open_columns == ("x",)


def test_decimals_are_numbers():
    frame = pl.DataFrame({"price": [Decimal("1.25"), Decimal("9.75"), None], "count": [Decimal(1), Decimal(2), None]})
    schema = draft(frame)
    assert (schema["price"].lower, schema["price"].upper, schema["price"].missing) == (1, 10, True)
    assert schema["count"].levels == (1, 2)


def test_awkward_pandas_columns_never_crash_a_draft():
    frame = pd.DataFrame(
        {
            "mixed": pd.Series([1, "secret", None], dtype=object),
            "lists": [[1], [2], [3]],
            "maybe": pd.Series([True, None, False], dtype=object),
            "names": pd.Series(["a", None, "b"], dtype=object),
            "cats": pd.Categorical([1, 2, 1]),
            "nullable": pd.array([1, None, 3], dtype="Int64"),
            "times": pd.to_datetime(["2020-01-01"] * 3),
            "empty": [None, None, None],
            "bytes": [b"a", b"b", b"c"],
            "tuples": [(1, 2), (3, 4), None],
            "complex": [1j, 2j, 3j],
            "surrogate": pd.Series(["\ud800", "b", None], dtype=object),
        }
    )
    schema = draft(frame)
    assert schema["maybe"] == Categorical("maybe", [False, True], missing=True, confirmed=False)
    assert schema["names"] == Categorical("names", ["a", "b"], missing=True, confirmed=False)
    assert schema["nullable"] == Categorical("nullable", [1, 3], missing=True, confirmed=False)
    assert {"mixed", "lists", "cats", "empty", "bytes", "tuples", "complex"}.isdisjoint(schema.names)
    assert "secret" not in schema.to_toml()
    assert "Left out 'mixed': it holds values of mixed kinds" in schema.to_toml()
    assert "Left out 'cats': its categories are no texts" in schema.to_toml()
    assert "Left out 'empty': it holds no values" in schema.to_toml()


def test_nested_polars_columns_are_left_out():
    frame = pl.DataFrame({"x": [1, 2], "l": [[1], [2]], "s": [{"a": 1}, {"a": 2}], "n": [None, None], "": [1, 2]})
    assert draft(frame).names == outline(frame).names == ("x",)


def test_an_outline_reads_no_value():
    schema = outline(CLINIC.clear())
    assert schema.open_columns == ("smoke", "age", "stage", "weight", "dose", "steps", "code")
    assert all(column.missing for column in schema.fields)
    assert schema["alive"].confirmed
    assert schema["age"].integer
    assert schema == outline(CLINIC)


def test_tables_without_rows_or_usable_columns_are_refused():
    with pytest.raises(InputError, match="no rows"):
        draft(CLINIC.clear())
    for make in (draft, outline):
        with pytest.raises(SchemaError, match="no column that escudo can use"):
            make(pl.DataFrame({"d": [dt.time(10, 30)]}))
        with pytest.raises(InputError, match="expected a path or a dataframe"):
            make(3)
        with pytest.raises(InputError, match="expected a path or a dataframe"):
            make({"x": [1]})


def test_hidden_errors_leave_interrupts_and_our_own_alone():
    for raised, seen in [
        (KeyboardInterrupt(), KeyboardInterrupt),
        (MemoryError(), MemoryError),
        (SchemaError("ours"), SchemaError),
        (ValueError("SECRET"), InputError),
        (type("PanicException", (BaseException,), {})("SECRET"), InputError),
    ]:
        with pytest.raises(seen) as error, hide_values("unreadable"):
            raise raised
        if seen is InputError:  # nor does any chain lead back to the engine's words
            assert "SECRET" not in "".join(traceback.format_exception(error.value))
            assert error.value.__cause__ is error.value.__context__ is None


def test_column_names_must_be_text():
    with pytest.raises(InputError, match="not text"):
        draft(pd.DataFrame({0: [1, 2]}))


# Files


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet", "arrow", "feather", "ndjson", "jsonl"])
def test_every_file_format_gives_the_same_draft(tmp_path, ending):
    path = tmp_path / f"clinic.{ending}"
    frame = CLINIC.with_columns(pl.col("dose").fill_nan(None))
    {
        "csv": lambda: frame.write_csv(path),
        "tsv": lambda: frame.write_csv(path, separator="\t"),
        "parquet": lambda: frame.write_parquet(path),
        "arrow": lambda: frame.write_ipc(path),
        "feather": lambda: frame.write_ipc(path),
        "ndjson": lambda: frame.write_ndjson(path),
        "jsonl": lambda: frame.write_ndjson(path),
    }[ending]()
    assert draft(path).columns == EXPECTED
    assert draft(str(path)) == draft(path)


def test_a_late_row_of_another_type_does_not_break_reading(tmp_path):
    path = tmp_path / "late.csv"
    path.write_text("x\n" + "1\n" * 30_000 + "2.5\n", encoding="utf-8")
    assert draft(path)["x"].upper >= 2.5


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("empty.csv", b""),
        ("secret.parquet", b"SECRET"),
        ("secret.arrow", b"SECRET"),
        ("secret.ndjson", b"SECRET\n"),
        ("secret.jsonl", b'[SECRET]\n{"SECRET\n'),
    ],
)
def test_a_damaged_file_is_refused_without_a_word_from_it(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError) as error:
        draft(path)
    assert "SECRET" not in "".join(traceback.format_exception(error.value))
    assert name in str(error.value)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("bytes.csv", b"a,b\nx\xff\xfe,2\n3,4\n"),
        ("quote.csv", b'a,b\n"x,2\n3,4\n'),
        ("long.csv", b"a,b\n1,2,3,4\n5\n\n3,4\n"),
        ("broken.jsonl", b'{"a": 1, "b": 4}\nnull\n{"a": \n{"a": 1e400, "b": 2, "c": [1]}\n[1]\n\n{"a": "\\ud800"}\n'),
    ],
)
def test_odd_lines_do_not_keep_a_draft_from_being_made(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    assert draft(tmp_path / name)["b"].kind == "integer"


def test_an_outline_of_a_text_file_looks_at_its_first_line_only(tmp_path):
    for rows in ("1,x\n", "y,7\n2,3,4\n", '"\n', ""):
        (tmp_path / "t.csv").write_text('"a, really",b\n' + rows)
        assert outline(tmp_path / "t.csv") == Schema(
            tuple(Categorical(name, missing=True, confirmed=False) for name in ("a, really", "b"))
        )
    (tmp_path / "t.ndjson").write_text('{"a": 1}\n')
    with pytest.raises(InputError, match="which columns there are"):
        outline(tmp_path / "t.ndjson")


def test_an_outline_of_objects_does_not_look_at_them():
    pd = pytest.importorskip("pandas")
    for values in (["y", "x"], [7, "x"], [None, None], [1.5, True], [[1], object()]):
        frame = pd.DataFrame({"a": pd.Series(values, dtype=object), "n": [1, 2]})
        assert outline(frame)["a"] == Categorical("a", missing=True, confirmed=False)


def test_scan_refuses_what_it_cannot_open(tmp_path):
    with pytest.raises(InputError, match=r"cannot read .*absent"):
        scan(tmp_path / "absent.csv")
    with pytest.raises(InputError, match="cannot tell the format"):
        scan(tmp_path / "table.sas")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(InputError, match="holds no data"):
        scan(tmp_path / "folder.csv")
    with pytest.raises(InputError, match="not usable"):
        scan("a\0.csv")


@pytest.mark.parametrize("ending", ["csv", "parquet", "arrow", "ndjson"])
def test_a_name_with_wildcards_is_one_file(tmp_path, ending):
    path = tmp_path / f"a[1]*?.{ending}"
    frame = pl.DataFrame({"x": [1, 2]})
    write = {
        "csv": frame.write_csv,
        "parquet": frame.write_parquet,
        "arrow": frame.write_ipc,
        "ndjson": frame.write_ndjson,
    }
    with path.open("wb") as file:
        write[ending](file)
    assert draft(path)["x"].levels == (1, 2)


def test_dates_written_as_text_are_recognised(tmp_path):
    path = tmp_path / "visits.csv"
    path.write_text(
        "day,at,code\n2026-01-01,2026-01-01T10:00,2026-01\n2026-01-02,2026-01-02 11:00,2026-02\n", encoding="utf-8"
    )
    schema = draft(path)
    assert schema["day"] == Numeric("day", "2026-01-01", "2026-12-31", date="%Y-%m-%d", confirmed=False)
    assert isinstance(schema["at"], Categorical)  # written in two ways
    assert isinstance(schema["code"], Categorical)


def test_the_draft_is_the_same_whatever_the_order_of_rows():
    shuffled = CLINIC.sample(fraction=1, shuffle=True, seed=1)
    assert draft(shuffled).columns == draft(CLINIC).columns
    assert np.unique([draft(CLINIC).fingerprint, draft(shuffled).fingerprint]).size == 1


def test_pyarrow_dictionary_columns_are_text():
    table = pa.table({"x": pa.array(["a", "b", "a"]).dictionary_encode()})
    assert draft(table)["x"].levels == ("a", "b")


def _clinic(rows: int, **columns: Any) -> pl.DataFrame:
    return pl.DataFrame({"stage": ["I", "II", "III", "IV"] * (rows // 4), **columns})


@pytest.mark.parametrize(
    ("name", "values", "kind"),
    [
        ("contact", [f"p{i % 30}@clinic.example" for i in range(80)], "e-mail addresses"),
        ("reach", [f"+34 600 {i % 30:03} 111" for i in range(80)], "telephone numbers"),
        ("reach", [f"030/55 12 3{i % 3}" for i in range(80)], "telephone numbers"),
        ("number", [f"123-45-67{i % 30:02}" for i in range(80)], "national or insurance numbers"),
        ("treated by", ["Dr. Anna Koch", "Prof. Dr. Müller", "Frau Dr. Wolf", "Mr Peña"] * 20, "names of people"),
        ("FirstName", [f"Anna{chr(97 + i % 26)}" for i in range(80)], "names of people"),
        ("last_name", [f"Anna{chr(97 + i % 26)}" for i in range(80)], "names of people"),
        ("Vorname", [f"Anna{chr(97 + i % 26)}" for i in range(80)], "names of people"),
        ("apellido", [f"Anna{chr(97 + i % 26)}" for i in range(80)], "names of people"),
        ("Straße", [f"Weg {i % 40}" for i in range(80)], "addresses"),
        ("Versicherten-Nr.", [f"A{i % 40}" for i in range(80)], "national or insurance numbers"),
        ("Bemerkungen", [f"siehe {i % 40}" for i in range(80)], "free text"),
        ("home address", [f"Road {i % 26}" for i in range(80)], "addresses"),
        ("seen", ["the patient came back with a cough", "all is well and nothing was found"] * 40, "free text"),
        ("doctor.notes", [f"see {i % 26}" for i in range(80)], "free text"),
    ],
)
def test_what_is_about_single_people_is_never_copied_into_a_schema(name: str, values: list[str], kind: str) -> None:
    schema = draft(_clinic(80, **{name: values}))
    assert schema.names == ("stage",)
    assert any(note.startswith(f"Left out {name!r}: it seems to hold {kind}") for note in schema.notes)
    assert not any(value in schema.to_toml() for value in values)


@pytest.mark.parametrize("rows", [1, 2, 12])
@pytest.mark.parametrize("name", ["Versichertennummer", "phone", "e-mail", "Bemerkung"])
def test_what_is_called_so_and_differs_from_row_to_row_is_left_out_of_small_tables(name: str, rows: int) -> None:
    values = [f"X{i}48151623" for i in range(rows)]
    schema = draft(pl.DataFrame({"stage": ["I", "II"] * rows, name: values * 2})[:rows])
    assert schema.names == ("stage",)
    assert not any(value in schema.to_toml() for value in values)


@pytest.mark.parametrize("rows", [1, 12, 400])
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("nhs_number", "national or insurance numbers"),
        ("BSN", "national or insurance numbers"),
        ("Versichertennummer", "national or insurance numbers"),
        ("Handy", "telephone numbers"),
    ],
)
@pytest.mark.parametrize("dtype", [pl.Int64, pl.Float64])
def test_what_is_called_so_and_written_in_digits_is_left_out(name: str, kind: str, rows: int, dtype: Any) -> None:
    values = pl.Series([9_434_700_000 + 7 * i for i in range(rows)], dtype=dtype)
    schema = draft(pl.DataFrame({"stage": (["I", "II"] * rows)[:rows], name: values}))
    assert schema.names == ("stage",)
    assert any(note.startswith(f"Left out {name!r}: it seems to hold {kind}") for note in schema.notes)
    assert "94347" not in schema.to_toml()


def test_numbers_that_are_called_so_and_are_short_or_few_are_kept() -> None:
    frame = _clinic(
        400,
        nhs_visits=[i % 97 for i in range(400)],
        phone_minutes=[i % 91 for i in range(400)],
        tel=[1_000_000, 2_000_000] * 200,
    )
    title = pl.Series("title", ["Mr", "Mrs", "Dr.", "Frau"] * 100)
    assert draft(frame.with_columns(title)).names == (*frame.columns, "title")


def test_what_is_called_so_but_is_a_question_with_few_answers_is_kept() -> None:
    frame = _clinic(80, name=["a", "b"] * 40, email_consent=["yes", "no"] * 40, notes=["none", "some"] * 40)
    assert draft(frame).names == ("stage", "name", "email_consent", "notes")


def test_what_numbers_the_rows_is_left_out() -> None:
    order = np.random.default_rng(1).permutation(240)
    frame = _clinic(240, line=order + 1, age=20 + order % 60, twice=[*range(239), 0])
    schema = draft(frame)
    assert schema.names == ("stage", "age", "twice")
    assert any("it seems to number the rows" in note for note in schema.notes)


def test_markers_are_missing_and_one_spelling_stands_for_all(tmp_path: Path) -> None:
    lines = ["sex,zip,dose,cough"]
    for i in range(60):
        sex = ["F", "M", "f", "F ", "NA"][i % 5]
        lines.append(
            f"{sex},{['01067', '80331', '00123'][i % 3]},{'?' if i % 7 == 0 else i * 1.5},{['yes', 'no'][i % 2]}"
        )
    file = tmp_path / "clinic.csv"
    file.write_text("\n".join(lines) + "\n")
    schema = draft(file)
    sex = schema["sex"]
    assert isinstance(sex, Categorical)
    assert (sex.levels, sex.missing) == (("F", "M"), True)
    assert sex.loose
    assert dict(sex.recode) == {"NA": "(missing)"}
    assert schema["zip"].levels == ("00123", "01067", "80331")  # a code keeps its zeros
    assert isinstance(schema["dose"], Numeric)
    assert schema["dose"].missing
    again = tmp_path / "clinic.toml"
    schema.confirm().write(again)
    assert Schema.read(again) == schema.confirm()
    table = PrivateTable(scan(file, Schema.read(again)), Schema.read(again))
    assert table.counts([("sex",)])[0].tolist() == [36, 12, 12]
    found = {column.name: column for column in check(file, Schema.read(again)).columns}
    assert (found["sex"].outside, found["sex"].missing) == (0.0, 0.2)
    assert found["dose"].missing == 9 / 60
    assert not any(column.problem for column in found.values())


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (lambda: Categorical("a", ["x"], recode={"x": "x"}), "entry 1 of recode is a level itself"),
        (lambda: Categorical("a", ["x"], recode={"y": "z"}), "must count as one of the levels"),
        (lambda: Categorical("a", ["x"], recode={"y": "(missing)"}), "needs missing = true"),
        (lambda: Categorical("a", [1], recode={"y": "x"}), "levels that are texts"),
        (lambda: Categorical("a", ["x"], recode=3), "recode must say for each text"),
        (lambda: Categorical("a", ["x"], recode={3: "x"}), "is no text"),
    ],
)
def test_a_recode_that_means_nothing_is_refused(column: Callable[[], Column], said: str) -> None:
    with pytest.raises(SchemaError, match=said):
        column()


def test_a_column_of_numbers_with_few_words_in_it_is_numeric_and_the_words_are_missing(tmp_path: Path) -> None:
    lines = ["crp;ward;ssn;pay"]
    for i in range(400):
        crp = ["<0,5", "refused"][i % 40 == 0] if i % 20 == 0 else f"{i / 8:.1f}".replace(".", ",")
        lines.append(f"{crp};{'word' if i % 2 else i};{'gone' if i == 7 else 10_000 + i};{'k.A.' if i % 9 == 0 else i}")
    file = tmp_path / "clinic.csv"
    file.write_text("\n".join(lines) + "\n")
    schema = draft(file)
    crp = schema["crp"]
    assert isinstance(crp, Numeric)
    assert crp.missing
    assert crp.bounds == (0, 50)
    assert crp.note.endswith("what is no number counts as missing")
    assert not crp.confirmed
    assert isinstance(schema["ward"], Categorical)  # half of it is no number
    assert "ssn" not in schema.names  # a name that says whose row it is comes first
    assert isinstance(schema["pay"], Numeric)
    confirmed = schema.confirm(["crp"])
    found = {column.name: column for column in check(file, confirmed).columns}
    assert found["crp"].missing == 20 / 400
    assert found["crp"].outside == 0.0
    assert "refused" not in confirmed.to_toml()  # comments stay when a person vouches


def test_a_wide_text_file_is_not_read_again_for_every_column(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [",".join(f"c{i}" for i in range(40))]
    lines += [",".join(str((row * (i + 3)) % (50 if i % 2 else 3)) for i in range(40)) for row in range(90)]
    file = tmp_path / "wide.csv"
    file.write_text("\n".join(lines) + "\n")
    read = 0
    collect = pl.LazyFrame.collect

    def counted(frame: pl.LazyFrame, *arguments: Any, **named: Any) -> Any:
        nonlocal read
        read += "DF [" not in frame.explain()  # which is a frame in memory
        return collect(frame, *arguments, **named)

    monkeypatch.setattr(pl.LazyFrame, "collect", counted)
    held = draft(file)
    assert read < 10
    checked = check(file, held)
    assert read < 20
    monkeypatch.setattr("escudo.table._files._HELD", 1)
    assert draft(file) == held
    assert check(file, held) == checked
    assert read > 80
    assert [type(column) for column in held.fields[:2]] == [Categorical, Numeric]


def test_a_file_without_a_line_of_names_has_its_columns_numbered_and_nobody_is_shown(tmp_path: Path) -> None:
    rows = [f"{'FM'[i % 2]},{20 + i},2024-03-{1 + i % 28:02},word{i % 7}" for i in range(60)]
    file = tmp_path / "visits.csv"
    for mark in ("", "\ufeff"):
        file.write_text(mark + "\n".join(rows) + "\n", encoding="utf-8")
        schema = draft(file)
        assert schema.names == schema.header == ("column_1", "column_2", "column_3", "column_4")
        assert schema["column_1"].levels == ("F", "M")
        note = next(note for note in schema.notes if "seems to be a row and no line of names" in note)
        assert "word0" not in note
        stated = Schema.from_dict(schema.to_dict())
        read = scan(file, stated).collect()
        assert (len(read), read["column_1"][0], read["column_2"].sum()) == (60, "F", sum(range(20, 80)))
        assert check(file, stated).file.findings == ()
    named = draft(file, header=["sex", "age", "day", "word"])
    assert (named.names, named.header) == (("sex", "age", "day", "word"),) * 2
    assert draft(file, header=True).header == ()
    with pytest.raises(InputError, match=r"header names 2 columns, and the first line of .* has 4"):
        draft(file, header=["sex", "age"])
    file.write_text("\n".join(["sex,age,day,word", *rows]) + "\n")
    assert check(file, named).file.findings == (
        "the first line is read as a row, and holds the names in header; leave header out of [table]",
    )
    file.write_text("\n".join(["sex,age,2024,word1", *rows]) + "\n")
    assert draft(file).names == ("sex", "age", "2024", "word1")  # one such name alone is a name
    file.write_text("\n".join(["2019,2020,2021", *(f"{i},{i * i},{7 * i}" for i in range(60))]) + "\n")
    assert draft(file).names == ("2019", "2020", "2021")  # and so are years in a row


def test_quoted_fields_that_hold_line_feeds_are_recognised_stated_and_read(tmp_path: Path) -> None:
    file = tmp_path / "visits.csv"
    rows = [f'{i % 3};"word; ""{i % 2}""\n{"more" * (i % 5)}";{i / 4}' for i in range(90)]
    file.write_text("a;text;b\n" + "\n".join(rows) + "\n")
    schema = draft(file)
    assert (schema.quoted_newlines, schema.delimiter, schema["a"].levels) == (True, ";", (0, 1, 2))
    assert any("you vouch that the program that wrote the file closed all its quotes" in note for note in schema.notes)
    assert scan(file, schema).collect()["b"].sum() == sum(i / 4 for i in range(90))
    assert check(file, schema).file.findings == ()
    single = replace(schema, quoted_newlines=False)
    assert "quoted_newlines seems to be true; if so, say it in [table]" in check(file, single).file.findings
    assert draft(file, quoted_newlines=False).quoted_newlines is False


@pytest.mark.parametrize("note", ["plain", '"two\nlines"'])
def test_names_that_hold_line_feeds_are_read_whole(tmp_path: Path, note: str) -> None:
    """As spreadsheets write them; the lines after the first one were a row, and its columns lost."""
    file = tmp_path / "visits.csv"
    rows = [f"{150 + 7 * i % 50},{i % 2},{note}\n" for i in range(90)]
    file.write_text('"height\n(cm)",ill,"note\n"\n' + "".join(rows))
    schema = draft(file)
    assert schema.quoted_newlines
    assert schema.names == ("height\n(cm)", "ill", "note\n")
    assert [column.findings for column in check(file, schema).columns] == [()] * 3
    file.write_text('height,"ill\n' + "".join(rows))
    assert not draft(file).quoted_newlines, "an open quote is none that spans lines"


def test_a_stray_quote_is_no_sign_of_line_feeds_in_fields(tmp_path: Path) -> None:
    file = tmp_path / "visits.csv"
    rows = [f"{i % 3},word{i % 4},{i / 4}" for i in range(90)]
    for stray in ('1,"open,3', '1,5",3', '"1,word,2'):
        file.write_text("a,text,b\n" + "\n".join([*rows[:40], stray, *rows[40:]]) + "\n")
        assert draft(file).quoted_newlines is False


def test_a_draft_asks_after_an_open_quote_among_fields_that_hold_line_feeds(tmp_path: Path) -> None:
    file = tmp_path / "visits.csv"
    rows = [f'{i % 3},"one\ntwo",{i / 4}' for i in range(90)]
    file.write_text("a,text,b\n" + "\n".join([*rows[:40], '1,"SECRET,3', *rows[40:]]) + "\n")
    for said in (None, True):
        with pytest.raises(
            InputError, match=r"Or is a quote not closed\? .*; without it, each line is a row\."
        ) as refused:
            draft(file, quoted_newlines=said)
        assert "SECRET" not in "".join(traceback.format_exception(refused.value))
    assert draft(file, quoted_newlines=False).names[:2] == ("a", "text")


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([*range(29), "n/a"], "number"),
        ([*range(28), "3.5", True], "number"),
        ([*"abcdefghi", 1], "string"),
        ([1, 2, 3, "x"], None),
        ([True, False, "yes"], None),
        ([[1], "x"], None),
    ],
)
def test_a_draft_reads_mixed_values_of_json_as_a_release_will(tmp_path: Path, values: list[Any], kind: str) -> None:
    """A few words among numbers made a column of texts, of whose levels no row had any."""
    rows = [{"v": values[i % len(values)], "w": "no" if i % 2 else "yes"} for i in range(600)]
    (tmp_path / "t.ndjson").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    drafted = draft(tmp_path / "t.ndjson")
    if kind is None:
        assert drafted.names == ("w",)
        assert any("Left out 'v': it holds values of mixed kinds" in note for note in drafted.notes)
        return
    assert drafted["v"].kind == kind
    assert all(column.findings == () for column in check(tmp_path / "t.ndjson", drafted).columns)


def test_times_of_day_in_a_sheet_are_no_dates(tmp_path: Path) -> None:
    import xlsxwriter

    with xlsxwriter.Workbook(tmp_path / "visits.xlsx") as book:
        sheet, clock = book.add_worksheet(), book.add_format({"num_format": "hh:mm"})
        sheet.write_row(0, 0, ["at", "ill"])
        for row in range(1, 60):
            sheet.write_number(row, 0, row / 60, clock)
            sheet.write_string(row, 1, "yes" if row % 3 else "no")
    drafted = draft(tmp_path / "visits.xlsx")
    assert drafted.names == ("ill",)
    assert any("'at': it holds times of day. To use them, write them as numbers" in note for note in drafted.notes)
    days = pl.DataFrame({"at": [dt.date(1899, 12, 30), dt.date(1900, 1, 2)] * 30, "ill": ["no", "yes"] * 30})
    assert "at" in draft(days).names


def test_many_columns_of_text_take_no_longer_each_than_few(tmp_path: Path) -> None:
    def seconds(columns: int) -> float:
        file = tmp_path / "wide.csv"
        file.write_text("\n".join(",".join(f"{cell}{i}" for i in range(columns)) for cell in "nab") + "\n")
        before = process_time()
        draft(file)
        return process_time() - before

    seconds(10)  # what is loaded once
    few, many = min(seconds(80) for _ in range(3)), seconds(800)
    assert many < 25 * few, "one expression of polars for each column was slow to plan beside many others"


@pytest.mark.parametrize("rows", [1, 2, 15])
def test_names_and_ids_of_a_few_people_are_never_levels(rows: int) -> None:
    people = [f"Ana {chr(65 + i)}son" for i in range(rows)]
    frame = pl.DataFrame({"name": people, "patient_id": [f"P{i:04}" for i in range(rows)], "ward_id": ["a"] * rows})
    frame = frame.with_columns(x=pl.Series([1.5] * rows), nr=pl.int_range(1, rows + 1))
    assert draft(frame).names == (("ward_id", "x") if rows > 1 else ("x",))
    twice = pl.concat([frame, frame])
    assert "patient_id" not in draft(twice).names


def test_many_full_names_are_known_by_what_they_are_whatever_the_column_is_called() -> None:
    called = [
        f"{first} {last}" for first in ("Ana", "José", "Zoë", "J.") for last in ("O'Neil", "Weiß", "Le Gall", "Sá")
    ]
    called += [
        f"{last}, {first}" for first in ("Eva", "Åsa") for last in ("Peña", "Lindström", "García-Ruiz", "Dubois")
    ]
    wards = [f"ward {i % 30}" for i in range(60)]
    schema = draft(pl.DataFrame({"attending": (called * 3)[:60], "ward": wards}))
    assert schema.names == ("ward",)
    assert any("'attending': it seems to hold names of people" in note for note in schema.notes)


@pytest.mark.parametrize(
    "levels",
    [("1", "2", "9", "10", "100"), ("-2", "-1", "0,5", "1.5", "12"), ("0-4", "5-9", "10-14"), ("E11", "I9", "I10")],
)
def test_levels_are_listed_as_people_count(levels: tuple[str, ...]) -> None:
    from escudo.learning import with_levels

    told = draft(pl.DataFrame({"code": [*sorted(levels), *levels] * 3}))["code"]
    assert isinstance(told, Categorical)
    assert told.levels == levels
    learnt = with_levels(Categorical("code", ordered=True, missing=True, confirmed=False), sorted(levels))
    assert learnt.levels == (*levels, "(other)")


@pytest.mark.parametrize("values", [[math.inf, -math.inf], [5.6e306 * i for i in range(-30, 31)]])
def test_a_draft_without_bounds_says_nothing_of_whole_numbers(values: list[float]) -> None:
    column = draft(pl.DataFrame({"x": values}))["x"]
    assert isinstance(column, Numeric)
    assert column.open
    assert not column.integer


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("Versichertennr", [f"A{123456789 + 7 * i}" for i in range(300)]),
        ("Karte", [f"A{123456789 + 7 * i}" for i in range(300)]),
        ("Krankenversicherungsnummer", [f"{i:05d}/K" for i in range(300)]),
        ("KV-Nr", [f"{i:05d}/K" for i in range(300)]),
        ("Fallnummer", [f"F-{i}" for i in range(15)]),
        ("case no.", [f"F-{i}" for i in range(15)]),
        ("Patientennr", [f"F-{i % 9}" for i in range(15)]),
    ],
)
def test_numbers_of_insured_people_and_of_cases_are_left_out(tmp_path: Path, name: str, values: list[str]) -> None:
    pl.DataFrame({name: values, "ill": ["no", "yes", "no"] * (len(values) // 3)}).write_csv(tmp_path / "visits.csv")
    drafted = draft(tmp_path / "visits.csv")
    assert drafted.names == ("ill",)
    assert any(name in note for note in drafted.notes)


def test_levels_have_no_blanks_around_them_and_open_ranges_their_place(tmp_path: Path) -> None:
    frame = {"sex": ["F ", " m", "M"] * 8, "beds": ["<5", ">= 20", "5-9", "10-19"] * 6}
    pl.DataFrame(frame).write_csv(tmp_path / "visits.csv")
    drafted = draft(tmp_path / "visits.csv")
    assert drafted["sex"].levels == ("F", "M")
    assert isinstance(drafted["sex"], Categorical)
    assert drafted["sex"].loose
    assert drafted["sex"].recode == ()
    assert drafted["beds"].levels == ("<5", "5-9", "10-19", ">= 20")
