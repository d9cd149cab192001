"""Folders, patterns, workbooks and standard input: one table, read as one file would be."""

from __future__ import annotations

import datetime as dt
import io
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import escudo
from escudo.errors import InputError
from escudo.table import Schema, check, draft, open_data, outline, scan
from escudo.table import _files as files_module

SCHEMA = Schema.from_dict(
    {"sex": ["f", "m"], "zip": ["01234", "99999"], "age": {"type": "numeric", "lower": 0, "upper": 100, "bins": 5}}
)
ROWS = pl.DataFrame({"sex": ["f", "m", "f", "m"], "zip": ["01234", "99999", "99999", "01234"], "age": [31, 62, 18, 45]})


def write(folder: Path, ending: str) -> list[Path]:
    """Write the rows in two files, the columns of the second in another order."""
    folder.mkdir()
    named = [folder / f"part-{number}.{ending}" for number in (1, 2)]
    for file, part in zip(named, (ROWS[:3], ROWS[3:].select("age", "sex", "zip")), strict=True):
        {"csv": part.write_csv, "tsv": lambda f, p=part: p.write_csv(f, separator="\t"), "parquet": part.write_parquet,
         "arrow": part.write_ipc, "ndjson": part.write_ndjson}[ending](file)  # fmt: skip
    return named


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet", "arrow", "ndjson"])
def test_a_folder_and_a_pattern_are_one_table(ending: str, tmp_path: Path) -> None:
    write(tmp_path / "visits", ending)
    (tmp_path / "visits" / "_SUCCESS").touch()
    (tmp_path / "visits" / ".hidden.csv").write_text("x\n1\n")
    for name in (str(tmp_path / "visits"), str(tmp_path / "visits" / f"*.{ending}"), tmp_path / "visits"):
        frame = scan(name, SCHEMA).select("sex", "zip", "age").collect()
        assert frame.cast({"age": pl.Int64}).equals(ROWS)
    counted = escudo.PrivateTable(open_data(str(tmp_path / "visits"), SCHEMA), SCHEMA).counts(["sex"])
    assert counted.tolist() == [2, 2]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_folder_is_drafted_outlined_and_checked_like_a_file(ending: str, tmp_path: Path) -> None:
    write(tmp_path / "visits", ending)
    ROWS.write_csv(tmp_path / "one.csv") if ending == "csv" else ROWS.write_parquet(tmp_path / "one.parquet")
    folder, one = str(tmp_path / "visits"), str(tmp_path / f"one.{ending}")
    assert draft(folder).fields == draft(one).fields
    assert outline(folder).names == outline(one).names
    assert check(folder, SCHEMA).columns == check(one, SCHEMA).columns


def test_a_code_in_one_file_keeps_its_zeros_in_all(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("zip\n1234\n1234\n")
    (tmp_path / "b.csv").write_text("zip\n01234\n01234\n")
    assert draft(str(tmp_path / "*.csv"))["zip"].levels == ("01234", "1234")


def test_ragged_lines_and_doubled_names_of_all_files_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("sex,sex,age\nf,f,1\nf\n")
    (tmp_path / "b.csv").write_text("sex,sex,age\nf,f,1,9\nm,m\n")
    notes = " ".join(draft(str(tmp_path)).notes)
    assert "2 lines have fewer fields" in notes
    assert "1 line has more fields" in notes
    assert "'sex' more than once" in notes


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "holds no data"),
        ({"a.csv": b"x\n1\n", "b.tsv": b"x\n1\n"}, r"several formats \(.csv, .tsv\)"),
        ({"a.csv": b"x\n1\n", "b.csv": b"x,y\n1,2\n"}, "has column 'y'"),
        ({"a.csv": b"x,y\n1,2\n", "b.csv": b"x\n1\n"}, "lacks column 'y'"),
        ({"a.csv": b"x,y\n1,2\n", "b.csv": b"x;y\n1;2\n"}, "written differently"),
        ({"a.csv": b"x\n1\n", "b.csv": b""}, "is empty"),
        ({"a.parquet": b"PAR1rubbish"}, "not a readable parquet"),
    ],
)
def test_files_that_are_no_table_are_named(files: dict[str, bytes], said: str, tmp_path: Path) -> None:
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=said):
        draft(str(tmp_path))


def test_a_pattern_that_nothing_is_called_like_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no file is called like"):
        scan(str(tmp_path / "*.csv"))


def test_a_file_with_stars_in_its_name_is_that_file(tmp_path: Path) -> None:
    (tmp_path / "a[1]*.csv").write_text("x\n1\n")
    (tmp_path / "a1.csv").write_text("x\n2\n")
    assert scan(str(tmp_path / "a[1]*.csv")).collect()["x"].to_list() == [1]


# ---- workbooks


