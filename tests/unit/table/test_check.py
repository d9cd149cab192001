from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from escudo.errors import InputError, SchemaError
from escudo.table import PrivateTable, Schema, check, open_data, scan

FRAME = pl.DataFrame(
    {
        "pid": ["a", "a", "a", "b", "b", "c", "d", "e"],
        "smoke": ["no", "yes", "YES", None, "no", "no", "maybe", "no"],
        "flag": [True, True, None, True, True, True, True, True],
        "stage": [1, 2, 2, 1, 9, None, 1, 1],
        "dose": [1.0, float("nan"), None, 1.0, 1.0, 1.5, 1.0, 1.0],
        "age": [10, 20, 30, 40, 50, 60, 150, -1],
        "weight": [1.5, float("nan"), None, float("inf"), float("-inf"), 0.0, 10.0, 10.1],
        "text": ["x"] * 8,
    }
)
SCHEMA = Schema.from_dict(
    {
        "smoke": ["no", "yes", "never"],
        "flag": {"type": "boolean", "missing": True},
        "stage": [1, 2, 3],
        "dose": [1, 2],
        "age": {"type": "numeric", "lower": 0, "upper": 110, "bins": 22, "integer": True},
        "weight": {"type": "numeric", "lower": 0, "upper": 10, "bins": 5, "missing": True, "integer": True},
    },
    person_id="pid",
    max_rows_per_person=2,
)
ENGINES = {
    "polars": lambda frame: frame,
    "polars lazy": lambda frame: frame.lazy(),
    "pandas": lambda frame: frame.to_pandas(),
    "pandas objects": lambda frame: pd.DataFrame(frame.to_dict(as_series=False), dtype=object),
    "pyarrow": lambda frame: frame.to_arrow(),
    "duckdb": lambda frame: duckdb.connect().from_arrow(frame.to_arrow()),
}


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_finds_the_same(engine):
    report = check(ENGINES[engine](FRAME), SCHEMA)
    found = {column.name: column for column in report.columns}
    assert report.problems == ()
    shares = {name: (8 * column.outside, 8 * column.missing) for name, column in found.items()}
    assert shares == {
        "smoke": (2, 1),
        "flag": (0, 1),
        "stage": (1, 1),
        "dose": (1, 2),
        "age": (2, 0),
        "weight": (3, 2),
    }
    assert found["smoke"].unused == ("never",)
    assert found["flag"].unused == (False,)
    assert found["stage"].unused == (3,)
    assert found["dose"].unused == (2,)
    assert 8 * found["weight"].fractional == 2
    assert found["age"].fractional == 0
    assert report.person is not None
    assert (report.person.people_over, report.person.rows_dropped) == (1 / 5, 1 / 8)


def test_findings_are_sentences_and_a_fitting_column_has_none():
    found = {column.name: column.findings for column in check(FRAME, SCHEMA).columns}
    assert found["flag"] == ("no row has the level False",)
    assert found["age"] == ("25 % of the values are outside the schema and will be clamped or mapped",)
    assert any("12.5 % are missing" in line for line in found["smoke"])
    assert any("not whole" in line for line in found["weight"])
    assert check(FRAME, Schema.from_dict({"text": ["x"]})).columns[0].findings == ()


def test_absent_columns_and_wrong_types_are_problems():
    schema = Schema.from_dict(
        {"smok": ["no"], "text": {"type": "numeric", "lower": 0, "upper": 1}, "age": ["10", "20"]},
        person_id="pidd",
        max_rows_per_person=1,
    )
    problems = check(FRAME, schema).problems
    assert len(problems) == 4
    assert "no column 'smok'. Did you mean 'smoke'?" in problems[0]
    assert "'text'" in problems[1]
    assert "'age'" in problems[2]
    assert "'pidd', the person id. Did you mean 'pid'?" in problems[3]


def test_every_output_says_it_is_for_the_custodian_only():
    report = check(FRAME, SCHEMA)
    assert "custodian's eyes only" in report.notice
    assert "custodian's eyes only" in json.dumps(report.to_dict())
    assert "custodian's eyes only" in repr(report)
    assert "maybe" not in json.dumps(report.to_dict())


def test_plain_data_of_a_problem_is_the_problem_only():
    schema = Schema.from_dict({"pid": list("abcde"), "absent": ["a"]})
    assert check(FRAME, schema).to_dict()["columns"][1:] == [
        {"name": "absent", "problem": "the table has no column 'absent'."}
    ]


def test_open_columns_are_there_or_not_and_said_to_be_open():
    schema = Schema.from_dict(
        {
            "text": {"type": "categorical", "levels": [], "confirmed": False},
            "absent": {"type": "numeric", "confirmed": False},
        }
    )
    first, second = check(FRAME, schema).columns
    assert "no levels or bounds for it yet" in first.findings[0]
    assert first.to_dict()["open"]
    assert second.problem is not None


