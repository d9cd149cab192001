"""Texts that are compared without case and blanks: by ASCII alone, each by itself, alike in every kind of file."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from escudo.errors import SchemaError
from escudo.learning import strip
from escudo.table import Categorical, PrivateTable, Schema, check, draft, open_data

SEX = Categorical(
    "sex", ["F", "M ", "K", "ß"], loose=True, missing=True, other="ß", recode={"Female": "F", "N/A": "(missing)"}
)
BLANK = st.text(st.sampled_from(" \t\n\r\f\v\u00a0\u2003\u0085\u200b"), max_size=2)
CORE = st.sampled_from(
    ["f", "F", "m", "K", "\u212a", "ſ", "ß", "SS", "é", "fEMALE", "n/a", "N /A", "", "İ", "ı", "f\0"]
)
WORDS = st.one_of(st.none(), st.tuples(BLANK, CORE, BLANK).map("".join), st.text(max_size=3))


def told(text: str | None) -> int:
    """Return the cell of a text in SEX by the words of the manual."""
    if text is None:
        return 4
    found = re.fullmatch(r"[ \t\n\r\f\v]*(.*?)[ \t\n\r\f\v]*", text, re.DOTALL)
    assert found is not None
    small = "".join(chr(ord(letter) + 32) if "A" <= letter <= "Z" else letter for letter in found[1])
    return {"f": 0, "female": 0, "m": 1, "k": 2, "n/a": 4}.get(small, 3)


@given(words=st.lists(WORDS, max_size=8))
def test_case_and_blanks_do_not_count_and_nothing_else_is_changed(words: list[str | None]) -> None:
    assert SEX.encode(words).tolist() == [told(word) for word in words]


FRAMES: dict[str, Any] = {
    "polars": lambda words: pl.DataFrame({"sex": words}, schema={"sex": pl.String}),
    "categories": lambda words: pl.DataFrame({"sex": words}, schema={"sex": pl.Categorical}),
    "objects": lambda words: pd.DataFrame({"sex": pd.Series(words, dtype=object)}),
    "arrow": lambda words: FRAMES["polars"](words).to_arrow(),
    "duckdb": lambda words: duckdb.from_arrow(FRAMES["arrow"](words)),
}


@pytest.mark.parametrize("engine", FRAMES)
@given(words=st.lists(WORDS, max_size=6), more=WORDS)
def test_a_row_changes_its_own_cell_alone(engine: str, words: list[str | None], more: str | None) -> None:
    def counted(rows: list[str | None]) -> np.ndarray[Any, Any]:
        return PrivateTable(FRAMES[engine](rows), Schema((SEX,))).counts("sex")

    moved = counted([*words, more]) - counted(words)
    assert moved.tolist() == np.bincount([told(more)], minlength=5).tolist()


def test_a_prefix_is_of_what_is_left_without_blanks() -> None:
    column = Categorical(
        "icd", [" E11", "I10", "any other"], loose=True, prefix=3, other="any other", recode={"Not Known": "I10"}
    )
    assert column.encode([" e11.9", "E1", "\tI10 ", " not known", "NOT", "e 11", "any other"]).tolist() == [
        0,
        2,
        1,
        1,
        2,
        2,
        2,
    ]


def test_ids_keep_their_case_and_blanks() -> None:
    ids = ["a", "A", " a", "a ", "\ta"]
    schema = Schema((SEX,), person_id="who", max_rows_per_person=1)
    for frame in (
        pl.DataFrame({"sex": ["F"] * 5, "who": ids}),
        duckdb.from_arrow(pl.DataFrame({"sex": ["F"] * 5, "who": ids}).to_arrow()),
    ):
        table = PrivateTable(frame, schema)
        assert table.record_count() == 5
        assert table.counts("sex").tolist() == [5, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("terms", "problem"),
    [
        ({"levels": ["F", "M", "f "]}, r"'sex': levels? 1 and level 3 differ in case and blanks only"),
        ({"levels": ["F"], "recode": {" f": "F"}}, "level 1 and entry 1 of recode differ in case"),
        ({"levels": ["F"], "recode": {"W": "F", "w": "F"}}, "entry 1 of recode and entry 2 of recode differ in case"),
        ({"levels": ["(Missing)"], "missing": True}, "is how the missing cell is shown"),
        ({"levels": [1, 2]}, "loose goes with levels that are texts"),
        ({"levels": [False, True]}, "loose goes with levels that are texts"),
        ({"levels": [], "confirmed": False}, "loose goes with levels that are texts"),
        ({"levels": ["F", "M"], "loose": "yes"}, "loose must be true or false"),
        ({"levels": [" E11", "I1000"], "prefix": 3}, "level 2 is longer than prefix"),
    ],
)
def test_what_cannot_be_told_apart_is_refused(terms: dict[str, Any], problem: str) -> None:
    with pytest.raises(SchemaError, match=problem):
        Categorical("sex", **{"loose": True, **terms})


def test_a_schema_says_so_and_one_that_does_not_is_as_it_was(tmp_path: Path) -> None:
    schema = Schema((SEX,))
    for name in ("schema.toml", "schema.json"):
        schema.write(tmp_path / name)
        assert Schema.read(tmp_path / name) == schema
    assert schema.to_dict()["columns"]["sex"]["loose"] is True
    exact = Schema.from_dict({"sex": ["F", "M"]})
    assert "loose" not in exact.to_dict()["columns"]["sex"]
    with pytest.raises(SchemaError, match="a boolean column has no key 'loose'"):
        Schema.from_dict({"ill": {"type": "boolean", "loose": True}})


WRITTEN = ["F", " f", "FEMALE ", "m", "M\u00a0", "\u212a", "k\t", "ß", "SS", " N/A", "n/a", "  M", "É"]


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".parquet", ".ndjson", ".xlsx", ".db", "delta"])
def test_every_kind_of_file_is_read_so(tmp_path: Path, ending: str) -> None:
    rows, place = pl.DataFrame({"row": range(len(WRITTEN)), "sex": WRITTEN}), tmp_path / f"visits{ending}"
    where = str(place)
    if ending in (".csv", ".tsv"):
        rows.write_csv(place, separator="\t" if ending == ".tsv" else ",")
    elif ending == ".parquet":
        rows.write_parquet(place)
    elif ending == ".ndjson":
        rows.write_ndjson(place)
    elif ending == ".xlsx":
        rows.write_excel(place)
    elif ending == "delta":
        pytest.importorskip("deltalake")
        rows.write_delta(where)
    else:
        with closing(sqlite3.connect(place)) as connection, connection:
            connection.execute("CREATE TABLE visits (row INTEGER, sex TEXT)")
            connection.executemany("INSERT INTO visits VALUES (?, ?)", rows.rows())
        where = f"sqlite:///{place}?table=visits"
    schema = Schema((SEX,))
    wanted = np.bincount(SEX.encode(WRITTEN), minlength=SEX.size)
    assert wanted.tolist() == [3, 2, 1, 5, 2]
    assert PrivateTable(open_data(where, schema), schema).counts("sex").tolist() == wanted.tolist()
    column = check(where, schema).columns[0]
    assert (column.outside, column.missing) == (4 / 13, 2 / 13)  # ß itself is inside, and other for the rest


@pytest.mark.parametrize("engine", FRAMES)
def test_a_check_counts_as_a_release_does(engine: str) -> None:
    exact = Categorical("sex", ["F", "M "], loose=True, missing=True, recode={"Female": "F", "N/A": "(missing)"})
    found = check(FRAMES[engine]([*WRITTEN, None, "(missing)", ""]), Schema((exact,))).columns[0]
    assert (found.outside, found.missing, found.unused) == (8 / 16, 3 / 16, ())
    assert check(FRAMES[engine](["f ", None]), Schema((exact,))).columns[0].unused == ("M ",)


def test_a_draft_proposes_it_where_only_case_and_blanks_differ(tmp_path: Path) -> None:
    def drafted(*words: str) -> Categorical:
        pl.DataFrame({"sex": list(words) * 9}).write_csv(tmp_path / "visits.csv")
        column = draft(tmp_path / "visits.csv")["sex"]
        assert isinstance(column, Categorical)
        assert not column.confirmed
        assert column.encode(list(words)).tolist() == [column.encode([word])[0] for word in words]
        return column

    assert not drafted("F", "M").loose
    assert not drafted("F", "M", "NA").loose
    assert not drafted("É", "é", "M").loose  # listed instead
    assert dict(drafted("É", "é", "M").recode) == {"é": "É"}
    both = drafted("É", " É", "é", "E", "e", "NA", "na ", "M\u00a0")
    assert (both.levels, both.loose) == (("E", "M", "É"), True)
    assert dict(both.recode) == {"é": "É", "M\u00a0": "M", "NA": "(missing)"}
    assert both.encode(["e", " É", "é ", " m", "Na"]).tolist() == [0, 2, 2, 1, 3]


def test_levels_are_learnt_from_texts_as_they_are() -> None:
    learnt = strip(SEX, pl.String())  # type: ignore[arg-type]
    assert isinstance(learnt, Categorical)
    assert (learnt.loose, learnt.levels) == (False, ())