@pytest.fixture
def book(tmp_path: Path) -> Path:
    import xlsxwriter

    frame = ROWS.with_columns(
        day=pl.Series([dt.date(2020, 1, 2), None, dt.date(2021, 3, 4), None]), note=pl.lit("a\nb")
    )
    with xlsxwriter.Workbook(tmp_path / "visits.xlsx") as workbook:
        frame.write_excel(workbook, worksheet="Visits")
        ROWS[:1].write_excel(workbook, worksheet="More")
    return tmp_path / "visits.xlsx"


def test_a_sheet_is_read_as_its_schema_says(book: Path) -> None:
    frame = scan(f"{book}#Visits", SCHEMA).select("sex", "zip", "age").collect()
    assert frame.cast({"age": pl.Int64}).equals(ROWS)
    assert scan(f"{book}#More", SCHEMA).collect().height == 1


def test_a_sheet_is_drafted_with_codes_and_days(book: Path) -> None:
    drafted = draft(f"{book}#Visits")
    assert drafted["zip"].levels == ("01234", "99999")
    assert drafted["day"].date == "%Y-%m-%d"
    assert drafted["note"].levels == ("a b",)


def test_what_a_schema_says_about_text_files_changes_nothing_for_a_sheet(book: Path) -> None:
    said = replace(SCHEMA, delimiter=";", encoding="utf-16", quoted_newlines=True)
    assert scan(f"{book}#Visits", said).collect().equals(scan(f"{book}#Visits", SCHEMA).collect())
    assert check(f"{book}#Visits", said).file.findings == ()


def test_a_name_that_comes_twice_in_a_sheet_is_said(tmp_path: Path) -> None:
    import xlsxwriter

    with xlsxwriter.Workbook(tmp_path / "twice.xlsx") as workbook:
        sheet = workbook.add_worksheet()
        for row in range(9):
            sheet.write_row(row, 0, [row % 2, 2019, row % 3] if row else ["age", 2019, "age"])
    drafted = draft(str(tmp_path / "twice.xlsx"))
    assert drafted.names == ("age", "2019", "age_duplicated_0")
    assert any("names 'age' more than once" in note for note in drafted.notes)


# ---- whose rows they are

PEOPLE = Schema.from_dict({"x": ["a", "b"]}, person_id="who", max_rows_per_person=2)
IDS = ["p q", "p q", *["p\nq"] * 9, "p\r\nq", "r\ns", None]


def counts_of(data: str) -> list[int]:
    """Count rows of people by what is in them."""
    counted: list[int] = escudo.PrivateTable(open_data(data, PEOPLE), PEOPLE).counts(["x"]).tolist()
    return counted


def test_ids_that_differ_in_line_ends_are_not_one_person(tmp_path: Path) -> None:
    """Or who is added could take the place of all rows of somebody else: an id with a line end is none."""
    import xlsxwriter

    rows = [(who, "b" if place < 2 else "a") for place, who in enumerate(IDS)]
    with closing(sqlite3.connect(tmp_path / "some.db")) as connection, connection:
        connection.execute("CREATE TABLE visits (who, x)")
        connection.executemany("INSERT INTO visits VALUES (?, ?)", rows)
    with xlsxwriter.Workbook(tmp_path / "some.xlsx") as workbook:
        sheet = workbook.add_worksheet()
        for row, cells in enumerate([("who", "x"), *rows]):
            sheet.write_row(row, 0, cells)
    assert counts_of(f"sqlite:///{tmp_path / 'some.db'}?table=visits") == [0, 2]
    assert counts_of(str(tmp_path / "some.xlsx")) == [0, 2]


def test_ids_of_a_sheet_that_end_in_midnight_are_not_cut(tmp_path: Path) -> None:
    """Or two people would share an id; the end of a paragraph is one of a line."""
    import xlsxwriter

    ids = ["p", "p", *["p 00:00:00"] * 9, *["q\u2029"] * 2, "q 00:00:00"]
    rows = [(who, "b" if place < 2 or place > 12 else "a") for place, who in enumerate(ids)]
    with xlsxwriter.Workbook(tmp_path / "some.xlsx", {"default_date_format": "yyyy-mm-dd"}) as workbook:
        sheet = workbook.add_worksheet()
        for row, cells in enumerate([("who", "x"), *rows]):
            sheet.write_row(row, 0, cells)
    assert counts_of(str(tmp_path / "some.xlsx")) == [2, 3]