def test_mixed_objects_are_compared_by_value():
    frame = pd.DataFrame(
        {
            "mixed": pd.Series([1, "1", None, [2], 1.0], dtype=object),
            "number": pd.Series([1, "1", None, 2.5, 10**400], dtype=object),
        }
    )
    schema = Schema.from_dict({"mixed": [1, 2], "number": {"type": "numeric", "lower": 0, "upper": 5}})
    mixed, number = check(frame, schema).columns
    assert (mixed.outside, mixed.missing, mixed.unused) == (2 / 5, 1 / 5, (2,))
    assert (number.outside, number.missing) == (2 / 5, 1 / 5)


def test_a_table_of_nobody_fits_and_says_so():
    found = check(FRAME.clear(), SCHEMA)
    assert found.empty
    assert found.to_dict()["empty"]
    assert not check(FRAME, SCHEMA).empty
    assert "empty" not in check(FRAME, SCHEMA).to_dict()
    assert found.problems == check(FRAME, SCHEMA).problems
    assert [column.findings for column in found.columns if column.problem is None] == [
        () for column in found.columns if column.problem is None
    ]


def test_a_damaged_file_is_refused_without_a_word_from_it(tmp_path):
    path = tmp_path / "bad.parquet"
    path.write_bytes(b"PAR1 SECRET")
    with pytest.raises(InputError) as error:
        check(path, Schema.from_dict({"smoke": ["no"]}))
    assert "SECRET" not in str(error.value)


def test_a_tiny_share_is_not_shown_as_none():
    frame = pl.DataFrame({"x": ["a"] * 20_000 + ["b"]})
    assert "less than 0.01 %" in check(frame, Schema.from_dict({"x": ["a"]})).columns[0].findings[0]


@pytest.mark.parametrize(
    "frame",
    [
        pl.DataFrame({"x": pl.Series(["a", "b", None], dtype=pl.Enum(["a", "b"]))}),
        pl.DataFrame({"x": pl.Series(["a", "b", None], dtype=pl.Categorical)}),
        pd.DataFrame({"x": pd.Categorical(["a", "b", None])}),
        pa.table({"x": pa.array(["a", "b", None]).dictionary_encode()}),
    ],
    ids=["enum", "categorical", "pandas", "pyarrow"],
)
def test_dictionary_types_are_text(frame):
    (column,) = check(frame, Schema.from_dict({"x": ["a", "z"]})).columns
    assert (3 * column.outside, 3 * column.missing, column.unused) == (1, 1, ("z",))


@pytest.mark.parametrize(
    "frame",
    [
        pl.DataFrame({"x": ["a"] * 6, "pid": [1, 1, 2, None, None, None]}),
        pd.DataFrame({"x": ["a"] * 6, "pid": [1, 1, 2, None, None, None]}),  # pandas makes them floats, with NaN
    ],
    ids=["polars", "pandas"],
)
def test_rows_without_a_person_id_are_no_person_and_take_no_part(frame):
    report = check(frame, Schema.from_dict({"x": ["a"]}, person_id="pid", max_rows_per_person=1))
    assert report.person is not None
    assert report.person.people_over == 1 / 2
    assert report.person.rows_dropped == (1 + 3) / 6
    empty = check(frame[3:], Schema.from_dict({"x": ["a"]}, person_id="pid", max_rows_per_person=1))
    assert empty.person is not None
    assert (empty.person.people_over, empty.person.rows_dropped) == (0.0, 1.0)


def test_the_level_of_all_others_is_not_said_to_be_unused() -> None:
    column = {"type": "categorical", "levels": ["no", "never", "rest"], "other": "rest"}
    (found,) = check(FRAME, Schema.from_dict({"smoke": column})).columns
    assert found.unused == ("never",)


@pytest.mark.parametrize("frame", [pl.DataFrame, pd.DataFrame, pa.table])
def test_rules_of_derived_columns_are_checked_too(frame: Any) -> None:
    days = {"type": "date", "lower": "1990-01-01", "upper": "2024-12-31"}
    age = {"type": "numeric", "from": "visit - birth", "unit": "years", "lower": 0, "upper": 110}
    columns = {"birth": days, "visit": days, "age": age, "pregnant": ["no", "yes"]}
    rules = ["pregnant = yes -> age >= 12", "visit >= birth"]
    data = {
        "birth": [dt.date(2000, 1, 1), dt.date(2015, 1, 1), None, dt.date(2020, 1, 1)],
        "visit": [dt.date(2020, 1, 1), dt.date(2020, 1, 1), dt.date(2020, 1, 1), dt.date(2019, 1, 1)],
        "pregnant": ["yes", "yes", "yes", "no"],
    }
    schema = Schema.from_dict({"columns": columns, "table": {"rules": rules}})
    assert check(frame(data), schema).broken == (("pregnant = yes -> age >= 12", 1), ("visit >= birth", 1))
    del data["birth"]
    report = check(frame(data), schema)
    assert len(report.problems) == 2
    assert report.broken == ()