def test_numbers_that_floats_do_not_tell_apart_are_no_ids(tmp_path: Path) -> None:
    """Nor in a sheet, where all numbers are floats, or two people would share the rows of one; texts are told apart."""
    import xlsxwriter

    ids: list[float | str] = [2**53 + 1, 2**53, -(2.0**60), 1.2345678901234568e23, str(2**53 + 1), "7" * 18, 2**53 - 1]
    ids += [7, "7.5", "1" * 30]
    numbers = [(who, "a", who) for who in ids]
    kinds = {"x": ["a", "b"], "n": {"type": "numeric", "lower": 0, "upper": 2**54, "bins": 2, "missing": True}}
    schema = Schema.from_dict(kinds, person_id="who", max_rows_per_person=2)
    with xlsxwriter.Workbook(tmp_path / "some.xlsx") as workbook:
        sheet = workbook.add_worksheet()
        for row, cells in enumerate([("who", "x", "n"), *numbers]):
            sheet.write_row(row, 0, cells, None)
    with closing(sqlite3.connect(tmp_path / "some.db")) as connection, connection:
        connection.execute("CREATE TABLE visits (who, x, n)")
        connection.executemany("INSERT INTO visits VALUES (?, ?, ?)", numbers)
    for data, left in ((str(tmp_path / "some.xlsx"), 6), (f"sqlite:///{tmp_path / 'some.db'}?table=visits", 7)):
        table = escudo.PrivateTable(open_data(data, schema), schema)
        assert table.record_count() == left
        alone = escudo.PrivateTable(open_data(data, schema), replace(schema, person_id=None, max_rows_per_person=None))
        assert alone.counts("n").tolist() == [4, 6, 0]  # what is no id is a number all the same


def test_another_book_or_database_of_the_same_name_is_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or what one account pays for would be read from the table of another."""
    import xlsxwriter

    for place, several in (("one", 1), ("two", 3), ("one", 2)):  # the last one written anew
        (tmp_path / place).mkdir(exist_ok=True)
        monkeypatch.chdir(tmp_path / place)
        rows = [("p", "a")] * several
        with closing(sqlite3.connect("some.db")) as connection, connection:
            connection.execute("DROP TABLE IF EXISTS visits")
            connection.execute("CREATE TABLE visits (who, x)")
            connection.executemany("INSERT INTO visits VALUES (?, ?)", rows)
        with xlsxwriter.Workbook("some.xlsx") as workbook:
            sheet = workbook.add_worksheet()
            for row, cells in enumerate([("who", "x"), *rows]):
                sheet.write_row(row, 0, cells)
        for data in ("sqlite:///some.db?table=visits", "some.xlsx"):
            assert open_data(data, PEOPLE).collect().height == several


@pytest.mark.parametrize("ending", ["csv", "tsv", "ndjson", "parquet", "arrow"])
def test_a_table_stays_that_file_wherever_it_is_read(
    ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place, who in (("two", "b"), ("one", "a")):
        (tmp_path / place).mkdir()
        monkeypatch.chdir(tmp_path / place)
        frame, file = pl.DataFrame({"who": ["p"], "x": [who]}), Path(f"some.{ending}")
        write = {
            "csv": frame.write_csv,
            "tsv": lambda to, each=frame: each.write_csv(to, separator="\t"),
            "ndjson": frame.write_ndjson,
            "parquet": frame.write_parquet,
            "arrow": frame.write_ipc,
        }
        write[ending](file)
    table = escudo.PrivateTable(open_data(f"some.{ending}", PEOPLE), PEOPLE)
    monkeypatch.chdir(tmp_path / "two")
    assert table.counts("x").tolist() == [1, 0]


# ---- SQLite


@pytest.fixture
def base(tmp_path: Path) -> Path:
    with closing(sqlite3.connect(tmp_path / "clinic.db")) as connection, connection:
        connection.execute('CREATE TABLE "all visits" (sex TEXT, zip TEXT, age INTEGER, day DATE, note TEXT)')
        rows = [(*row, "2024-03-05", 'a "b",\r\nc') for row in ROWS.rows()]
        rows += [("m", None, "old", None, b"\x00\xff"), ("f", "01234", 44.5, "", None)]
        connection.executemany('INSERT INTO "all visits" VALUES (?, ?, ?, ?, ?)', rows)
        connection.execute("CREATE VIEW women AS SELECT * FROM \"all visits\" WHERE sex = 'f'")
    return tmp_path / "clinic.db"


def test_a_table_of_sqlite_is_read_as_its_schema_says_and_no_cell_decides_over_others(base: Path) -> None:
    address = f"sqlite:///{base}?table=all%20visits"
    read = open_data(address, replace(SCHEMA, delimiter=";")).collect()
    assert read["age"].to_list() == [31.0, 62.0, 18.0, 45.0, None, 44.5]
    assert read["zip"].to_list() == [*ROWS["zip"], None, "01234"]
    drafted = draft(address)
    assert (drafted["zip"].levels, drafted["day"].date) == (("01234", "99999"), "%Y-%m-%d")
    assert drafted["note"].levels == ('a "b", c',)
    assert check(address, SCHEMA).problems == ()
    assert len(open_data(f"sqlite:///{base}?table=women", SCHEMA).collect()) == 3


def test_what_is_wrong_with_an_address_of_sqlite_is_said(base: Path) -> None:
    with pytest.raises(InputError, match=r"no table 'woman' .*Did you mean 'women'"):
        open_data(f"sqlite:///{base}?table=woman")
    with pytest.raises(InputError, match="must be sqlite:///FILE"):
        open_data(f"sqlite:///{base}")
    with pytest.raises(InputError, match="cannot read"):
        open_data(f"sqlite:///{base}x?table=women")
    base.write_bytes(b"no database" * 100)
    with pytest.raises(InputError, match="cannot be read as a SQLite database"):
        open_data(f"sqlite:///{base}?table=rubbish")


def test_one_cell_does_not_decide_how_others_are_read(tmp_path: Path) -> None:
    import xlsxwriter

    for name, value in (("a.xlsx", 7), ("b.xlsx", "seven")):
        with xlsxwriter.Workbook(tmp_path / name) as workbook:
            sheet = workbook.add_worksheet()
            for row, cell in enumerate(("age", 31, 62, value)):
                sheet.write(row, 0, cell)
    read = [scan(str(tmp_path / name), SCHEMA).collect()["age"].to_list() for name in ("a.xlsx", "b.xlsx")]
    assert read == [[31.0, 62.0, 7.0], [31.0, 62.0, None]]


def test_a_book_of_several_sheets_asks_which(book: Path) -> None:
    with pytest.raises(InputError, match=r"has 2 sheets; say which: '.*#Visits', '.*#More'"):
        scan(str(book))
    with pytest.raises(InputError, match=r"no sheet 'Visit'\. Did you mean 'Visits'.* It has: '.*#Visits', '.*#More'"):
        scan(f"{book}#Visit")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"rubbish", bytes(1000)])
def test_a_damaged_book_is_said_to_be_one(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "bad.xlsx").write_bytes(content)
    with pytest.raises(InputError, match="not a readable workbook"):
        scan(str(tmp_path / "bad.xlsx"))


def test_a_book_that_is_not_there_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read"):
        scan(str(tmp_path / "none.xlsx"))


@given(content=st.binary(max_size=300))
def test_no_book_breaks_the_reader(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("books") / "any.xlsx"
    file.write_bytes(content)
    with pytest.raises(InputError):
        scan(str(file))


# ---- standard input


def sent(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    files_module._standard_input.cache_clear()

    class Sent(io.BytesIO):
        def isatty(self) -> bool:
            return False

    monkeypatch.setattr(sys, "stdin", type("stdin", (), {"buffer": Sent(content)})())


def contents(ending: str) -> bytes:
    out = io.BytesIO()
    {"csv": ROWS.write_csv, "parquet": ROWS.write_parquet, "arrow": ROWS.write_ipc, "ndjson": ROWS.write_ndjson,
     "xlsx": ROWS.write_excel}[ending](out)  # fmt: skip
    return out.getvalue()


@pytest.mark.parametrize("ending", ["csv", "parquet", "arrow", "ndjson", "xlsx"])
def test_standard_input_is_read_in_its_format(ending: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sent(monkeypatch, contents(ending))
    for _ in range(2):  # it comes in once, and may be looked at twice
        assert scan("-", SCHEMA).select("sex", "zip", "age").collect().cast({"age": pl.Int64}).equals(ROWS)
    assert draft("-").names == SCHEMA.names
    folder = files_module._private_folder()
    assert folder.stat().st_mode & 0o077 == 0
    files_module._standard_input.cache_clear()


def test_nothing_sent_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    sent(monkeypatch, b"")
    with pytest.raises(InputError, match="nothing came in"):
        scan("-")


def test_commands_take_a_pipe_a_folder_and_a_book(tmp_path: Path, book: Path) -> None:
    write(tmp_path / "visits", "csv")
    SCHEMA.write(tmp_path / "visits.toml")
    base = [sys.executable, "-m", "escudo"]
    released = subprocess.run(
        [*base, "release", "-", "-s", "visits.toml", "-e", "1", "-o", "out", "--seed", "1"],
        cwd=tmp_path, input=contents("csv"), capture_output=True, check=False,
        env={**os.environ, "PYTHONPATH": str(Path(escudo.__file__).parents[1])},
    )  # fmt: skip
    assert released.returncode == 0, released.stderr
    assert pl.read_parquet(tmp_path / "out" / "synthetic.parquet").height == 4
    from typer.testing import CliRunner

    from escudo.cli import app

    for data in (str(tmp_path / "visits"), f"{book}#Visits"):
        words = ["schema", "check", data, "--schema", str(tmp_path / "visits.toml"), "--json"]
        assert CliRunner().invoke(app, words).exit_code == 0