MESSY = {
    "sex": {"type": "categorical", "levels": ["f", "m"], "missing": True, "recode": {"F ": "f", "n/a": "(missing)"}},
    "icd": {"type": "categorical", "levels": ["E11", "I10"], "prefix": 3, "missing": True},
    "stage": {"type": "ordinal", "levels": [1, 2, 3], "missing": True},
    "flag": {"type": "boolean", "missing": True},
    "age": {"type": "numeric", "lower": 0, "upper": 100, "bins": 4, "integer": True, "missing": True},
    "dose": {"type": "numeric", "lower": 0.5, "upper": 9.5, "bins": 3, "missing": True},
    "day": {"type": "date", "lower": "2020-01-01", "upper": "2024-12-31", "format": "%d.%m.%Y", "missing": True},
}
FIELDS = [
    *("f", "m", "F ", "n/a", "é", "E11", "E11.9", "I10", "01", "1", "2", "2.0", "true", "false", "TRUE", "0,5", "9.5"),
    *(
        "-1",
        "101",
        "1e400",
        "nan",
        "inf",
        "05.03.2024",
        "31.02.2024",
        "2024-03-05",
        "01.01.1999",
        "",
        " ",
        '"',
        '""',
        '"f',
    ),
    *('"m"', '"a ""b"""', 'a"b', "\r", "\x00", "\ufeff", "(missing)", '"1"', "٣", "1_0", "0x1"),
]


@given(data=st.data())
def test_a_check_and_a_release_agree_about_every_messy_file(data: st.DataObject, tmp_path_factory: Any) -> None:
    delimiter, encoding = (
        data.draw(st.sampled_from(",;\t|")),
        data.draw(st.sampled_from(["utf-8", "latin-1", "utf-16"])),
    )
    named = data.draw(st.permutations([*MESSY, "other"]))[: data.draw(st.integers(1, 8))]
    lines = data.draw(st.lists(st.lists(st.sampled_from(FIELDS), max_size=9), min_size=1, max_size=12))
    headed = data.draw(st.booleans())
    text = "\n".join([*([delimiter.join(named)] if headed else []), *map(delimiter.join, lines)])
    path = tmp_path_factory.mktemp("messy") / "visits.csv"
    path.write_bytes(text.encode(encoding, "replace") + data.draw(st.sampled_from([b"", b"\n", b"\r\n"])))
    table = {"delimiter": delimiter, "encoding": encoding, "decimal": data.draw(st.sampled_from(".,"))}
    table |= {} if headed else {"header": list(named)}
    schema = Schema.from_dict({"columns": MESSY, "table": table})
    if scan(path, schema).collect().is_empty():
        return  # nothing to check; a release does not tell how many rows there are
    problems = check(path, schema).problems
    if problems:
        with pytest.raises((InputError, SchemaError)):
            PrivateTable(open_data(str(path), schema), schema).counts([[name] for name in MESSY])
    if not set(named) & set(MESSY):
        return
    present = schema.select([name for name in MESSY if name in named])
    seen = {column.name: column for column in check(path, present).columns}
    private = PrivateTable(open_data(str(path), present), present)
    for name, count in zip(present.names, private.counts([[name] for name in present.names]), strict=True):
        rows, column = int(count.sum()), present[name]
        absent = seen[name].missing + (seen[name].outside if column.kind != "number" else 0)
        assert count[-1] == round(rows * absent), (name, seen[name], count)


def test_nobodys_value_is_offered_as_the_name_of_a_column(tmp_path: Path) -> None:
    """The "names" of a file without a line of names are somebody's values."""
    (tmp_path / "visits.csv").write_text("I10,yes\nE11,no\n")
    schema = Schema.from_dict({"ICD10": ["E11", "I10"], "yess": ["yes", "no"]})
    with pytest.raises(SchemaError, match=r"'ICD10', 'yess'.*state header in \[table\]") as refused:
        PrivateTable(scan(tmp_path / "visits.csv", schema), schema)
    said = [str(refused.value), *check(tmp_path / "visits.csv", schema).problems]
    assert len(said) == 3
    assert not any("'I10'" in each or "'yes'" in each for each in said)
    assert sum("state header" in each for each in said) == 2


@pytest.mark.parametrize("odd", ["secret", True, ["secret"], {"a": "secret"}, "", "12", None, 10**400])
def test_lines_of_json_are_checked_as_a_release_reads_them(tmp_path: Path, odd: object) -> None:
    """One text among numbers made the whole column one of texts, and the check an error, but not the release."""
    schema = Schema.from_dict(
        {"age": {"type": "numeric", "lower": 0, "upper": 110, "missing": True}, "ill": ["no", "yes"]}
    )
    rows = [{"age": place, "ill": "no"} for place in range(99)] + [{"age": odd, "ill": "yes"}]
    file = tmp_path / "visits.ndjson"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = check(file, schema)
    assert found.problems == ()
    assert "secret" not in str(found.to_dict())
    assert found.columns[0].missing == (0.01 if isinstance(odd, list | dict | None) or odd in ("secret", "") else 0.0)
    file.write_text("".join(json.dumps({"ill": row["ill"]}) + "\n" for row in rows))
    assert check(file, schema).columns[0].findings == (
        "all values are missing, or are none as the schema says how they are written",
    )
